package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/trace"
	"github.com/ramus-dev/ramus/internal/standin/oteltest"
)

// TestTraceOfAMention has a mention become one trace, from its event in the gateway over the executor and the command in
// the container to the reply.
func TestTraceOfAMention(t *testing.T) {
	t.Parallel()
	collector := &oteltest.Collector{Token: "Bearer abc"}
	if err := collector.Start(); err != nil {
		t.Fatal(err)
	}
	defer collector.Close()
	out := &trace.Exporter{URL: collector.URL(), Token: "Bearer abc", Version: "test", RetryEvery: time.Millisecond}
	if err := out.Open(); err != nil {
		t.Fatal(err)
	}
	defer out.Close(t.Context())
	k := openTalk(t, true, nil)
	k.Executor.Observer = out
	collector.SetDown(true) // for a while
	ts := k.slack.Say(owner, "C01", "", "<@"+k.slack.BotUser+"> exec echo hello > greeting.txt; exit 3")
	k.until("the result", func() bool { return len(k.part("C01", ts, "result")) == 1 })
	collector.SetDown(false)

	var spans []oteltest.Span
	names := make(map[string]oteltest.Span)
	for len(names) < 7 {
		next := collector.Changed()
		var refused []string
		if spans, refused = collector.Spans(); len(refused) > 0 {
			t.Fatal(refused)
		}
		clear(names)
		for _, s := range spans {
			names[s.Name] = s
		}
		if len(names) >= 7 {
			break
		}
		select {
		case <-next:
		case <-time.After(30 * time.Second):
			t.Fatalf("the spans are %+v", spans)
		}
	}
	root := names["mention"]
	if root.ID == "" || root.Parent != "" || root.Attributes["ramus.repo"] != "app" ||
		root.Attributes["ramus.state"] != "complete" && !root.Failed {
		t.Errorf("the first span is %+v", root)
	}
	for name, parent := range map[string]string{
		"gateway: decide": "mention", "executor: wait and prepare a container": "mention", "executor: step exec": "mention",
		"container: command": "executor: step exec", "executor: commit": "executor: step exec", "gateway: reply": "mention",
	} {
		s, ok := names[name]
		if !ok || s.Trace != root.Trace || s.Parent != names[parent].ID {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if c := names["container: command"]; c.Attributes["process.exit_code"] != "3" ||
		!strings.Contains(c.Attributes["ramus.command"], "greeting.txt") {
		t.Errorf("the command: %+v", c)
	}
	for _, s := range spans {
		if s.Name != "mention" && s.Name != "gateway: reply" && (s.Start < root.Start || s.End > root.End) {
			t.Errorf("%s is outside of the mention", s.Name)
		}
	}
	if resp, err := http.Get(collector.URL()); err == nil {
		resp.Body.Close()
	}
}
