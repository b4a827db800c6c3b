package warmup

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/runs"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of warm-ups.
const (
	warmFor       = 90 * time.Second // that a container waits for a prompt
	warmMost      = 10 * time.Minute // the same, however often the person types
	warmPerPerson = 2
)

// Counts are the numbers of warm-ups since the start.
type Counts struct {
	// Begun were begun, and Refused were not, because there was no room or the person had too many.
	Begun   int64 `json:"begun"`
	Refused int64 `json:"refused"`
	// Taken were followed by a run. GivenBack were not, so that their container was removed.
	Taken     int64 `json:"taken"`
	GivenBack int64 `json:"given_back"`
}

// Warmer has the warm-ups in progress. Its exported fields are set before the first use. All are required unless their
// comment describes the zero value. Methods are safe for concurrent use.
type Warmer struct {
	// Context ends with the server, with cause [record.ErrClosed].
	Context context.Context
	// Go runs f in the background. It does not, and returns false, if the server is closing.
	Go      func(f func()) bool
	Runs    *runs.Reader
	Targets *step.Targets
	// Awake returns a lease of a caller's container, which is made if there is none.
	Awake func(ctx context.Context, c record.Caller, by gitd.Person) (*step.Target, *containers.Lease, error)
	// MakeLayer makes the layers of a branch's tip.
	MakeLayer func(ctx context.Context, repo, branch string) error
	// Life is how long a container waits after each time that the person typed. The default is 90 s.
	Life time.Duration
	Log  *slog.Logger

	mu       sync.Mutex // guards by and expected
	by       map[record.Caller]*warmUp
	expected map[string]record.Caller // new callers with a container, by the person and the repository, see expectation

	begun, refused, taken, givenBack atomic.Int64
}

// warmUp holds the container of a caller for a person who types.
type warmUp struct {
	person string
	life   time.Duration // after each time that the person typed
	again  chan struct{} // holds one token after the person typed more
}

// WarmUp wakes the container of a caller that sleeps, for a person who types a prompt. It returns at once. The container goes to sleep
// again if no run begins for 90 seconds after the last call. Nothing is done if it is awake, if that would make others wait, or if the
// person has two such containers. It reports whether the container is being kept for the person.
func (w *Warmer) WarmUp(c record.Caller, by gitd.Person) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.by[c]; old != nil {
		select {
		case old.again <- struct{}{}:
		default:
		}
		return true
	}
	if slices.Contains(w.Runs.Fleet.Keys(), c.String()) {
		return false
	}
	return w.beginWarmth(c, by, func(ctx context.Context) (*containers.Lease, error) {
		_, lease, err := w.Awake(ctx, c, by)
		return lease, err
	})
}

// beginWarmth has a container of a caller woken by acquire, and kept for a person. mu is held. It reports whether there is room for that.
func (w *Warmer) beginWarmth(c record.Caller, by gitd.Person, acquire func(context.Context) (*containers.Lease, error)) bool {
	mine := 0
	for _, other := range w.by {
		if other.person == personOf(by) {
			mine++
		}
	}
	if w.Context.Err() != nil || mine >= warmPerPerson || w.Runs.Fleet.Room() == 0 {
		w.refused.Add(1)
		return false
	}
	if w.by == nil {
		w.by, w.expected = map[record.Caller]*warmUp{}, map[string]record.Caller{}
	}
	one := &warmUp{person: personOf(by), life: cmp.Or(w.Life, warmFor), again: make(chan struct{}, 1)}
	w.by[c] = one
	if !w.Go(func() {
		if err := w.keep(c, one, acquire); err != nil && w.Context.Err() == nil {
			w.Log.Warn("cannot keep a container for somebody who types", "caller", c.String(), "err", err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.by, c)
	}) {
		delete(w.by, c)
		w.refused.Add(1)
		return false
	}
	w.begun.Add(1)
	return true
}

// personOf returns the key of a person in the bounds of warm-ups.
func personOf(by gitd.Person) string { return by.ID + " " + by.Email }

// keep holds the container of a caller until a run uses it or the time is over.
func (w *Warmer) keep(c record.Caller, one *warmUp, acquire func(context.Context) (*containers.Lease, error)) error {
	ctx, cancel := context.WithTimeout(w.Context, warmMost)
	defer cancel()
	runs := len(w.Runs.Index.OfCaller(c))
	lease, err := acquire(ctx)
	if err != nil {
		w.forget(c)
		return err
	}
	for waits := true; waits; {
		timer := time.NewTimer(one.life)
		select {
		case <-one.again:
		case <-timer.C:
			waits = false
		case <-ctx.Done():
			waits = false
		}
		timer.Stop()
	}
	lease.Release()
	if w.forget(c) { // no run can get it any more
		w.givenBack.Add(1)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context), worktree.Housekeeping)
		defer cancel()
		return w.Runs.Fleet.Remove(ctx, c.String())
	}
	return w.giveBack(c, runs)
}

