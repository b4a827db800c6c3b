package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/attachment"
	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
)

// Claim makes a run durable before its work is known. The run is of KindRequest, submitted, and nothing works at it. The request
// needs Key, Caller and Repo, and has no work. A second claim with the same caller and key returns the run of the first, and fresh
// is false. Begin makes the caller's branch.
func (x *Executor) Claim(ctx context.Context, r record.Request) (run record.Run, fresh bool, err error) {
	return x.claimIdle(ctx, record.KindRequest, r, nil)
}

// claimIdle claims a run at which nothing works.
func (x *Executor) claimIdle(ctx context.Context, kind record.Kind, r record.Request, rec json.RawMessage) (run record.Run, fresh bool, err error) {
	if err := x.life.err(); err != nil {
		return record.Run{}, false, err
	}
	if !record.ValidID(r.Key) || r.Caller.IsZero() {
		return record.Run{}, false,
			fmt.Errorf("%w claim: it needs a caller and a key of letters, digits, '.', '_' and '-'", record.ErrInvalid)
	}
	r, err = cleanRequest(x.Secrets, r)
	if err != nil {
		return record.Run{}, false, err
	}
	repo, err := x.Bases.OpenRepo(ctx, r.Repo)
	if err != nil {
		return record.Run{}, false, err
	}
	// Between its claim and its entry in the index nobody can find the run.
	release, err := x.runs.lock(ctx, record.Run{ID: r.Key, Caller: r.Caller}.Name())
	if err != nil {
		return record.Run{}, false, err
	}
	defer release()
	if have, known := x.Find(r.Caller, r.Key); known {
		return have, false, nil
	}
	p := &plan{repo: repo, run: record.Run{ID: r.Key, Caller: r.Caller, Kind: kind, Record: rec, Repo: repo.Name(),
		Base: r.Base, Branch: r.Caller.Branch(),
		Origin: r.Origin, Asker: r.Asker, Input: r.Input, State: record.StateSubmitted, CreatedAt: x.Now().UTC()}}
	_, err = x.claimRun(ctx, p, "")
	if errors.Is(err, errClaimed) {
		run, err := x.claimed(ctx, p)
		return run, false, err
	}
	if err != nil {
		return record.Run{}, false, err
	}
	return p.run, true, x.Index.Put(p.run)
}

// AgentNames returns the names of the agents that requests may name.
func (x *Executor) AgentNames() []string { return slices.Sorted(maps.Keys(x.options().Agents)) }

// Settled waits until a run has ended, or waits for a person, and its ref has the whole record. Then its manifest can
// be read.
func (x *Executor) Settled(ctx context.Context, c record.Caller, id string) (record.Run, error) {
	for {
		l := x.runs.alive(c, id)
		if l == nil {
			r, known := x.Index.Get(c,
				id) // after alive, because the index has a run that has just ended and left the live runs
			if !known {
				return record.Run{}, fmt.Errorf("run %s/%s: %w", c, id, record.ErrNotFound)
			}
			return r, nil
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return l.Snapshot(), context.Cause(ctx)
		}
		if x.runs.alive(c, id) != l {
			continue
		}
		// Its goroutine has ended, and its ref does not have it yet. The disk may be full, or the server closing.
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return l.Snapshot(), context.Cause(ctx)
		case <-x.life.ctx.Done():
			return l.Snapshot(), record.ErrClosed
		}
	}
}

