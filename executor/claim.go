package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Claim makes a run durable before it is known what is to be done: a run of
// KindRequest that is submitted and at which nothing works. The request needs
// Key, Caller and Repo; it has no work. A second claim with the same caller and
// key returns the first one's run, and fresh is false. The caller's branch is
// not made before Begin.
func (x *Executor) Claim(ctx context.Context, r record.Request) (run record.Run, fresh bool, err error) {
	return x.claimIdle(ctx, record.KindRequest, r, nil)
}

// hold claims a run at which nothing works.
func (x *Executor) claimIdle(ctx context.Context, kind record.Kind, r record.Request, rec json.RawMessage) (run record.Run, fresh bool, err error) {
	if err := x.isOpen(); err != nil {
		return record.Run{}, false, err
	}
	if !record.ValidID(r.Key) || r.Caller.IsZero() {
		return record.Run{}, false, fmt.Errorf("%w claim: it needs a caller and a key of letters, digits, '.', '_' and '-'", record.ErrInvalid)
	}
	r, err = x.cleanRequest(r)
	if err != nil {
		return record.Run{}, false, err
	}
	repo, err := x.bases.OpenRepo(ctx, r.Repo)
	if err != nil {
		return record.Run{}, false, err
	}
	// Between its claim and the index a run cannot be found by whoever is told of it.
	release, err := x.lockRun(ctx, record.Run{ID: r.Key, Caller: r.Caller}.Name())
	if err != nil {
		return record.Run{}, false, err
	}
	defer release()
	if have, known := x.Find(r.Caller, r.Key); known {
		return have, false, nil
	}
	p := &plan{repo: repo, run: record.Run{ID: r.Key, Caller: r.Caller, Kind: kind, Record: rec, Repo: repo.Name(), Base: r.Base, Branch: r.Caller.Branch(),
		Origin: r.Origin, Asker: r.Asker, Input: r.Input, State: record.StateSubmitted, CreatedAt: x.Now().UTC()}}
	_, err = x.claim(ctx, p, "")
	if errors.Is(err, errClaimed) {
		run, err := x.claimed(ctx, p)
		return run, false, err
	}
	if err != nil {
		return record.Run{}, false, err
	}
	return p.run, true, x.index.Put(p.run)
}

// Find returns the run of a caller with this very id, in whatever repository it
// is. Unlike [Executor.Run] it looks nowhere else, and takes no time.
func (x *Executor) Find(c record.Caller, id string) (record.Run, bool) {
	// The index comes second: a run that ends stands there before it leaves those that live, and
	// would else be found as it was when it began.
	l := x.alive(c, id)
	r, known := x.index.Get(c, id)
	if !known {
		return record.Run{}, false
	}
	if l != nil && l.initial.Repo == r.Repo {
		return l.snapshot(), true
	}
	return r, true
}

// alive is a run of a caller that works or waits in line; nil when nothing works at it.
func (x *Executor) alive(c record.Caller, id string) *liveRun {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.live[record.Run{Caller: c, ID: id}.Name()]
}

// OfCaller lists a caller's runs as they stand, oldest first.
func (x *Executor) OfCaller(c record.Caller) []record.Run {
	runs := x.index.OfCaller(c)
	for i := range runs {
		if now, ok := x.Find(c, runs[i].ID); ok && now.Repo == runs[i].Repo {
			runs[i] = now
		}
	}
	sort.SliceStable(runs, func(i, j int) bool { return newer(runs[j], runs[i]) })
	return runs
}

// AgentNames lists the agents that requests may name.
func (x *Executor) AgentNames() []string { return slices.Sorted(maps.Keys(x.Agents)) }

// Home is where a caller's branch is, and its base. A caller without a branch is ErrNotFound.
func (x *Executor) Home(ctx context.Context, c record.Caller) (repo, base string, err error) {
	r, base, err := x.home(ctx, c)
	if err != nil {
		return "", "", err
	}
	return r.Name(), base, nil
}

