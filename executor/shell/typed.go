package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/terminal"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// typed are the commands that people type in a terminal, as the marks of its shell have them. The marks may be forged.
// Then there are more commits of the same person, and nothing else.
type typed struct {
	number int         // commands so far
	open   *typedBegin // the command that runs, or nil
	since  time.Time   // its start
	text   string      // of the command that begins next
	input  int64       // the offset after the prompt; 0 without one
	from   int64       // marks of beginnings up to this offset are known
	until  int64       // marks of ends up to this offset are known
}

// typedBegin is the data of the step.started event of a typed command.
type typedBegin struct {
	From    int64       `json:"from"` // the offset of its output
	By      gitd.Person `json:"by"`
	Command string      `json:"-"`
}

// typedEnd is the offset after a typed command, in the output of its result.
const typedEnd = "until"

// step returns the name of a typed command in the journal.
func (s *Shell) typedStep(number int) string { return s.step + "/" + strconv.Itoa(number) }

// recall reads the journal of an earlier process. base becomes the commit that the work tree was at.
func (t *typed) recall(step string, events []record.Event, base *gitd.Hash) {
	for _, e := range events {
		rest, ok := strings.CutPrefix(e.Step, step+"/")
		n, err := strconv.Atoi(rest)
		if !ok || err != nil {
			continue
		}
		switch e.Type {
		case record.EventStepStarted:
			begin := &typedBegin{Command: e.Command}
			_ = json.Unmarshal(e.Data, begin) // an event of ours
			t.number, t.open, t.since, t.from = n, begin, e.Time, begin.From
		case record.EventStepFinished:
			var done record.StepResult
			_ = json.Unmarshal(e.Data, &done)
			if until, ok := done.Result.Output[typedEnd].(float64); ok {
				t.until = int64(until)
			}
			t.open = nil
			*base = cmp.Or(e.Commit, e.Parent, *base)
		}
	}
}

// commitMarked handles the marks that wait. It returns false if the container is gone.
func (s *Shell) commitMarked(ctx context.Context) bool {
	for {
		s.mu.Lock()
		if len(s.marks) == 0 {
			s.mu.Unlock()
			return true
		}
		m := s.marks[0]
		s.mu.Unlock()
		if err := s.mark(ctx, m); err != nil {
			if errors.Is(err, containers.ErrGone) || errors.Is(err, record.ErrClosed) || s.set.Context.Err() != nil {
				return false
			}
			s.set.Log.Warn("cannot commit a command of a terminal", "run", s.run.Initial.Name(), "err", err)
			s.Announce(terminal.Done{Exit: m.Exit, Offset: m.Offset, Problem: s.set.Secrets.String(err.Error())})
		}
		s.mu.Lock()
		if len(s.marks) > 0 && s.marks[0] == m {
			s.marks = s.marks[1:]
		}
		if m.Kind == terminal.MarkEnd {
			s.committed = max(s.committed, m.Number)
			s.wakeLocked()
		}
		s.mu.Unlock()
	}
}

// mark handles one mark.
func (s *Shell) mark(ctx context.Context, m terminal.Mark) error {
	t := &s.typed
	switch m.Kind {
	case terminal.MarkInput:
		t.input, t.text = m.Offset, ""
	case terminal.MarkCommand:
		t.text = m.Command
	case terminal.MarkOutput:
		if m.Offset <= t.from {
			return nil // an earlier process knew it
		}
		if t.open != nil { // its end is no longer kept
			if err := s.endTyped(ctx, terminal.Mark{Kind: terminal.MarkEnd, Start: m.Start, Offset: m.Start, Exit: -1}); err != nil {
				return err
			}
		}
		return s.beginTyped(m.Start, m.Offset)
	case terminal.MarkEnd:
		if m.Offset <= t.until {
			return nil // an earlier process has committed it
		}
		if t.open == nil {
			if t.input == 0 || t.input < t.until {
				return nil // there was no prompt
			}
			if err := s.beginTyped(m.Start, t.input); err != nil || t.open == nil {
				return err
			}
		}
		return s.endTyped(ctx, m)
	}
	return nil
}

