package standby

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// closed is a server that answers each attempt with an error of a list, and ends the test's context after the last one.
type closed struct {
	Server
	errs []error
	stop context.CancelFunc
}

func (c *closed) Next(context.Context, Have) (Round, error) {
	err := c.errs[0]
	if c.errs = c.errs[1:]; len(c.errs) == 0 {
		c.stop()
	}
	return Round{}, err
}

// TestRefused examines that a stand-by tells each reason of a refusal once.
func TestRefused(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	git, err := openGit(t.Context(), data, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer git.Close()
	var said bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	one, two := fmt.Errorf("%w: not allowed", ErrRefused), fmt.Errorf("%w: no such token", ErrRefused)
	f := &Follower{Data: data, Git: git, RetryEvery: time.Microsecond, Log: slog.New(slog.NewTextHandler(&said, nil)),
		From: &closed{errs: []error{one, one, one, two, two, errShaky, errShaky, one}, stop: stop}}
	if err := f.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"not allowed": 1, "no such token": 1, errShaky.Error(): 0} {
		if n := strings.Count(said.String(), text); n != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", text, n, want, said.String())
		}
	}
}

// TestNextWait examines the waits after refusals and other failures.
func TestNextWait(t *testing.T) {
	t.Parallel()
	f := &Follower{RetryEvery: time.Second}
	wait := f.RetryEvery
	for _, want := range []time.Duration{2, 4, 8, 16, 32, 64, 64} {
		if wait = f.nextWait(wait, ErrRefused); wait != want*time.Second {
			t.Errorf("the wait is %v, want %v s", wait, int(want))
		}
	}
	if wait = f.nextWait(wait, errors.New("reset")); wait != time.Second {
		t.Errorf("the wait after a broken connection is %v", wait)
	}
}