// Begin gives a claimed run its work and starts it. Only the work, Input, Sub, Of, From, Base and Asker of the request count. A
// run that has begun already is returned as it is.
func (x *Executor) Begin(ctx context.Context, run string, r record.Request) (record.Run, error) {
	if err := x.life.err(); err != nil {
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
	admitted, err := x.admit(p.run)
	if err != nil {
		return held, err
	}
	defer admitted()
	if p.cancel { // of two at once, the later one stops the earlier one
		release, err := x.runs.lock(ctx, "previous "+p.run.Repo+" "+previousOf(p.run))
		if err != nil {
			return held, err
		}
		defer release()
	}
	ref, err = x.claimRun(ctx, p, ref)
	if errors.Is(err, errClaimed) {
		return held, fmt.Errorf("cannot begin %s: %w: somebody else began or ended it", run, record.ErrConflict)
	}
	if err != nil {
		return held, err
	}
	if p.cancel {
		err = x.cancelPrevious(ctx, p.run, r.Permit)
	}
	_, begun, startErr := x.start(p, ref, nil)
	return begun, errors.Join(err, startErr)
}

// lockIdle reads a run at which nothing may be at work, with its ref. Until release is called, nobody else can begin it, end it or
// journal in it.
func (x *Executor) lockIdle(ctx context.Context, run string) (_ record.Run, _ *gitd.Repo, ref gitd.Hash, release func(), err error) {
	r, err := x.Run(ctx, run)
	if err != nil {
		return r, nil, "", nil, err
	}
	if release, err = x.runs.lock(ctx, r.Name()); err != nil {
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

// Note journals an event in a run that has not ended.
func (x *Executor) Note(ctx context.Context, run string, e record.Event) error {
	r, err := x.Run(ctx, run)
	if err != nil {
		return err
	}
	l := x.runs.alive(r.Caller, r.ID)
	switch {
	case l != nil:
		return l.Emit(e, false)
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
	// The journal is opened for this one event. Many claims may wait, for as long as their source does not answer.
	j, _, err := x.Folder.OpenJournal(r)
	if err != nil {
		return err
	}
	e.Time = x.Now().UTC()
	if err := j.Append(&e, false); err != nil {
		return errors.Join(err, j.Close())
	}
	return j.Close()
}

// Ending is the end of a claimed run that never begins.
type Ending struct {
	Reason record.Reason // empty if complete
	Error  string
	Output map[string]any
}

// End seals a claimed run that was answered without any work. It returns when that is done. A run that has begun or ended is
// returned as it is.
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
		return l.Snapshot(), nil
	case <-ctx.Done():
		x.life.wg.Go(func() { <-l.done; release() })
		return l.Snapshot(), context.Cause(ctx)
	}
}

// answer is the work of a run that ends without any.
func (l *liveRun) answer() (map[string]any, error) {
	if l.ending == nil {
		return nil, step.Fail(record.ReasonInternal, "a request is not work")
	}
	if l.ending.Reason != "" {
		return l.ending.Output, step.Fail(l.ending.Reason, l.ending.Error)
	}
	return l.ending.Output, nil
}

// Tell records in an ended run that its origin knows of the end. The record is durable when Tell returns. Tell
// changes nothing if the record exists.
func (x *Executor) Tell(ctx context.Context, run string, data json.RawMessage) error {
	r, err := x.Run(ctx, run)
	if err == nil {
		r, err = x.runs.settled(ctx, r)
	}
	if err != nil {
		return err
	}
	switch {
	case r.Told != nil:
		return nil
	case !r.Ended() || x.runs.has(r):
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
	told := gitd.NewCommit{From: ref, Parents: []gitd.Hash{ref}, Put: []gitd.File{{Path: "run.json", Content: text}},
		Author: x.Bot, Committer: x.Bot, When: x.Now(),
		Message: fmt.Sprintf("%s: told\n\n%s: %s\n%s: %s\n", r.Name(), record.TrailerCaller, r.Caller, record.TrailerRun, r.ID)}
	if err := x.moveEndedRef(ctx, repo, name, ref, told); err != nil {
		return fmt.Errorf("cannot record that %s is told: %w", r.Name(), err)
	}
	if x.Observer != nil {
		x.Observer.Told(r)
	}
	return x.Index.Put(r)
}

// moveEndedRef moves the ref of a run that ended to a commit. If the run was sealed, this is its next seal.
func (x *Executor) moveEndedRef(ctx context.Context, repo *gitd.Repo, ref string, was gitd.Hash, told gitd.NewCommit) error {
	_, err := repo.Entry(ctx, string(was), record.ManifestPath)
	if err == nil {
		_, err = x.Chain.Seal(ctx, repo, ref, was, told)
		return err
	}
	if !errors.Is(err, gitd.ErrNotFound) {
		return err
	}
	commit, err := repo.WriteCommit(ctx, told)
	if err != nil {
		return err
	}
	return repo.Update(ctx, gitd.RefUpdate{Name: ref, New: commit, Old: &was})
}

// errClaimed is the error of a claim that another request made first.
var errClaimed = errors.New("claimed already")

// claimRun makes the run's ref, and with it the branch of a new caller. The ref is made against zero, or moved from old, where an
// earlier claim left it. The request that does so owns the run.
func (x *Executor) claimRun(ctx context.Context, p *plan, old gitd.Hash) (gitd.Hash, error) {
	var parents []gitd.Hash
	if old != "" {
		parents = []gitd.Hash{old}
	}
	for attempt := 0; ; attempt++ {
		// The additional branches are first, because a run without them could not begin.
		if err := p.others.Make(ctx, &p.run); p.draw && errors.Is(err, record.ErrConflict) && attempt < 20 {
			p.drawCaller(ctx, attempt)
			continue
		} else if err != nil {
			return "", err
		}
		text, err := json.MarshalIndent(p.run, "", "  ")
		if err != nil {
			return "", fmt.Errorf("%w request: %w", record.ErrInvalid, err)
		}
		files := []gitd.File{{Path: "run.json", Content: text}}
		if p.files.Workflow != "" {
			files = append(files, gitd.File{Path: "workflow.yaml", Content: []byte(p.files.Workflow)})
		}
		for id, text := range p.files.Sub {
			files = append(files, gitd.File{Path: "sub/" + id + ".yaml", Content: []byte(text)})
		}
		for _, a := range p.given {
			files = append(files, gitd.File{Path: path.Join(attachment.Folder, record.FirstPrompt, a.Name),
				Content: a.Content})
		}
		ref, err := p.repo.WriteCommit(ctx, gitd.NewCommit{Put: files, Parents: parents,
			Author: p.run.Asker.Or(x.Bot), Committer: x.Bot, When: x.Now(),
			Message: fmt.Sprintf("Claim %s\n\n%s: %s\n%s: %s\n", p.run.Name(), record.TrailerCaller, p.run.Caller,
				record.TrailerRun, p.run.ID)})
		if err != nil {
			return "", fmt.Errorf("cannot claim a run: %w", err)
		}
		if err := x.Index.Claim(p.run); err != nil {
			return "", err
		}
		none := gitd.Hash("")
		// The run's ref is the last one, because refs change one after another, and a kill may come between. A run without
		// its branch could not begin. A branch without its run is taken over by the next claim.
		var updates []gitd.RefUpdate
		if p.fresh {
			if p.state != "" {
				updates = append(updates, gitd.RefUpdate{Name: agent.MemoryRef(p.run.Caller), New: p.state})
			}
			updates = append(updates, gitd.RefUpdate{Name: "refs/heads/" + p.run.Branch, New: p.run.Start, Old: &none})
		}
		updates = append(updates, gitd.RefUpdate{Name: record.RunRef(p.run.Caller, p.run.ID), New: ref, Old: &old})
		err = p.repo.Update(ctx, updates...)
		if err == nil {
			return ref, nil
		}
		if !errors.Is(err, gitd.ErrConflict) || attempt >= 20 {
			return "", fmt.Errorf("cannot claim a run: %w", err)
		}
		now, err := p.repo.Resolve(ctx, record.RunRef(p.run.Caller, p.run.ID))
		taken := err == nil && now != old
		switch {
		case taken && !p.draw && !p.redraw:
			return "", errClaimed
		case taken && !p.draw: // another request of the same second has the id, so draw again
			p.run.ID = x.drawRun(p.run.CreatedAt)
		case p.draw:
			p.drawCaller(ctx, attempt)
		default:
			// The branch was made meanwhile by another run of the caller.
			tip, err := p.repo.Resolve(ctx, "refs/heads/"+p.run.Branch)
			if err != nil {
				return "", fmt.Errorf("cannot claim a run: %w", err)
			}
			p.fresh, p.run.Start, p.run.Head = false, tip, tip
		}
	}
}

// drawRun draws an id for a run that has none. Two runs of one caller in one second may draw the same.
func (x *Executor) drawRun(now time.Time) string {
	token := record.NewToken
	if x.tuning.token != nil {
		token = x.tuning.token
	}
	return now.Format("20060102-150405") + "-" + token()[:4]
}

// claimed returns the run that another request claimed first.
func (x *Executor) claimed(ctx context.Context, p *plan) (record.Run, error) {
	name := record.RunRef(p.run.Caller, p.run.ID)
	hash, err := p.repo.Resolve(ctx, name)
	if err != nil {
		return record.Run{}, err
	}
	return index.ReadRun(ctx, p.repo, gitd.Ref{Name: name, Hash: hash})
}
