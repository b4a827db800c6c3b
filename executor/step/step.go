package step

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/addition"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/images"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/recall"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/service"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// Losses is how often a step begins again because its container was lost.
const Losses = 3

// KillWait is how long a stopped command may take to end and to be committed.
const KillWait = time.Minute

// Info describes a step before it begins.
type Info struct {
	ID, Node, Kind string
	// Trailer is the step in the trailers of commits. Empty means ID.
	Trailer    string
	Task       string
	Command    string // as people read it
	Background bool
	Prompts    int // of an agent's turn, the number of the run's prompts until then
	// Hear, if not nil, sets Prompts and Command when the step begins, with liveRun.mu held. With an error it does not begin.
	Hear func(*Info) error
	// Image, if not "", is that of the step's container. Services run next to it, in addition to the repository's.
	Image    string
	Services []service.Service
	// Asks is the command line to which the rules of the base apply before the step begins. Nil means that it has none.
	Asks *record.Command
	// Discard throws the changes of the step away. Nothing is committed.
	Discard bool
	// Recall, if not nil, is the step's work as a subject. Its result may be that of an earlier check. Tree, image and
	// environment are left to the step.
	Recall *recall.Subject
	// Usual has a container of another image than the repository's replaced.
	Usual bool
}

// trailer returns the step in the trailers of its commits.
func (s Info) trailer() string { return cmp.Or(s.Trailer, s.ID) }

// Started is the data of a step.started event. It is enough to find the command in its container again.
type Started struct {
	ID     string        `json:"id"`     // of the command in the runner; of a task, the prefix
	Caller record.Caller `json:"caller"` // whose container, when it is not the run's own
	// Prompts is the number of the run's prompts that its agent has got with this turn.
	Prompts int `json:"prompts,omitempty"`
}

// Failure is the error of a run that ends for a reason of the closed list.
type Failure struct {
	Reason record.Reason
	Text   string
}

func (f *Failure) Error() string { return f.Text }

// ReasonOf returns the reason for an error that ended a run.
func ReasonOf(err error) record.Reason {
	var f *Failure
	var s *worktree.ScriptError
	var u *worktree.Uncommitted
	switch {
	case errors.As(err, &f):
		return f.Reason
	case errors.Is(err, ErrCancelled), errors.Is(err, context.Canceled):
		return record.ReasonCancelled
	case errors.Is(err, ErrRunTimeout), errors.Is(err, context.DeadlineExceeded):
		return record.ReasonTimedOut
	case errors.Is(err, worktree.ErrDiskFull), isNoSpace(err):
		return record.ReasonDiskFull
	case errors.Is(err, containers.ErrUnavailable), errors.Is(err, containers.ErrBusy):
		return record.ReasonUnavailable
	case errors.Is(err, containers.ErrGone):
		return record.ReasonContainerLost
	case errors.As(err, &u):
		return u.Reason
	case errors.Is(err, worktree.ErrBranchGone):
		return record.ReasonBranchGone
	case errors.As(err, &s) && s.LacksGit(), errors.Is(err, record.ErrInvalid), errors.Is(err, gitd.ErrInvalid):
		return record.ReasonBadInput
	}
	return record.ReasonInternal
}

// OnHost runs a step in its caller's container. It begins the step, takes it up after a restart of the server, begins it again if
// the container was lost, and commits and journals the outcome. do runs the step's commands and returns their outcome.
func (l *Run) OnHost(ctx context.Context, t *Target, s Info, do func(context.Context, *Work) (Outcome, error)) (workflow.StepResult, error) {
	b := l.Beginning(s.ID)
	if b.Last != nil {
		res, f, err := l.TakeUp(ctx, t, s, b, do)
		if f == Ended || err != nil {
			return res, err
		}
	}
	for start := b.Starts + 1; ; start++ {
		res, err := l.Begin(ctx, t, s, start, do)
		if err == nil || !errors.Is(err, containers.ErrGone) || ctx.Err() != nil {
			return res, err
		}
		if start-b.Starts >= Losses {
			return workflow.StepResult{}, &Failure{record.ReasonContainerLost,
				fmt.Sprintf("the container was lost %d times while %s ran: %v", Losses, s.ID, err)}
		}
		if err := l.Emit(record.Event{Type: record.EventContainer, Step: s.ID,
			Message: "lost; the command begins again in a new one from the branch"}, false); err != nil {
			return workflow.StepResult{}, err
		}
	}
}

