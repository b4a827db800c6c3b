package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
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

// timeline prints spans, one a line, with their seconds after the beginning of the run.
func timeline(t *testing.T, r record.Run, spans []span) string {
	t.Helper()
	names := map[string]string{"": "nothing"}
	for _, s := range spans {
		names[s.SpanID] = s.Name
	}
	var b strings.Builder
	for _, s := range spans {
		seconds := func(nanos string) float64 {
			n, err := strconv.ParseInt(nanos, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return time.Unix(0, n).Sub(r.CreatedAt).Seconds()
		}
		fmt.Fprintf(&b, "%s (%d) in %s, %g to %g:", s.Name, s.Kind, names[s.Parent], seconds(s.Start), seconds(s.End))
		for _, a := range s.Attributes {
			switch {
			case a.Value.Int != nil:
				fmt.Fprintf(&b, " %s=%s", a.Key, *a.Value.Int)
			case a.Value.String != nil && *a.Value.String != "":
				fmt.Fprintf(&b, " %s=%.20s", a.Key, *a.Value.String)
			}
		}
		if s.Status != nil {
			fmt.Fprintf(&b, " status %d %s", s.Status.Code, s.Status.Message)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestTimeline compares all that a collector gets of a mention that failed.
func TestTimeline(t *testing.T) {
	r, _ := exampleRun(t, "one")
	r.State, r.Reason, r.Branch = record.StateFailed, record.ReasonCommandFailed, "ramus/one"
	r.Origin = &record.Origin{Source: "slack"}
	r.Usage = &record.Usage{InputTokens: 7, OutputTokens: 3, CostMicros: 40}
	r.Parent = "run:other/1" // it is no part of that run
	after := func(seconds float64) time.Time { return r.CreatedAt.Add(time.Duration(seconds * float64(time.Second))) }
	exit, yes, no := 1, true, false
	call, err := json.Marshal(record.ModelCall{Provider: "anthropic", Model: "m", InputTokens: 10, OutputTokens: 5,
		DurationMS: 500, Status: 200})
	if err != nil {
		t.Fatal(err)
	}
	got := timeline(t, r, runSpans(r, []record.Event{
		{Type: record.EventPolicy, Time: after(0.5), Message: "deploy", Reason: "a rule"},
		{Type: record.EventStepStarted, Step: "build", Time: after(1)},
		{Type: record.EventStepFinished, Step: "build", Kind: "exec", Time: after(4), DurationMS: 2000, Exit: &exit, OK: &no,
			Reason: "failed", Command: "make", Commit: "abc"},
		{Type: record.EventStepStarted, Step: "long", Time: after(4)},
		{Type: record.EventStepFinished, Step: "long", Time: after(5), DurationMS: 9000, Exit: &exit, OK: &yes},
		{Type: record.EventStepStarted, Step: "task", Time: after(5)},
		{Type: record.EventStepFinished, Step: "task", Time: after(6), Exit: &exit}, // without a duration
		{Type: record.EventStepStarted, Step: "gate", Time: after(6)},
		{Type: record.EventStepFinished, Step: "gate", Time: after(7), DurationMS: 500}, // without an exit code
		{Type: record.EventUsage, Time: after(7), Data: call},
		{Type: record.EventUsage, Time: after(7), Data: []byte("no JSON")},
		{Type: record.EventGate, Time: after(7)},
		{Type: record.EventDecision, Time: after(8)},
		{Type: record.EventBrowser, Time: after(8.5), DurationMS: 250, Message: "open", Reason: "PASS"},
	}))
	want := `mention (2) in nothing, 0 to 9: ramus.run=run:one/1 ramus.repo=app ramus.kind=agent ramus.branch=ramus/one ramus.state=failed ramus.reason=command_failed ramus.origin=slack ramus.input_tokens=7 ramus.output_tokens=3 ramus.cost_micros=40 status 2 command_failed
gateway: decide (1) in mention, 0 to 0.5: ramus.runner=deploy ramus.reason=a rule
executor: wait and prepare a container (1) in mention, 0 to 1:
executor: step build (1) in mention, 1 to 4: ramus.step=build ramus.kind=exec status 2 failed
container: command (3) in executor: step build, 1 to 3: ramus.command=make process.exit_code=1
executor: commit (1) in executor: step build, 3 to 4: ramus.commit=abc
executor: step long (1) in mention, 4 to 5: ramus.step=long
container: command (3) in executor: step long, 4 to 5: process.exit_code=1
executor: commit (1) in executor: step long, 5 to 5:
executor: step task (1) in mention, 5 to 6: ramus.step=task
executor: step gate (1) in mention, 6 to 7: ramus.step=gate
model: anthropic (3) in mention, 6.5 to 7: gen_ai.system=anthropic gen_ai.request.model=m gen_ai.usage.input_tokens=10 gen_ai.usage.output_tokens=5 http.response.status_code=200
wait for a person (1) in mention, 7 to 8:
browser: open (3) in mention, 8.25 to 8.5: ramus.verdict=PASS
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if told := toldSpans(r); told != nil {
		t.Errorf("of a run whose origin does not know its end: %+v", told)
	}
	r.Told = &record.Told{Time: after(8)} // the clock was set back
	want = "gateway: reply (3) in , 9 to 9:\n"
	told := toldSpans(r)
	if got := timeline(t, r, told); got != want || told[0].Parent != spanID(r.Name(), "") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAnswers has a collector accept a trace, refuse one, and send one to another place.
func TestAnswers(t *testing.T) {
	var connections atomic.Int32
	status := make(chan int, 10)
	collector := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(<-status)
		w.Write(bytes.Repeat([]byte("x"), 10_000))
		w.(http.Flusher).Flush()
	}))
	collector.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	collector.Start()
	defer collector.Close()
	e := &Exporter{URL: collector.URL, RetryEvery: time.Millisecond}
	if err := e.Open(); err != nil {
		t.Fatal(err)
	}
	if e.HTTP.Timeout <= 0 || e.HTTP.Timeout > tryFor {
		t.Errorf("a collector that does not answer is waited for %s", e.HTTP.Timeout)
	}
	r, _ := exampleRun(t, "one")
	r.Told = &record.Told{Time: r.EndedAt}
	for _, answer := range []int{200, 202, 300, 400, 503, 429, 200} { // the last three are for one request
		status <- answer
	}
	for range 5 {
		e.Told(r)
	}
	e.Close(t.Context())
	if sent, dropped := e.Counts(); sent != 3 || dropped != 2 || len(status) != 0 {
		t.Errorf("%d were sent, %d dropped, %d answers are left", sent, dropped, len(status))
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections were opened", n)
	}
}
