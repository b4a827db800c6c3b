package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/recall"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/library"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// conductor drives one workflow run. Its goroutine alone uses the machine. Steps run in goroutines of their own, get copies and
// send results back.
type conductor struct {
	l       *liveRun
	machine *workflow.Machine
	answers map[string]record.Decision // to gates, by step; for gates of sub-workflows, STEP/GATE
	results chan stepDone
	running int
	gates   []record.Gate
	images  bool // nodes name images
}

type stepDone struct {
	step   workflow.Step
	result workflow.StepResult
	gate   *record.Gate // a sub-workflow waits for a person
	err    error
}

// workflow runs a workflow from where its journal is to its end, or until only questions to people are left.
func (l *liveRun) workflow(ctx context.Context, answers map[string]record.Decision) (map[string]any, error) {
	// Also of a run that was stopped. Its file was checked before.
	w, err := l.files.parse(context.WithoutCancel(ctx), l.x, l.Initial.Repo)
	if err != nil {
		return nil, step.Fail(record.ReasonBadInput, err.Error())
	}
	results, err := recorded(l.Journalled())
	if err != nil {
		return nil, err
	}
	machine, pending, _, err := workflow.Replay(w, l.Initial.Input, workflowContext(l.Initial), results, "")
	if err != nil {
		return nil, step.Fail(record.ReasonBadInput, err.Error())
	}
	c := &conductor{l: l, machine: machine, answers: answers, results: make(chan stepDone), images: w.Images()}
	defer c.leave(ctx)
	outcome, err := c.run(ctx, pending)
	if err != nil {
		return nil, err
	}
	if !outcome.OK {
		reason := record.ReasonCommandFailed
		text := outcome.Error
		if text == "" {
			text = fmt.Sprintf("step %s failed", outcome.Failed)
		}
		return machine.State(), step.Fail(l.ReasonOfStep(outcome.Failed, reason), text)
	}
	if w.Repo.MergeOnSuccess {
		if err := l.mergeOnSuccess(ctx, w); err != nil {
			return machine.State(), err
		}
	}
	return machine.State(), nil
}

// leave removes the run's container if it may be of another image than the usual one. Later work of the caller gets the usual one.
func (c *conductor) leave(ctx context.Context) {
	if !c.images || c.l.x.life.ctx.Err() != nil {
		return
	}
	if err := c.l.x.Fleet.Remove(context.WithoutCancel(ctx), c.l.Target.Caller.String()); err != nil {
		c.l.x.Log.Warn("cannot remove the container of a run whose steps have images of their own", "run",
			c.l.Initial.Name(), "err", err)
	}
}

// workflowContext returns the value of `context` in a workflow's templates.
func workflowContext(r record.Run) map[string]any {
	return map[string]any{"run_id": r.Caller.ID(), "run": r.Name(), "caller": r.Caller.String(), "branch": r.Branch,
		"base_branch": r.Base, "base_commit": string(r.BaseCommit), "repo_id": r.Repo, "asker": r.Asker.Name}
}

// recorded returns the results that a journal holds, in the order that they came.
func recorded(events []record.Event) ([]workflow.Recorded, error) {
	var results []workflow.Recorded
	for _, e := range events {
		if e.Type != record.EventStepFinished {
			continue
		}
		var f record.StepResult
		if err := json.Unmarshal(e.Data, &f); err != nil {
			return nil, fmt.Errorf("cannot read the journal's result of %s: %w", e.Step, err)
		}
		results = append(results, workflow.Recorded{Step: e.Step, Result: f.Result})
	}
	return results, nil
}

// run issues steps and takes their results until the machine has ended or only gates are open.
func (c *conductor) run(ctx context.Context, pending []workflow.Step) (workflow.Outcome, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	for _, s := range pending {
		c.start(ctx, s)
	}
	var first error
	for c.running > 0 {
		d := <-c.results
		c.running--
		switch {
		case d.gate != nil:
			c.gates = append(c.gates, *d.gate)
			continue
		case d.err != nil:
			// One step could not be done at all. The others are stopped and awaited.
			if first == nil {
				first = d.err
				stop(d.err)
			}
			continue
		case first != nil:
			continue
		}
		if err := c.machine.Finish(d.step.ID, d.result); err != nil {
			first = step.Fail(record.ReasonCommandFailed, err.Error())
			stop(first)
			continue
		}
		steps, err := c.machine.Next()
		if err != nil {
			first = step.Fail(record.ReasonCommandFailed, err.Error())
			stop(first)
			continue
		}
		for _, s := range steps {
			c.start(ctx, s)
		}
	}
	if first != nil {
		return workflow.Outcome{}, first
	}
	if len(c.gates) > 0 {
		return workflow.Outcome{}, c.park()
	}
	outcome, done := c.machine.Done()
	if !done {
		return workflow.Outcome{},
			step.Fail(record.ReasonInternal, "the workflow cannot continue: no step is ready and it has not ended")
	}
	return outcome, nil
}