// Work is a step while it runs in a container.
type Work struct {
	Run    *Run
	Target *Target
	Host   *containers.Host
	Image  string // of its container, with digest; empty if the engine has no images
	Info   Info
	ID     string    // of its command, or the prefix of its commands'
	Before gitd.Hash // the branch's tip when it began
	Out    *live.Outputs
	Again  bool   // its command began before the server was restarted
	n      int    // commands of a task so far
	Head   *Head  // the branch's tip as its own commits have moved it
	guests guests // requests at the door that are for this step
	// checked is the tree of the files when a check began. It is empty for other tasks.
	checked gitd.Hash
	// asked is the subject of a check that ran. It is nil for other work.
	asked  *recall.Subject
	visits atomic.Int64  // tasks that its agent has run at the door
	By     gitd.Person   // the author; without a name the run's asker
	others addition.Step // the additional repositories
	// approved has the rules of the base that a person approved for the step.
	approved *Approvals
}

// Head is a branch's tip as commits in the middle of a step move it: those of its task, or of tasks that its agent runs.
type Head struct {
	mu   sync.Mutex // held during a commit; guards all below
	At   gitd.Hash
	Left []worktree.LeftOut // files that these commits do not hold
	Over bool               // the step has made its last commit
}

// Outcome is the result of a step's commands.
type Outcome struct {
	Exit   containers.Exit
	Result workflow.StepResult
	// Subject is the commit's first line. If it is empty the step determines it.
	Subject string
	Fault   error // the reason for which a task could not be done
	// Reused is the check whose result this is. Nil means that commands ran.
	Reused *record.Reused
}

// recordedReason returns the reason for which a command was ended, as records have it.
func recordedReason(reason string) string {
	if reason == containers.ReasonKilled {
		return record.ReasonKilled
	}
	return reason
}

// fail makes the step fail although its commands have ended.
func (o *Outcome) fail(reason record.Reason, text string) {
	o.Exit.Reason = string(reason)
	o.Result.OK = false
	o.Result.Error = text
}

// Begin begins a step in its container, and takes it to its end. start is the number of the beginning.
func (l *Run) Begin(ctx context.Context, t *Target, s Info, start int, do func(context.Context, *Work) (Outcome, error)) (workflow.StepResult, error) {
	if err := context.Cause(ctx); err != nil {
		return workflow.StepResult{}, err // nothing new begins in a run that was stopped
	}
	if err := t.allowed(s); err != nil {
		return workflow.StepResult{}, err
	}
	approved := &Approvals{}
	if s.Asks != nil { // before anything is held
		q := Question{Step: s.ID, Command: s.Asks.Line(), Keeps: true}
		if err := l.Permit(ctx, t, q, CommandsOf(*s.Asks), approved); err != nil {
			return workflow.StepResult{}, err
		}
	}
	image, failed, err := l.ImageOf(ctx, t, s)
	if err != nil {
		return workflow.StepResult{}, err
	}
	if err := l.Runner.KeepTerminals(ctx, t, l); err != nil {
		return workflow.StepResult{}, err
	}
	lease, tip, err := t.Ready(ctx, image, l.Initial.Asker, l.SetPlace)
	if err != nil {
		return workflow.StepResult{}, err
	}
	defer lease.Release()
	if err := l.Recovers(ctx, lease, s, failed); err != nil {
		return workflow.StepResult{}, err
	}
	others, err := t.Others.Join(ctx, lease.Host, l.Initial.Asker)
	if err != nil {
		return workflow.StepResult{}, err
	}
	if err := l.StartServices(ctx, t, lease, s); err != nil {
		return workflow.StepResult{}, err
	}
	defer l.endServices(ctx, t, s)
	if err := l.Equip(ctx, t, s, lease, tip, failed); err != nil {
		return workflow.StepResult{}, err
	}
	w := &Work{Run: l, Target: t, Host: lease.Host, Image: lease.Container.Image, Info: s, ID: l.CommandID(s.ID, start),
		Before: tip, Head: &Head{At: tip}, others: others, approved: approved}
	l.Change(func(r *record.Run) { r.Step, r.Place, r.Image = s.ID, 0, lease.Container.Image })
	if err := w.start(); err != nil {
		return workflow.StepResult{}, err
	}
	return w.perform(ctx, do)
}

