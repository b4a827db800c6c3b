package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// WorkflowDir is where a repository keeps its own workflows, ID.yaml each. They are read from the base, never from the branch that
// is worked on.
const WorkflowDir = ".ramus/workflows"

// maxWorkflow bounds a workflow file.
const maxWorkflow = 1 << 20

// Submit claims a run and starts it. It returns once the claim is durable. From then on the run continues or ends
// with a reason, even if a process is killed.
func (x *Executor) Submit(ctx context.Context, r record.Request) (record.Run, error) {
	_, run, err := x.submit(ctx, r, nil)
	return run, err
}

// Exec runs one command for a caller as a run of its own and copies its output at once. Output to a nil writer is
// discarded. A command that fails is a Result, not an error.
//
// A request whose key was used before waits for the run that there is, and gets only its result. If ctx ends the
// request leaves. Nothing is written any more then, and the error is the context's. The last request that leaves
// stops the command and gets its result, and so does one whose Stdin has not ended. A run of Submit is not stopped by
// requests that leave.
func (x *Executor) Exec(ctx context.Context, r record.Request, stdout, stderr io.Writer) (record.Result, error) {
	if r.Command == nil {
		return record.Result{}, fmt.Errorf("%w request: it has no command", record.ErrInvalid)
	}
	a := live.NewAttendance(r.Command, stdout, stderr)
	r.Command = a.Command
	l, run, err := x.submit(ctx, r, a)
	if err != nil {
		return record.Result{}, err
	}
	if l == nil {
		return result(run, x.Events(ctx, run.Name(), 0, false))
	}
	select {
	case <-l.done:
	case <-ctx.Done():
		if l.Leave(a) > 0 {
			return record.Result{Run: run.Name()}, context.Cause(ctx)
		}
		l.cancel(step.ErrCancelled)
		<-l.done
	}
	return result(l.Snapshot(), func(yield func(record.Event, error) bool) {
		for _, e := range l.Journalled() { // the run's ref has them, too
			if !yield(e, nil) {
				return
			}
		}
	})
}

// result returns a command's outcome from its run's events.
func result(run record.Run, events iter.Seq2[record.Event, error]) (record.Result, error) {
	res := record.Result{Run: run.Name()}
	for e, err := range events {
		if err != nil {
			return res, err
		}
		if e.Type != record.EventStepFinished {
			continue
		}
		res.Commit, res.With, res.Reason, res.Message = e.Commit, e.With, e.Reason, e.Message
		res.TimedOut = e.Reason == "timeout"
		res.DurationMS, res.Reused = e.DurationMS, e.Reused
		if e.Exit != nil {
			res.ExitCode = *e.Exit
		}
		if e.Stdout != nil {
			res.Stdout = *e.Stdout
		}
		if e.Stderr != nil {
			res.Stderr = *e.Stderr
		}
		return res, nil
	}
	if !run.Ended() {
		return res, fmt.Errorf("%s has not ended: %w", run.Name(), record.ErrClosed)
	}
	return res, &RunError{run}
}

// RunError is the error of a run that ended before its command did.
type RunError struct{ Run record.Run }

func (e *RunError) Error() string {
	return fmt.Sprintf("%s failed (%s): %s", e.Run.Name(), e.Run.Reason, e.Run.Error)
}

