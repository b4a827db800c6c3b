package gitd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
)

// Every push and every commit leaves a pack. Upkeep maintains repositories in the background before so many packs
// make reading slow. It maintains one repository at a time, because clients need the machine.

const (
	// upkeepChanges is the number of packs that a busy repository may have.
	upkeepChanges = 64
	// upkeepIdle is the time without writes after which the rest is maintained, and upkeepFew is the number of
	// packs for which git is not worth starting.
	upkeepIdle = time.Minute
	upkeepFew  = 8
)

// UpkeepStats counts background work since Open.
type UpkeepStats struct {
	Runs     int    // repositories that were maintained
	Failures int    // maintenance runs that failed
	Pending  int    // packs written since their repositories were last maintained
	Running  string // the repository that is being maintained, "" if none is
}

// upkeep is the state of a server's maintenance. The zero value does nothing until it
// is started.
type upkeep struct {
	mu    sync.Mutex // guards the fields below
	repos map[*Repo]*upkeepState
	stats UpkeepStats

	wake  chan struct{} // a pack was written (capacity 1)
	stop  context.CancelFunc
	ended chan struct{} // closed when the goroutine has ended
}

// upkeepState is the pending work of one repository.
type upkeepState struct {
	changes int
	last    time.Time
}

// Upkeep returns the counts of background work.
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

// startUpkeep starts the background work, which stopUpkeep ends. Repositories that others made are not maintained.
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

// countWrite records that the repository has one more pack.
func (r *Repo) countWrite() {
	u := &r.server.upkeep
	u.mu.Lock()
	known := u.repos == nil || u.repos[r] != nil
	u.mu.Unlock()
	were := 0
	if !known {
		were = r.objects.Packs.Count() - 1 // includes packs of an earlier server
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

// forget drops a repository that is gone.
func (u *upkeep) forget(r *Repo) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.repos, r)
}

// due returns the repository that needs maintenance most, and removes its pending work. If there is none, it
// returns the time until the next one may need it. Zero means that none will by itself.
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

// done counts a finished maintenance.
func (u *upkeep) done(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stats.Running = ""
	u.stats.Runs++
	if err != nil {
		u.stats.Failures++
	}
}

// maintainAll maintains repositories, one after another, until ctx ends.
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
				// Nothing depends on it, and the next change is another occasion.
				s.log().Warn("cannot maintain a repository", "repo", r.name, "err", err)
			}
		}
	}
}

// there reports whether the folder of the repository is still the same.
func (r *Repo) there() bool {
	id, err := bareRepository(r.dir)
	return err == nil && id == r.id
}
