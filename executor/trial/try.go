package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/ramus-dev/ramus/executor/bisect"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Runs submits runs and follows them.
type Runs interface {
	Submit(ctx context.Context, r record.Request) (record.Run, error)
	Run(ctx context.Context, name string) (record.Run, error)
	Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error]
}

// removeWithin bounds the removal of a caller, also after its request was cancelled.
const removeWithin = time.Minute

// Try is the result of a command at a commit.
type Try struct {
	Commit gitd.Hash     `json:"commit"`
	Tree   gitd.Hash     `json:"tree"`
	Result bisect.Result `json:"result"`
	Run    string        `json:"run"`
	Exit   *int          `json:"exit,omitempty"`
	// Why is the reason of a result that is no exit status of the command.
	Why string `json:"why,omitempty"`
	// Unasked reports that a program of the command needed a person, who is not asked in a try. It says nothing then.
	Unasked    bool      `json:"unasked,omitempty"`
	Time       time.Time `json:"time"`
	DurationMS int64     `json:"duration_ms"`
	Stdout     string    `json:"stdout,omitempty"` // its end
	Stderr     string    `json:"stderr,omitempty"` // its end
}

// Trier tries a command at commits. Its fields may not be changed after the first try. Methods are safe for concurrent
// use.
type Trier struct {
	Runs Runs
	// Request is the run of a try, without caller and key. It has a command or a task. Its Fork names the caller whose
	// branch has the commits. If it has none, the commits are in the history of its base.
	Request record.Request
	// Remove removes a caller that was made for a try.
	Remove func(ctx context.Context, c record.Caller) error
	// Look, if it is not nil, is called with the run of a try before its caller is removed. ended is the end of its
	// command, and zero if the command did not run.
	Look func(ctx context.Context, run record.Run, ended record.Event) error
	// Judge returns the meaning of a run, and the reason if it is no exit status. The default is that of its exit status,
	// or of the task's verdict.
	Judge func(run record.Run, ended record.Event) (bisect.Result, string)
}

// Try tries a commit. The error is about the server and not about the command.
func (t *Trier) Try(ctx context.Context, st bisect.Step) (Try, error) {
	out := Try{Commit: st.Commit, Tree: st.Tree}
	request := t.Request
	request.Caller, request.Key, request.Unasked = record.Caller{}, "", true
	if request.Fork != nil {
		fork := *request.Fork
		fork.Commit = st.Commit
		request.Fork = &fork
	} else {
		request.At = st.Commit
	}
	run, err := t.Runs.Submit(ctx, request)
	if err != nil {
		return out, fmt.Errorf("cannot try %.10s: %w", st.Commit, err)
	}
	out.Run = run.Name()
	err = t.follow(ctx, run, &out)
	removal, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWithin)
	defer cancel()
	if rerr := t.Remove(removal, run.Caller); rerr != nil && !errors.Is(rerr, record.ErrNotFound) {
		err = errors.Join(err, rerr)
	}
	if err != nil {
		return out, fmt.Errorf("cannot try %.10s: %w", st.Commit, err)
	}
	return out, nil
}

// follow waits for the end of a run and sets the result.
func (t *Trier) follow(ctx context.Context, run record.Run, out *Try) error {
	var ended record.Event
	for e, err := range t.Runs.Events(ctx, run.Name(), 0, true) {
		if err != nil {
			return err
		}
		if e.Type == record.EventStepFinished {
			ended = e
		}
		if e.Type == record.EventNote && e.Reason == record.NoteUnasked && !out.Unasked {
			out.Unasked, out.Why = true, "nobody is asked in a try. "+e.Message
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r, err := t.Runs.Run(ctx, run.Name())
	if err != nil {
		return err
	}
	if !r.Ended() {
		return fmt.Errorf("%s waits for a person: %w", r.Name(), record.ErrInvalid)
	}
	out.Exit, out.Time, out.DurationMS = ended.Exit, ended.Time, ended.DurationMS
	if ended.Stdout != nil {
		out.Stdout = ended.Stdout.Tail
	}
	if ended.Stderr != nil {
		out.Stderr = ended.Stderr.Tail
	}
	mean := judge
	if t.Judge != nil {
		mean = t.Judge
	}
	if out.Unasked {
		out.Result = bisect.Skip
	} else {
		out.Result, out.Why = mean(r, ended)
	}
	if t.Look != nil {
		return t.Look(ctx, r, ended)
	}
	return nil
}

// judge returns the meaning of a run. A command that did not end by itself, and a task that found nothing to check,
// say nothing about the commit.
func judge(r record.Run, ended record.Event) (bisect.Result, string) {
	if r.Kind == record.KindTask {
		return judgeTask(r, ended)
	}
	switch {
	case ended.Type == "":
		return bisect.Skip, "the command did not run: " + r.Error
	case ended.Reason != "":
		return bisect.Skip, "the command did not end by itself: " + ended.Reason
	case ended.Exit == nil:
		return bisect.Skip, "the command has no exit status"
	}
	result, err := bisect.Status(*ended.Exit)
	if err != nil {
		return bisect.Skip, err.Error()
	}
	return result, ""
}

// judgeTask returns the meaning of a library task.
func judgeTask(r record.Run, ended record.Event) (bisect.Result, string) {
	if checks := record.NewManifest(r, "", []record.Event{ended}, nil).Checks; len(checks) > 0 {
		switch checks[0].Result {
		case record.CheckPassed:
			return bisect.Good, ""
		case record.CheckFailed:
			return bisect.Bad, checks[0].Why
		}
		return bisect.Skip, checks[0].Why
	}
	switch {
	case ended.OK == nil:
		return bisect.Skip, "the task did not run: " + r.Error
	case *ended.OK:
		return bisect.Good, ""
	}
	return bisect.Bad, ended.Message
}

// key returns the key of a request's results. Equal commands in equal environments have equal keys.
func key(r record.Request, environment []gitd.Hash) ([]byte, error) {
	return json.Marshal(struct {
		Command     *record.Command  `json:"command,omitempty"`
		Task        *record.TaskCall `json:"task,omitempty"`
		Environment []gitd.Hash      `json:"environment,omitempty"`
	}{r.Command, r.Task, environment})
}
