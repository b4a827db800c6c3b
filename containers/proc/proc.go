// Package proc is what the kernel tells of processes, and lets a thread do alone.
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

// Start is when a process started, in clock ticks since boot: with its number that names
// it for ever. A process that has ended and waits for its parent to notice counts as gone.
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

// OnThread runs f on a thread that dies with it, whatever f made of it, and returns when f
// has. It is never the process's first: that one cannot be ended, and is what others
// see of the process. Call it as a goroutine of its own: the thread's end is the
// goroutine's.
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
