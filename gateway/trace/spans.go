package trace

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// maxSpans bounds the spans of one run.
const maxSpans = 2000

// builder makes the spans of a run.
type builder struct {
	run   record.Run
	name  string // of the run
	trace string
	spans []span
}

// newBuilder returns the builder of a run. A run that a node of another run started belongs to that run's trace.
func newBuilder(r record.Run) *builder {
	b := &builder{run: r, name: r.Name(), trace: traceID(r.Name())}
	if r.Sub && r.Parent != "" {
		b.trace = traceID(r.Parent)
	}
	return b
}

// add adds a span below another one. Spans over the bound are left out.
func (b *builder) add(part, parent, name string, kind int, from, to time.Time, attributes ...attribute) *span {
	if len(b.spans) >= maxSpans || from.IsZero() || to.IsZero() {
		return new(span)
	}
	if to.Before(from) { // the clock was set back
		to = from
	}
	b.spans = append(b.spans, span{TraceID: b.trace, SpanID: spanID(b.name, part), Parent: parent, Name: name, Kind: kind,
		Start: nanos(from), End: nanos(to), Attributes: attributes})
	return &b.spans[len(b.spans)-1]
}

// root returns the id of the run's own span.
func (b *builder) root() string { return spanID(b.name, "") }

// runSpans returns the spans of a run that has ended.
func runSpans(r record.Run, events []record.Event) []span {
	b := newBuilder(r)
	b.addRun()
	var (
		leased  bool
		started = make(map[string]record.Event) // steps that have not finished
		asked   record.Event
	)
	for i, e := range events {
		part := fmt.Sprint("event ", i)
		switch e.Type {
		case record.EventPolicy:
			b.add(part, b.root(), "gateway: decide", kindInternal, r.CreatedAt, e.Time, str("ramus.runner", e.Message),
				str("ramus.reason", e.Reason))
		case record.EventStepStarted:
			if !leased {
				leased = true
				b.add(part, b.root(), "executor: wait and prepare a container", kindInternal, r.CreatedAt, e.Time)
			}
			started[e.Step] = e
		case record.EventStepFinished:
			b.addStep(part, started[e.Step], e)
			delete(started, e.Step)
		case record.EventUsage:
			b.addModel(part, e)
		case record.EventGate:
			asked = e
		case record.EventDecision:
			b.add(part, b.root(), "wait for a person", kindInternal, asked.Time, e.Time)
		case record.EventBrowser:
			b.add(part, b.root(), "browser: "+e.Message, kindClient,
				e.Time.Add(-time.Duration(e.DurationMS)*time.Millisecond), e.Time, str("ramus.verdict", e.Reason))
		}
	}
	return b.spans
}

// addRun adds the run's own span.
func (b *builder) addRun() {
	r, parent, name, kind := b.run, "", "run "+string(b.run.Kind), kindInternal
	if r.Origin != nil {
		name, kind = "mention", kindServer
	}
	if r.Sub && r.Parent != "" {
		parent = spanID(r.Parent, "")
	}
	s := b.add("", parent, name, kind, r.CreatedAt, r.EndedAt, str("ramus.run", b.name), str("ramus.repo", r.Repo),
		str("ramus.kind", string(r.Kind)),
		str("ramus.branch", r.Branch), str("ramus.state", string(r.State)), str("ramus.work", r.Title()))
	if r.Reason != "" {
		s.Attributes = append(s.Attributes, str("ramus.reason", string(r.Reason)))
	}
	if r.Origin != nil {
		s.Attributes = append(s.Attributes, str("ramus.origin", r.Origin.Source))
	}
	if u := r.Usage; u != nil {
		s.Attributes = append(s.Attributes, num("ramus.input_tokens", u.InputTokens),
			num("ramus.output_tokens", u.OutputTokens), num("ramus.cost_micros", u.CostMicros))
	}
	if r.State == record.StateFailed {
		s.Status = &status{Code: statusError, Message: string(r.Reason)}
	}
}

// addStep adds a step with its command and its commit.
func (b *builder) addStep(part string, from, to record.Event) {
	if from.Time.IsZero() {
		return
	}
	s := b.add(part, b.root(), "executor: step "+to.Step, kindInternal, from.Time, to.Time, str("ramus.step", to.Step),
		str("ramus.kind", to.Kind))
	if to.OK != nil && !*to.OK {
		s.Status = &status{Code: statusError, Message: to.Reason}
	}
	parent := s.SpanID
	if to.DurationMS <= 0 || to.Exit == nil {
		return
	}
	ended := from.Time.Add(time.Duration(to.DurationMS) * time.Millisecond)
	if ended.After(to.Time) {
		ended = to.Time
	}
	b.add(part+" command", parent, "container: command", kindClient, from.Time, ended, str("ramus.command", to.Command),
		num("process.exit_code", int64(*to.Exit)))
	b.add(part+" commit", parent, "executor: commit", kindInternal, ended, to.Time, str("ramus.commit", string(to.Commit)))
}

// addModel adds the call of a model.
func (b *builder) addModel(part string, e record.Event) {
	var c record.ModelCall
	if json.Unmarshal(e.Data, &c) != nil {
		return
	}
	b.add(part, b.root(), "model: "+c.Provider, kindClient,
		e.Time.Add(-time.Duration(max(c.DurationMS, 0))*time.Millisecond), e.Time,
		str("gen_ai.system", c.Provider), str("gen_ai.request.model", c.Model),
		num("gen_ai.usage.input_tokens", c.InputTokens),
		num("gen_ai.usage.output_tokens", c.OutputTokens), num("http.response.status_code", int64(c.Status)))
}

// toldSpans returns the span from the end of a run to the moment when its origin knew.
func toldSpans(r record.Run) []span {
	if r.Told == nil || r.EndedAt.IsZero() {
		return nil
	}
	b := newBuilder(r)
	b.add("told", b.root(), "gateway: reply", kindClient, r.EndedAt, r.Told.Time)
	return b.spans
}