// beginTyped journals the beginning of a command whose output begins at an offset. Without a word of the shell, the
// text of the command is its echo before at.
func (s *Shell) beginTyped(at, from int64) error {
	t := &s.typed
	command := t.text
	if command == "" && t.input > 0 {
		echo, _ := s.Read(t.input, at)
		command = terminal.Typed(echo)
	}
	if command == "" && from == t.input {
		return nil // an empty line
	}
	command = cmp.Or(command, "a command in the terminal "+s.Name)
	begin := &typedBegin{From: from, By: s.Typist().Or(s.run.Initial.Asker), Command: command}
	step := s.typedStep(t.number + 1)
	if err := s.run.Emit(record.Event{Type: record.EventStepStarted, Step: step, Kind: string(record.KindTerminal),
		Command: text.Clip(command, 16<<10),
		Parent:  s.at(), Data: record.Marshal(begin)}, false); err != nil {
		return err
	}
	t.number++
	t.open, t.since, t.from, t.text, t.input = begin, s.set.Now(), from, "", 0
	return nil
}

// at returns the commit that the work tree is at, as far as that is known.
func (s *Shell) at() gitd.Hash {
	s.mu.Lock()
	base := s.base
	s.mu.Unlock()
	return cmp.Or(s.run.Target.At(), base)
}

// endTyped commits and journals a command that has ended.
func (s *Shell) endTyped(ctx context.Context, m terminal.Mark) error {
	run, t := s.run, &s.typed
	begin := t.open
	info := step.Info{ID: s.typedStep(t.number), Trailer: s.step, Kind: string(record.KindTerminal),
		Command: begin.Command, Background: true}
	w := &step.Work{Run: run, Target: run.Target, Host: s.lease.Host, Image: s.lease.Container.Image, Info: info, ID: s.id, By: begin.By}
	exit := containers.Exit{Code: max(0, m.Exit), Duration: s.set.Now().Sub(t.since), Stdout: m.Start - begin.From}
	var err error
	if w.Out, err = run.OpenOutputs(info.ID, run.Beginning(info.ID).Last.Seq, false); err != nil {
		return err
	}
	defer w.Out.Close()
	data, _ := s.Read(begin.From, m.Start)
	if _, err := w.Out.Stdout.Write(data); err != nil {
		return err
	}
	o := step.OutcomeOf(exit, w.Out)
	o.Result.Output = map[string]any{"exit_code": exit.Code, typedEnd: m.Offset}
	commit, problem, err := s.commit(ctx, w, o)
	if err != nil {
		return err
	}
	t.open, t.until = nil, m.Offset
	s.Announce(terminal.Done{Command: text.Clip(begin.Command, 4<<10), Exit: m.Exit, Commit: string(commit),
		Offset: m.Offset, Problem: problem})
	return nil
}

// commit commits and journals a step of the terminal.
func (s *Shell) commit(ctx context.Context, w *step.Work, o step.Outcome) (commit gitd.Hash, problem string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), worktree.Housekeeping)
	defer cancel()
	h, own, free, err := s.interject(ctx)
	if err != nil {
		return "", "", err
	}
	defer free()
	w.Head, w.Before = h, h.At
	if _, err := w.RecordLocked(ctx, o, w.Target.Commit); err != nil {
		return "", "", err
	}
	s.setBase(h.At)
	if own && s.behind(ctx) {
		// Somebody pushed, or went back to an earlier commit. The shell waits at its prompt.
		if err := s.set.Sync(ctx, s.run.Target); err != nil {
			return "", "", err
		}
	}
	if done := s.run.Beginning(w.Info.ID).Done; done != nil {
		commit = done.Commit
		if done.Reason != "" {
			problem = done.Message
		}
	}
	return commit, problem, nil
}

// behind reports whether the work tree is not at the branch's tip.
func (s *Shell) behind(ctx context.Context) bool {
	tip, err := s.run.Target.Tip(ctx)
	return err == nil && tip != s.run.Target.At()
}

// interject waits until the terminal may commit. The head is at the commit that the work tree is at.
func (s *Shell) interject(ctx context.Context) (h *step.Head, own bool, free func(), err error) {
	// The turn may be long in coming. The executor's end ends the wait.
	h, own, free, err = s.run.Target.Interject(s.set.Context)
	if err != nil {
		return nil, false, nil, err
	}
	if own {
		h.At = s.at()
		if err := s.sweep(ctx); err != nil {
			free()
			return nil, false, nil, err
		}
	}
	return h, own, free, nil
}

