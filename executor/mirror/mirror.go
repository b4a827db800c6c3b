// Package mirror keeps copies of repositories equal, in both directions.
//
// # Nouns
//
// A repository that is pulled has the branches and tags of its upstream. A repository that is pushed has a target,
// which gets its branches and tags. The branches of callers are in no copy.
//
// # Invariants
//
// Nothing about a copy is stored. It is compared with its original when the server starts, at every change, and from
// time to time. So a change that was not copied before the process was killed is copied by the next one. A push to ramus
// never waits for a copy.
//
// # Untrusted input
//
// The answers of targets and upstreams. git reads them, under its limits.
package mirror

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// The directions of a mirror.
const (
	Pull = "pull"
	Push = "push"
)

// Mirrors keeps the copies of a server's repositories. Its exported fields are its options, and may be changed until
// Open. Methods are safe for concurrent use. Those of a nil Mirrors do nothing.
type Mirrors struct {
	Git *gitd.Server
	// Targets are the repositories that get the branches and tags of another, by the name of that one.
	Targets map[string]gitd.Upstream
	// Pulled are the repositories that get those of their upstreams, and Pull does that for one of them.
	Pulled []string
	Pull   func(ctx context.Context, repo string) error
	// Every is the time between two comparisons without a change. The default is 10 min.
	Every time.Duration
	// RetryEvery is the wait after the first failed attempt. It doubles after each other one, up to Every. The default
	// is 5 s.
	RetryEvery time.Duration
	// Secrets are removed from errors for people. Nil means that there are none.
	Secrets *redact.Secrets
	Log     *slog.Logger
	Now     func() time.Time

	copies map[string]*copying // by repository; not changed after Open
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu sync.Mutex // guards the states of copies, and opened
	// opened is set once copies may be read.
	opened bool
}

// copying is the work on one copy.
type copying struct {
	mode string
	wake chan struct{} // holds a token after a change
	do   func(ctx context.Context) error

	state Status // guarded by Mirrors.mu
}

// Status is how far a copy is.
type Status struct {
	Mode string `json:"mode"`         // pull or push
	To   string `json:"to,omitempty"` // the target of a push, without credentials
	// At is when both were last known to be equal. Zero means never since the start of the server.
	At time.Time `json:"at,omitzero"`
	// Pending is set if a change is not copied yet.
	Pending bool `json:"pending,omitempty"`
	// Error is the error of the last attempt, or empty.
	Error string `json:"error,omitempty"`
}

// Open compares all copies, and keeps them equal until ctx ends or Close is called.
func (m *Mirrors) Open(ctx context.Context) {
	ctx, m.stop = context.WithCancel(ctx)
	m.Every, m.RetryEvery = cmp.Or(m.Every, 10*time.Minute), cmp.Or(m.RetryEvery, 5*time.Second)
	copies := make(map[string]*copying)
	for _, name := range m.Pulled {
		copies[name] = &copying{mode: Pull, do: func(ctx context.Context) error { return m.Pull(ctx, name) }}
	}
	for name, to := range m.Targets {
		c := &copying{mode: Push, do: func(ctx context.Context) error { return m.push(ctx, name, to) }}
		c.state.To = gitd.WithoutPassword(to.URL)
		copies[name] = c
	}
	for name, c := range copies {
		c.state.Mode, c.state.Pending, c.wake = c.mode, true, make(chan struct{}, 1)
		m.wg.Go(func() { m.work(ctx, name, c) })
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.copies, m.opened = copies, true
}

// Close ends the work and waits for it.
func (m *Mirrors) Close() {
	if m == nil || m.stop == nil {
		return
	}
	m.stop()
	m.wg.Wait()
}

// Changed has a repository copied soon whose branches or tags have changed. It returns at once.
func (m *Mirrors) Changed(repo string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.copies[repo]
	if !m.opened || c == nil || c.mode != Push {
		return
	}
	c.state.Pending = true
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Status returns the state of a repository's copy. It returns false if the repository is no mirror and has none.
func (m *Mirrors) Status(repo string) (Status, bool) {
	if m == nil {
		return Status{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.copies[repo]; c != nil {
		return c.state, true
	}
	return Status{}, false
}

// work copies after each change, and from time to time.
func (m *Mirrors) work(ctx context.Context, name string, c *copying) {
	failed := 0
	for {
		m.mu.Lock()
		c.state.Pending = false // a change from here on sets it again
		m.mu.Unlock()
		err := c.do(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := m.Every
		m.mu.Lock()
		if err == nil {
			failed, c.state.At, c.state.Error = 0, m.Now().UTC(), ""
		} else {
			wait = min(m.RetryEvery<<min(failed, 10), m.Every)
			failed++
			c.state.Pending, c.state.Error = true, m.Secrets.String(err.Error())
		}
		m.mu.Unlock()
		if err != nil {
			m.Log.Warn("cannot keep a mirror equal yet", "repo", name, "mode", c.mode, "err", err, "next", wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.wake:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// push copies a repository to its target.
func (m *Mirrors) push(ctx context.Context, name string, to gitd.Upstream) error {
	r, err := m.Git.Repo(name)
	if err != nil {
		return err
	}
	done, err := r.MirrorTo(ctx, to)
	if err == nil && done != (gitd.Mirrored{}) {
		m.Log.Info("mirror pushed", "repo", name, "updated", done.Updated, "removed", done.Removed)
	}
	return err
}
