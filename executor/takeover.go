package executor

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// takeOver copies the results of an earlier run up to a node. The new run's branch begins at the commit that was the node's input.
func (p *plan) takeOver(ctx context.Context, r record.Request) error {
	if p.run.Kind != record.KindWorkflow {
		return fmt.Errorf("%w request: only a workflow can begin at a node", record.ErrInvalid)
	}
	of, err := p.resumable(ctx, r.Of, p.run)
	if err != nil {
		return err
	}
	if of.Imported != nil {
		return fmt.Errorf("%w request: the results of %s are those of another server", record.ErrInvalid, of.Name())
	}
	if of.Repo != p.run.Repo {
		return fmt.Errorf("%w request: %s is a run on %s, not on %s", record.ErrInvalid, of.Name(), of.Repo, p.run.Repo)
	}
	if p.run.Input == nil {
		p.run.Input = of.Input
	}
	events, err := p.x.AllEvents(ctx, of.Name())
	if err != nil {
		return err
	}
	w, err := p.files.parse(ctx, p.x, p.run.Repo)
	if err != nil {
		return err
	}
	results, err := recorded(events)
	if err != nil {
		return err
	}
	_, pending, used, err := workflow.Replay(w, p.run.Input, workflowContext(p.run), results, r.From)
	if err != nil {
		return fmt.Errorf("cannot resume %s: %w: %w", of.Name(), record.ErrInvalid, err)
	}
	reached := ""
	for _, s := range pending {
		if s.Node == r.From || s.ID == r.From {
			reached = s.ID
		}
	}
	taken := make(map[string]bool)
	for _, r := range results[:used] {
		taken[r.Step] = true
	}
	start := p.takeEvents(events, taken, of.Start)
	for _, e := range events {
		if e.Type == record.EventStepStarted && e.Step == reached && e.Parent != "" {
			start = e.Parent
			break
		}
	}
	p.run.Parent = of.Name()
	if p.fresh {
		p.run.Start, p.run.Head = start, start
		return nil
	}
	// On a branch that continues, a commit restores the node's input, so nothing is lost.
	tip, err := p.x.restore(ctx, p.repo, p.run.Caller, start, r.Asker)
	if err != nil {
		return err
	}
	p.run.Start, p.run.Head = tip, tip
	return nil
}

// setWorkflowOf gives a request that begins at a node of another run, and that has no work, the workflow of that run.
func (x *Executor) setWorkflowOf(ctx context.Context, r *record.Request) error {
	if r.Of == "" || r.From == "" || r.Workflow != "" || r.File != "" || r.Command != nil || r.Task != nil ||
		r.Agent != nil || r.Terminal != nil {
		return nil
	}
	of, err := x.Run(ctx, r.Of)
	if err != nil {
		return err
	}
	if of.Kind != record.KindWorkflow || of.Imported != nil {
		return fmt.Errorf("cannot begin %s at %.100q: %w request: only a workflow of this server can begin at a node; "+
			"`ramus fork` begins before a step of other work", of.Name(), r.From, record.ErrInvalid)
	}
	files, err := x.keptFiles(ctx, of)
	if err != nil {
		return fmt.Errorf("cannot read the workflow of %s: %w", of.Name(), err)
	}
	r.Workflow, r.Sub = files.Workflow, files.Sub
	r.Repo, r.Base = cmp.Or(r.Repo, of.Repo), cmp.Or(r.Base, of.Base)
	return nil
}

// takeEvents takes over the events of the steps in taken. It returns the last commit of these, or else start.
func (p *plan) takeEvents(events []record.Event, taken map[string]bool, start gitd.Hash) gitd.Hash {
	for _, e := range events {
		if taken[e.Step] && e.Type == record.EventBrowser {
			p.taken = append(p.taken, record.TakeOver(e))
		}
		if !taken[e.Step] || e.Type != record.EventStepStarted && e.Type != record.EventStepFinished {
			continue
		}
		if e.Commit != "" && e.Kind != string(workflow.KindWorkflow) {
			start = e.Commit
		}
		for _, s := range []*record.Stream{e.Stdout, e.Stderr} {
			if s != nil {
				s.File = "" // the run that printed it has it
			}
		}
		p.taken = append(p.taken, e)
	}
	return start
}

// resumable returns the run to take over from, which is the named one or the last of this workflow on this repository.
func (p *plan) resumable(ctx context.Context, name string, like record.Run) (record.Run, error) {
	if name != "" {
		return p.x.Run(ctx, name)
	}
	runs, err := p.x.Runs(ctx, record.Filter{Repo: like.Repo, Max: 10000})
	if err != nil {
		return record.Run{}, err
	}
	for _, r := range runs {
		if r.Workflow == like.Workflow && r.Ended() && !r.Sub {
			return r, nil
		}
	}
	return record.Run{}, fmt.Errorf("cannot resume workflow %s: %w: it has no ended run on %s", like.Workflow,
		record.ErrNotFound, like.Repo)
}