// start journals the beginning of the step.
func (w *Work) start() error {
	l := w.Run
	l.Lock()
	defer l.Unlock()
	if w.Info.Hear != nil {
		if err := w.Info.Hear(&w.Info); err != nil {
			return err
		}
	}
	s, data := w.Info, Started{ID: w.ID, Prompts: w.Info.Prompts}
	if w.Target.Caller != l.Initial.Caller {
		data.Caller = w.Target.Caller
	}
	return l.EmitLocked(record.Event{Type: record.EventStepStarted, Step: s.ID, Node: s.Node, Kind: s.Kind,
		Command: text.Clip(s.Command, 16<<10), Task: s.Task, Parent: w.Before, With: w.others.Moves(),
		Data: record.Marshal(data)}, true)
}

// Equip prepares the container of a step, and notes its state.
func (l *Run) Equip(ctx context.Context, t *Target, s Info, lease *containers.Lease, tip gitd.Hash, unbuilt *images.Failed) error {
	err := l.prepare(ctx, t, lease, tip, unbuilt)
	if l.Initial.Kind == record.KindTerminal && ReasonOf(err) == record.ReasonSetupFailed {
		// A person at a terminal can look at the reason.
		err = l.Emit(record.Event{Type: record.EventNote, Step: s.ID, Reason: record.NoteRecovery,
			Message: err.Error()}, false)
	}
	if err != nil {
		return err
	}
	if kept := t.TakeRescued(); kept != "" {
		if err := l.Emit(record.Event{Type: record.EventContainer, Step: s.ID, Message: kept}, false); err != nil {
			return err
		}
	}
	if found := t.TakeDeps(); found != "" {
		return l.Emit(record.Event{Type: record.EventContainer, Step: s.ID,
			Message: "started with the base's dependencies from the cache: " + found}, false)
	}
	return nil
}

// Fate is the state of a step that had begun when the server stopped.
type Fate int

const (
	Lost    Fate = iota // it may have run, and nothing of it is left
	Unheard             // its container is there and did not get the command, or not the whole of it
	Ended               // it has ended, and its result is journalled
)

// TakeUp determines the fate of a step that had begun when the server stopped, and brings the step to its end if
// possible. It does so also for a run that was stopped meanwhile. Otherwise its command would continue in a container
// that nobody may have.
func (l *Run) TakeUp(ctx context.Context, t *Target, s Info, b live.Beginning, do func(context.Context, *Work) (Outcome, error)) (res workflow.StepResult, f Fate, err error) {
	var st Started
	_ = json.Unmarshal(b.Last.Data, &st) // an event of ours; a broken one means "begin again"
	looking, cancel := context.WithTimeout(l.Runner.Context, worktree.Housekeeping)
	defer cancel()
	lease, err := l.Runner.Fleet.Adopt(looking, t.Request(cmp.Or(s.Image, l.Owner.Image()), l.Initial.Asker, l.SetPlace))
	if err != nil && !errors.Is(err, containers.ErrGone) {
		return res, Lost, err
	}
	if lease != nil {
		defer lease.Release()
		t.Board(lease)
		commands, err := lease.Host.Commands(looking)
		if err != nil && !errors.Is(err, containers.ErrGone) {
			return res, Lost, err
		}
		if err == nil {
			// The command goes on in any case. It can read the reason by its own failure to connect.
			if err := l.StartServices(looking, t, lease, s); err != nil {
				l.Note(s.ID, "the services could not be connected again: "+l.Runner.Secrets.String(err.Error()))
			}
		}
		w := &Work{Run: l, Target: t, Host: lease.Host, Image: lease.Container.Image, Info: s, ID: st.ID, approved: &Approvals{}, Before: b.Last.Parent,
			Head: &Head{At: b.Last.Parent}, others: t.Others.Joined(b.Last.With), Again: true}
		// Scripts, and commands of a task, cannot be taken up in the middle. They are ended first, and so is a browser's
		// application. The next commit makes a commit again that was half way.
		for _, c := range commands {
			if c.Running && (strings.HasPrefix(c.ID, st.ID+".") || worktree.IsScript(c)) {
				if err := worktree.EndCommand(looking, lease.Host, c.ID); err != nil && !errors.Is(err, containers.ErrGone) {
					return res, Lost, err
				}
			}
		}
		if err == nil {
			f = Unheard
		}
		if l.Owner.Speaks(s) && err == nil {
			// Nothing controls that process any more. Its work is in the work tree, for the next process.
			_, known, err := agent.EndAll(looking, lease.Host, l.ProcessPrefix())
			if err != nil && !errors.Is(err, containers.ErrGone) {
				return res, Lost, err
			}
			if known && err == nil {
				res, err := w.perform(ctx, do)
				if !errors.Is(err, containers.ErrGone) || ctx.Err() != nil {
					return res, Ended, err
				}
			}
		}
		for _, c := range commands {
			if c.ID == st.ID {
				if c.Cut && s.Kind == string(record.KindAgent) {
					return res, Unheard, l.endCut(looking, lease.Host, t, s, c.ID)
				}
				f = Lost
				l.Note(s.ID, "the server was restarted; the command went on meanwhile")
				res, err := w.perform(ctx, do)
				if errors.Is(err, containers.ErrGone) && ctx.Err() == nil {
					break
				}
				return res, Ended, err
			}
		}
		t.Forget()
	}
	res, ended, err := l.takeUpCommitted(looking, t, s, b)
	if err != nil {
		return res, Lost, err
	}
	if ended {
		f = Ended
	}
	return res, f, nil
}

