package step

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/rules"
)

// Question is a question of a rule to a person.
type Question struct {
	Step    string // that wants to run the command
	Words   string // the question, which names the rule and its reason
	Command string
	Who     []string // who may answer; empty means everybody who may answer questions of the run
	// Keeps has the question taken up after a restart of the server, if the step has not begun.
	Keeps bool
}

// Approvals has the rules that a person approved for a step, and the programs that may start once or not at all. A nil
// pointer has none and takes none. The methods are safe for concurrent use.
type Approvals struct {
	mu      sync.Mutex // guards the fields below
	ids     []string
	starts  map[[sha256.Size]byte]int    // how often a program may start, by the digest of its start
	refused map[[sha256.Size]byte]string // why it may not
}

// maxStarts is how many programs an Approvals knows that may start, and as many that may not. Others are asked about.
const maxStarts = 1000

// allow lets a program start once more.
func (a *Approvals) allow(start [sha256.Size]byte) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.starts == nil {
		a.starts = map[[sha256.Size]byte]int{}
	}
	if _, known := a.starts[start]; known || len(a.starts) < maxStarts {
		a.starts[start]++
	}
}

// takeStart reports whether a program may start once more, and counts the start.
func (a *Approvals) takeStart(start [sha256.Size]byte) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.starts[start]
	if n > 1 {
		a.starts[start]--
	} else {
		delete(a.starts, start)
	}
	return n > 0
}

// startOf returns the digest of the start of a program. The folder of the program does not count, because a shell tries
// those of PATH in turn.
func startOf(args []string, asked []*rules.Rule) [sha256.Size]byte {
	h := sha256.New()
	for _, r := range asked {
		fmt.Fprintf(h, "%q", r.ID())
	}
	fmt.Fprintf(h, "%q%q", path.Base(args[0]), args[1:])
	return [sha256.Size]byte(h.Sum(nil))
}

// refusal returns why a program may not start. Returns "" if nobody said so before.
func (a *Approvals) refusal(start [sha256.Size]byte) string {
	if a == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused[start]
}

// refuse remembers why a program may not start.
func (a *Approvals) refuse(start [sha256.Size]byte, why string) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refused == nil {
		a.refused = map[[sha256.Size]byte]string{}
	}
	if len(a.refused) < maxStarts {
		a.refused[start] = why
	}
}

func (a *Approvals) has(r *rules.Rule) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.ids, r.ID())
}

func (a *Approvals) add(r *rules.Rule) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids = append(a.ids, r.ID())
}

// maxAsked is the length of a command in a question, in bytes.
const maxAsked = 2 << 10

// CommandsOf returns the commands that a command line starts, for the rules of a base.
func CommandsOf(c record.Command) []rules.Command {
	if len(c.Args) > 0 {
		return rules.Started(c.Args)
	}
	return rules.Shell(c.Shell)
}

// Permit applies the rules of a base to a command of a step. It returns once a person has answered if a rule asks. The
// error is a [Failure] with [record.ReasonRejected] if the command may not run. approved has the rules that a person
// approved for the step already, and may be nil. Permit adds to it.
func (l *Run) Permit(ctx context.Context, t *Target, q Question, list []rules.Command, approved *Approvals) error {
	set := t.Settings().Rules
	ask, deny := set.JudgeAll(list)
	if deny != nil {
		return l.refuse(q, deny, "")
	}
	for _, r := range ask {
		if approved.has(r) {
			continue
		}
		q.Words, q.Who = l.askWords(set, r), r.Who
		q.Command = text.Clip(q.Command, maxAsked)
		d, err := l.Owner.Approve(ctx, q)
		switch {
		case err != nil:
			return err
		case !d.Approved:
			return l.refuse(q, r, strings.TrimSuffix(fmt.Sprintf("%s said no: %s", d.By, d.Comment), ": "))
		}
		approved.add(r)
	}
	return nil
}

