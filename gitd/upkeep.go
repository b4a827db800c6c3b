package gitd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
)

// Every push and every commit leaves a pack. Upkeep maintains repositories in the
// background before there are so many that reading becomes dear: one repository at a
// time, because the machine is there for those who wait.

const (
	// upkeepChanges packs are left alone while a repository is busy.
	upkeepChanges = 64
	// upkeepIdle is how long nobody may have written for the rest to be done, and
	// upkeepFew what is not worth starting git for.
	upkeepIdle = time.Minute
	upkeepFew  = 8
)

// UpkeepStats counts what was done in the background since Open.
type UpkeepStats struct {
	Runs     int    // repositories that were maintained
	Failures int    // of those
	Pending  int    // packs written since their repositories were last maintained
	Running  string // the repository that is maintained now; empty: none
}

// upkeep is the state of a server's maintenance. The zero value does nothing until it
// is started.
type upkeep struct {
	mu    sync.Mutex // guards the fields below
	repos map[*Repo]*upkeepState
	stats UpkeepStats

	wake  chan struct{} // capacity 1: something was written
	stop  context.CancelFunc
	ended chan struct{} // closed when the goroutine has ended
}

// upkeepState is what one repository has coming.
type upkeepState struct {
	changes int
	last    time.Time
}

// Upkeep tells what was done in the background.
func (s *Server) Upkeep() UpkeepStats {
	u := &s.upkeep
	u.mu.Lock()
	defer u.mu.Unlock()
	stats := u.stats
	for _, state := range u.repos {
		stats.Pending += state.changes
	}
	return stats
}

// startUpkeep begins the background work, which stopUpkeep ends. Repositories that others
// made are theirs to maintain.
func (s *Server) startUpkeep() {
	if s.OwnConfig {
		return
	}
	u := &s.upkeep
	ctx, stop := context.WithCancel(context.Background())
	u.mu.Lock()
	u.repos, u.wake, u.stop, u.ended = map[*Repo]*upkeepState{}, make(chan struct{}, 1), stop, make(chan struct{})
	u.mu.Unlock()
	go func() {
		defer close(u.ended)
		s.maintainAll(ctx)
	}()
}

// stopUpkeep ends the background work and waits for it.
func (s *Server) stopUpkeep() {
	u := &s.upkeep
	u.mu.Lock()
	stop, ended := u.stop, u.ended
	u.repos, u.stop = nil, nil
	u.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
}

// countWrite tells that the repository has one more pack.
func (r *Repo) countWrite() {
	u := &r.server.upkeep
	u.mu.Lock()
	known := u.repos == nil || u.repos[r] != nil
	u.mu.Unlock()
	were := 0
	if !known {
		were = r.objects.Packs.Count() - 1 // what an earlier server left counts, too
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.repos == nil {
		return
	}
	state := u.repos[r]
	if state == nil {
		state = &upkeepState{changes: max(were, 0)}
		u.repos[r] = state
	}
	state.changes++
	state.last = r.server.now()
	if state.changes == upkeepFew || state.changes >= upkeepChanges {
		select {
		case u.wake <- struct{}{}:
		default:
		}
	}
}

// forget drops a repository that is no more.
func (u *upkeep) forget(r *Repo) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.repos, r)
}

// due returns the repository that needs maintenance most, and nothing of what it had
// coming is left; or how long it takes until one may, 0 when none will by itself.
func (u *upkeep) due(now time.Time) (next *Repo, wait time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	most := 0
	for r, state := range u.repos {
		if state.changes < upkeepFew {
			continue
		}
		idle := now.Sub(state.last)
		if state.changes < upkeepChanges && idle < upkeepIdle {
			if left := max(upkeepIdle-idle, time.Second); wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		if state.changes > most {
			next, most = r, state.changes
		}
	}
	if next != nil {
		u.repos[next].changes = 0
		u.stats.Running = next.name
	}
	return next, wait
}

// done counts a repository that was maintained.
func (u *upkeep) done(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stats.Running = ""
	u.stats.Runs++
	if err != nil {
		u.stats.Failures++
	}
}

// maintainAll maintains one repository after the other until ctx ends.
func (s *Server) maintainAll(ctx context.Context) {
	u := &s.upkeep
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-u.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			r, wait := u.due(s.now())
			if r == nil {
				if timer.Stop(); wait > 0 {
					timer.Reset(wait)
				}
				break
			}
			err := r.Maintain(ctx)
			u.done(err)
			switch {
			case err == nil:
				s.log().Debug("maintained", "repo", r.name)
			case ctx.Err() != nil, errors.Is(err, gitcmd.ErrClosed):
			case !r.there():
				u.forget(r)
			default:
				// Nothing depends on it, and the next change is a new occasion.
				s.log().Warn("cannot maintain a repository", "repo", r.name, "error", err)
			}
		}
	}
}

// there says whether the repository still is what it was when this Repo was made.
func (r *Repo) there() bool {
	id, err := bareRepository(r.dir)
	return err == nil && id == r.id
}