// takeUpCommitted ends a step whose commit is there, but whose container is gone or did not get its command. If there
// is no commit, ended is false.
func (l *Run) takeUpCommitted(ctx context.Context, t *Target, s Info, b live.Beginning) (res workflow.StepResult, ended bool, err error) {
	commit, tip, err := t.Recover(ctx, b.Last.Parent, l.Initial.Asker, l.Initial.ID, s.ID)
	var apart *worktree.Uncommitted
	if err != nil && !errors.As(err, &apart) {
		return res, false, err
	}
	others := t.Others.Joined(b.Last.With)
	partly, err := others.Recover(ctx, l.Initial.Asker, l.Initial.ID, s.ID)
	if err != nil {
		return res, false, err
	}
	less := commit == nil && partly != nil
	if less { // the command must not run again on top of it
		commit = partly
	}
	if commit == nil {
		l.Note(s.ID, "the server was restarted; the command had not been committed, and its changes are gone")
		return res, false, nil
	}
	code, _ := strconv.Atoi(commit.Trailer(record.TrailerExit))
	exit := containers.Exit{Code: code, Reason: commit.Trailer(record.TrailerReason)}
	l.Note(s.ID, "the server was restarted; the command had been committed, only the end of its output is missing")
	w := &Work{Run: l, Target: t, Info: s, Before: b.Last.Parent, others: others}
	w.Out, err = l.OpenOutputs(s.ID, b.Last.Seq, true)
	if err != nil {
		return res, false, err
	}
	defer w.Out.Close()
	o := OutcomeOf(exit, w.Out)
	switch {
	case apart != nil:
		o.fail(apart.Reason, l.Runner.Secrets.String(apart.Error()))
	case less, commit.Trailer(record.TrailerUncommitted) != "":
		o.fail(record.ReasonNotCommitted, lostLeft)
	}
	res, err = w.finish(o, tip, "")
	return res, true, err
}

// endCut ends an agent whose prompt broke off when the server stopped. Most agents wait for the rest until their time
// is up, and work on half a prompt does not fulfil the request. The run's record has the prompt, so the step can
// begin again, unless the agent has done something that must not be done twice. Then the container keeps the command,
// so that a next server comes to the same end.
func (l *Run) endCut(ctx context.Context, h *containers.Host, t *Target, s Info, id string) error {
	if err := worktree.EndCommand(ctx, h, id); err != nil && !errors.Is(err, containers.ErrGone) {
		return err
	}
	t.Forget() // its work is discarded
	if l.Outside(s.ID) {
		return &Failure{record.ReasonInterrupted,
			"the server stopped before the agent had all of its prompt, and the agent had acted outside its container by then; nothing it did was committed"}
	}
	_ = h.Forget(ctx, id) // the runner's memory ends with the container anyway
	l.Note(s.ID, "the server was restarted before the agent had all of its prompt; its changes are discarded, and it gets the prompt again")
	return nil
}