// sweep ends scripts that an earlier process left in the container, once.
func (s *Shell) sweep(ctx context.Context) error {
	h := s.connected()
	if h == nil || s.swept.Load() {
		return nil
	}
	commands, err := h.Commands(ctx)
	if err != nil {
		return err
	}
	for _, c := range commands {
		if worktree.IsScript(c) {
			if err := worktree.EndCommand(ctx, h, c.ID); err != nil {
				return err
			}
		}
	}
	s.swept.Store(true)
	return nil
}

// commitQuiet commits changes in the middle of a command, or between two.
func (s *Shell) commitQuiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), worktree.Housekeeping)
	defer cancel()
	h, _, free, err := s.interject(ctx)
	if err != nil {
		return err
	}
	defer free()
	by, subject := s.Typist().Or(s.run.Initial.Asker), "Work in the terminal "+s.Name
	if s.typed.open != nil {
		by, subject = s.typed.open.By, s.typed.open.Command+" (still at work)"
	}
	return s.commitHalfway(ctx, h, subject, by)
}

func (s *Shell) commitHalfway(ctx context.Context, h *step.Head, subject string, by gitd.Person) error {
	t := s.run.Target
	host := s.connected()
	if host == nil {
		return nil
	}
	w := &step.Work{Run: s.run, Target: t, Host: host, Info: step.Info{ID: s.step}}
	made, err := t.Commit(ctx, host, h.At, by, w.Halfway(subject), nil)
	var u *worktree.Uncommitted
	if errors.As(err, &u) {
		s.run.Note(s.step, s.set.Secrets.String(u.Error()))
		return w.KeepLeft(ctx, u.Left)
	}
	if err != nil {
		return fmt.Errorf("cannot commit the work in the terminal %s: %w", s.Name, err)
	}
	h.At = cmp.Or(made.At, h.At)
	s.setBase(h.At)
	return w.KeepLeft(ctx, made.Left)
}

// keep commits the changes of the terminal if the work tree is about to be brought to another commit. The caller has
// the turn.
func (s *Shell) keep(ctx context.Context) error {
	if s.connected() == nil || !s.behind(ctx) {
		return nil
	}
	if err := s.sweep(ctx); err != nil {
		return err
	}
	return s.commitHalfway(ctx, &step.Head{At: s.at()}, "Work in the terminal "+s.Name, s.Typist().Or(s.run.Initial.Asker))
}

// finish commits and journals the end of the program.
func (s *Shell) finish(ctx context.Context, exit containers.Exit) error {
	run := s.run
	end := s.Next()
	if open := s.typed.open; open != nil {
		// The shell ended in the middle of a command, which may be its own exit.
		if err := s.endTyped(ctx, terminal.Mark{Kind: terminal.MarkEnd, Start: end, Offset: end, Exit: exit.Code}); err != nil {
			return err
		}
	}
	info := step.Info{ID: s.step, Kind: string(record.KindTerminal), Command: run.Initial.Command}
	w := &step.Work{Run: run, Target: run.Target, Host: s.lease.Host, Image: s.lease.Container.Image, Info: info, ID: s.id,
		By: s.Typist().Or(run.Initial.Asker)}
	var err error
	if w.Out, err = run.OpenOutputs(info.ID, run.Beginning(s.step).Last.Seq, false); err != nil {
		return err
	}
	defer w.Out.Close()
	data, _ := s.Read(0, end)
	if _, err := w.Out.Stdout.Write(data); err != nil {
		return err
	}
	commit, problem, err := s.commit(ctx, w, step.OutcomeOf(exit, w.Out))
	if err != nil {
		return err
	}
	run.Change(func(r *record.Run) { r.Exit = &exit.Code })
	s.Announce(terminal.Done{Command: run.Initial.Command, Exit: exit.Code, Commit: string(commit), Offset: end,
		Problem: problem})
	if run.Initial.Terminal.Command != nil && (exit.Code != 0 || exit.Reason != "") && exit.Reason != containers.ReasonKilled {
		return step.Fail(run.ReasonOfStep(s.step, record.ReasonCommandFailed),
			fmt.Sprintf("the command ended with %d", exit.Code))
	}
	return nil
}
