package conversation

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/goroutines"
)

// busy is an executor whose one run is a story that works. It writes down the calls that change something.
type busy struct {
	desk
	agents []string
	open   *record.Gate // of the run
	refuse error        // of every change

	mu    sync.Mutex // guards calls
	calls []string
}

func (b *busy) did(format string, args ...any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, fmt.Sprintf(format, args...))
	return b.refuse
}

// take returns the calls since the last one.
func (b *busy) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := strings.Join(b.calls, ", ")
	b.calls = nil
	return calls
}

func (b *busy) AgentNames() []string { return b.agents }

func (b *busy) Run(context.Context, string) (record.Run, error) {
	r := b.run
	r.Gate = b.open
	return r, nil
}

func (b *busy) Sessions(context.Context, string) ([]record.Session, error) {
	state := record.SessionStopped
	if !b.run.Ended() {
		state = record.SessionRunning
	}
	return []record.Session{{Caller: b.run.Caller, Agent: "standin", State: state, Runs: 1, Last: b.run.Name()}}, nil
}

func (b *busy) Queue(context.Context, string) (record.Queue, error) {
	return b.run.Queue(b.events), nil
}
func (b *busy) InTurn(record.Run) bool   { return true }
func (b *busy) CanSteer(record.Run) bool { return false }

func (b *busy) Say(_ context.Context, run string, p record.Prompt) error {
	return b.did("say %s %s", run, p.Text)
}

func (b *busy) Stop(_ context.Context, run string, by gitd.Person) error {
	return b.did("stop %s by %s", run, by.Name)
}

func (b *busy) StopTurn(_ context.Context, run string, by gitd.Person) ([]record.Prompt, error) {
	return nil, b.did("stop the turn of %s by %s", run, by.Name)
}

func (b *busy) Reorder(_ context.Context, run string, keys []string, by gitd.Person) error {
	return b.did("order %s as %v by %s", run, keys, by.Name)
}

func (b *busy) Resay(_ context.Context, run, key, words string, by gitd.Person) error {
	return b.did("have %s of %s say %s by %s", key, run, words, by.Name)
}

func (b *busy) Unsay(_ context.Context, run, key string, by gitd.Person) (record.Prompt, error) {
	return record.Prompt{Key: key, Text: "later"}, b.did("unsay %s of %s by %s", key, run, by.Name)
}

func (b *busy) Decide(_ context.Context, run string, d record.Decision) (record.Run, error) {
	return b.run, b.did("decide %s of %s as %s by %s", d.Step, run, d.Option, d.By)
}

// newBusy returns a run whose agent works, and for which a prompt waits.
func newBusy() *busy {
	s := newStory("one", "go on")
	s.turn(1, 1)
	s.say("half a sen")
	s.prompt(record.Prompt{Key: "w", Text: "later", By: gitd.Person{Name: "Bo"}})
	return &busy{desk: desk{story: s}, agents: []string{"standin"}}
}

// serve returns the address of a server of conversations, on which Ada may do everything.
func (b *busy) serve(t *testing.T) string {
	t.Helper()
	goroutines.Watch(t)
	find := &lookup.Lookup{Executor: found{b.desk}}
	api := &API{Talk: &Talk{Executor: b, Prompts: b, Find: find}, Find: find}
	mux := &route.Mux{Streams: 8, Heartbeat: time.Second}
	who := route.Who{Subject: "ada", Name: "Ada", Email: "ada@example.org", Repo: "*",
		Scopes: []string{gitd.ScopeAdmin}, Write: []string{"refs/*"}}
	server := httptest.NewServer(mux.Handler(api.Routes(), &who))
	t.Cleanup(server.Close)
	return server.URL
}