// park journals the questions to people.
func (c *conductor) park() error {
	for _, g := range c.gates {
		if err := c.l.Emit(record.Event{Type: record.EventGate, Step: g.Step, Message: g.Message,
			Data: record.Marshal(g)}, true); err != nil {
			return err
		}
	}
	gate := c.gates[0]
	c.l.Change(func(r *record.Run) { r.Gate = &gate })
	return errParked
}

// start runs a step in a goroutine. Its result comes back on the channel.
func (c *conductor) start(ctx context.Context, s workflow.Step) {
	c.running++
	go func() {
		d := stepDone{step: s}
		d.result, d.gate, d.err = c.step(ctx, s)
		c.results <- d
	}()
}

func (c *conductor) step(ctx context.Context, s workflow.Step) (workflow.StepResult, *record.Gate, error) {
	l := c.l
	if err := context.Cause(ctx); err != nil && (errors.Is(err, record.ErrClosed) || !l.left(s)) {
		return workflow.StepResult{}, nil, err
	}
	info := step.Info{ID: s.ID, Node: s.Node, Kind: string(s.Kind), Command: s.Command, Task: s.Task, Image: s.Image,
		Services: s.Services}
	if info.Image == "" && c.images {
		info.Usual = true // and not that of the step before
	}
	switch s.Kind {
	case workflow.KindShell, workflow.KindTask:
		t, err := l.targetOf(s)
		if err != nil {
			return workflow.StepResult{}, nil, err
		}
		do, err := l.doStep(s, &info)
		if err != nil {
			return workflow.StepResult{}, nil, err
		}
		res, err := l.OnHost(ctx, t, info, do)
		return res, nil, err
	case workflow.KindHuman:
		d, ok := c.answers[s.ID]
		if !ok {
			return workflow.StepResult{}, &record.Gate{Step: s.ID, Message: s.Human.Message, Allowed: s.Human.Allowed}, nil
		}
		res, err := l.aside(info, func() (workflow.StepResult, record.Reason) {
			r := workflow.StepResult{OK: d.Approved,
				Output: map[string]any{"approved": d.Approved, "by": d.By, "comment": d.Comment}}
			if d.Approved {
				return r, ""
			}
			r.Error = strings.TrimSuffix(fmt.Sprintf("%s said no: %s", d.By, d.Comment), ": ")
			return r, record.ReasonRejected
		})
		return res, nil, err
	case workflow.KindLLM:
		res, err := l.ask(ctx, info, s)
		return res, nil, err
	case workflow.KindFork:
		res, err := l.fork(ctx, info, s)
		return res, nil, err
	case workflow.KindJoin:
		res, err := l.join(ctx, info, s)
		return res, nil, err
	case workflow.KindWorkflow:
		return c.sub(ctx, info, s)
	}
	return workflow.StepResult{}, nil,
		step.Fail(record.ReasonInternal, fmt.Sprintf("step %s is of the unknown kind %q", s.ID, s.Kind))
}

// left reports whether a step was at work in a container when the last server stopped. Its command has to be ended even if the run
// is stopped by now.
func (l *liveRun) left(s workflow.Step) bool {
	switch s.Kind {
	case workflow.KindShell, workflow.KindTask, workflow.KindWorkflow:
		b := l.Beginning(s.ID)
		return b.Last != nil && b.Done == nil
	}
	return false
}

// doStep returns the work of a shell or task step in its container.
func (l *liveRun) doStep(s workflow.Step, info *step.Info) (func(context.Context, *step.Work) (step.Outcome, error), error) {
	timeout := s.Timeout
	if timeout <= 0 {
		timeout = l.Timeout()
	}
	if s.Kind == workflow.KindShell {
		info.Background = s.Background
		if s.Pure != nil && *s.Pure {
			info.Recall = &recall.Subject{Shell: s.Command}
		}
		if s.Background {
			timeout = s.Timeout // a server may run as long as its container
		}
		c := record.Command{Shell: s.Command, Background: s.Background}
		info.Asks = &c
		return l.Command(c, timeout), nil
	}
	do, err := l.Task(s.Task, s.Params, timeout, info)
	if s.Pure != nil && !*s.Pure || s.Pure == nil && s.Task == buildTask {
		info.Recall = nil // later steps may need the files that a build makes and git ignores
	}
	return do, err
}

