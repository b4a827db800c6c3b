package executor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// asked is an open question of a run's agent. The run continues meanwhile.
type asked struct {
	gate   record.Gate
	answer chan record.Decision // takes one
}

// askLeave asks a person. One question is open at a time. The others wait for their turn.
func (l *liveRun) askLeave(ctx context.Context, step string, q acp.Question) (approved bool, err error) {
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	a := &asked{answer: make(chan record.Decision, 1)}
	l.mu.Lock()
	l.questions++
	a.gate = record.Gate{Step: step + "/permission-" + strconv.Itoa(l.questions), Message: question(q)}
	a.gate.Message = l.x.Secrets.String(a.gate.Message)
	e := record.Event{Type: record.EventGate, Step: a.gate.Step, Kind: agent.KindPermission, Message: a.gate.Message, Data: record.Marshal(a.gate)}
	err = l.emitLocked(e, true)
	if err == nil {
		gate := a.gate
		l.asked, l.run.Gate = a, &gate
	}
	l.mu.Unlock()
	if err != nil {
		return false, err
	}
	late := time.NewTimer(l.x.tuning.waits.Person)
	defer late.Stop()
	var d record.Decision
	answered := false
	select {
	case d = <-a.answer:
		answered = true
	case <-late.C:
		d = record.Decision{Step: a.gate.Step, By: l.x.Bot.Name, Comment: fmt.Sprintf("nobody answered within %s", l.x.tuning.waits.Person)}
	case <-ctx.Done():
		d = record.Decision{Step: a.gate.Step, By: l.x.Bot.Name, Comment: "the agent does not wait for an answer any more"}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked != a && !answered { // at the last moment
		d = <-a.answer
	}
	l.asked = nil
	if l.run.Gate != nil && l.run.Gate.Step == a.gate.Step {
		l.run.Gate = nil
	}
	err = l.emitLocked(record.Event{Type: record.EventDecision, Step: d.Step, Kind: agent.KindPermission, Message: d.Comment, Data: record.Marshal(d)}, true)
	return d.Approved && err == nil, err
}

// question returns the question to a person.
func question(q acp.Question) string {
	var b strings.Builder
	b.WriteString("The agent asks for leave: " + q.Tool.Words())
	if q.Tool.Kind != "" {
		b.WriteString(" (" + q.Tool.Kind + ")")
	}
	if q.Tool.RawInput != nil {
		b.WriteString("\n" + string(q.Tool.RawInput))
	}
	return text.Clip(b.String(), 2<<10)
}

// errNotAsked is the error of an answer while the run's agent asks nothing.
var errNotAsked = errors.New("nothing is asked")

// decide answers the question of the run's agent. The error is errNotAsked if there is none.
func (l *liveRun) decide(d record.Decision) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.asked
	switch {
	case a == nil:
		return errNotAsked
	case d.Step != "" && d.Step != a.gate.Step:
		return fmt.Errorf("%w: it waits at %s, not at %s", record.ErrConflict, a.gate.Step, d.Step)
	case len(a.gate.Allowed) > 0 && !a.gate.Names(d.By):
		return fmt.Errorf("%w: only %s may", gitd.ErrDenied, strings.Join(a.gate.Allowed, ", "))
	}
	d.Step = a.gate.Step
	a.answer <- d
	l.asked = nil
	return nil
}