// Settled waits until a run has ended, or waits for a person, and all of that
// is in its ref: then its manifest can be read.
func (x *Executor) Settled(ctx context.Context, c record.Caller, id string) (record.Run, error) {
	for {
		l := x.alive(c, id)
		if l == nil {
			r, known := x.index.Get(c, id) // only now: one that has just left stands there as it ended
			if !known {
				return record.Run{}, fmt.Errorf("run %s/%s: %w", c, id, record.ErrNotFound)
			}
			return r, nil
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return l.snapshot(), context.Cause(ctx)
		}
		if x.alive(c, id) != l {
			continue
		}
		// Its goroutine has ended, and it is still not in its ref: a full disk, or the end of the server.
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return l.snapshot(), context.Cause(ctx)
		case <-x.ctx.Done():
			return l.snapshot(), record.ErrClosed
		}
	}
}

// Begin gives a claimed run its work and starts it. Of the request only the
// work, Input, Sub, Of, From, Base and Asker count. A run that has begun
// already is returned as it is.
func (x *Executor) Begin(ctx context.Context, run string, r record.Request) (record.Run, error) {
	if err := x.isOpen(); err != nil {
		return record.Run{}, err
	}
	held, repo, ref, release, err := x.lockIdle(ctx, run)
	if err != nil {
		return held, err
	}
	defer release()
	if held.Kind != record.KindRequest || held.Ended() {
		return held, nil
	}
	r.Key, r.Caller, r.Repo, r.Origin, r.CancelPrevious = held.ID, held.Caller, repo.Name(), held.Origin, false
	if r.Base == "" {
		r.Base = held.Base
	}
	if r.Asker.Name == "" {
		r.Asker = held.Asker
	}
	p, err := x.plan(ctx, r)
	if err != nil {
		return held, err
	}
	p.run.CreatedAt = held.CreatedAt
	ref, err = x.claim(ctx, p, ref)
	if errors.Is(err, errClaimed) {
		return held, fmt.Errorf("cannot begin %s: %w: somebody else began or ended it", run, record.ErrConflict)
	}
	if err != nil {
		return held, err
	}
	_, begun, err := x.start(p, ref, nil)
	return begun, err
}

// held reads a run that may be claimed only, with its ref, and keeps everybody
// else from beginning, ending or journalling in it until release is called.
func (x *Executor) lockIdle(ctx context.Context, run string) (_ record.Run, _ *gitd.Repo, ref gitd.Hash, release func(), err error) {
	r, err := x.Run(ctx, run)
	if err != nil {
		return r, nil, "", nil, err
	}
	if release, err = x.lockRun(ctx, r.Name()); err != nil {
		return r, nil, "", nil, err
	}
	if now, known := x.Find(r.Caller, r.ID); known {
		r = now
	}
	repo, err := x.Git.Repo(r.Repo)
	if err == nil {
		ref, err = repo.Resolve(ctx, record.RunRef(r.Caller, r.ID))
	}
	if err != nil {
		release()
		return r, nil, "", nil, err
	}
	return r, repo, ref, release, nil
}

// hold is a claimed run in somebody's hands.
type runLock struct {
	turn  chan struct{} // one token
	users int           // guarded by Executor.mu
}

// alone waits for a claimed run to be in nobody's hands.
func (x *Executor) lockRun(ctx context.Context, run string) (release func(), err error) {
	x.mu.Lock()
	if x.locks == nil {
		x.locks = make(map[string]*runLock)
	}
	h := x.locks[run]
	if h == nil {
		h = &runLock{turn: make(chan struct{}, 1)}
		x.locks[run] = h
	}
	h.users++
	x.mu.Unlock()
	left := func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if h.users--; h.users == 0 {
			delete(x.locks, run)
		}
	}
	select {
	case h.turn <- struct{}{}:
		return func() { <-h.turn; left() }, nil
	case <-ctx.Done():
		left()
		return nil, context.Cause(ctx)
	}
}

// Note journals an event in a run that has not ended.
func (x *Executor) Note(ctx context.Context, run string, e record.Event) error {
	r, err := x.Run(ctx, run)
	if err != nil {
		return err
	}
	l := x.alive(r.Caller, r.ID)
	switch {
	case l != nil:
		return l.emit(e, false)
	case r.Ended() || r.Kind != record.KindRequest:
		return fmt.Errorf("cannot journal in %s: %w: nothing works at it", r.Name(), record.ErrConflict)
	}
	_, _, _, release, err := x.lockIdle(ctx, r.Name())
	if err != nil {
		return err
	}
	defer release()
	if now, known := x.Find(r.Caller, r.ID); known && (now.Ended() || now.Kind != record.KindRequest) {
		return fmt.Errorf("cannot journal in %s: %w: it was begun or ended meanwhile", r.Name(), record.ErrConflict)
	}
	// Its journal is opened for this one event: claims may wait in great
	// number, for as long as their source does not answer.
	j, _, err := x.openJournal(r)
	if err != nil {
		return err
	}
	e.Time = x.Now().UTC()
	if err := j.Append(&e, false); err != nil {
		return errors.Join(err, j.Close())
	}
	return j.Close()
}

