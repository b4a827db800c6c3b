package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	offer  acp.Question
	answer chan record.Decision // takes one
}

// Bounds of the options of a question.
const (
	maxOptions     = 20
	maxOptionBytes = 200
)

// askPermission asks a person, and returns the option that was chosen.
func (l *liveRun) askPermission(ctx context.Context, step string, q acp.Question) (option string, err error) {
	words, command := q.Describe()
	q.Tool = acp.Tool{} // it may be large
	d, err := l.askPerson(ctx, record.Gate{Step: step, Message: words, Command: command, Options: l.gateOptions(q)}, q, false)
	return d.Option, err
}

// askPerson asks a person a question of a step, and returns the answer. One question is open at a time. The others wait
// for their turn. g.Step is the step. A question that keeps is taken up after a restart of the server, open or answered,
// if its step has not begun since. Without an answer the decision is that of nobody, and does not approve.
func (l *liveRun) askPerson(ctx context.Context, g record.Gate, offer acp.Question, keeps bool) (record.Decision, error) {
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return record.Decision{}, context.Cause(ctx)
	}
	a := &asked{offer: offer, answer: make(chan record.Decision, 1)}
	step := g.Step
	l.LetGo(step) // a person reads it before the question
	l.Lock()
	g.Message, g.Command = l.x.Secrets.String(g.Message), l.x.Secrets.String(g.Command)
	if g.Command != "" {
		g.Message += "\n" + g.Command
	}
	var before *record.Gate
	if keeps {
		var d *record.Decision
		if before, d = askedBefore(l.EventsLocked(), step, g.Message); d != nil {
			l.Unlock()
			return *d, nil
		}
	}
	var err error
	if before != nil {
		a.gate = *before
	} else {
		g.Step, g.Asked = step+record.PermissionStep+strconv.Itoa(1+countQuestions(l.EventsLocked())), l.x.Now().UTC()
		a.gate = g
		err = l.EmitLocked(record.Event{Type: record.EventGate, Step: g.Step, Kind: agent.KindPermission, Message: g.Message,
			Data: record.Marshal(g)}, true)
	}
	if err == nil {
		gate := a.gate
		l.asked = a
		l.SetGateLocked(&gate)
	}
	l.Unlock()
	if err != nil {
		return record.Decision{}, err
	}
	var late <-chan time.Time
	if !keeps { // a program waits for the answer
		timer := time.NewTimer(l.x.tuning.waits.Person)
		defer timer.Stop()
		late = timer.C
	}
	why := record.NotAwaited
	select {
	case d := <-a.answer:
		return d, nil
	case <-late:
		why = fmt.Sprintf("nobody answered within %s", l.x.tuning.waits.Person)
	case <-ctx.Done():
	}
	l.Lock()
	defer l.Unlock()
	if l.asked != a { // answered at the last moment
		return <-a.answer, nil
	}
	if keeps && errors.Is(context.Cause(ctx), record.ErrClosed) {
		return record.Decision{}, record.ErrClosed // the next process asks
	}
	d := record.Decision{Step: a.gate.Step, By: l.x.Bot.Name, Comment: why}
	if o, ok := offer.Pick(false); ok {
		d.Option = o.ID
	}
	return d, l.answerLocked(a, d)
}

// askedBefore returns the question with a message that a step asked before the server was restarted, and the answer of a
// person if there is one. Both are nil if the step has begun since, or has asked something else.
func askedBefore(events []record.Event, step, message string) (*record.Gate, *record.Decision) {
	answers := make(map[string]record.Decision)
	for _, e := range slices.Backward(events) {
		var d record.Decision
		var g record.Gate
		switch {
		case e.Type == record.EventStepStarted && e.Step == step:
			return nil, nil
		case e.Type == record.EventDecision && json.Unmarshal(e.Data, &d) == nil:
			answers[e.Step] = d
		case e.Type == record.EventGate && strings.HasPrefix(e.Step, step+record.PermissionStep) && e.Message == message &&
			json.Unmarshal(e.Data, &g) == nil:
			if d, ok := answers[e.Step]; ok {
				return nil, &d
			}
			return &g, nil
		}
	}
	return nil, nil
}

