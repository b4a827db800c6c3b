package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/archive"
	"github.com/ramus-dev/ramus/executor/dialogue"
	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/recall"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// launch registers a run and starts the goroutine that owns it. The notes are journalled before the run does anything.
func (x *Executor) launch(l *liveRun, answers map[string]record.Decision, notes ...record.Event) error {
	if !x.life.enter() {
		l.end()
		return record.ErrClosed
	}
	if !x.runs.launch(l) {
		x.life.leave()
		l.end()
		return fmt.Errorf("%s: %w: it is at work", l.Initial.Name(), record.ErrConflict)
	}
	for _, e := range notes {
		_ = l.Emit(e, false) // the run is registered, so drive meets the fault of its journal
	}
	go func() {
		defer x.life.leave()
		x.drive(l, answers)
	}()
	return nil
}

// drive takes a run from its turn to its end.
func (x *Executor) drive(l *liveRun, answers map[string]record.Decision) {
	defer close(l.done)
	ctx, cancel := context.WithTimeoutCause(l.ctx, x.options().RunTimeout, step.ErrRunTimeout)
	defer cancel()
	if l.terminal != nil {
		ctx = l.ctx // a terminal is open for as long as somebody needs it
	}
	var output map[string]any
	var err error
	switch {
	case l.Initial.Kind == record.KindRequest:
		output, err = l.answer() // needs no container, so it does not wait for its turn
	case l.terminal != nil:
		err = l.terminal.Work(ctx) // others work in the container meanwhile
	default:
		var release func()
		if release, err = l.turn(ctx); err == nil {
			output, err = l.perform(ctx, answers)
			// When the executor closes, contexts of runs end one after the other, and the command of this run may go on. A
			// run that waits must not begin next to it.
			if !errors.Is(context.Cause(ctx), record.ErrClosed) {
				release()
			}
		}
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // the error of the stopped step is only a consequence
	}
	x.settle(ctx, l, output, err)
}

// turn waits for the run's turn on its branch.
func (l *liveRun) turn(ctx context.Context) (release func(), err error) {
	if l.held != nil {
		return l.held, nil
	}
	if len(record.OpenSteps(l.Journalled())) > 0 {
		ctx = l.x.life.ctx // had its turn before the restart of the server, so its command must be ended even if the run was stopped
	}
	leave, err := l.groupTurn(ctx)
	if err != nil {
		return nil, err
	}
	free, err := l.Target.Acquire(ctx)
	if err != nil {
		leave()
		return nil, err
	}
	return func() { free(); leave() }, nil
}

// perform does the run's work.
func (l *liveRun) perform(ctx context.Context, answers map[string]record.Decision) (map[string]any, error) {
	if err := context.Cause(ctx); err != nil && (errors.Is(err, record.ErrClosed) || len(record.OpenSteps(l.Journalled())) == 0) {
		return nil, err
	}
	if l.x.SecretStore.LostHanded(l.Initial) {
		return nil, step.Fail(record.ReasonEnvLost, fmt.Sprintf("the server stopped before the run had its secrets (%s); nothing was run",
			strings.Join(l.Initial.Secrets, ", ")))
	}
	if err := l.SetState(record.StateRunning, "", ""); err != nil {
		return nil, err
	}
	switch l.Initial.Kind {
	case record.KindWorkflow:
		return l.workflow(ctx, answers)
	case record.KindExec:
		c := *l.Initial.Exec
		c.Stdin, c.Env = l.stdin, l.Env
		if l.EnvLost() && l.Beginning("exec").Last == nil {
			return nil, l.WithoutEnv()
		}
		timeout := c.Timeout
		if timeout <= 0 && !c.Background {
			timeout = l.Timeout()
		}
		info := step.Info{ID: "exec", Kind: string(workflow.KindShell), Command: l.Initial.Command,
			Background: c.Background, Asks: &c}
		if c.Pure {
			info.Recall = &recall.Subject{Shell: c.Shell, Args: c.Args, Dir: c.Dir}
		}
		return nil, l.single(ctx, info, l.Command(c, timeout))
	case record.KindTask:
		info := step.Info{ID: l.Initial.Task.Name, Kind: string(workflow.KindTask), Task: l.Initial.Task.Name}
		do, err := l.Task(l.Initial.Task.Name, record.Marshal(l.Initial.Task.Params), l.Timeout(), &info)
		if err != nil {
			return nil, err
		}
		return nil, l.single(ctx, info, do)
	case record.KindAgent:
		return l.dialogue.Lead(ctx)
	}
	return nil, step.Fail(record.ReasonInternal, fmt.Sprintf("a run of the unknown kind %q", l.Initial.Kind))
}

