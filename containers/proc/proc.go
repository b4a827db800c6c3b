// Package proc reads facts about processes from the kernel, ends processes, and runs functions on threads of their own.
package proc

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Start returns the start time of a process in clock ticks since boot. Number and start time together identify a
// process forever. A process that has ended and whose parent has not waited for it counts as gone.
func Start(pid int) (uint64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in parentheses and may hold anything.
	i := bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[i+1:]))
	if i < 0 || len(fields) < 20 {
		return 0, fmt.Errorf("cannot read /proc/%d/stat", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, fs.ErrNotExist
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// OnThread runs f on a thread that ends after f, so that f may change the thread's state. It returns when f has returned. The
// thread is never the first of the process, which cannot be ended and shows the state of the process to others. Call OnThread
// in a goroutine of its own, because the goroutine ends with the thread.
func OnThread(f func()) {
	runtime.LockOSThread() // without Unlock, the thread ends with the goroutine
	if unix.Gettid() != os.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); OnThread(f) }()
	<-done
	runtime.UnlockOSThread()
}
