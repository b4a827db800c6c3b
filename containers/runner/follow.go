package runner

import (
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A follower owns a command from its start to its end. One goroutine uses it.
type follower struct {
	s *server
	c *command
	// disk and memory are from before the start of the command.
	disk   *diskGuard
	memory int64 // kills by the kernel because memory ran out

	// Channels that have fired are nil.
	force  <-chan time.Time // fires when the grace of a command that was told to end is over
	giveUp <-chan time.Time // fires when the wait for output is over
	exited <-chan syscall.WaitStatus

	reason string // why the command was told to end
	alone  bool   // no process that belongs to the command is known to be alive
}

// follow returns when the command has ended and its result is recorded.
func (f *follower) follow() {
	c := f.c
	poll := time.NewTicker(pollTime)
	defer poll.Stop()
	var deadline <-chan time.Time
	if c.timeout > 0 {
		t := time.NewTimer(c.timeout)
		defer t.Stop()
		deadline = t.C
	}
	f.exited = c.exited
	drained, killed := c.drained, c.killed
	var status syscall.WaitStatus

	looked := time.Now()
	for f.exited != nil || drained != nil || !f.alone {
		select {
		case <-deadline:
			f.stop(ReasonTimeout)
		case <-killed:
			killed = nil
			f.stop(c.why)
		case <-f.force:
			f.sweep()
		case <-poll.C:
			if f.disk.short() {
				f.stop(ReasonDiskFull)
			}
			if f.force != nil || time.Since(looked) > time.Second {
				looked = time.Now()
				f.settle()
			}
		case status = <-f.exited:
			f.exited = nil
			c.brake.release() // the end of the output is in the terminal, and would be lost with it
			f.settle()
		case <-drained:
			drained = nil
			f.settle()
		case <-f.giveUp:
			f.giveUp = nil
			for _, file := range c.closers {
				file.stopRead()
			}
		}
	}
	f.closeInput()
	f.record(f.exit(status, killed == nil))
}

// stop tells the command to end. The first reason counts.
func (f *follower) stop(why string) {
	if f.reason != "" {
		return
	}
	f.reason = why
	f.s.signal(f.c, syscall.SIGTERM)
	grace := f.c.grace
	if why == ReasonDiskFull {
		grace = min(grace, diskGrace)
	}
	f.force = time.After(grace)
}

// sweep kills all processes of the command.
func (f *follower) sweep() {
	f.s.sweep(f.c)
	f.force = nil
	if f.exited != nil {
		return
	}
	f.alone = true
	if f.giveUp == nil {
		f.giveUp = time.After(drainTime)
	}
}

// settle decides about the other processes of the command, once the main process has ended.
func (f *follower) settle() {
	switch {
	case f.exited != nil || f.alone:
	case f.force != nil && !f.s.groupGone(f.c):
		// The children of the command have the same grace.
	case f.c.background && f.reason == "" && f.s.hasBelongings(f.c):
		// The command continues in the processes that it started.
	default:
		f.sweep()
	}
}

func (f *follower) closeInput() {
	c := f.c
	c.inputs.Lock()
	defer c.inputs.Unlock()
	if c.stdin != nil {
		c.stdin.Close()
	}
	if c.tty != nil {
		c.tty.Close()
	}
}

// exit returns how the command ended. killed is true if a client killed it.
func (f *follower) exit(status syscall.WaitStatus, killed bool) Exit {
	c := f.c
	exit := Exit{Reason: f.reason, Stdout: c.stdout.count(), Stderr: c.stderr.count()}
	if status.Signaled() {
		exit.Code = 128 + int(status.Signal())
		exit.Signal = strings.TrimPrefix(unix.SignalName(status.Signal()), "SIG")
	} else {
		exit.Code = status.ExitStatus()
	}
	if killed && f.reason == c.why {
		exit.Message = c.message
	}
	if f.reason == "" && exit.Code != 0 && f.s.oomKills() > f.memory {
		exit.Reason = ReasonMemory
	}
	return exit
}

// record publishes the result of the command.
func (f *follower) record(exit Exit) {
	f.s.mu.Lock()
	exit.Duration = f.c.ended.Sub(f.c.started)
	f.c.exit, f.c.running = exit, false
	f.s.mu.Unlock()
	close(f.c.done)
}
