package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of orphaned descendants. The browser has a process group of its own, so a signal
// to the child's group does not reach it.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become the parent of what the browser starts: %w", err)
	}
	return nil
}

// bury kills and reaps all children until there are none, including those adopted meanwhile. No exec.Cmd may be
// waiting. It gives up after a time that only a process that hangs in the kernel needs.
func bury() {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		for _, pid := range children(os.Getpid()) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); {
		case errors.Is(err, syscall.ECHILD):
			return
		case err == nil && pid == 0:
			time.Sleep(5 * time.Millisecond) // the kernel is ending them; this is not synchronisation
		}
	}
}

// killFamily kills a process and all its descendants. It stops each first, so that none can start another.
func killFamily(root int) {
	seen := []int{root}
	_ = syscall.Kill(root, syscall.SIGSTOP)
	for i := 0; i < len(seen); i++ {
		for _, pid := range children(seen[i]) {
			if !slices.Contains(seen, pid) {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
				seen = append(seen, pid)
			}
		}
	}
	for _, pid := range seen {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// children returns the processes whose parent is pid. Returns none if /proc cannot be read.
func children(pid int) []int {
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	var pids []int
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// "12 (a name) S 1 …", in which the name may have any characters, including brackets.
		_, rest, _ := strings.Cut(string(text[max(strings.LastIndexByte(string(text), ')'), 0):]), " ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}