// single runs the only step of a run.
func (l *liveRun) single(ctx context.Context, info step.Info, do func(context.Context, *step.Work) (step.Outcome, error)) error {
	res, err := l.Once(ctx, info, do)
	if err != nil {
		return err
	}
	if done := l.Beginning(info.ID).Done; done != nil {
		l.Change(func(r *record.Run) { r.Exit = done.Exit })
	}
	if !res.OK {
		text := res.Error
		if text == "" {
			text = fmt.Sprintf("the command ended with %v", l.Snapshot().ExitCode())
		}
		return step.Fail(l.ReasonOfStep(info.ID, record.ReasonCommandFailed), text)
	}
	return nil
}

// Once runs a step, or finds its result in the journal. Unlike a workflow's step, a step that was lost half way does
// not begin again, because its request does not allow that it happens twice.
func (l *liveRun) Once(ctx context.Context, info step.Info, do dialogue.Do) (workflow.StepResult, error) {
	b := l.Beginning(info.ID)
	var res workflow.StepResult
	var err error
	switch {
	case b.Done != nil:
		return b.Result()
	case b.Last != nil:
		var f step.Fate
		res, f, err = l.TakeUp(ctx, l.Target, info, b, do)
		switch {
		case err != nil || f == step.Ended:
		case f == step.Unheard && l.stdin == nil && info.Kind == string(record.KindAgent), l.repeatable(info),
			info.Discard && b.Starts < step.Losses:
			// The run's record has everything that the step is given.
			res, err = l.Begin(ctx, l.Target, info, b.Starts+1, do)
		default:
			err = step.Fail(record.ReasonInterrupted,
				"the server stopped while the command ran, and its container is gone; nothing it did was committed")
		}
	default:
		res, err = l.Begin(ctx, l.Target, info, 1, do)
	}
	for errors.Is(err, containers.ErrGone) && ctx.Err() == nil && (l.repeatable(info) || l.notBegun(info, err)) {
		if err := l.Emit(record.Event{Type: record.EventContainer, Step: info.ID,
			Message: "lost; the command begins again in a new one from the branch"}, false); err != nil {
			return res, err
		}
		res, err = l.Begin(ctx, l.Target, info, l.Beginning(info.ID).Starts+1, do)
	}
	if errors.Is(err, containers.ErrGone) && ctx.Err() == nil {
		text := "the container was lost while the command ran; nothing it did was committed"
		if kept := l.Target.AwaitRescued(ctx); kept != "" {
			if err := l.Emit(record.Event{Type: record.EventContainer, Step: info.ID, Message: kept}, false); err != nil {
				return res, err
			}
			text += "; " + kept
		}
		err = step.Fail(record.ReasonContainerLost, text)
	}
	return res, err
}

// repeatable reports whether a turn that is gone with its container may begin again from the branch. The run's record
// has its prompt, the session is as it was before the turn, and nothing outside the container has seen the turn's
// work. An agent of agent.ProtocolText does not report its actions, so its turns are not repeatable.
func (l *liveRun) repeatable(s step.Info) bool {
	return l.Beginning(s.ID).Starts < step.Losses && (step.BrowserTasks[s.Task] || l.Speaks(s) && !l.Outside(s.ID))
}

