package executor

import (
	"context"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/archive"
	"github.com/ramus-dev/ramus/executor/dialogue"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/shell"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
)

// liveRun is a run with its work. One goroutine owns it (see Executor.drive).
type liveRun struct {
	*step.Run
	x      *Executor
	entry  *archive.Entry
	files  runFiles
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the run's goroutine has ended

	dialogue *dialogue.Dialogue
	terminal *shell.Shell // of KindTerminal, or nil
	ending   *Ending      // of a request that is answered without work
	held     func()       // gives back the turn that it had before the restart of the server; nil for none
	stdin    io.Reader    // of the first command, when there is somebody to give it
	parent   *liveRun     // of a sub-workflow; people answer the questions of both there
}

// runFiles are the texts that a run was started with. They are kept in its ref.
type runFiles struct {
	Workflow string            // the workflow file
	Sub      map[string]string // sub-workflows by id
}

// newLive prepares a run to be worked on. It opens its journal, or makes it.
func (x *Executor) newLive(r record.Run, ref gitd.Hash, files runFiles, t *step.Target) (*liveRun, error) {
	run, err := x.Folder.Open(r)
	if err != nil {
		return nil, err
	}
	l := &liveRun{Run: &step.Run{Run: run, Runner: x.targets.Runner, Target: t}, x: x, files: files,
		entry: x.archive.Entry(run, t.Repo, ref), done: make(chan struct{})}
	l.Owner = l
	l.dialogue = x.Prompts.Dialogues.New(l.Run, l)
	l.ctx, l.cancel = context.WithCancelCause(x.life.ctx)
	l.Checks = l.NewChecks()
	if r.Kind == record.KindTerminal {
		l.terminal = x.Shells.Add(l.Run, l.done)
	}
	return l, nil
}

// end closes the journal. Followers get to its end.
func (l *liveRun) end() {
	l.terminal.SetOver()
	l.End()
}

// Foresee has the changes of the run reviewed before the commit is durable.
func (l *liveRun) Foresee(commit gitd.Hash) { l.entry.Foresee(commit) }

// Approve has a person answer the question of a rule about a command of a step. It returns once the answer is there.
func (l *liveRun) Approve(ctx context.Context, q step.Question) (record.Decision, error) {
	root := l
	for root.parent != nil {
		root = root.parent
	}
	if root.Initial.Unasked {
		return record.Decision{By: l.x.Bot.Name, Comment: "nobody is asked in a try"}, l.Emit(record.Event{
			Type: record.EventNote, Step: q.Step, Reason: record.NoteUnasked, Message: l.x.Secrets.String(q.Words)}, false)
	}
	if w := root.Stderr; w != nil {
		fmt.Fprintf(w, "ramus: %s\nramus: this waits for a person; answer with `ramus approve %s`\n",
			root.x.Secrets.String(q.Words), root.Initial.Name())
	}
	return root.dialogue.Ask(ctx, record.Gate{Step: q.Step, Message: q.Words, Command: q.Command, Allowed: q.Who}, acp.Question{},
		q.Keeps)
}
