package executor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/dialogue"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Stop cancels a run. If name is a caller it cancels all of the caller's runs and removes its container. Work trees are committed
// first. Stop returns when that is done.
func (x *Executor) Stop(ctx context.Context, name string, by gitd.Person) error {
	runs, caller, err := x.Meant(ctx, name)
	if err != nil {
		return err
	}
	stopped := 0
	note := record.Event{Type: record.EventNote, Message: "stopped by " + by.Or(x.Bot).Name}
	for _, r := range runs {
		if r, err = x.runs.settled(ctx, r); err != nil {
			return err
		}
		l := x.runs.alive(r.Caller, r.ID)
		noted := false
		switch {
		case l != nil && r.Ended():
			continue
		case l != nil && r.State == record.StateAwaitingReview:
			return fmt.Errorf("cannot stop %s: %w", r.Name(), errUnsealed)
		case l != nil:
		case r.Kind == record.KindRequest && !r.Ended():
			if r, err = x.End(ctx, r.Name(),
				Ending{Reason: record.ReasonCancelled, Error: note.Message}); err != nil {
				return err
			}
			if r.Ended() {
				stopped++
				continue
			}
			// The run began meanwhile.
			l = x.runs.alive(r.Caller, r.ID)
			if l == nil {
				continue
			}
		case r.Kind == record.KindConversation:
			continue // its owner ends it
		case r.State == record.StateAwaitingReview:
			// Only its ref has it, where it waits. It is taken up to be ended.
			if l, err = x.reopen(ctx, r); err != nil {
				return err
			}
			if l == nil {
				continue
			}
			l.cancel(step.ErrCancelled)
			if err := x.launch(l, nil, note); err != nil {
				return err
			}
			noted = true
		default:
			continue
		}
		if !noted {
			if err := l.Emit(note, false); err != nil {
				return err
			}
		}
		l.cancel(step.ErrCancelled)
		stopped++
		select {
		case <-l.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if !caller.IsZero() {
		return x.Fleet.Remove(ctx, caller.String())
	}
	if stopped == 0 {
		return fmt.Errorf("cannot stop %s: %w: it has ended", name, record.ErrConflict)
	}
	return nil
}

// errUnsealed is the error of a request that needs the run's record in its ref.
var errUnsealed = fmt.Errorf("%w: its record is not written yet; the server's log tells why", record.ErrConflict)

// Retry starts a failed run again. A workflow begins at the failed step, a command from its beginning, both on the
// same branch with the step's input restored. An agent gets all its prompts again.
func (x *Executor) Retry(ctx context.Context, run string, by gitd.Person) (record.Run, error) {
	req, err := x.Again(ctx, run, by)
	if err != nil {
		return record.Run{}, err
	}
	return x.Submit(ctx, req)
}

// Again returns the request that Retry submits, for [Executor.Begin].
func (x *Executor) Again(ctx context.Context, run string, by gitd.Person) (record.Request, error) {
	r, err := x.Run(ctx, run)
	if err == nil {
		r, err = x.runs.settled(ctx, r)
	}
	if err != nil {
		return record.Request{}, err
	}
	switch {
	case r.Sub:
		return record.Request{},
			fmt.Errorf("cannot retry %s: %w: it is a part of %s; retry that", r.Name(), record.ErrConflict, r.Parent)
	case r.Kind == record.KindConversation:
		return record.Request{},
			fmt.Errorf("cannot retry %s: %w: it is a task; `ramus task retry %s` takes it up again", r.Name(),
				record.ErrConflict, r.Caller.ID())
	case r.Kind == record.KindRequest:
		return record.Request{}, fmt.Errorf("cannot retry %s: %w: it was answered, nothing was run for it", r.Name(),
			record.ErrConflict)
	case r.Imported != nil:
		return record.Request{}, fmt.Errorf("cannot retry %s: %w: it was imported, and its request is no request of this server",
			r.Name(), record.ErrConflict)
	case !r.Ended():
		return record.Request{}, fmt.Errorf("cannot retry %s: %w: it has not ended", r.Name(), record.ErrConflict)
	case x.runs.has(r):
		return record.Request{},
			fmt.Errorf("cannot retry %s: %w: its record is not written yet; the server's log tells why", r.Name(),
				record.ErrConflict)
	case r.State == record.StateComplete:
		return record.Request{}, fmt.Errorf("cannot retry %s: %w: it is complete", r.Name(), record.ErrConflict)
	}
	req := record.Request{Caller: r.Caller, Repo: r.Repo, Base: r.Base, Of: r.Name(), Asker: by.Or(r.Asker),
		Input: r.Input, Group: r.Group}
	switch r.Kind {
	case record.KindTerminal:
		return record.Request{}, fmt.Errorf("cannot retry %s: %w: it was a terminal; `ramus shell %s` opens another",
			r.Name(), record.ErrConflict, r.Caller.ID())
	case record.KindExec:
		if len(r.Exec.Env) > 0 {
			return record.Request{},
				fmt.Errorf("cannot retry %s: %w: the values of its environment (%s) were kept in memory alone; send the command again, with its --env",
					r.Name(), record.ErrConflict, r.Exec.EnvNames())
		}
		req.Command = r.Exec
	case record.KindTask:
		req.Task = r.Task
	case record.KindAgent:
		if req.Agent, err = x.Prompts.Again(ctx, r); err != nil {
			return record.Request{}, err
		}
	default:
		files, err := x.keptFiles(ctx, r)
		if err != nil {
			return record.Request{}, err
		}
		req.Workflow, req.Sub = files.Workflow, files.Sub
		if req.From, err = failedNode(x.Events(ctx, r.Name(), 0, false)); err != nil {
			return record.Request{}, err
		}
	}
	return req, nil
}

// failedNode returns the node of a run's last step that failed or has no result. Returns "" if there is none.
func failedNode(events iter.Seq2[record.Event, error]) (string, error) {
	open := make(map[string]string)
	node := ""
	for e, err := range events {
		if err != nil {
			return "", err
		}
		switch e.Type {
		case record.EventStepStarted:
			open[e.Step] = e.Node
		case record.EventStepFinished:
			delete(open, e.Step)
			if e.OK != nil && !*e.OK {
				node = e.Node
			}
		}
	}
	for _, n := range open {
		node = n
	}
	return node, nil
}

// Decide answers a run's gate. Then the run continues.
func (x *Executor) Decide(ctx context.Context, run string, d record.Decision) (record.Run, error) {
	r, err := x.Run(ctx, run)
	if err == nil {
		r, err = x.runs.settled(ctx, r)
	}
	if err != nil {
		return record.Run{}, err
	}
	l := x.runs.alive(r.Caller, r.ID)
	if l != nil {
		switch err := l.dialogue.Decide(d); {
		case err == nil:
			return x.Run(ctx, r.Name())
		case !errors.Is(err, dialogue.ErrNotAsked):
			return record.Run{}, fmt.Errorf("cannot answer %s: %w", r.Name(), err)
		}
	}
	waits := r.State == record.StateAwaitingReview && r.Gate != nil
	if !r.Sub && (!waits || d.Step != "" && d.Step != r.Gate.Step) {
		events, err := x.AllEvents(ctx, r.Name())
		if err == nil {
			err = dialogue.Answered(events, d.Step)
		}
		if err != nil {
			return record.Run{}, fmt.Errorf("cannot answer %s: %w", r.Name(), err)
		}
	}
	switch {
	case r.Sub:
		return record.Run{}, fmt.Errorf("cannot answer %s: %w: it is a part of %s; answer that", r.Name(),
			record.ErrConflict, r.Parent)
	case d.Option != "":
		return record.Run{}, fmt.Errorf("cannot answer %s: %w option %q: the question has none", r.Name(),
			record.ErrInvalid, text.Clip(d.Option, dialogue.MaxOptionBytes))
	case !waits:
		return record.Run{}, fmt.Errorf("cannot answer %s: %w: it does not wait for anybody", r.Name(), record.ErrConflict)
	case x.runs.has(r):
		return record.Run{}, fmt.Errorf("cannot answer %s: %w", r.Name(), errUnsealed)
	case d.Step != "" && d.Step != r.Gate.Step:
		return record.Run{}, fmt.Errorf("cannot answer %s: %w: it waits at %s, not at %s", r.Name(), record.ErrConflict,
			r.Gate.Step, d.Step)
	case !r.Gate.Admits(d.By):
		return record.Run{}, fmt.Errorf("cannot answer %s: %w: only %s may", r.Name(), gitd.ErrDenied,
			strings.Join(r.Gate.Allowed, ", "))
	}
	d.Step = r.Gate.Step
	if err := x.resume(ctx, r, &d); err != nil {
		return record.Run{}, err
	}
	return x.Run(ctx, r.Name())
}

// baseOf returns a run's base. A run that was only claimed may name none, and the caller's target would keep that for all later
// runs.
func baseOf(ctx context.Context, repo *gitd.Repo, r record.Run) (string, error) {
	if r.Base != "" {
		return r.Base, nil
	}
	return repo.Base(ctx)
}

// Merge brings a caller's branch into a branch of its repository, by default its base, or to where the policy of the
// repository says, see upstream.Bases.Land. If the caller has several repositories, all are merged or, as far as they
// can be asked before, none, see upstream.Bases.LandAll. A conflict is a result, not an error. With Delete the caller's branch and
// container are removed if the branch was merged. Its runs stay, and through them its commits.
func (x *Executor) Merge(ctx context.Context, caller string, m record.Merge) (record.LandedAll, error) {
	c, err := x.Caller(ctx, caller)
	if err != nil {
		return record.LandedAll{}, err
	}
	m.Message, m.By = x.Secrets.String(m.Message), cleanPerson(x.Secrets, m.By)
	repo, err := x.Git.Repo(c.Repo)
	if err != nil {
		return record.LandedAll{}, err
	}
	base, err := baseOf(ctx, repo, c.Last)
	if err != nil {
		return record.LandedAll{}, err
	}
	if m.Into == "" {
		m.Into = base
	}
	t, err := x.whole(ctx, c.Caller, repo, base)
	if err != nil {
		return record.LandedAll{}, err
	}
	release, err := t.Acquire(ctx)
	if err != nil {
		return record.LandedAll{}, err
	}
	defer release()
	res, err := x.land(ctx, t, m)
	if err != nil || !res.Whole() || !m.Delete {
		return res, err
	}
	_, err = x.removeCaller(ctx, t)
	return res, err
}

// land brings the branch of a caller that nothing else works for to where the policy says.
func (x *Executor) land(ctx context.Context, t *step.Target, m record.Merge) (record.LandedAll, error) {
	if m.Strategy == "" {
		m.Strategy = gitd.StrategyRebase
	}
	m.By = m.By.Or(x.Bot)
	all, err := x.landings(t, m)
	if err != nil {
		return record.LandedAll{}, err
	}
	done, err := x.Bases.LandAll(ctx, all)
	if err != nil {
		return record.LandedAll{}, err
	}
	return record.LandedAll{Landed: done[0], With: done[1:]}, nil
}

// Rollback moves a caller's branch to an earlier commit of its own, by a new commit with that tree, so nothing is lost.
func (x *Executor) Rollback(ctx context.Context, caller, to string, by gitd.Person) (gitd.Hash, error) {
	c, err := x.Caller(ctx, caller)
	if err != nil {
		return "", err
	}
	repo, err := x.Git.Repo(c.Repo)
	if err != nil {
		return "", err
	}
	commit, err := repo.Resolve(ctx, to)
	if err != nil {
		return "", err
	}
	last, err := baseOf(ctx, repo, c.Last)
	if err != nil {
		return "", err
	}
	t := x.targets.Of(c.Caller, repo, last)
	release, err := t.Acquire(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	if err := x.Shells.Keep(ctx, t, nil); err != nil {
		return "", err
	}
	tip, err := t.Tip(ctx)
	if err != nil {
		return "", err
	}
	if base, err := repo.MergeBase(ctx, string(commit), string(tip)); err != nil || base != commit {
		return "", fmt.Errorf("cannot go back to %s: %w: it is no commit of %s", to, record.ErrInvalid, c.Branch)
	}
	made, err := x.restore(ctx, repo, c.Caller, commit, cleanPerson(x.Secrets, by))
	if err != nil {
		return "", err
	}
	return made, x.Shells.Sync(ctx, t)
}

// adopt leases a caller's running container. The error is ErrGone if it has none.
func (x *Executor) adopt(ctx context.Context, caller string) (*containers.Lease, error) {
	c, err := x.Caller(ctx, caller)
	if err != nil {
		return nil, err
	}
	repo, err := x.Git.Repo(c.Repo)
	if err != nil {
		return nil, err
	}
	base, err := baseOf(ctx, repo, c.Last)
	if err != nil {
		return nil, err
	}
	t, err := x.whole(ctx, c.Caller, repo, base)
	if err != nil {
		return nil, err
	}
	lease, err := x.Fleet.Adopt(ctx, t.Request("", c.Last.Asker, nil))
	if err != nil {
		return nil, err
	}
	if lease == nil {
		return nil, fmt.Errorf("%s has no container at the moment: %w", c.Caller, containers.ErrGone)
	}
	return lease, nil
}
