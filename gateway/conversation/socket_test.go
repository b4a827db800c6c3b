package conversation

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// desk is an executor whose one run is a story that has ended.
type desk struct {
	*story
	Executor // for the methods that no test calls
	Prompts  // the same
	decided  chan record.Decision
}

func (d desk) OfCaller(c record.Caller) []record.Run { return d.story.OfCaller(c) }
func (d desk) Run(ctx context.Context, name string) (record.Run, error) {
	return d.story.Run(ctx, name)
}
func (d desk) Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error] {
	return d.story.Events(ctx, run, after, follow)
}
func (d desk) EventsFrom(ctx context.Context, run string, after int64, have record.Span) iter.Seq2[record.Event, error] {
	return d.story.EventsFrom(ctx, run, after, have)
}
func (d desk) Words(ctx context.Context, run, step string, seq, from, to int64) ([]byte, error) {
	return d.story.Words(ctx, run, step, seq, from, to)
}
func (d desk) AgentNames() []string { return []string{"standin"} }
func (d desk) Watch(ctx context.Context, _ string) iter.Seq2[record.Event, error] {
	return func(func(record.Event, error) bool) { <-ctx.Done() }
}
func (d desk) Sessions(context.Context, string) ([]record.Session, error) {
	return []record.Session{{Caller: d.run.Caller, Agent: "standin", State: record.SessionStopped, Runs: 1,
		Last: d.run.Name()}}, nil
}
func (d desk) Say(context.Context, string, record.Prompt) error { return nil }

// found finds the caller of the story.
type found struct{ desk }

func (f found) Caller(context.Context, string) (executor.CallerStatus, error) {
	return executor.CallerStatus{Caller: f.run.Caller, Repo: "app", Branch: f.run.Branch, Last: f.run}, nil
}
func (f found) Named(name string) (executor.CallerStatus, error) {
	return f.Caller(context.Background(), name)
}

func dial(t *testing.T, s *story, header http.Header) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	d := desk{story: s, decided: make(chan record.Decision, 1)}
	find := &lookup.Lookup{Executor: found{d}}
	api := &API{Talk: &Talk{Executor: d, Prompts: d, Find: find}, Find: find}
	mux := &route.Mux{Streams: 8, Heartbeat: time.Second}
	who := route.Who{Subject: "ada", Repo: "*", Scopes: []string{gitd.ScopeAdmin}, Write: []string{"refs/*"}}
	server := httptest.NewServer(mux.Handler(api.Routes(), &who))
	t.Cleanup(server.Close)
	return websocket.DefaultDialer.DialContext(t.Context(),
		"ws"+strings.TrimPrefix(server.URL, "http")+"/workspaces/conv:told/agent", header)
}

// call sends a request and returns the updates before its answer, and the answer.
func call(t *testing.T, c *websocket.Conn, text string) (updates []map[string]any, answer message) {
	t.Helper()
	if err := c.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
	for {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		_, b, err := c.ReadMessage()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var m message
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		if m.Method == "" {
			return updates, m
		}
		var p struct {
			Update map[string]any `json:"update"`
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			t.Fatal(err)
		}
		updates = append(updates, p.Update)
	}
}

// TestSocket loads a session over the Agent Client Protocol, whole and from a place.
func TestSocket(t *testing.T) {
	s := told("one")
	c, _, err := dial(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, wrong := range []string{"nonsense", `{"jsonrpc":"2.0","id":1,"method":"fs/read"}`,
		`{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"none"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/","mcpServers":[{}]}}`,
		`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":7}`} {
		if _, a := call(t, c, wrong); a.Error == nil {
			t.Errorf("%s: %s", wrong, a.Result)
		}
	}
	if _, a := call(t, c, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`); !strings.Contains(string(a.Result), `"loadSession":true`) {
		t.Errorf("%s", a.Result)
	}
	all, a := call(t, c, `{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"standin"}}`)
	if a.Error != nil {
		t.Fatal(a.Error)
	}
	kinds := func(updates []map[string]any) string {
		var list []string
		for _, u := range updates {
			list = append(list, u["sessionUpdate"].(string))
		}
		return strings.Join(list, " ")
	}
	const want = "user_message_chunk agent_message_chunk plan tool_call tool_call_update agent_message_chunk agent_message_chunk user_message_chunk agent_message_chunk"
	if got := kinds(all); got != want {
		t.Errorf("%s", got)
	}
	at, err := json.Marshal(all[3]["_meta"].(map[string]any)["ramus"])
	if err != nil {
		t.Fatal(err)
	}
	rest, _ := call(t, c, `{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"standin","_meta":{"ramus":{"from":`+string(at)+`}}}}`)
	if got := kinds(rest); got != strings.Join(strings.Fields(want)[4:], " ") {
		t.Errorf("from a place: %s", got)
	}
	// A turn that ended before the prompt was heard of answers it.
	if _, a := call(t, c, `{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"standin","prompt":[{"type":"text","text":"x"}],"_meta":{"ramus":{"key":"k2"}}}}`); !strings.Contains(string(a.Result), "end_turn") {
		t.Errorf("%+v", a)
	}
}

// TestSocketOrigin refuses the pages of other origins, and requests that are no WebSocket.
func TestSocketOrigin(t *testing.T) {
	if _, answer, err := dial(t, told("one"), http.Header{"Origin": {"https://evil.example"}}); err == nil ||
		answer == nil || answer.StatusCode != http.StatusBadRequest {
		t.Errorf("%v, %v", answer, err)
	}
}
