package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/executor/record"
)

// previousOf returns the name of the runs of a repository of which a request with CancelPrevious stops the earlier ones.
// These are the runs of the same group. Without a group they are the runs of the same workflow, or otherwise those of
// the same caller that are no workflows.
func previousOf(r record.Run) string {
	switch {
	case r.Group != "":
		return "group " + r.Group
	case r.Workflow != "":
		return "workflow " + r.Workflow
	}
	return "caller " + r.Caller.String()
}

// checkGroup returns an error if a name cannot be a group.
func checkGroup(name string) error {
	if name != "" && !record.ValidID(name) {
		return fmt.Errorf("%w group %.100q: letters, digits, '.', '_' and '-', at most 100, not beginning with '.' or '-'", record.ErrInvalid, name)
	}
	return nil
}

// cancelPrevious stops the other runs with the same previousOf that still wait or work, as far as permit allows. It does
// so also if the request has left, because its run is claimed.
func (x *Executor) cancelPrevious(ctx context.Context, like record.Run, permit func(record.Run, string) error) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(x.life.ctx, func() { cancel(record.ErrClosed) })()
	runs, err := x.Runs(ctx, record.Filter{Repo: like.Repo, Live: true, Max: 10000})
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range runs {
		if r.Aside() || r.Kind == record.KindTerminal || r.Name() == like.Name() || previousOf(r) != previousOf(like) ||
			permit != nil && permit(r, "") != nil {
			continue
		}
		if err := x.Stop(ctx, r.Name(), like.Asker); err != nil && !errors.Is(err, record.ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// groupTurn waits until no other run of the run's group works. It takes a free turn even if ctx has ended. Every run waits for its group first and for its branch
// after that, so that no two runs wait for each other.
func (l *liveRun) groupTurn(ctx context.Context) (leave func(), err error) {
	if l.Initial.Group == "" || l.Initial.Sub {
		return func() {}, nil
	}
	return l.x.runs.lock(ctx, "group "+l.Initial.Repo+" "+l.Initial.Group)
}

// keepTurn has a run that was at work before the restart of the server take its turn again, before any other run asks for
// one. Its command may still run in its container. Without this, a run that waited could begin next to it. Nothing
// changes if another run has the turn already.
func (l *liveRun) keepTurn() {
	taken, cancel := context.WithCancel(context.Background())
	cancel() // waits for nothing
	leave, err := l.groupTurn(taken)
	if err != nil {
		return
	}
	free, err := l.Target.Acquire(taken)
	if err != nil {
		leave()
		return
	}
	l.held = func() { free(); leave() }
}