// lostLeft is the error of a commit that lacks files of the work tree, if the container is gone.
const lostLeft = "files that no commit may hold were not committed, and they are gone with the container"

// perform does the step's work, then commits and journals it. If ctx ends the command is stopped, and the work tree is
// committed nevertheless.
func (w *Work) perform(ctx context.Context, do func(context.Context, *Work) (Outcome, error)) (workflow.StepResult, error) {
	l := w.Run
	b := l.Beginning(w.Info.ID)
	var err error
	// A command's output comes again from its beginning. An agent's does not.
	if w.Out, err = l.OpenOutputs(w.Info.ID, b.Last.Seq, w.Again && l.Owner.Speaks(w.Info)); err != nil {
		return workflow.StepResult{}, err
	}
	defer w.Out.Close()
	w.Target.SetListen(func(e record.Event) {
		e.Step = w.Info.ID
		_ = l.Emit(e, false) // the run's own events will meet the same error
	})
	defer w.Target.SetListen(nil)
	w.Target.SetAtWork(w)
	defer w.Target.SetAtWork(nil)

	o, err := w.work(ctx, do)
	w.guests.close()
	if err != nil {
		var u *worktree.Uncommitted
		if errors.As(err, &u) {
			kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), worktree.Housekeeping)
			defer cancel()
			err = errors.Join(err, w.KeepLeft(kctx, u.Left))
		}
		return workflow.StepResult{}, err
	}
	return w.record(ctx, o)
}

// record commits and journals the outcome of the step's commands. From here on nothing may stop it, because the command has happened.
func (w *Work) record(ctx context.Context, o Outcome) (workflow.StepResult, error) {
	w.Head.mu.Lock()
	defer w.Head.mu.Unlock()
	res, err := w.RecordLocked(ctx, o, w.Target.CommitLast)
	w.Head.Over = true
	return res, err
}

// author returns the author of the step's commits.
func (w *Work) author() gitd.Person { return w.By.Or(w.Run.Initial.Asker) }

// committer is a method of a work tree that commits.
type committer func(ctx context.Context, h *containers.Host, before gitd.Hash, author gitd.Person, message string,
	paths []string) (worktree.Committed, error)

// RecordLocked is record for a caller that has the mutex of the head.
func (w *Work) RecordLocked(ctx context.Context, o Outcome, commit committer) (workflow.StepResult, error) {
	l := w.Run
	// The workflow must see the journal's result, also when the run is taken up again.
	o.Result = redact.Clean(l.Runner.Secrets, o.Result)
	w.Out.Save()
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), worktree.Housekeeping)
	defer cancel()
	made := worktree.Committed{Tip: w.Before, At: w.Before}
	var err error
	if !w.Info.Discard {
		err = w.commitAdditions(cctx, &o)
	}
	if err == nil && !w.Info.Discard {
		made, err = commit(cctx, w.Host, w.Head.At, w.author(), w.message(o), nil)
	}
	less := false // the commit lacks files, and they are gone with the container
	if errors.Is(err, containers.ErrGone) {
		made, less, err = w.pushed(cctx, err)
	}
	after := made.Tip
	if err == nil {
		w.Head.At = cmp.Or(made.At, w.Head.At)
	}
	made.Left = append(w.Head.Left, made.Left...)
	var u *worktree.Uncommitted
	switch {
	case errors.As(err, &u):
		o.fail(u.Reason, l.Runner.Secrets.String(u.Error()))
		after, made.Left = w.Head.At, append(made.Left, u.Left...)
	case err != nil:
		return workflow.StepResult{}, err
	case less:
		o.fail(record.ReasonNotCommitted, lostLeft)
	case len(made.Left) > 0:
		o.fail(record.ReasonNotCommitted, l.Runner.Secrets.String(worktree.LeftText(made.Left)))
	}
	if err := w.KeepLeft(cctx, made.Left); err != nil {
		return workflow.StepResult{}, err
	}
	if gone, err := w.lostMost(cctx, after); err != nil {
		return workflow.StepResult{}, err
	} else if gone != "" {
		made.Notes += gone
	}
	if after == w.Before {
		after = ""
	}
	if made.Artifacts {
		err := w.collect(cctx)
		if after != "" && err != nil && LostHost(w.Host) {
			err = w.lostArtifacts() // the command must not be run again for them
		}
		if err != nil {
			return workflow.StepResult{}, err
		}
	}
	if err := w.Out.Saving(); err != nil {
		return workflow.StepResult{}, err
	}
	for _, c := range []*live.Capture{w.Out.Stdout, w.Out.Stderr} {
		if err := l.Removed(w.Info.ID, record.SecretInOutput, c.Found(), "the "+c.Stream+" of "+w.Info.ID); err != nil {
			return workflow.StepResult{}, err
		}
	}
	res, err := w.finish(o, after, made.Notes)
	if err == nil {
		w.keepResult(cctx, o, made)
	}
	w.forget()
	return res, err
}