// buildTask is the task whose effect is more than its result.
const buildTask = "lib_run_build"

// Task returns the work of a step that is a library task.
func (l *liveRun) Task(name string, params json.RawMessage, timeout time.Duration, info *step.Info) (func(context.Context, *step.Work) (step.Outcome, error), error) {
	task, ok := library.Lookup(name)
	if !ok {
		return nil, step.Fail(record.ReasonBadInput, fmt.Sprintf("there is no task %q; `ramus tasks` lists them", name))
	}
	info.Command = step.TaskLine(name, params)
	if isRecalled(name) {
		info.Recall = &recall.Subject{Task: name, Params: params}
	}
	return func(ctx context.Context, w *step.Work) (step.Outcome, error) {
		begun := l.x.Now()
		if record.CheckOf(name) != "" && (w.Info.Recall == nil || w.Again) {
			if err := w.Identify(ctx, name); err != nil {
				return step.Outcome{}, err
			}
		}
		out, err := task.Run(ctx, &step.TaskShell{W: w, Timeout: timeout}, params)
		switch {
		case err == nil || isOwnFault(ctx, err):
		case ctx.Err() != nil && !errors.Is(context.Cause(ctx), record.ErrClosed) && !errors.Is(err, containers.ErrGone):
			// The command was stopped. The work tree is committed nevertheless.
			return step.Outcome{Exit: containers.Exit{Code: 143, Reason: containers.ReasonKilled, Duration: l.x.Now().Sub(begun)},
				Result: workflow.StepResult{Error: "the task was stopped"}}, nil
		default:
			return step.Outcome{}, err
		}
		return taskOutcome(out, err, l.x.Now().Sub(begun)), nil
	}, nil
}

// isRecalled reports whether the result of a task follows from the files and the container. A check by a browser keeps
// its looks by itself.
func isRecalled(task string) bool {
	return record.CheckOf(task) != "" && !step.BrowserTasks[task]
}

// isOwnFault reports whether a task could not be done as asked, as with a file that is not there or a path that leaves the work
// tree. Otherwise its container failed.
func isOwnFault(ctx context.Context, err error) bool {
	switch step.ReasonOf(err) {
	case record.ReasonInternal, record.ReasonBadInput:
		return ctx.Err() == nil
	}
	return false
}

func taskOutcome(out tasks.Output, err error, took time.Duration) step.Outcome {
	o := step.Outcome{Result: workflow.StepResult{OK: out.OK, Output: map[string]any{}}}
	o.Exit.Duration = took
	if err != nil {
		o.Fault = err
		o.Result.OK, o.Result.Error = false, err.Error()
	}
	if r := out.Result; r != nil {
		o.Exit.Code = r.ExitCode
		if r.TimedOut {
			o.Exit.Reason = "timeout"
		}
		o.Result.Output["stdout"], o.Result.Output["stderr"] = text.End(r.Stdout, live.ResultTail), text.End(r.Stderr, live.ResultTail)
		o.Result.Output["exit_code"], o.Result.Output["timed_out"] = r.ExitCode, r.TimedOut
	}
	if !o.Result.OK && o.Exit.Code == 0 {
		o.Exit.Code = 1
	}
	o.Result.Output["value"] = out.Value
	// The fields of a structured result are in the output, too, such as result.failed_names.
	var fields map[string]any
	if json.Unmarshal(record.Marshal(out.Value), &fields) == nil {
		for k, v := range fields {
			if _, taken := o.Result.Output[k]; !taken {
				o.Result.Output[k] = v
			}
		}
	}
	return o
}

// aside journals a step that needs no container.
func (l *liveRun) aside(s step.Info, do func() (res workflow.StepResult, reason record.Reason)) (workflow.StepResult, error) {
	if err := l.Emit(record.Event{Type: record.EventStepStarted, Step: s.ID, Node: s.Node, Kind: s.Kind,
		Command: s.Command}, true); err != nil {
		return workflow.StepResult{}, err
	}
	begun := l.x.Now()
	res, reason := do()
	res = redact.Clean(l.x.Secrets, res)
	ok := res.OK
	return res, l.Emit(record.Event{Type: record.EventStepFinished, Step: s.ID, Node: s.Node, Kind: s.Kind, OK: &ok,
		Reason: string(reason), Message: text.Clip(res.Error, 16<<10),
		DurationMS: l.x.Now().Sub(begun).Milliseconds(), Data: record.Marshal(record.StepResult{Result: res})}, true)
}