// giveBack removes the container of a caller that had so many runs before it was woken, if nothing has used it since.
func (w *Warmer) giveBack(c record.Caller, runs int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context), worktree.Housekeeping)
	defer cancel()
	repo, base, err := w.Runs.HomeRepo(ctx, c)
	if errors.Is(err, record.ErrNotFound) {
		return w.Runs.Fleet.Remove(ctx, c.String()) // it was removed meanwhile
	}
	if err != nil {
		return err
	}
	// A closing executor does not wait for a run at work, which keeps its turn.
	waiting, stop := context.WithTimeout(w.Context, worktree.Housekeeping)
	defer stop()
	release, err := w.Targets.Of(c, repo, base).Acquire(waiting)
	if errors.Is(err, record.ErrClosed) {
		w.taken.Add(1)
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	if len(w.Runs.Index.OfCaller(c)) > runs {
		w.taken.Add(1)
		return nil
	}
	used := func(h containers.HostStatus) bool { return h.Leases > 0 || h.Live > 0 }
	if slices.ContainsFunc(w.Runs.Fleet.List(ctx, c.String()), used) {
		w.taken.Add(1) // by a terminal, or by files
		return nil
	}
	w.givenBack.Add(1)
	return w.Runs.Fleet.Remove(ctx, c.String())
}

// Expect prepares for the first run of a new caller of a repository, while a person types its prompt, and returns at once. A container is
// bound to the work tree of a caller whose name is drawn, which the first new caller of the person in the repository gets. It is removed
// if there is none for 90 seconds after the last call. Without a Keeper, a container is made for the pool, which is removed when nobody
// asks for one for an hour.
func (w *Warmer) Expect(ctx context.Context, name string, by gitd.Person) error {
	repo, err := w.Runs.Git.Repo(name)
	if err != nil {
		return err
	}
	base, err := repo.Base(ctx)
	if err != nil {
		return err
	}
	w.Runs.Fleet.Expect(w.Targets.Runner.NewTarget(record.Caller{}, repo, base).Request("", by, nil))
	if w.Runs.Fleet.Keeper == nil {
		return nil
	}
	at, err := repo.Resolve(ctx, "refs/heads/"+base)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil // nothing can begin there yet
	}
	if err != nil {
		return err
	}
	key := expectation(by, name, base)
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.by[w.expected[key]]; old != nil {
		select {
		case old.again <- struct{}{}:
		default:
		}
		return nil
	}
	c, err := record.RunCaller(record.NewID(2))
	if err != nil || len(w.Runs.Index.OfCaller(c)) > 0 {
		return err
	}
	if w.beginWarmth(c, by, func(ctx context.Context) (*containers.Lease, error) {
		return w.bindExpected(ctx, c, repo, base, at, by)
	}) {
		w.expected[key] = c
	}
	return nil
}

// bindExpected gives a caller that has no branch yet a container with a commit of the base.
func (w *Warmer) bindExpected(ctx context.Context, c record.Caller, repo *gitd.Repo, base string, at gitd.Hash, by gitd.Person) (*containers.Lease, error) {
	if err := w.MakeLayer(ctx, repo.Name(), base); err != nil && !errors.Is(err, gitd.ErrNotFound) {
		return nil, err
	}
	t := w.Targets.Of(c, repo, base)
	release, err := t.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	t.Expect(at)
	lease, _, err := t.Ready(ctx, "", by, nil)
	return lease, err
}

// expectation returns the key of the new caller that a person is expected to begin.
func expectation(by gitd.Person, repo, base string) string {
	return personOf(by) + "\x00" + repo + "\x00" + base
}

// Counts returns the numbers of warm-ups since the start.
func (w *Warmer) Counts() Counts {
	return Counts{Begun: w.begun.Load(), Refused: w.refused.Load(), Taken: w.taken.Load(), GivenBack: w.givenBack.Load()}
}

// Take returns the new caller that has a container for a person in a repository, once.
func (w *Warmer) Take(by gitd.Person, repo, base string) (record.Caller, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := expectation(by, repo, base)
	c, ok := w.expected[key]
	delete(w.expected, key)
	return c, ok
}

// forget has nobody take a new caller any more. It reports whether somebody could.
func (w *Warmer) forget(c record.Caller) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, one := range w.expected {
		if one == c {
			delete(w.expected, key)
			return true
		}
	}
	return false
}