// pushed returns the commit that a container pushed before it was lost. That commit stays, and the command must not run again on
// top of it. If there is none, the error is lost.
func (w *Work) pushed(ctx context.Context, lost error) (made worktree.Committed, less bool, err error) {
	c, tip, err := w.Target.Recover(ctx, w.Before, w.Run.Initial.Asker, w.Run.Initial.ID, w.Info.trailer())
	var apart *worktree.Uncommitted
	if errors.As(err, &apart) {
		return made, false, apart
	}
	if err != nil {
		return made, false, errors.Join(lost, err)
	}
	partly, err := w.others.Recover(ctx, w.Run.Initial.Asker, w.Run.Initial.ID, w.Info.trailer())
	switch {
	case err != nil || c == nil && partly == nil:
		return made, false, errors.Join(lost, err)
	case c == nil: // the container was lost before the last of its repositories was committed
		return worktree.Committed{Tip: w.Before}, true, w.lostArtifacts()
	}
	return worktree.Committed{Tip: tip}, c.Trailer(record.TrailerUncommitted) != "", w.lostArtifacts()
}

// lostArtifacts notes that a container was lost before its artifacts were taken.
func (w *Work) lostArtifacts() error {
	return w.skipped("the container was lost just after what the command did was committed: its artifacts are left out")
}

// deletedFew is how many files a command may delete without a count of the others.
const deletedFew = 1

// lostMost returns a sentence if the step deleted more than half of the branch's files, and notes it
// in the journal. A file that is somewhere else with the same content counts as moved.
func (w *Work) lostMost(ctx context.Context, after gitd.Hash) (string, error) {
	if after == w.Before || w.Before == "" {
		return "", nil
	}
	changes, err := w.Target.Repo.Compare(ctx, w.Before, after, 0)
	if errors.Is(err, gitd.ErrTooLarge) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	moved := make(map[gitd.Hash]int)
	for _, c := range changes {
		if c.OldMode == 0 {
			moved[c.New]++
		}
	}
	deleted := 0
	for _, c := range changes {
		switch {
		case c.NewMode != 0:
		case moved[c.Old] > 0:
			moved[c.Old]--
		default:
			deleted++
		}
	}
	if deleted <= deletedFew {
		return "", nil
	}
	total, err := w.Target.Repo.CountFiles(ctx, w.Before, 2*deleted)
	if err != nil || total >= 2*deleted {
		return "", err
	}
	text := fmt.Sprintf("deleted %d of the %d files of the branch", deleted, total)
	return text + "\n", w.Run.Emit(record.Event{Type: record.EventNote, Step: w.Info.ID, Reason: record.NoteLeftOut,
		Message: text}, false)
}

// finish journals a step's end.
func (w *Work) finish(o Outcome, commit gitd.Hash, notes string) (workflow.StepResult, error) {
	l := w.Run
	stdout, stderr, err := w.Out.Streams()
	if err != nil {
		return workflow.StepResult{}, err
	}
	ok, exit := o.Result.OK, o.Exit.Code
	message := o.Result.Error
	if message == "" {
		message = strings.TrimSpace(notes)
	}
	e := record.Event{Type: record.EventStepFinished, Tree: w.checked, Step: w.Info.ID, Node: w.Info.Node, Kind: w.Info.Kind,
		Command: text.Clip(w.Info.Command, 16<<10), Task: w.Info.Task,
		Parent: w.Before, Commit: commit, With: w.others.Moves(), Exit: &exit, OK: &ok,
		Reason: recordedReason(o.Exit.Reason), DurationMS: o.Exit.Duration.Milliseconds(),
		Stdout: stdout, Stderr: stderr, Message: text.Clip(message, 16<<10),
		Reused: o.Reused, Data: record.Marshal(record.StepResult{Result: o.Result})}
	l.Runner.Count(commit != "")
	if w.Info.Recall != nil && l.Runner.CountCheck != nil {
		l.Runner.CountCheck(o.Reused != nil)
	}
	w.advance()
	if commit != "" {
		l.Change(func(r *record.Run) {
			if w.Target.Caller == r.Caller {
				r.Head = commit
			}
		})
	}
	if l.Initial.Kind == record.KindExec {
		return o.Result, l.EmitDeferred(e) // that the run ends is journalled next
	}
	return o.Result, l.Emit(e, true)
}

