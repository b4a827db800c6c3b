package executor

import (
	"context"
	"maps"
	"sync"

	"github.com/ramus-dev/ramus/executor/dialogue"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
)

// registry has the runs that live in this process, and counts the others since its start. Its zero value is ready.
type registry struct {
	mu      sync.Mutex           // guards all below
	live    map[string]*liveRun  // by Run.Name
	ended   map[record.State]int // how many runs ended, by how
	waiting map[string]bool      // runs that wait for a person, by name
	locks   map[string]*runLock  // by Run.Name
}

// runLock is the lock of a claimed run.
type runLock struct {
	turn  chan struct{} // one token
	users int           // guarded by registry.mu
}

// launch adds a run that goes to work. It returns false if the run is there already.
func (g *registry) launch(l *liveRun) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := l.Initial.Name()
	if g.live[name] != nil {
		return false
	}
	g.addLocked(l)
	delete(g.waiting, name)
	return true
}

// add adds a run that has no goroutine of its own, or none any more.
func (g *registry) add(l *liveRun) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addLocked(l)
}

func (g *registry) addLocked(l *liveRun) {
	if g.live == nil {
		g.live = make(map[string]*liveRun)
	}
	g.live[l.Initial.Name()] = l
}

// remove removes a run.
func (g *registry) remove(l *liveRun) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.live, l.Initial.Name())
}

// alive returns a run of a caller that works or waits in line, or nil if there is none.
func (g *registry) alive(c record.Caller, id string) *liveRun {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.live[record.Run{Caller: c, ID: id}.Name()]
}

// all returns the live runs by name.
func (g *registry) all() map[string]*liveRun {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.live)
}

// countEnd counts a run that has ended, or waits for a person.
func (g *registry) countEnd(r record.Run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.Ended() {
		if g.ended == nil {
			g.ended = make(map[record.State]int)
		}
		g.ended[r.State]++
		return
	}
	if g.waiting == nil {
		g.waiting = make(map[string]bool)
	}
	g.waiting[r.Name()] = true
}

// counts returns how many runs are in each state, of those that ended since the start and those that live.
func (g *registry) counts() map[record.State]int {
	n := make(map[record.State]int)
	g.mu.Lock()
	live := make([]*liveRun, 0, len(g.live))
	for name, l := range g.live {
		if !g.waiting[name] {
			live = append(live, l)
		}
	}
	maps.Copy(n, g.ended)
	if len(g.waiting) > 0 {
		n[record.StateAwaitingReview] = len(g.waiting)
	}
	g.mu.Unlock()

	for _, l := range live {
		if r := l.Snapshot(); !r.Ended() { // one that has ended is counted already, or in a moment
			n[r.State]++
		}
	}
	return n
}

// lock waits for the lock of a claimed run, or of another name.
func (g *registry) lock(ctx context.Context, name string) (release func(), err error) {
	g.mu.Lock()
	if g.locks == nil {
		g.locks = make(map[string]*runLock)
	}
	h := g.locks[name]
	if h == nil {
		h = &runLock{turn: make(chan struct{}, 1)}
		g.locks[name] = h
	}
	h.users++
	g.mu.Unlock()

	left := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if h.users--; h.users == 0 {
			delete(g.locks, name)
		}
	}
	select { // a free lock is taken even if ctx has ended
	case h.turn <- struct{}{}:
		return func() { <-h.turn; left() }, nil
	default:
	}
	select {
	case h.turn <- struct{}{}:
		return func() { <-h.turn; left() }, nil
	case <-ctx.Done():
		left()
		return nil, context.Cause(ctx)
	}
}

// AtWork is alive, for readers.
func (g *registry) AtWork(c record.Caller, id string) *live.Run {
	if l := g.alive(c, id); l != nil {
		return l.Run.Run
	}
	return nil
}

// dialogueAt returns the dialogue of a live run, or nil.
func (g *registry) dialogueAt(c record.Caller, id string) *dialogue.Dialogue {
	if l := g.alive(c, id); l != nil {
		return l.dialogue
	}
	return nil
}

// AllAtWork is all, for readers.
func (g *registry) AllAtWork() map[string]*live.Run {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make(map[string]*live.Run, len(g.live))
	for name, l := range g.live {
		all[name] = l.Run.Run
	}
	return all
}

// has reports whether a run is there. One that has ended, or waits for a person, is there until its ref has its record.
func (g *registry) has(r record.Run) bool { return g.alive(r.Caller, r.ID) != nil }

// settled waits while a run that has ended, or that waits for a person, is being written down. Only then can it be taken up again.
func (g *registry) settled(ctx context.Context, r record.Run) (record.Run, error) {
	l := g.alive(r.Caller, r.ID)
	if l == nil {
		return r, nil
	}
	if s := l.Snapshot(); !s.Ended() && s.State != record.StateAwaitingReview {
		return s, nil
	}
	select {
	case <-l.done:
		return l.Snapshot(), nil
	case <-ctx.Done():
		return r, context.Cause(ctx)
	}
}