// countQuestions returns the number of questions of a run's agents, also of those before a restart of the server. A
// later question has another step, so that the button of an earlier one never answers it.
func countQuestions(events []record.Event) (n int) {
	for _, e := range events {
		if e.Type == record.EventGate && e.Kind == agent.KindPermission {
			n++
		}
	}
	return n
}

// gateOptions returns the options of a question, as far as a person can choose them by their ids.
func (l *liveRun) gateOptions(q acp.Question) (list []record.GateOption) {
	for _, o := range q.Options {
		if o.ID == "" || len(o.ID) > maxOptionBytes || l.x.Secrets.String(o.ID) != o.ID || len(list) == maxOptions {
			continue
		}
		list = append(list, record.GateOption{ID: o.ID, Name: text.Clip(o.Name, maxOptionBytes),
			Kind: text.Clip(o.Kind, 40), Allows: o.Allows()})
	}
	return list
}

// answerLocked journals the answer to the open question. mu is held.
func (l *liveRun) answerLocked(a *asked, d record.Decision) error {
	err := l.EmitLocked(record.Event{Type: record.EventDecision, Step: d.Step, Kind: agent.KindPermission,
		Message: d.Comment, Data: record.Marshal(d)}, true)
	if err != nil {
		return err
	}
	l.asked = nil
	if g := l.GateLocked(); g != nil && g.Step == a.gate.Step {
		l.SetGateLocked(nil)
	}
	return nil
}

// errNotAsked is the error of an answer while the run's agent asks nothing.
var errNotAsked = errors.New("nothing is asked")

// decide answers the question of the run's agent. The answer is durable when decide returns. The error is errNotAsked if there is none.
func (l *liveRun) decide(d record.Decision) error {
	l.Lock()
	defer l.Unlock()
	a := l.asked
	if a == nil || d.Step != "" && d.Step != a.gate.Step {
		if before := answered(l.EventsLocked(), d.Step); before != nil {
			return before
		}
	}
	switch {
	case a == nil:
		return errNotAsked
	case d.Step != "" && d.Step != a.gate.Step:
		return fmt.Errorf("%w: it waits at %s, not at %s", record.ErrConflict, a.gate.Step, d.Step)
	case !a.gate.Admits(d.By):
		return fmt.Errorf("%w: only %s may", gitd.ErrDenied, strings.Join(a.gate.Allowed, ", "))
	}
	d.Step = a.gate.Step
	if err := choose(a, &d); err != nil {
		return err
	}
	if err := l.answerLocked(a, d); err != nil {
		return err
	}
	a.answer <- d
	return nil
}

// choose completes a decision with the option that it means.
func choose(a *asked, d *record.Decision) error {
	if d.Option == "" {
		if o, ok := a.offer.Pick(d.Approved); ok {
			d.Option = o.ID
		}
		return nil
	}
	o, ok := a.gate.Option(d.Option)
	switch {
	case !ok:
		ids := make([]string, len(a.gate.Options))
		for i, o := range a.gate.Options {
			ids[i] = strconv.Quote(o.ID)
		}
		return fmt.Errorf("%w option %q: the agent offers %s", record.ErrInvalid, text.Clip(d.Option, maxOptionBytes),
			strings.Join(ids, ", "))
	case d.Approved && !o.Allows:
		return fmt.Errorf("%w answer: the option %q does not approve", record.ErrInvalid, d.Option)
	}
	d.Approved = o.Allows
	return nil
}

// answered returns the earlier answer to the question of a step as an error, or nil if there is none. An empty step means the last
// question.
func answered(events []record.Event, step string) error {
	for _, e := range slices.Backward(events) {
		if e.Type == record.EventGate && step == "" {
			return nil // the last question is open
		}
		if e.Type != record.EventDecision || step != "" && e.Step != step {
			continue
		}
		before := &record.AnsweredError{At: e.Time}
		if json.Unmarshal(e.Data, &before.Decision) != nil {
			return nil
		}
		return before
	}
	return nil
}
