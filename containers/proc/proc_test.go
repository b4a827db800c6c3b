package proc

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestKill(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	start, err := Start(pid)
	if err != nil || start == 0 {
		t.Fatalf("it started at %d, %v", start, err)
	}
	if err := Kill(t.Context(), pid, func() bool { return false }); err != nil {
		t.Error(err)
	}
	if again, err := Start(pid); err != nil || again != start {
		t.Errorf("another process was killed: %d, %v", again, err)
	}
	if err := Kill(t.Context(), pid, func() bool { return true }); err != nil {
		t.Error(err)
	}
	if _, err := Start(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that ended and was not waited for: %v", err)
	}
	cmd.Wait()
	if err := Kill(t.Context(), pid, func() bool { t.Error("asked about no process"); return true }); err != nil {
		t.Error(err)
	}
}

func TestAwait(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	never := func() bool { return false }
	Await(t.Context(), time.Millisecond, nil, never)
	Await(t.Context(), time.Hour, closed, never)
	Await(over, time.Hour, nil, never)
	n := 0
	Await(t.Context(), time.Hour, nil, func() bool { n++; return n == 3 })
	if n != 3 {
		t.Errorf("asked %d times", n)
	}
}

func TestOnThread(t *testing.T) {
	ran := make(chan int)
	go OnThread(func() { ran <- os.Getpid() })
	if <-ran != os.Getpid() {
		t.Error("it ran elsewhere")
	}
	if len(BootID()) != 36 {
		t.Errorf("the boot is %q", BootID())
	}
}