// Ending is how a claimed run ends that is never begun.
type Ending struct {
	Reason record.Reason // empty: complete
	Error  string
	Output map[string]any
}

// End seals a claimed run that was answered without running anything. It
// returns when that is done; a run that has begun or ended is returned as it is.
func (x *Executor) End(ctx context.Context, run string, e Ending) (record.Run, error) {
	held, _, _, release, err := x.lockIdle(ctx, run)
	if err != nil {
		return held, err
	}
	if held.Kind != record.KindRequest || held.Ended() {
		release()
		return held, nil
	}
	l, err := x.reopen(ctx, held)
	if err != nil || l == nil {
		release()
		return held, err
	}
	l.ending = &e
	if err := x.launch(l, nil); err != nil {
		release()
		return held, err
	}
	select {
	case <-l.done:
		release()
		return l.snapshot(), nil
	case <-ctx.Done():
		x.wg.Go(func() { <-l.done; release() })
		return l.snapshot(), context.Cause(ctx)
	}
}

// answer is the work of a run that is ended without any.
func (l *liveRun) answer() (map[string]any, error) {
	if l.ending == nil {
		return nil, &failure{record.ReasonInternal, "a request is not work"}
	}
	if l.ending.Reason != "" {
		return l.ending.Output, &failure{l.ending.Reason, l.ending.Error}
	}
	return l.ending.Output, nil
}

// Tell records in an ended run that its origin knows. It is durable when Tell
// returns; a run that was told is left as it is.
func (x *Executor) Tell(ctx context.Context, run string, data json.RawMessage) error {
	r, err := x.Run(ctx, run)
	if err == nil {
		r, err = x.settled(ctx, r)
	}
	if err != nil {
		return err
	}
	switch {
	case r.Told != nil:
		return nil
	case !r.Ended() || x.unsealed(r):
		return fmt.Errorf("cannot record that %s is told: %w: it has not ended", r.Name(), record.ErrConflict)
	}
	repo, err := x.Git.Repo(r.Repo)
	if err != nil {
		return err
	}
	name := record.RunRef(r.Caller, r.ID)
	ref, err := repo.Resolve(ctx, name)
	if err != nil {
		return err
	}
	r.Told = &record.Told{Time: x.Now().UTC(), Data: x.Secrets.JSON(data)}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot record that %s is told: %w", r.Name(), err)
	}
	commit, err := repo.WriteCommit(ctx, gitd.NewCommit{From: ref, Parents: []gitd.Hash{ref}, Put: []gitd.File{{Path: "run.json", Content: text}},
		Author: x.Bot, Committer: x.Bot, When: x.Now(),
		Message: fmt.Sprintf("%s: told\n\n%s: %s\n%s: %s\n", r.Name(), record.TrailerCaller, r.Caller, record.TrailerRun, r.ID)})
	if err != nil {
		return fmt.Errorf("cannot record that %s is told: %w", r.Name(), err)
	}
	if err := repo.Update(ctx, gitd.RefUpdate{Name: name, New: commit, Old: &ref}); err != nil {
		return fmt.Errorf("cannot record that %s is told: %w", r.Name(), err)
	}
	return x.index.Put(r)
}

// Untold lists the runs with an Origin that is not known to have been told of
// their end: those that are claimed, at work, waiting for a person, or ended. Oldest first.
func (x *Executor) Untold(context.Context) ([]record.Run, error) {
	var runs []record.Run
	for _, r := range x.current() {
		if r.Origin != nil && r.Told == nil && !r.Sub {
			runs = append(runs, r)
		}
	}
	sort.SliceStable(runs, func(i, j int) bool { return newer(runs[j], runs[i]) })
	return runs, nil
}