// submit plans, claims and launches a run. With an attendance the run ends when nobody attends it any more. The liveRun is nil if
// the request's key was claimed before and nothing works at that run.
func (x *Executor) submit(ctx context.Context, r record.Request, a *live.Attendance) (*liveRun, record.Run, error) {
	if err := x.life.err(); err != nil {
		return nil, record.Run{}, err
	}
	if len(r.With) > 0 && !r.Caller.IsZero() && r.Terminal == nil {
		release, err := x.runs.lock(ctx, "terminals "+r.Caller.String()) // none is opened meanwhile
		if err != nil {
			return nil, record.Run{}, err
		}
		defer release()
	}
	if r.Key != "" && !r.Caller.IsZero() {
		// Between its claim and its start a run can be neither found nor joined, so others with the key wait.
		release, err := x.runs.lock(ctx, record.Run{ID: r.Key, Caller: r.Caller}.Name())
		if err != nil {
			return nil, record.Run{}, err
		}
		defer release()
		if have, known := x.Find(r.Caller, r.Key); known && (r.Repo == "" || r.Repo == have.Repo) {
			return x.join(r, have, a)
		}
	}
	p, err := x.plan(ctx, r)
	if err != nil {
		return nil, record.Run{}, err
	}
	if r.Key != "" && p.draw {
		release, err := x.runs.lock(ctx, "key "+p.run.Repo+" "+r.Key)
		if err != nil {
			return nil, record.Run{}, err
		}
		defer release()
		if have, known := x.WithKey(p.run.Repo, r.Key, p.run.Asker); known {
			return x.join(r, have, a)
		}
	}
	admitted, err := x.admit(p.run)
	if err != nil {
		return nil, record.Run{}, err
	}
	defer admitted()
	alone := r.CancelPrevious || p.cancel
	if alone {
		release, err := x.runs.lock(ctx, "previous "+p.run.Repo+" "+previousOf(p.run))
		if err != nil {
			return nil, record.Run{}, err
		}
		defer release()
	}
	ref, err := x.claimRun(ctx, p, "")
	if errors.Is(err, errClaimed) {
		// The index did not have the run. Its ref counts.
		run, err := x.claimed(ctx, p)
		if err != nil {
			return nil, record.Run{}, err
		}
		return x.join(r, run, a)
	}
	if err != nil {
		return nil, record.Run{}, err
	}
	if alone {
		err = x.cancelPrevious(ctx, p.run, r.Permit)
	}
	// The run is claimed, so it starts, even if an earlier one could not be stopped.
	l, run, startErr := x.start(p, ref, a)
	return l, run, errors.Join(err, startErr)
}

// join has a request wait for a run that was claimed before. Its Permit is asked as for a new run.
func (x *Executor) join(r record.Request, run record.Run, a *live.Attendance) (*liveRun, record.Run, error) {
	if r.Permit != nil {
		if err := r.Permit(run, ""); err != nil {
			return nil, record.Run{}, err
		}
	}
	l := x.runs.alive(run.Caller, run.ID)
	if l == nil {
		return nil, run, nil
	}
	l.Attend(a)
	return l, l.Snapshot(), nil
}

// start launches a run that is claimed and planned.
func (x *Executor) start(p *plan, ref gitd.Hash, a *live.Attendance) (*liveRun, record.Run, error) {
	if err := x.SecretStore.PutHanded(p.run, p.handed); err != nil {
		x.Log.Error("a run does not get its secrets", "run", p.run.Name(), "err", err) // it fails when it begins
	}
	if err := x.Index.Put(p.run); err != nil {
		return nil, record.Run{}, err
	}
	t := x.targets.Of(p.run.Caller, p.repo, p.run.Base)
	if err := t.Include(p.run.With); err != nil {
		return nil, record.Run{}, err
	}
	l, err := x.newLive(p.run, ref, p.files, t)
	if err != nil {
		return nil, record.Run{}, err
	}
	if p.command != nil {
		l.stdin, l.Env = p.command.Stdin, p.command.Env
	}
	if a != nil {
		l.BeginFor(a)
	}
	if err := l.Emit(record.Event{Type: record.EventRunCreated, Message: p.run.Title(), Commit: p.run.Start,
		State: record.StateSubmitted}, false); err != nil {
		return nil, record.Run{}, err
	}
	for _, e := range p.taken {
		if err := l.Emit(e, false); err != nil {
			return nil, record.Run{}, err
		}
	}
	if err := x.launch(l, nil); err != nil {
		return nil, record.Run{}, err
	}
	return l, l.Snapshot(), nil
}

// envNames returns the names in an environment of a request. No record has its values.
func envNames(env []string) ([]string, error) {
	var names []string
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%w request: the environment has an entry that is not NAME=VALUE", record.ErrInvalid)
		}
		names = append(names, name)
	}
	return names, nil
}

// parse parses a run's own workflow again. It was checked when the run was planned on repo.
func (f runFiles) parse(ctx context.Context, x *Executor, repo string) (*workflow.Workflow, error) {
	return workflow.Parse(ctx, "workflow.yaml", []byte(f.Workflow),
		workflow.Options{RepoID: repo, LLM: x.LLM != nil, Load: func(id string) ([]byte, error) {
			if text, ok := f.Sub[id]; ok {
				return []byte(text), nil
			}
			return nil, fmt.Errorf("workflow %q: %w", id, record.ErrNotFound)
		}})
}

// quoteArgs returns an argument vector as a person would type it.
func quoteArgs(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = a
		if a == "" || strings.ContainsFunc(a, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
				strings.ContainsRune("_-./=:,+@%", r))
		}) {
			words[i] = tasks.Quote(a)
		}
	}
	return strings.Join(words, " ")
}
