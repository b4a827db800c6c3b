package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/bisect"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/trial"
	"github.com/ramus-dev/ramus/gitd"
)

// Runs submits runs and reads them.
type Runs interface {
	trial.Runs
	// Output opens a command's whole output.
	Output(ctx context.Context, run, step, stream string) (io.ReadCloser, error)
}

// Replayer runs commands again.
type Replayer struct {
	Repo *gitd.Repo
	Runs Runs
	// Request has the repository, the rights and the person of the new runs. Its work and its beginning are set by the
	// Replayer.
	Request record.Request
	// Remove removes a caller that was made to run a command again.
	Remove func(ctx context.Context, c record.Caller) error
	// Times is how often each command is run again, at most [MaxTimes]. Zero means once.
	Times int
	// Width is how many are run at once, at most 16. Zero means 4.
	Width int
	// Tell is called with each command that is done, by one goroutine at a time. Nil means that nothing is called.
	Tell func(Checked)
	Bot  gitd.Person
	Now  func() time.Time
}

// Check returns [record.ErrInvalid] if a number is out of bounds, and sets the defaults.
func (p *Replayer) Check() error {
	p.Times, p.Width = cmp.Or(p.Times, 1), cmp.Or(p.Width, 4)
	if p.Times < 1 || p.Times > MaxTimes {
		return fmt.Errorf("%w number of times: %d, want 1 to %d", record.ErrInvalid, p.Times, MaxTimes)
	}
	if p.Width < 1 || p.Width > bisect.MaxWidth {
		return fmt.Errorf("%w number of commands at once: %d, want 1 to %d", record.ErrInvalid, p.Width, bisect.MaxWidth)
	}
	return nil
}

// Replay runs commands of a run again, and keeps the verdict, durably. The error is about the server and not about a
// command. commands are all commands of the run, as [Choose] returns them.
func (p *Replayer) Replay(ctx context.Context, r record.Run, commands []Command) (Verdict, error) {
	v, err := p.replay(ctx, r, commands)
	if err != nil {
		return v, fmt.Errorf("cannot replay %s: %w", r.Name(), err)
	}
	return v, nil
}

func (p *Replayer) replay(ctx context.Context, r record.Run, commands []Command) (Verdict, error) {
	v := Verdict{Run: r.Name(), By: p.Request.Asker, Commands: make([]Checked, len(commands))}
	if err := p.Check(); err != nil {
		return v, err
	}
	if err := p.runAll(ctx, r, commands, v.Commands); err != nil {
		return v, err
	}
	v.Time = p.Now().UTC()
	return v, p.keep(ctx, r, &v)
}

// runAll fills in the results of commands. If one cannot be run for a reason of the server, the others are cancelled
// and awaited.
func (p *Replayer) runAll(ctx context.Context, r record.Run, commands []Command, into []Checked) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan int)
	var all sync.WaitGroup
	var telling sync.Mutex
	for range p.Width {
		all.Go(func() {
			for i := range work {
				c, err := p.runAgain(ctx, r, commands[i])
				if err != nil {
					cancel(err)
					continue // take the rest of the work, which ends at once
				}
				into[i] = c
				if p.Tell != nil {
					telling.Lock()
					p.Tell(c)
					telling.Unlock()
				}
			}
		})
	}
	for i := range commands {
		work <- i
	}
	close(work)
	all.Wait()
	return context.Cause(ctx)
}

// runAgain runs a command as often as it is asked for.
func (p *Replayer) runAgain(ctx context.Context, r record.Run, c Command) (Checked, error) {
	out := Checked{Command: c, Result: Left}
	if c.Why != "" {
		return out, nil
	}
	for range p.Times {
		if err := context.Cause(ctx); err != nil {
			return out, err
		}
		tried, differences, why, err := p.try(ctx, r, c)
		if err != nil {
			return out, err
		}
		if why != "" {
			out.Why, out.Result = why, Left
			return out, nil
		}
		out.Tries = append(out.Tries, tried)
		if tried.Differs && out.Result != Differs {
			out.Result, out.Differences = Differs, differences
		}
	}
	if out.Result == Left {
		out.Result = Same
	}
	return out, nil
}

// try runs a command once. why is the reason why it could not be run, or "".
func (p *Replayer) try(ctx context.Context, r record.Run, c Command) (out Tried, list []Difference, why string, err error) {
	tree, err := p.Repo.TreeOf(ctx, c.parent)
	if errors.Is(err, gitd.ErrNotFound) {
		return out, nil, "the commit from which it began is gone", nil
	}
	if err != nil {
		return out, nil, "", err
	}
	request, err := p.request(ctx, r, c)
	if err != nil {
		return out, nil, "", err
	}
	t := &trial.Trier{Runs: p.Runs, Request: request, Remove: p.Remove}
	t.Look = func(ctx context.Context, run record.Run, ended record.Event) error {
		if ended.Type == "" {
			why = "it could not be run: " + run.Error
			return nil
		}
		was := Outcome{After: c.after, Exit: c.exit, Reason: c.reason, Output: p.output(ctx, r.Name(), c.Step)}
		now := Outcome{After: cmp.Or(ended.Commit, c.parent), Exit: ended.Exit, Reason: ended.Reason,
			Output: p.output(ctx, run.Name(), ended.Step)}
		var err error
		list, err = Compare(ctx, p.Repo, was, now)
		return err
	}
	done, err := t.Try(ctx, bisect.Step{Commit: c.parent, Tree: tree})
	if err != nil && done.Run == "" && context.Cause(ctx) == nil && isAboutCommand(err) {
		return out, nil, err.Error(), nil
	}
	if done.Unasked {
		return out, nil, done.Why, err
	}
	return Tried{Run: done.Run, DurationMS: done.DurationMS, Differs: len(list) > 0}, list, why, err
}

// isAboutCommand reports whether a run was refused for its command or its beginning, and not because of the server.
func isAboutCommand(err error) bool {
	for _, kind := range []error{record.ErrInvalid, record.ErrNotFound, record.ErrConflict, gitd.ErrInvalid, gitd.ErrNotFound} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// output returns a function that opens an output of a step.
func (p *Replayer) output(ctx context.Context, run, step string) func(string) (io.ReadCloser, error) {
	return func(stream string) (io.ReadCloser, error) { return p.Runs.Output(ctx, run, step, stream) }
}

// request returns the request of a new run that begins at a command's commit. If the branch of the caller was deleted
// after a merge, it begins in the base, which has the commit.
func (p *Replayer) request(ctx context.Context, r record.Run, c Command) (record.Request, error) {
	q := p.Request
	q.Command, q.Task, q.Fork, q.Base = c.shell, c.task, nil, r.Base
	_, err := p.Repo.Resolve(ctx, "refs/heads/"+c.caller.Branch())
	if errors.Is(err, gitd.ErrNotFound) {
		tip, err := p.Repo.Resolve(ctx, "refs/heads/"+r.Base)
		if err == nil {
			in, err := p.Repo.Descends(ctx, tip, c.parent)
			if err != nil || in {
				return q, err
			}
		} else if !errors.Is(err, gitd.ErrNotFound) {
			return q, err
		}
	} else if err != nil {
		return q, err
	}
	q.Fork = &record.Fork{Of: c.caller.String()}
	return q, nil
}