// forgetWait is how long a runner may take to forget a command.
const forgetWait = 10 * time.Second

// forget has the runner forget the step's commands, in the background.
func (w *Work) forget() {
	if w.Info.Background {
		return // its output is asked for later
	}
	w.Run.Runner.Go(func() {
		ctx, cancel := context.WithTimeout(w.Run.Runner.Context, forgetWait)
		defer cancel()
		for i := 0; i <= w.n; i++ {
			id := w.ID
			if i > 0 {
				id += "." + strconv.Itoa(i)
			} else if w.n > 0 {
				continue
			}
			_ = w.Host.Forget(ctx, id) // the runner's memory ends with the container anyway
		}
	})
}

// message returns the commit message of a step.
func (w *Work) message(o Outcome) string {
	subject := o.Subject
	if subject == "" {
		subject = w.Info.Command
		if w.Info.Task != "" {
			subject = w.Info.Task
		}
		if w.Info.Node != "" {
			subject = w.Info.Node + ": " + subject
		}
	}
	first, _, more := strings.Cut(strings.TrimSpace(subject), "\n")
	first = strings.TrimSpace(strings.ToValidUTF8(first, "\uFFFD"))
	if first == "" {
		first = w.Info.ID
	}
	if len([]rune(first)) > 72 {
		first, more = string([]rune(first)[:71])+"…", true
	}
	var b strings.Builder
	b.WriteString(first + "\n\n")
	if more {
		// Indented, so that git takes no line of a command for a trailer.
		for line := range strings.Lines(text.Clip(strings.ToValidUTF8(w.Info.Command, "\uFFFD"), 8<<10)) {
			b.WriteString("    " + strings.TrimRight(line, "\n") + "\n")
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%s: %s\n%s: %s\n%s: %s\n%s: %d\n", record.TrailerCaller, w.Target.Caller, record.TrailerRun, w.Run.Initial.ID,
		record.TrailerStep, w.Info.trailer(), record.TrailerExit, o.Exit.Code)
	if o.Exit.Reason != "" {
		fmt.Fprintf(&b, "%s: %s\n", record.TrailerReason, o.Exit.Reason)
	}
	return CommitText(w.Run.Runner.Secrets, b.String())
}

// Halfway returns the commit message of a work tree in the middle of a step.
func (w *Work) Halfway(subject string) string {
	return CommitText(w.Run.Runner.Secrets,
		fmt.Sprintf("%s\n\n%s: %s\n%s: %s\n%s: %s\n", text.Clip(strings.Join(strings.Fields(subject), " "), 72),
			record.TrailerCaller, w.Target.Caller, record.TrailerRun, w.Run.Initial.ID, record.TrailerStep, w.Info.ID))
}

// CommitText returns a commit message without secrets.
func CommitText(secrets *redact.Secrets, text string) string {
	return strings.ReplaceAll(secrets.String(text), "\x00", "\uFFFD")
}

// ErrUnheard is the error of a container that was lost before it confirmed the start of the command. No output of the
// command has left the container, and the command's work went with it.
var ErrUnheard = errors.New("the container did not hear of the command")

// Attend follows one command of the step to its end. If ctx ends the command is stopped. If the executor is closing
// the command continues, and the next process adopts it.
func (w *Work) Attend(ctx context.Context, id string, command *containers.Command, stdout, stderr io.Writer) (containers.Exit, error) {
	attach, detach := context.WithCancel(context.WithoutCancel(ctx))
	defer detach()
	var p *containers.Process
	var err error
	if command != nil {
		command.Guard = w.Target.Settings().Rules.Programs()
		p, err = w.Host.Start(attach, *command)
	} else {
		p, err = w.Host.Attach(attach, id, 0, 0)
	}
	if err != nil {
		if command != nil && errors.Is(err, containers.ErrGone) {
			err = fmt.Errorf("%w: %w", ErrUnheard, err)
		}
		return containers.Exit{}, fmt.Errorf("cannot run %s: %w", w.Info.ID, err)
	}
	ended := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		if errors.Is(context.Cause(ctx), record.ErrClosed) {
			detach()
			return
		}
		kill, cancel := context.WithTimeout(attach, KillWait)
		defer cancel()
		if err := w.Host.Kill(kill, id); err == nil {
			select {
			case <-ended:
				return
			case <-kill.Done():
			}
		}
		detach() // the command cannot be stopped, so the container has to go
	}()
	exit, err := p.Output(stdout, stderr)
	close(ended)
	<-stopped
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, containers.ErrGone) {
			err = cause
		}
		return exit, fmt.Errorf("cannot run %s: %w", w.Info.ID, err)
	}
	return exit, nil
}

