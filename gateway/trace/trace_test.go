package trace

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/standin/oteltest"
)

func exampleRun(t testing.TB, name string) (record.Run, []record.Event) {
	c, err := record.RunCaller(name)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	exit, ok := 0, true
	call, _ := json.Marshal(record.ModelCall{Provider: "anthropic", Model: "m", InputTokens: 10, OutputTokens: 5,
		DurationMS: 100, Status: 200})
	r := record.Run{ID: "1", Caller: c, Kind: record.KindAgent, Repo: "app", State: record.StateComplete, CreatedAt: at,
		EndedAt: at.Add(9 * time.Second)}
	return r, []record.Event{
		{Type: record.EventStepStarted, Step: "turn-1", Time: at.Add(time.Second)},
		{Type: record.EventUsage, Time: at.Add(2 * time.Second), Data: call},
		{Type: record.EventGate, Time: at.Add(3 * time.Second)},
		{Type: record.EventDecision, Time: at.Add(4 * time.Second)},
		{Type: record.EventStepFinished, Step: "turn-1", Time: at.Add(8 * time.Second), DurationMS: 6000, Exit: &exit,
			OK: &ok, Command: strings.Repeat("x", 4000)},
		{Type: record.EventStepFinished, Step: "unknown", Time: at.Add(8 * time.Second)},
	}
}

func TestSpans(t *testing.T) {
	r, events := exampleRun(t, "one")
	spans := runSpans(r, events)
	again := runSpans(r, events)
	if a, b := fmt.Sprint(spans[0].TraceID, spans[0].SpanID), fmt.Sprint(again[0].TraceID, again[0].SpanID); a != b {
		t.Error("the ids of one run differ")
	}
	seen := make(map[string]bool)
	for _, s := range spans {
		if seen[s.SpanID] {
			t.Errorf("%s has the id of another span", s.Name)
		}
		seen[s.SpanID] = true
		for _, a := range s.Attributes {
			if a.Value.String != nil && len(*a.Value.String) > maxText+10 {
				t.Errorf("%s has %d bytes", a.Key, len(*a.Value.String))
			}
		}
	}
	if len(spans) != 7 {
		t.Errorf("there are %d spans", len(spans))
	}
	// A run of a node is a part of its parent's trace.
	child, childEvents := exampleRun(t, "two")
	child.Sub, child.Parent = true, r.Name()
	part := runSpans(child, childEvents)
	if part[0].TraceID != spans[0].TraceID || part[0].Parent != spans[0].SpanID || part[0].SpanID == spans[0].SpanID {
		t.Errorf("%+v", part[0])
	}
}

func TestManyEvents(t *testing.T) {
	r, events := exampleRun(t, "one")
	for len(events) < 3*maxSpans {
		events = append(events, events[:2]...)
	}
	if n := len(runSpans(r, events)); n > maxSpans {
		t.Errorf("there are %d spans", n)
	}
}

// TestExporter sends to a collector that is down at first, refuses, and is gone at the end.
func TestExporter(t *testing.T) {
	c := &oteltest.Collector{}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDown(true)
	e := &Exporter{URL: c.URL(), RetryEvery: time.Millisecond}
	if err := e.Open(); err != nil {
		t.Fatal(err)
	}
	next := c.Changed()
	r, events := exampleRun(t, "one")
	e.Ended(r, events)
	<-next
	c.SetDown(false)
	e.Close(t.Context())
	if sent, dropped := e.Counts(); sent != 7 || dropped != 0 {
		t.Errorf("%d spans were sent, %d dropped", sent, dropped)
	}
	e.Ended(r, events) // after the end
	if _, dropped := e.Counts(); dropped != 7 {
		t.Errorf("%d spans were dropped", dropped)
	}

	wrong := &Exporter{URL: c.URL() + "/elsewhere", RetryEvery: time.Millisecond}
	if err := wrong.Open(); err != nil {
		t.Fatal(err)
	}
	wrong.Ended(r, events)
	wrong.Close(t.Context())
	if sent, dropped := wrong.Counts(); sent != 0 || dropped != 7 {
		t.Errorf("%d spans were sent, %d dropped", sent, dropped)
	}
	var none *Exporter
	none.Ended(r, events)
	none.Told(r)
	none.Close(t.Context())
	for _, url := range []string{"localhost:4318", "ftp://x", "http://", "http://a:b@c"} {
		if (&Exporter{URL: url}).Open() == nil {
			t.Errorf("%q is a URL", url)
		}
	}
}

// TestFullQueue does not wait for a collector.
func TestFullQueue(t *testing.T) {
	e := &Exporter{URL: "http://127.0.0.1:9", RetryEvery: time.Hour}
	if err := e.Open(); err != nil {
		t.Fatal(err)
	}
	r, events := exampleRun(t, "one")
	for range queueMax + 10 {
		e.Ended(r, events)
	}
	if _, dropped := e.Counts(); dropped < 7*8 {
		t.Errorf("%d spans were dropped", dropped)
	}
	e.stop() // nothing else ends the wait for the next attempt
	e.Close(t.Context())
}
