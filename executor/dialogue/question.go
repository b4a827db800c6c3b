package dialogue

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
	MaxOptionBytes = 200
)

// askPermission asks a person, and returns the option that was chosen.
func (d *Dialogue) askPermission(ctx context.Context, step string, q acp.Question) (option string, err error) {
	words, command := q.Describe()
	q.Tool = acp.Tool{} // it may be large
	answer, err := d.Ask(ctx, record.Gate{Step: step, Message: words, Command: command, Options: d.gateOptions(q)}, q, false)
	return answer.Option, err
}

// Ask asks a person a question of a step, and returns the answer. One question is open at a time. The others wait
// for their turn. g.Step is the step. A question that keeps is taken up after a restart of the server, open or answered,
// if its step has not begun since. Without an answer the decision is that of nobody, and does not approve.
func (d *Dialogue) Ask(ctx context.Context, g record.Gate, offer acp.Question, keeps bool) (record.Decision, error) {
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
	case <-ctx.Done():
		return record.Decision{}, context.Cause(ctx)
	}
	a := &asked{offer: offer, answer: make(chan record.Decision, 1)}
	step := g.Step
	d.run.LetGo(step) // a person reads it before the question
	d.run.Lock()
	g.Message, g.Command = d.all.Secrets.String(g.Message), d.all.Secrets.String(g.Command)
	if g.Command != "" {
		g.Message += "\n" + g.Command
	}
	var before *record.Gate
	if keeps {
		var answer *record.Decision
		if before, answer = askedBefore(d.run.EventsLocked(), step, g.Message); answer != nil {
			d.run.Unlock()
			return *answer, nil
		}
	}
	var err error
	if before != nil {
		a.gate = *before
	} else {
		g.Step, g.Asked = step+record.PermissionStep+strconv.Itoa(1+countQuestions(d.run.EventsLocked())), d.all.Now().UTC()
		a.gate = g
		err = d.run.EmitLocked(record.Event{Type: record.EventGate, Step: g.Step, Kind: agent.KindPermission, Message: g.Message,
			Data: record.Marshal(g)}, true)
	}
	if err == nil {
		gate := a.gate
		d.asked = a
		d.run.SetGateLocked(&gate)
	}
	d.run.Unlock()
	if err != nil {
		return record.Decision{}, err
	}
	var late <-chan time.Time
	if !keeps { // a program waits for the answer
		timer := time.NewTimer(d.all.Waits.Person)
		defer timer.Stop()
		late = timer.C
	}
	why := record.NotAwaited
	select {
	case answer := <-a.answer:
		return answer, nil
	case <-late:
		why = fmt.Sprintf("nobody answered within %s", d.all.Waits.Person)
	case <-ctx.Done():
	}
	d.run.Lock()
	defer d.run.Unlock()
	if d.asked != a { // answered at the last moment
		return <-a.answer, nil
	}
	if keeps && errors.Is(context.Cause(ctx), record.ErrClosed) {
		return record.Decision{}, record.ErrClosed // the next process asks
	}
	nobody := record.Decision{Step: a.gate.Step, By: d.all.Bot.Name, Comment: why}
	if o, ok := offer.Pick(false); ok {
		nobody.Option = o.ID
	}
	return nobody, d.answerLocked(a, nobody)
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
func (d *Dialogue) gateOptions(q acp.Question) (list []record.GateOption) {
	for _, o := range q.Options {
		if o.ID == "" || len(o.ID) > MaxOptionBytes || d.all.Secrets.String(o.ID) != o.ID || len(list) == maxOptions {
			continue
		}
		list = append(list, record.GateOption{ID: o.ID, Name: text.Clip(o.Name, MaxOptionBytes),
			Kind: text.Clip(o.Kind, 40), Allows: o.Allows()})
	}
	return list
}

// answerLocked journals the answer to the open question. The lock is held.
func (d *Dialogue) answerLocked(a *asked, answer record.Decision) error {
	err := d.run.EmitLocked(record.Event{Type: record.EventDecision, Step: answer.Step, Kind: agent.KindPermission,
		Message: answer.Comment, Data: record.Marshal(answer)}, true)
	if err != nil {
		return err
	}
	d.asked = nil
	if g := d.run.GateLocked(); g != nil && g.Step == a.gate.Step {
		d.run.SetGateLocked(nil)
	}
	return nil
}

// ErrNotAsked is the error of an answer while the run's agent asks nothing.
var ErrNotAsked = errors.New("nothing is asked")

// Decide answers the question of the run's agent. The answer is durable when Decide returns. The error is ErrNotAsked if there is none.
func (d *Dialogue) Decide(answer record.Decision) error {
	d.run.Lock()
	defer d.run.Unlock()
	a := d.asked
	if a == nil || answer.Step != "" && answer.Step != a.gate.Step {
		if before := Answered(d.run.EventsLocked(), answer.Step); before != nil {
			return before
		}
	}
	switch {
	case a == nil:
		return ErrNotAsked
	case answer.Step != "" && answer.Step != a.gate.Step:
		return fmt.Errorf("%w: it waits at %s, not at %s", record.ErrConflict, a.gate.Step, answer.Step)
	case !a.gate.Admits(answer.By):
		return fmt.Errorf("%w: only %s may", gitd.ErrDenied, strings.Join(a.gate.Allowed, ", "))
	}
	answer.Step = a.gate.Step
	if err := choose(a, &answer); err != nil {
		return err
	}
	if err := d.answerLocked(a, answer); err != nil {
		return err
	}
	a.answer <- answer
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
		return fmt.Errorf("%w option %q: the agent offers %s", record.ErrInvalid, text.Clip(d.Option, MaxOptionBytes),
			strings.Join(ids, ", "))
	case d.Approved && !o.Allows:
		return fmt.Errorf("%w answer: the option %q does not approve", record.ErrInvalid, d.Option)
	}
	d.Approved = o.Allows
	return nil
}

// Answered returns the earlier answer to the question of a step as an error, or nil if there is none. An empty step means the last
// question.
func Answered(events []record.Event, step string) error {
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