// TestAPI calls each route. The answer of a change describes what is there after it.
func TestAPI(t *testing.T) {
	const (
		sessions = "/api/workspaces/conv:told/agent-sessions"
		run      = "/api/runs/conv:told%2Fone"
		waits    = `"key":"w","text":"later"`
	)
	for _, x := range []struct {
		method, path, body string
		status             int
		calls              string
		answer             string // a part of it
	}{
		{"GET", sessions, "", 200, "", `"run":"conv:told/one","in_turn":true,"waiting":1}]`},
		{"GET", sessions + "/standin", "", 200, "", `"id":"standin"`},
		{"GET", sessions + "/none", "", 404, "", `none`},
		{"POST", sessions, `{"text":"x"}`, 201, "say conv:told/one x", `"id":"standin"`},
		{"POST", sessions, `{"text":""}`, 400, "", "first prompt"},
		{"POST", sessions + "/standin/prompts", `{"text":"x","key":"k"}`, 200, "say conv:told/one x",
			`{"run":"conv:told/one","key":"k","how":"queued"}`},
		{"POST", sessions + "/none/prompts", `{"text":"x"}`, 404, "", "none"},
		{"POST", sessions + "/standin/name", `{"name":"x"}`, 503, "", "no names"},
		{"DELETE", sessions + "/standin", "", 200, "stop conv:told/one by Ada", `"id":"standin"`},
		{"POST", run + "/stop-turn", "", 200, "stop the turn of conv:told/one by Ada", `{"run":"conv:told/one","back":[]}`},
		{"GET", "/api/workspaces/conv:told/transcript", "", 200, "", "half a sen"},
		{"GET", "/api/workspaces/conv:told/transcript?session=standin&turns=1", "", 200, "", "half a sen"},
		{"GET", "/api/workspaces/conv:told/transcript?session=none", "", 404, "", "none"},
		{"GET", "/api/workspaces/conv:told/transcript?around=one/99", "", 404, "", "one/99"},
		{"GET", run + "/prompts", "", 200, "", waits},
		{"POST", run + "/prompts/order", `{"keys":["w"]}`, 200, "order conv:told/one as [w] by Ada", waits},
		{"POST", run + "/prompts/w", `{"text":"now"}`, 200, "have w of conv:told/one say now by Ada", waits},
		{"DELETE", run + "/prompts/w", "", 200, "unsay w of conv:told/one by Ada", waits},
	} {
		// A change that is refused has the status of the refusal.
		for _, refused := range []bool{false, true} {
			if refused && x.calls == "" {
				continue
			}
			b := newBusy()
			if refused {
				b.refuse = record.ErrConflict
			}
			r, err := http.NewRequestWithContext(t.Context(), x.method, b.serve(t)+x.path, strings.NewReader(x.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Close = true
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			status, part := x.status, x.answer
			if refused {
				status, part = http.StatusConflict, ""
			}
			if err != nil || answer.StatusCode != status || !strings.Contains(string(body), part) {
				t.Errorf("%s %s, refused %t: got %d %s %v, want %d with %s", x.method, x.path, refused,
					answer.StatusCode, body, err, status, part)
			}
			if got := b.take(); got != x.calls {
				t.Errorf("%s %s, refused %t: got the calls %q, want %q", x.method, x.path, refused, got, x.calls)
			}
		}
	}
}

// connect opens a socket to the workspace of a run.
func (b *busy) connect(t *testing.T, query string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	c, answer, err := websocket.DefaultDialer.DialContext(t.Context(),
		"ws"+strings.TrimPrefix(b.serve(t), "http")+"/workspaces/conv:told/agent"+query, nil)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, answer, err
}

// TestSocketAgent begins sessions with the agent that the address names, or with the only one.
func TestSocketAgent(t *testing.T) {
	const begin = `{"jsonrpc":"2.0","id":1,"method":"session/new",` +
		`"params":{"cwd":"/","mcpServers":[],"_meta":{"ramus":{"label":"docs"}}}}`
	for _, x := range []struct {
		agents string
		query  string
		want   string // the agent of a new session; empty means that there is none
		status int    // of a connection that is refused
	}{
		{"standin", "", "standin", 0},
		{"standin", "?agent=standin", "standin", 0},
		{"standin", "?agent=none", "", http.StatusBadRequest},
		{"standin coder", "?agent=coder", "coder", 0},
		{"standin coder", "", "", 0},
		{"", "", "", 0},
	} {
		b := newBusy()
		b.agents = strings.Fields(x.agents)
		c, answer, err := b.connect(t, x.query)
		if err != nil {
			if answer == nil || answer.StatusCode != x.status {
				t.Errorf("%q%s: got %v, %v, want status %d", x.agents, x.query, answer, err, x.status)
			}
			continue
		}
		if x.status != 0 {
			t.Errorf("%q%s: got a connection, want status %d", x.agents, x.query, x.status)
			continue
		}
		_, a := call(t, c, begin)
		want := fmt.Sprintf(`{"sessionId":%q}`, SessionID(x.want, "docs"))
		if x.want == "" && a.Error == nil || x.want != "" && string(a.Result) != want {
			t.Errorf("%q%s: got %s, %v, want %s", x.agents, x.query, a.Result, a.Error, want)
		}
	}
}

// TestSocketQuestion passes the open question of a run to a program, and its first answer to the run.
func TestSocketQuestion(t *testing.T) {
	gate := record.Gate{Step: "turn-1/permission-1", Message: "may I?",
		Options: []record.GateOption{{ID: "once", Name: "Once", Kind: "allow_once", Allows: true}, {ID: "no", Name: "No"}}}
	other := gate
	other.Step = "turn-1/permission-2"
	const (
		chosen = `"result":{"outcome":{"outcome":"selected","optionId":"once"}}`
		said   = "decide turn-1/permission-1 of conv:told/one as once by ada"
	)
	for name, x := range map[string]struct {
		open    *record.Gate // of the run, when the program hears of the question
		answers []string     // the messages of the program after "jsonrpc"
		want    string       // the calls
	}{
		"no question":      {nil, nil, ""},
		"another question": {&other, nil, ""},
		"an answer":        {&gate, []string{`"id":"ask-1",` + chosen}, said},
		"two answers":      {&gate, []string{`"id":"ask-1",` + chosen, `"id":"ask-1",` + chosen}, said},
		"an error":         {&gate, []string{`"id":"ask-1","error":{"code":1,"message":"no"},` + chosen}, ""},
		"a cancellation":   {&gate, []string{`"id":"ask-1","result":{"outcome":{"outcome":"cancelled"}}`}, ""},
		"no result":        {&gate, []string{`"id":"ask-1","result":7`}, ""},
		"another id":       {&gate, []string{`"id":"ask-2",` + chosen, `"id":1,` + chosen}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBusy()
			b.open = x.open
			b.add(record.Event{Type: record.EventGate, Step: gate.Step, Kind: "permission", Data: record.Marshal(gate)})
			// The words of the prompt follow the question, so that they show that no question came.
			b.turn(2, 2)
			c, _, err := b.connect(t, "")
			if err != nil {
				t.Fatal(err)
			}
			const load = `{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"standin"}}`
			if err := c.WriteMessage(websocket.TextMessage, []byte(load)); err != nil {
				t.Fatal(err)
			}
			var asked []string
			for done, heard := false, 0; !done || heard < 2; {
				_ = c.SetReadDeadline(time.Now().Add(time.Minute))
				_, text, err := c.ReadMessage()
				if err != nil {
					t.Fatal(err)
				}
				var m message
				if err := json.Unmarshal(text, &m); err != nil {
					t.Fatal(err)
				}
				switch {
				case m.Method == "session/request_permission":
					asked = append(asked, string(m.Params))
				case m.Method == "":
					done = true
				case strings.Contains(string(m.Params), "user_message_chunk"):
					heard++
				}
			}
			if want := x.open != nil && x.open.Step == gate.Step; want != (len(asked) == 1) {
				t.Fatalf("got the questions %q, want one: %t", asked, want)
			}
			if len(asked) > 0 && (!strings.Contains(asked[0], `{"optionId":"once","name":"Once","kind":"allow_once"}`) ||
				!strings.Contains(asked[0], `"sessionId":"standin"`)) {
				t.Errorf("got the question %s", asked[0])
			}
			for _, a := range x.answers {
				if err := c.WriteMessage(websocket.TextMessage, []byte(`{"jsonrpc":"2.0",`+a+`}`)); err != nil {
					t.Fatal(err)
				}
			}
			call(t, c, `{"jsonrpc":"2.0","id":2,"method":"initialize"}`) // messages are taken in their order
			if got := b.take(); got != x.want {
				t.Errorf("got the calls %q, want %q", got, x.want)
			}
		})
	}
}