// PermitCommand applies the rules of a base to a command of an agent. The programs that a person approved with it may
// start once each.
func (w *Work) PermitCommand(ctx context.Context, c record.Command) error {
	list := CommandsOf(c)
	if err := w.Run.Permit(ctx, w.Target, Question{Step: w.Info.ID, Command: c.Line()}, list, nil); err != nil {
		return err
	}
	set := w.Target.Settings().Rules
	for _, one := range list {
		ask, _ := set.JudgeAll([]rules.Command{one})
		if len(ask) == 0 || len(one) == 0 || slices.ContainsFunc(one, func(w rules.Word) bool { return w.Unknown }) {
			continue
		}
		var args []string
		for _, word := range one {
			args = append(args, word.Text)
		}
		w.approved.allow(startOf(args, ask))
	}
	return nil
}

// CheckUnasked returns why rules do not let a command run without a question to a person. The error wraps
// [record.ErrInvalid].
func CheckUnasked(set rules.Set, c record.Command) error {
	ask, deny := set.JudgeAll(CommandsOf(c))
	switch {
	case deny != nil:
		return fmt.Errorf("%w command: the rule %q of %s denies it", record.ErrInvalid, deny.Name(), rules.Path)
	case len(ask) > 0:
		return fmt.Errorf("%w command: the rule %q of %s asks a person about it, and nobody is asked in a try", record.ErrInvalid,
			ask[0].Name(), rules.Path)
	}
	return nil
}

// askWords returns the question of a rule.
func (l *Run) askWords(set rules.Set, r *rules.Rule) string {
	words := fmt.Sprintf("May this command run? The rule %q of the base asks", r.Name())
	if r.Line > 0 {
		words += fmt.Sprintf(" (%s:%d)", rules.Path, r.Line)
	}
	if r.Reason != "" {
		words += ": " + r.Reason
	}
	if set.Mistake != "" {
		words += "\n" + text.Clip(set.Mistake, 1<<10)
	}
	return words
}

// refuse journals a command that may not run, and returns the error of its step.
func (l *Run) refuse(q Question, r *rules.Rule, why string) error {
	words := fmt.Sprintf("the rule %q of the base does not allow this command", r.Name())
	if r.Reason != "" {
		words += ": " + r.Reason
	}
	if why != "" {
		words = fmt.Sprintf("the rule %q asked about this command, and %s", r.Name(), why)
	}
	words = l.Runner.Secrets.String(words)
	err := l.Emit(record.Event{Type: record.EventNote, Step: q.Step, Reason: record.NoteRule,
		Message: words + "\n" + l.Runner.Secrets.String(text.Clip(q.Command, maxAsked))}, true)
	if err != nil {
		return err
	}
	return &Failure{record.ReasonRejected, words}
}

// ServeRule answers at the door whether a guarded command may start a program. It waits for a person if a rule asks. An
// answer for an agent holds for one program, unless the rules have a mistake. A program that may not start is not asked
// about again in the step.
func (t *Target) ServeRule(rw http.ResponseWriter, r *http.Request) {
	var call containers.RuleCall
	if err := json.NewDecoder(http.MaxBytesReader(rw, r.Body, maxRuleCall)).Decode(&call); err != nil || len(call.Args) == 0 {
		http.Error(rw, "the question about a program cannot be read", http.StatusBadRequest)
		return
	}
	set := t.Settings().Rules
	list := []rules.Command{rules.Vector(call.Args...)}
	ask, deny := set.JudgeAll(list)
	if len(ask) == 0 && deny == nil {
		return
	}
	w := t.AtWork()
	if w == nil {
		http.Error(rw, "a rule of the base decides on this program, and nothing is at work", http.StatusServiceUnavailable)
		return
	}
	if deny != nil {
		ask = append(ask, deny)
	}
	approved, start := w.approved, startOf(call.Args, ask)
	if why := approved.refusal(start); why != "" {
		http.Error(rw, why, http.StatusForbidden)
		return
	}
	if w.Info.Kind == string(record.KindAgent) && set.Mistake == "" {
		if approved.takeStart(start) {
			return
		}
		approved = nil
	}
	q := Question{Step: w.Info.ID, Command: strings.Join(call.Args, " ")}
	if err := w.Run.Permit(r.Context(), t, q, list, approved); err != nil {
		why := w.Run.Runner.Secrets.String(err.Error())
		if failed := (*Failure)(nil); errors.As(err, &failed) && failed.Reason == record.ReasonRejected {
			w.approved.refuse(start, why)
		}
		http.Error(rw, why, http.StatusForbidden)
	}
}

// maxRuleCall is the size of the largest question about a program, in bytes.
const maxRuleCall = 1 << 20
