package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// childRun is a sub-workflow: a run of its own that its parent's node waits for.
type childRun struct {
	x      *Executor
	parent *liveRun
	name   string
	own    bool        // it has a branch, and so a turn, of its own
	ended  *record.Run // it ended before the server was restarted
	l      *liveRun
}

// child claims the run of a sub-workflow, or finds it if the step began before. Its caller and id follow from the step, so there
// is only one.
func (x *Executor) child(ctx context.Context, parent *liveRun, s workflow.Step) (*childRun, error) {
	text, ok := parent.files.Sub[s.Sub.Workflow]
	if !ok {
		return nil, step.Fail(record.ReasonBadInput, fmt.Sprintf("there is no workflow %q", s.Sub.Workflow))
	}
	files := runFiles{Workflow: text, Sub: parent.files.Sub}
	w, err := files.parse(context.WithoutCancel(ctx), x, parent.Initial.Repo) // also of a run that was stopped
	if err != nil {
		return nil, step.Fail(record.ReasonBadInput, err.Error())
	}
	on, err := parent.targetOf(s)
	if err != nil {
		return nil, err
	}
	r := record.Run{ID: parent.Initial.ID + "." + record.FileName(s.ID), Caller: on.Caller, Kind: record.KindWorkflow,
		Repo: parent.Initial.Repo, Base: parent.Initial.Base,
		BaseCommit: parent.Initial.BaseCommit, Workflow: w.ID, Input: s.Sub.Input, Asker: parent.Initial.Asker,
		State:  record.StateSubmitted,
		Parent: parent.Initial.Name(), Sub: true, Fresh: parent.Initial.Fresh, Apart: parent.Initial.Apart,
		Unasked: parent.Initial.Unasked, CreatedAt: x.Now().UTC()}
	if len(r.ID) > 100 {
		r.ID = r.ID[:80] + "-" + parent.CommandID(s.ID, 0)[:16]
	}
	repo := on.Repo
	if r.Start, err = on.Tip(ctx); err != nil {
		return nil, err
	}
	if s.Sub.InheritBranch && on == parent.Target {
		if r.With, err = on.Others.Inherit(ctx, parent.Snapshot().With); err != nil {
			return nil, err
		}
	}
	if !s.Sub.InheritBranch {
		if r.Caller, err = lineCaller(on.Caller, s.ID); err != nil {
			return nil, err
		}
		// An isolated branch begins at the base that the sub-workflow names, or at its parent's branch.
		r.Base = on.Caller.Branch()
		if w.Repo.BaseBranch != "" {
			r.Base = w.Repo.BaseBranch
			if r.Start, err = repo.Resolve(ctx, "refs/heads/"+r.Base); err != nil {
				return nil, step.Fail(record.ReasonBadInput, fmt.Sprintf("workflow %s: %v", w.ID, err))
			}
		}
		r.BaseCommit = r.Start
	}
	r.Branch, r.Head = r.Caller.Branch(), r.Start
	r = live.CleanRun(x.Secrets, r) // templates may have put a secret together
	c := &childRun{x: x, parent: parent, name: r.Name(), own: !s.Sub.InheritBranch}
	ref, err := x.claimRun(ctx, &plan{run: r, repo: repo, files: files, fresh: c.own}, "")
	if errors.Is(err, errClaimed) {
		kept, err := x.Run(ctx, r.Name())
		if err != nil {
			return nil, err
		}
		if kept.Ended() {
			c.ended = &kept
			return c, nil
		}
		if c.l, err = x.reopen(ctx, kept); err != nil {
			return nil, err
		}
		if c.l != nil {
			c.l.parent = parent
		}
		if c.l == nil { // the run was sealed, and only the index was late
			kept, err := x.Run(ctx, r.Name())
			c.ended = &kept
			return c, err
		}
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	if err := x.Index.Put(r); err != nil {
		return nil, err
	}
	if c.l, err = x.newLive(r, ref, files, x.targets.Of(r.Caller, repo, r.Base)); err != nil {
		return nil, err
	}
	c.l.parent = parent
	return c, c.l.Emit(record.Event{Type: record.EventRunCreated, Message: r.Title(), Commit: r.Start,
		State: record.StateSubmitted}, false)
}

// run takes the sub-workflow to its end, or until it waits for a person.
func (c *childRun) run(ctx context.Context, answers map[string]record.Decision) (record.Run, map[string]any, error) {
	if c.ended != nil {
		return *c.ended, c.ended.Output, nil
	}
	l := c.l
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	defer l.cancel(nil)
	c.x.runs.add(l)
	defer close(l.done)
	for step, d := range decisions(l.Journalled()) {
		if _, ok := answers[step]; !ok {
			answers[step] = d
		}
	}
	var err error
	release := func() {}
	if c.own {
		release, err = l.turn(l.ctx)
	}
	var output map[string]any
	if err == nil {
		output, err = l.perform(l.ctx, answers)
		release()
	}
	c.x.settle(l.ctx, l, output, err)
	if err != nil && errors.Is(context.Cause(ctx), record.ErrClosed) {
		return record.Run{}, nil, record.ErrClosed
	}
	if cause := context.Cause(ctx); cause != nil {
		return record.Run{}, nil, cause
	}
	return l.Snapshot(), output, nil
}

// restore puts the tree of an earlier commit on top of a caller's branch.
func (x *Executor) restore(ctx context.Context, repo *gitd.Repo, c record.Caller, to gitd.Hash, by gitd.Person) (gitd.Hash, error) {
	ref := "refs/heads/" + c.Branch()
	for attempt := 0; ; attempt++ {
		tip, err := repo.Resolve(ctx, ref)
		if err != nil {
			return "", err
		}
		now, err := repo.Commit(ctx, string(tip))
		if err != nil {
			return "", err
		}
		then, err := repo.Commit(ctx, string(to))
		if err != nil {
			return "", err
		}
		if now.Tree == then.Tree {
			return tip, nil
		}
		commit, err := repo.WriteCommit(ctx, gitd.NewCommit{From: to, Parents: []gitd.Hash{tip},
			Author: by.Or(x.Bot), Committer: x.Bot, When: x.Now(),
			Message: fmt.Sprintf("Go back to %s\n\n    %s\n\n%s: %s\n", string(to)[:min(12, len(to))],
				strings.TrimSpace(then.Subject), record.TrailerCaller, c)})
		if err != nil {
			return "", err
		}
		err = repo.Update(ctx, gitd.RefUpdate{Name: ref, New: commit, Old: &tip})
		if err == nil || !errors.Is(err, gitd.ErrConflict) || attempt == 5 {
			return commit, err
		}
	}
}