// ask asks the model the question of an llm step.
func (l *liveRun) ask(ctx context.Context, info step.Info, s workflow.Step) (workflow.StepResult, error) {
	info.Command = text.Clip(s.LLM.Prompt, 4<<10)
	if l.x.LLM == nil {
		return workflow.StepResult{},
			step.Fail(record.ReasonBadInput, "no model is configured: set `llm` in the configuration")
	}
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	return l.aside(info, func() (workflow.StepResult, record.Reason) {
		text, err := l.x.LLM.Ask(ctx, *s.LLM)
		if err != nil {
			return workflow.StepResult{Error: err.Error()}, record.ReasonModel
		}
		res := workflow.StepResult{OK: true, Output: map[string]any{"text": text}}
		if len(s.LLM.Schema) > 0 {
			var v any
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				return workflow.StepResult{Output: res.Output, Error: "the model's answer is not JSON: " + err.Error()},
					record.ReasonModel
			}
			res.Output["json"] = v
		}
		return res, ""
	})
}

var notCallerID = pattern.New(`[^a-z0-9]+`)

// lineCaller returns the caller of a fan-out line with a branch of its own.
func lineCaller(parent record.Caller, line string) (record.Caller, error) {
	part := strings.Trim(notCallerID.ReplaceAllString(strings.ToLower(line), "-"), "-")
	id := parent.ID() + "-" + part
	if len(id) > 80 {
		id = id[:64] + "-" + record.NewID(2)
	}
	return record.ParseCaller(parent.Kind() + ":" + id)
}

// targetOf returns the target in which a step's commands run. It has the run's own branch, or the branch of the
// step's fan-out line.
func (l *liveRun) targetOf(s workflow.Step) (*step.Target, error) {
	if s.Line == "" || !s.Branch {
		return l.Target, nil
	}
	c, err := lineCaller(l.Initial.Caller, s.Line)
	if err != nil {
		return nil, err
	}
	return l.x.targets.Of(c, l.Target.Repo, l.Initial.Base), nil
}

// fork gives a fan-out line a branch of its own, which begins at the run's.
func (l *liveRun) fork(ctx context.Context, info step.Info, s workflow.Step) (workflow.StepResult, error) {
	s.Branch = true
	t, err := l.targetOf(s)
	if err != nil {
		return workflow.StepResult{}, err
	}
	info.Command = "branch " + t.Caller.Branch()
	tip, err := l.Target.Tip(ctx)
	if err != nil {
		return workflow.StepResult{}, err
	}
	none := gitd.Hash("")
	err = t.Repo.Update(ctx, gitd.RefUpdate{Name: "refs/heads/" + t.Caller.Branch(), New: tip, Old: &none})
	if err != nil && !errors.Is(err, gitd.ErrConflict) {
		return workflow.StepResult{}, err
	}
	return l.aside(info, func() (workflow.StepResult, record.Reason) {
		return workflow.StepResult{OK: true, Output: map[string]any{"branch": t.Caller.Branch()}}, ""
	})
}

// join merges the branches of fan-out lines into the run's, in order.
func (l *liveRun) join(ctx context.Context, info step.Info, s workflow.Step) (workflow.StepResult, error) {
	info.Command = "merge " + strings.Join(s.Lines, ", ")
	var failed error
	res, err := l.aside(info, func() (res workflow.StepResult, reason record.Reason) {
		res, reason, failed = l.mergeLines(ctx, s)
		return res, reason
	})
	return res, errors.Join(failed, err)
}

func (l *liveRun) mergeLines(ctx context.Context, s workflow.Step) (workflow.StepResult, record.Reason, error) {
	for _, line := range s.Lines {
		c, err := lineCaller(l.Initial.Caller, line)
		if err != nil {
			return workflow.StepResult{}, record.ReasonInternal, err
		}
		m, err := l.Target.Repo.Merge(ctx,
			gitd.MergeRequest{From: c.Branch(), Into: l.Initial.Branch, Strategy: gitd.StrategyMerge,
				Message: fmt.Sprintf("Merge line %s\n\n%s: %s\n%s: %s\n%s: %s\n", line, record.TrailerCaller,
					l.Initial.Caller, record.TrailerRun, l.Initial.ID, record.TrailerStep, s.ID),
				Author: l.Initial.Asker, Committer: l.x.Bot, When: l.x.Now()})
		if err != nil {
			return workflow.StepResult{}, record.ReasonInternal, err
		}
		if len(m.Conflicts) > 0 {
			return workflow.StepResult{Output: map[string]any{"conflicts": m.Conflicts, "line": line},
					Error: fmt.Sprintf("line %s conflicts in %s", line, strings.Join(m.Conflicts, ", "))},
				record.ReasonMergeConflict, nil
		}
		// The branch has the line's work, so its container is not needed again.
		if err := l.x.Fleet.Remove(context.WithoutCancel(ctx), c.String()); err != nil {
			l.x.Log.Warn("cannot remove the container of a line that was merged", "caller", c, "err", err)
		}
	}
	return workflow.StepResult{OK: true, Output: map[string]any{"conflicts": []string{}}}, "", nil
}