// notBegun reports whether a step that ended with err can begin again because its command has not begun, as far as anybody knows,
// and its input is still there.
func (l *liveRun) notBegun(s step.Info, err error) bool {
	return errors.Is(err, step.ErrUnheard) && l.stdin == nil && l.Beginning(s.ID).Starts < step.Losses && !l.Outside(s.ID)
}

// settle writes down how a run ended, or that it waits, and releases it.
func (x *Executor) settle(ctx context.Context, l *liveRun, output map[string]any, err error) {
	name := l.Initial.Name()
	unsealed := false
	defer func() {
		l.end()
		if !unsealed {
			x.runs.remove(l)
		}
	}()
	cause := context.Cause(ctx)
	if err != nil && errors.Is(cause, record.ErrClosed) {
		return // its journal stays in live/ and the next process continues it
	}
	// Clean-up outlives cancellation.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), worktree.Housekeeping)
	defer cancel()
	if output != nil {
		l.Change(func(r *record.Run) { r.Output = output })
	}
	if tip, err := l.Target.Tip(ctx); err == nil {
		l.Change(func(r *record.Run) { r.Head = tip })
	}
	if with, err := l.Target.Others.Tips(ctx, l.Snapshot().With); err == nil && l.Initial.Caller == l.Target.Caller {
		l.Change(func(r *record.Run) { r.With = with })
	}
	var jerr error
	switch {
	case err == nil:
		jerr = l.SetState(record.StateComplete, "", "")
	case errors.Is(err, errParked):
		gate := *l.Snapshot().Gate
		jerr = l.SetState(record.StateAwaitingReview, "", gate.Message)
		// A question to a person may be open for days. It holds no container.
		if !l.Initial.Sub && len(x.Shells.Open(l.Initial.Caller)) == 0 {
			jerr = errors.Join(jerr, x.Fleet.Remove(ctx, l.Initial.Caller.String()))
		}
	default:
		reason := step.ReasonOf(err)
		if reason == record.ReasonInternal {
			x.Log.Error("a run failed for a reason that is not its own", "run", name, "err", err)
		}
		jerr = l.SetState(record.StateFailed, reason, err.Error())
	}
	x.observe(l)
	if jerr = errors.Join(jerr, x.seal(ctx, l)); jerr != nil {
		x.Log.Error("cannot seal a run; it is tried again until it can be", "run", name, "err", jerr)
		// Until it is sealed, only its liveRun has its result or its question.
		unsealed = true
		x.life.wg.Go(func() { x.sealLater(l, x.tuning.sealEvery) })
		return
	}
	x.sealed(l)
}

// sealLater seals a run that could not be sealed when it ended, on a full disk or without the artifact store. Until then it cannot
// be retried, and the process may live for months.
func (x *Executor) sealLater(l *liveRun, first time.Duration) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-x.life.ctx.Done():
			return // the next process finds its journal in live/
		case <-timer.C:
		}
		if err := x.sealAgain(l); err != nil {
			x.Log.Debug("still cannot seal a run", "run", l.Initial.Name(), "err", err)
			timer.Reset(x.tuning.sealEvery)
			continue
		}
		x.Log.Info("sealed a run that could not be when it ended", "run", l.Initial.Name())
		x.sealed(l)
		x.runs.remove(l)
		return
	}
}

// sealOnly takes up a run that had ended before the server stopped, and was not sealed.
func (x *Executor) sealOnly(l *liveRun) {
	x.runs.add(l)
	l.end()
	close(l.done)
	x.life.wg.Go(func() { x.sealLater(l, 0) })
}