// Command returns the work of a step that is one command.
func (l *Run) Command(c record.Command, timeout time.Duration) func(context.Context, *Work) (Outcome, error) {
	return func(ctx context.Context, w *Work) (Outcome, error) {
		command := &containers.Command{ID: w.ID, Args: c.Args, Shell: c.Shell, Dir: c.Dir, Stdin: c.Stdin,
			Env: append(w.Target.Env(l.Initial.Asker), c.Env...), Timeout: timeout, Background: c.Background}
		switch {
		case w.Again:
			command = nil
		case w.Run.EnvLost():
			return Outcome{}, w.Run.WithoutEnv()
		}
		if c.Background {
			return w.background(ctx, command)
		}
		exit, err := w.Attend(ctx, w.ID, command, w.Out.Stdout, w.Out.Stderr)
		if err == nil {
			err = w.Out.Flush()
		}
		if err != nil {
			return Outcome{}, err
		}
		return OutcomeOf(exit, w.Out), nil
	}
}

// background starts a process that later commands find running. The step ends when the process has started.
func (w *Work) background(ctx context.Context, c *containers.Command) (Outcome, error) {
	if c != nil {
		c.Guard = w.Target.Settings().Rules.Programs()
		if _, err := w.Host.Start(ctx, *c); err != nil {
			return Outcome{}, fmt.Errorf("cannot run %s: %w", w.Info.ID, err)
		}
	}
	return Outcome{Result: workflow.StepResult{OK: true, Output: map[string]any{
		"process": w.ID, "stdout": "", "stderr": "", "exit_code": 0, "timed_out": false}}}, nil
}

func OutcomeOf(exit containers.Exit, out *live.Outputs) Outcome {
	timedOut := exit.Reason == containers.ReasonTimeout
	o := Outcome{Exit: exit, Result: workflow.StepResult{
		OK: exit.Code == 0 && exit.Reason == "",
		Output: map[string]any{
			"stdout": out.Stdout.Tail(), "stderr": out.Stderr.Tail(),
			"exit_code": exit.Code, "timed_out": timedOut,
		},
	}}
	switch exit.Reason {
	case containers.ReasonTimeout:
		o.Result.Error = "the command took too long and was ended"
	case containers.ReasonDiskFull:
		o.Result.Error = "the command filled the disk and was ended"
		if exit.Message != "" {
			o.Result.Error = "the command was ended: " + text.Clip(exit.Message, 1<<10)
		}
	case containers.ReasonMemory:
		o.Result.Error = "the command used more memory than it may and was ended"
	case containers.ReasonKilled:
		o.Result.Error = "the command was stopped"
	}
	out.SetTotals(exit.Stdout, exit.Stderr)
	return o
}

// LostHost reports whether the connection to a container has ended.
func LostHost(h *containers.Host) bool {
	select {
	case <-h.Done():
		return true
	default:
		return false
	}
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// TaskLine returns a call of a task of the library as people read it.
func TaskLine(name string, params json.RawMessage) string {
	if len(params) > 0 && string(params) != "{}" && string(params) != "null" {
		return name + " " + string(params)
	}
	return name
}
