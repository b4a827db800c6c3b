package main

import (
	"syscall"
	"testing"
	"time"
)

// TestChatCollision has two threads learn once that their branches do not merge, although the server is killed, and
// once that they do.
func TestChatCollision(t *testing.T) {
	t.Parallel()
	s := newChatServer(t, "")
	s.start()
	one := s.say("", "exec echo one >same.txt")
	two := s.say("", "exec echo two >same.txt")
	told := func(n int) func() bool {
		return func() bool { return len(s.part(one, "collision")) == n && len(s.part(two, "collision")) == n }
	}
	s.until("the conflict", time.Minute, told(1))
	s.kill(syscall.SIGKILL)
	s.start()
	s.say(two, "exec rm same.txt")
	s.until("the end of the conflict", time.Minute, told(2))
}
