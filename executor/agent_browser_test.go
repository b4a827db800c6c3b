package executor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/record"
)

// surf is a client of MCP by streamable HTTP that opens a page of its container.
const surf = `import json, os, sys, urllib.request
url, session, n = os.environ["RAMUS_BROWSER_MCP"], None, 0
def send(message):
    global session
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if session: headers["Mcp-Session-Id"] = session
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, json.dumps(message).encode(), headers), timeout=60) as r:
        session = r.headers.get("Mcp-Session-Id") or session
        text = r.read().decode()
    for line in text.splitlines():
        if line.startswith("data: "): text = line[6:]
    return json.loads(text) if text.strip() else None
def call(method, params):
    global n
    n += 1
    return send({"jsonrpc": "2.0", "id": n, "method": method, "params": params})
call("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "surf", "version": "1"}})
send({"jsonrpc": "2.0", "method": "notifications/initialized"})
for tool, arguments in [("browser_navigate", {"url": sys.argv[1]}), ("browser_snapshot", {})]:
    answer = call("tools/call", {"name": tool, "arguments": arguments})
    print(tool, answer["result"]["content"][0]["text"])
`

// notes returns the notes in a run's journal.
func (w *world) notes(run string) string {
	var all []string
	for _, e := range w.events(run, record.EventNote) {
		all = append(all, e.Message)
	}
	return strings.Join(all, "\n")
}

func TestAgentBrowser(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("cannot run here: python3 is what speaks to the browser in the container")
	}
	page := `<!doctype html><title>seen</title><link rel=icon href="data:,"><h1>Only in here</h1>`
	script := "cat >surf.py <<'END'\n" + surf + "END\necho '" + page + "' >index.html"
	for name, a := range map[string]agent.Agent{
		"acp":  {Protocol: agent.ProtocolACP, Browser: agent.BrowserInteractive},
		"text": {Command: []string{"sh"}, Browser: agent.BrowserInteractive},
	} {
		t.Run(name, func(t *testing.T) {
			w := browserWorld(t, "sandbox", func(x *executor.Executor) {
				if a.Protocol == agent.ProtocolACP {
					withACP(func(a *agent.Agent) { a.Browser = agent.BrowserInteractive })(x)
				} else {
					x.Options.Agents = map[string]agent.Agent{"text": a}
				}
				x.Fleet.Engine.(*sandbox.Engine).ReadOnly = []string{filepath.Dir(standinBinary)}
			})
			w.exec("conv:surfer", script)
			line := "python3 -m http.server --bind 127.0.0.1 5173 >/dev/null 2>&1 & until curl -s 127.0.0.1:5173 >/dev/null; do :; done; python3 surf.py http://127.0.0.1:5173/; kill %1 2>/dev/null || kill $!"
			if a.Protocol == agent.ProtocolACP {
				line = "servers\nrun " + line
			}
			r := w.ended(w.ask("conv:surfer", line).Name())
			out := w.stdout(r.Name(), "turn-1")
			if r.State != record.StateComplete || !strings.Contains(out, `heading "Only in here"`) {
				t.Errorf("%s %s\n%s\n%s", r.State, r.Error, out, w.journal(r.Name()))
			}
			if a.Protocol == agent.ProtocolACP && !strings.Contains(out, "http http://127.0.0.1:8931/mcp\n") {
				t.Errorf("it was not told of its browser: %s", out)
			}
			notes := w.notes(r.Name())
			if strings.Count(notes, "a browser was started for the agent") != 1 ||
				strings.Count(notes, "the agent's browser was ended") != 1 {
				t.Errorf("notes:\n%s", notes)
			}
			// The browser ended with the turn.
			if ports, err := w.x.Programs.Ports(t.Context(), caller(t, "conv:surfer")); err != nil || len(ports) != 0 {
				t.Errorf("ports after the turn: %v, %v", ports, err)
			}
		})
	}
}

// TestAgentBrowserGone ends the agent's browser. It is started again a bounded number
// of times, and the agent works without one.
func TestAgentBrowserGone(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ramus-browser"), []byte("#!/bin/sh\necho it is broken >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(x *executor.Executor) {
		x.Browser = &browse.Browser{}
		x.Options.Agents = map[string]agent.Agent{"text": {Command: []string{"sh"}, Browser: agent.BrowserInteractive}}
		x.Fleet.Engine.(*sandbox.Engine).Browser = dir
	})
	r := w.ended(w.ask("conv:blind", "echo works; env | grep RAMUS_BROWSER_MCP || echo blind").Name())
	notes := w.notes(r.Name())
	if out := w.stdout(r.Name(), "turn-1"); r.State != record.StateComplete || out != "works\nblind\n" {
		t.Errorf("%+v %q", r, out)
	}
	if strings.Count(notes, "is started again: it ended with 3: it is broken") != 3 || strings.Count(notes,
		"the agent's browser is gone") != 1 || strings.Count(notes, "works without a browser: it does not start") != 1 {
		t.Errorf("notes:\n%s", notes)
	}
}