func (x *Executor) sealAgain(l *liveRun) error {
	ctx, cancel := context.WithTimeout(x.life.ctx, worktree.Housekeeping)
	defer cancel()
	r := l.Snapshot()
	events, err := l.Reopen()
	if err != nil {
		return err
	}
	defer l.end()
	// The reason that the run could not be sealed may have kept its end out of the journal.
	if n := len(events); n == 0 || events[n-1].Type != record.EventRunState || events[n-1].State != r.State {
		if err := l.SetState(r.State, r.Reason, r.Error); err != nil {
			return err
		}
	}
	return x.seal(ctx, l)
}

// sealed indexes a run that its ref has, and removes its other files.
func (x *Executor) sealed(l *liveRun) {
	name := l.Initial.Name()
	if err := x.Index.Put(l.Snapshot()); err != nil {
		x.Log.Error("cannot index a run; `ramus reindex` repairs the index", "run", name, "err", err)
	}
	x.discard(l.Initial)
}

// discard removes a run's files in live/, because its ref has them now.
func (x *Executor) discard(r record.Run) {
	if err := x.Folder.Remove(r); err != nil {
		x.Log.Warn("cannot remove the live files of a run that is sealed", "run", r.Name(), "err", err)
	}
}

// resumeAll continues every run that had not ended when the last process did.
func (x *Executor) resumeAll(ctx context.Context) error {
	claimed, err := x.Index.Claimed()
	if err != nil {
		return err
	}
	for _, c := range claimed {
		if err := x.indexClaim(ctx, c[0], c[1]); err != nil {
			return err
		}
	}
	var opened []*liveRun
	if err := x.SecretStore.SweepHanded(x.Index.All()); err != nil {
		return err
	}
	for _, r := range x.Index.All() {
		if r.Passive() {
			continue // its owner takes it up, see Untold and Standing
		}
		_, statErr := os.Stat(x.Folder.Journal(r))
		if r.Ended() && statErr != nil || r.State == record.StateAwaitingReview && statErr != nil || r.Sub {
			continue
		}
		l, err := x.reopen(ctx, r)
		if err != nil {
			x.Log.Error("cannot resume a run", "run", r.Name(), "err", err)
			continue
		}
		if l == nil {
			continue
		}
		if !l.HadEnded() && l.terminal == nil && len(record.OpenSteps(l.Journalled())) > 0 {
			l.keepTurn()
		}
		opened = append(opened, l)
	}
	for _, l := range opened { // now that those at work have their turns
		if err := x.continueRun(l, nil); err != nil {
			x.Log.Error("cannot resume a run", "run", l.Initial.Name(), "err", err)
		}
	}
	return nil
}

// indexClaim indexes a run whose ref was made just before the last process ended, if the ref is there.
func (x *Executor) indexClaim(ctx context.Context, name, ref string) error {
	repo, err := x.Git.Repo(name)
	if err != nil {
		return nil // removed since
	}
	hash, err := repo.Resolve(ctx, ref)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := index.ReadRun(ctx, repo, gitd.Ref{Name: ref, Hash: hash})
	if err != nil {
		return err
	}
	return x.Index.Put(r)
}

// resume continues a run from its journal.
func (x *Executor) resume(ctx context.Context, r record.Run, decide *record.Decision) error {
	l, err := x.reopen(ctx, r)
	if err != nil || l == nil {
		return err
	}
	return x.continueRun(l, decide)
}

// continueRun continues a run that was opened again.
func (x *Executor) continueRun(l *liveRun, decide *record.Decision) error {
	if l.HadEnded() {
		x.sealOnly(l)
		return nil
	}
	if decide != nil {
		if err := l.Emit(record.Event{Type: record.EventDecision, Step: decide.Step, Message: decide.Comment,
			Data: record.Marshal(*decide)}, true); err != nil {
			return err
		}
	}
	return x.launch(l, decisions(l.Journalled()))
}

