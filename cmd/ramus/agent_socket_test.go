package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/internal/programs"
)

// agentConfig configures an agent that asks before it runs commands.
const agentConfig = `agents:
  coder:
    kind: acp
    command: [BIN/acp-standin]
    state: [.acp-standin]
    permission: ask
    env: {ACP_STANDIN_SCRIPT: "1", ACP_STANDIN_ASK: execute}
sandbox:
  read_only: [BIN]
`

// program speaks the Agent Client Protocol to a workspace, as an editor does.
type program struct {
	t    *testing.T
	conn *websocket.Conn
	said string   // the words of the agent so far
	kind []string // the kinds of updates so far
}

// frame is one message in either direction.
type frame struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func (p *program) send(f frame) {
	p.t.Helper()
	f.Version = "2.0"
	if err := p.conn.WriteJSON(f); err != nil {
		p.t.Fatal(err)
	}
}

// read returns the next message. Updates are remembered.
func (p *program) read() (f frame, update bool) {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(time.Minute))
	if err := p.conn.ReadJSON(&f); err != nil {
		p.t.Fatalf("%v, after %q and %v", err, p.said, p.kind)
	}
	if f.Method != "session/update" {
		return f, false
	}
	var u struct {
		Update struct {
			Kind    string          `json:"sessionUpdate"`
			Content json.RawMessage `json:"content"`
		} `json:"update"`
	}
	if err := json.Unmarshal(f.Params, &u); err != nil {
		p.t.Fatal(err)
	}
	p.kind = append(p.kind, u.Update.Kind)
	var text struct {
		Text string `json:"text"`
	}
	if u.Update.Kind == "agent_message_chunk" && json.Unmarshal(u.Update.Content, &text) == nil {
		p.said += text.Text
	}
	return f, true
}

// next returns the next message that is no update.
func (p *program) next() frame {
	p.t.Helper()
	for {
		if f, update := p.read(); !update {
			return f
		}
	}
}

// hear reads updates until the agent has said a text.
func (p *program) hear(text string) {
	p.t.Helper()
	for !strings.Contains(p.said, text) {
		if f, update := p.read(); !update {
			p.t.Fatalf("%s %s %s before %q was said", f.Method, f.Result, f.Error, text)
		}
	}
}

// call sends a request and returns the next message that is no update.
func (p *program) call(id, method, params string) frame {
	p.t.Helper()
	p.send(frame{ID: json.RawMessage(id), Method: method, Params: json.RawMessage(params)})
	return p.next()
}

// TestAgentSocket has a program begin a session over WS /workspaces/{caller}/agent. The agent asks for permission, the program answers with
// one of the agent's own options, and the words and tool calls of the turn come before the answer to the prompt. A second prompt is
// cancelled.
func TestAgentSocket(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for dir := bin; dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := programs.Into(bin, "cmd/ramus", "internal/standin/acp-standin"); err != nil {
		t.Fatal(err)
	}
	p := &typist{t: t, dir: t.TempDir(), binary: filepath.Join(bin, "ramus")}
	p.prepare("conv:editor", strings.ReplaceAll(agentConfig, "BIN", bin))
	p.serve()
	p.run(p.binary, "exec", "conv:editor", "--repo", "app", "--", "true")

	dialer := websocket.Dialer{NetDialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialSocket(ctx, filepath.Join(p.dir, "data"))
	}}
	conn, _, err := dialer.DialContext(t.Context(), "ws://ramus/workspaces/conv-editor/agent", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	e := &program{t: t, conn: conn}
	if f := e.call("1", "initialize", `{"protocolVersion":1}`); !strings.Contains(string(f.Result), "loadSession") {
		t.Fatalf("initialize: %s %s", f.Result, f.Error)
	}
	f := e.call("2", "session/new", `{"cwd":"/work","mcpServers":[],"_meta":{"ramus":{"label":"editor"}}}`)
	var session struct {
		ID string `json:"sessionId"`
	}
	if err := json.Unmarshal(f.Result, &session); err != nil || session.ID == "" {
		t.Fatalf("session/new: %s %s", f.Result, f.Error)
	}

	f = e.call("3", "session/prompt", `{"sessionId":"`+session.ID+`","prompt":[{"type":"text","text":"say begun\nrun echo ran >ran.txt\nsay after"}]}`)
	var asked struct {
		Options []struct {
			ID string `json:"optionId"`
		} `json:"options"`
	}
	if f.Method != "session/request_permission" || json.Unmarshal(f.Params, &asked) != nil || len(asked.Options) != 3 {
		t.Fatalf("asked: %s %s %s", f.Method, f.Params, f.Error)
	}
	if !strings.Contains(e.said, "begun") || strings.Contains(e.said, "after") {
		t.Errorf("said before the answer: %q", e.said)
	}
	e.send(frame{ID: f.ID, Result: json.RawMessage(`{"outcome":{"outcome":"selected","optionId":"once"}}`)})
	if f = e.next(); string(f.ID) != "3" || !strings.Contains(string(f.Result), "end_turn") {
		t.Fatalf("answered: %s %s %s", f.ID, f.Result, f.Error)
	}
	const words = "agent_message_chunk" // come at any place
	kinds := strings.Join(slices.DeleteFunc(e.kind, func(kind string) bool { return kind == words }), " ")
	if !strings.Contains(e.said, "after") || !strings.Contains(kinds, "user_message_chunk") ||
		!strings.Contains(kinds, "tool_call tool_call_update") {
		t.Errorf("%q, %s", e.said, kinds)
	}
	if got := p.run(p.binary, "exec", "conv:editor", "--", "cat", "ran.txt"); !strings.Contains(got, "ran") {
		t.Errorf("the command did not run: %s", got)
	}

	e.said = ""
	e.send(frame{ID: json.RawMessage("4"), Method: "session/prompt",
		Params: json.RawMessage(`{"sessionId":"` + session.ID + `","prompt":[{"type":"text","text":"say again\nhang"}]}`)})
	e.hear("again")
	e.send(frame{Method: "session/cancel", Params: json.RawMessage(`{"sessionId":"` + session.ID + `"}`)})
	if f = e.next(); string(f.ID) != "4" {
		t.Fatalf("cancelled: %s %s %s", f.ID, f.Result, f.Error)
	}
	if !strings.Contains(string(f.Result), "cancelled") {
		t.Errorf("cancelled: %s %s", f.Result, f.Error)
	}
}