// sub runs a sub-workflow as a run of its own, on this run's branch or on one of its own.
func (c *conductor) sub(ctx context.Context, info step.Info, s workflow.Step) (workflow.StepResult, *record.Gate, error) {
	l := c.l
	info.Command = "workflow " + s.Sub.Workflow
	child, err := l.x.child(context.WithoutCancel(ctx), l, s)
	if err != nil {
		return workflow.StepResult{}, nil, err
	}
	if b := l.Beginning(s.ID); b.Last == nil {
		if err := l.Emit(record.Event{Type: record.EventStepStarted, Step: s.ID, Node: s.Node, Kind: info.Kind,
			Command: info.Command, Message: child.name}, true); err != nil {
			return workflow.StepResult{}, nil, err
		}
	}
	answers := make(map[string]record.Decision)
	for step, d := range c.answers {
		if rest, ok := strings.CutPrefix(step, s.ID+"/"); ok {
			answers[rest] = d
		}
	}
	run, state, err := child.run(ctx, answers)
	if err != nil {
		return workflow.StepResult{}, nil, err
	}
	if run.State == record.StateAwaitingReview {
		return workflow.StepResult{},
			&record.Gate{Step: s.ID + "/" + run.Gate.Step, Message: run.Gate.Message, Allowed: run.Gate.Allowed}, nil
	}
	ok := run.State == record.StateComplete
	res := workflow.StepResult{OK: ok,
		Output: map[string]any{"status": string(run.State), "state": state, "run": run.Name(), "branch": run.Branch}}
	if !ok {
		res.Error = fmt.Sprintf("%s failed (%s): %s", run.Name(), run.Reason, run.Error)
	}
	if s.Sub.InheritBranch {
		l.Change(func(r *record.Run) { r.Head = run.Head })
	}
	res = redact.Clean(l.x.Secrets, res)
	reason := ""
	if !ok {
		reason = string(run.Reason)
	}
	return res, nil, l.Emit(record.Event{Type: record.EventStepFinished, Step: s.ID, Node: s.Node, Kind: info.Kind,
		Command: info.Command, OK: &ok, Reason: reason,
		Message: text.Clip(res.Error, 16<<10), DurationMS: run.EndedAt.Sub(run.StartedAt).Milliseconds(),
		Data: record.Marshal(record.StepResult{Result: res})}, true)
}

// mergeOnSuccess brings a finished workflow's branch into its base, or to where the policy of the repository says.
func (l *liveRun) mergeOnSuccess(ctx context.Context, w *workflow.Workflow) error {
	strategy := gitd.Strategy(w.Repo.MergeStrategy)
	if strategy == "" {
		strategy = gitd.StrategyRebase
	}
	res, err := l.x.land(ctx, l.Target, record.Merge{Into: l.Initial.Base, Strategy: strategy, By: l.Initial.Asker})
	if err != nil && ctx.Err() == nil && upstream.NotLanded(err) {
		return step.Fail(record.ReasonNotMerged, err.Error())
	}
	if err != nil {
		return err
	}
	if err := l.Emit(record.Event{Type: record.EventMerge, Message: l.Initial.Base, Commit: res.Commit,
		Data: record.Marshal(res)}, true); err != nil {
		return err
	}
	switch {
	case len(res.Conflicts) > 0:
		return step.Fail(record.ReasonMergeConflict, fmt.Sprintf("%s cannot be brought into %s: conflicts in %s",
			l.Initial.Branch, l.Initial.Base, strings.Join(res.Conflicts, ", ")))
	case res.InTheWay():
		return step.Fail(record.ReasonMergeConflict, fmt.Sprintf("%s cannot be merged: %s", l.Initial.Branch, res))
	}
	l.Change(func(r *record.Run) {
		if res.Merged {
			r.Merged = res.Commit
		}
		r.Pull = res.Pull
	})
	return nil
}