// decisions returns the answers that a journal holds, by step.
func decisions(events []record.Event) map[string]record.Decision {
	answers := make(map[string]record.Decision)
	for _, e := range events {
		var d record.Decision
		if e.Type == record.EventDecision && json.Unmarshal(e.Data, &d) == nil {
			answers[e.Step] = d
		}
	}
	return answers
}

// reopen makes a liveRun of a run that its ref has. It returns nil if the run has ended there.
func (x *Executor) reopen(ctx context.Context, r record.Run) (*liveRun, error) {
	repo, err := x.Git.Repo(r.Repo)
	if err != nil {
		return nil, err
	}
	ref, err := repo.Resolve(ctx, record.RunRef(r.Caller, r.ID))
	if err != nil {
		return nil, err
	}
	kept, err := index.ReadRun(ctx, repo, gitd.Ref{Name: record.RunRef(r.Caller, r.ID), Hash: ref})
	if err != nil {
		return nil, err
	}
	if kept.Ended() {
		if err := x.Index.Put(kept); err != nil {
			return nil, err
		}
		x.discard(kept)
		return nil, nil
	}
	files, err := x.runFiles(ctx, repo, ref)
	if err != nil {
		return nil, err
	}
	if err := x.restoreJournal(ctx, repo, ref, kept); err != nil {
		return nil, err
	}
	// A request needs no container, and may be in another repository than the caller's branch.
	t := x.targets.Runner.NewTarget(kept.Caller, repo, kept.Base)
	if kept.Kind != record.KindRequest {
		t = x.targets.Of(kept.Caller, repo, kept.Base)
		if err := t.Include(kept.With); err != nil {
			return nil, err
		}
	}
	l, err := x.newLive(kept, ref, files, t)
	if err != nil {
		return nil, err
	}
	l.Recall()
	return l, nil
}

// restoreJournal puts the sealed journal of a run that waited back into live/.
func (x *Executor) restoreJournal(ctx context.Context, repo *gitd.Repo, ref gitd.Hash, r record.Run) error {
	path := x.Folder.Journal(r)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	text, err := repo.ReadFile(ctx, string(ref), archive.JournalFile, 1<<30)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil // claimed, and then the process ended
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("cannot restore journal: %w", err)
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return fmt.Errorf("cannot restore journal: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("cannot restore journal: %w", err)
	}
	return nil
}

// keptFiles returns the files that the record of a run has.
func (x *Executor) keptFiles(ctx context.Context, r record.Run) (runFiles, error) {
	repo, err := x.Git.Repo(r.Repo)
	if err != nil {
		return runFiles{}, err
	}
	ref, err := repo.Resolve(ctx, record.RunRef(r.Caller, r.ID))
	if err != nil {
		return runFiles{}, err
	}
	return x.runFiles(ctx, repo, ref)
}

func (x *Executor) runFiles(ctx context.Context, repo *gitd.Repo, ref gitd.Hash) (runFiles, error) {
	files := runFiles{Sub: map[string]string{}}
	entries, err := repo.Tree(ctx, string(ref), "", true)
	if err != nil {
		return files, err
	}
	for _, e := range entries {
		id, isSub := strings.CutPrefix(e.Path, "sub/")
		if e.Path != "workflow.yaml" && !isSub {
			continue
		}
		text, err := repo.ReadFile(ctx, string(ref), e.Path, maxWorkflow)
		if err != nil {
			return files, err
		}
		if isSub {
			files.Sub[strings.TrimSuffix(id, ".yaml")] = string(text)
		} else {
			files.Workflow = string(text)
		}
	}
	return files, nil
}

// seal writes the record of a run into its ref. The secrets of a run that has ended are removed then.
func (x *Executor) seal(ctx context.Context, l *liveRun) error {
	if err := l.entry.Seal(ctx); err != nil {
		return err
	}
	if err := x.SecretStore.DropHanded(l.Snapshot()); err != nil {
		x.Log.Warn("the secrets of a run are not removed; the next start does it", "run", l.Initial.Name(), "err", err)
	}
	return nil
}
