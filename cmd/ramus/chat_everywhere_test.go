package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/programs"
)

// visitor is a person with a browser.
type visitor struct {
	t      *testing.T
	base   string
	client *http.Client
}

// do sends a request, a form if there is one, and returns the page at the end of its redirects.
func (v *visitor) do(path string, form url.Values) (int, string) {
	v.t.Helper()
	method, body := "GET", io.Reader(nil)
	if form != nil {
		method, body = "POST", strings.NewReader(form.Encode())
	}
	if !strings.HasPrefix(path, "http") {
		path = v.base + path
	}
	r, err := http.NewRequestWithContext(v.t.Context(), method, path, body)
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Origin", v.base)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := v.client.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestConversationEverywhere has one conversation with an agent from Slack, the command line, an assistant and the web at once. A button
// of Slack answers the agent's question with one of its own options. The page and the transcript show the author and the origin of each
// prompt.
func TestConversationEverywhere(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := programs.Into(bin, "internal/standin/acp-standin"); err != nil {
		t.Fatal(err)
	}
	s := newChatServer(t, "")
	config := filepath.Join(s.data, "ramus.yaml")
	s.sh(s.data, `chmod 755 "$2" "$(dirname "$2")"; printf '%s' "$1" >>"$0"`, config,
		strings.ReplaceAll(agentConfig, "BIN", bin), bin)
	s.start()

	thread := s.say("", "Begin with this:\nsay begun\nrun sleep 600")
	var run record.Run
	s.poll("no agent's run begins", func() bool {
		for _, r := range s.runs() {
			if r.Kind == record.KindAgent {
				run = r
			}
		}
		return run.ID != ""
	})
	slug := run.Caller.Slug()

	// The agent asks, and the message in the thread has its options.
	button := func() string {
		for _, m := range s.part(thread, "progress") {
			if strings.Contains(string(m.Blocks), `"option-0"`) && strings.Contains(string(m.Blocks), "Always") {
				return m.TS
			}
		}
		return ""
	}
	s.until("a button of an option", time.Minute, func() bool { return button() != "" })
	if _, err := s.slack.Press(t.Context(), chatOwner, "C01", button(), "option-0", ""); err != nil {
		t.Fatal(err)
	}
	token, _, _ := strings.Cut(s.ramus("token", "create", "--subject", "reader", "--repo", "sample"), " ")
	transcript := func() string {
		return s.sh(s.data, `curl -sS -H "Authorization: Bearer $1" "$0"`,
			"http://"+s.addr+"/api/workspaces/"+slug+"/transcript", strings.TrimSpace(token))
	}
	s.poll("the answer does not count", func() bool {
		return strings.Contains(transcript(), `"option":"always","by":"slack:`+chatOwner+`"`)
	})

	// All say something while the turn works. The last one says it at once.
	s.say(thread, "More from the thread:\nsay from the thread")
	s.poll("Slack's prompt is not there", func() bool { return strings.Contains(transcript(), "from the thread") })
	s.ramus("say", run.Name(), "--", "say from the terminal")
	assistant := exec.CommandContext(t.Context(), s.binary, "mcp")
	assistant.Env = s.environ
	call, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": map[string]any{
		"name":      "resume_code_session",
		"arguments": map[string]any{"caller": run.Caller.String(), "prompt": "say from the assistant", "wait": false}}})
	if err != nil {
		t.Fatal(err)
	}
	assistant.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
` + string(call) + "\n")
	if out, err := assistant.CombinedOutput(); err != nil || strings.Contains(string(out), `"isError":true`) {
		t.Fatalf("ramus mcp: %v\n%s", err, out)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{t: t, base: "http://" + s.addr, client: &http.Client{Jar: jar}}
	link := s.ramus("open")
	link = link[strings.Index(link, "http"):]
	if status, page := v.do(strings.Fields(link)[0], nil); status != 200 {
		t.Fatalf("sign in: %d %s", status, page)
	}
	form := url.Values{"key": {"web-1"}, "agent": {"coder"}, "prompt": {"say from the page"}, "now": {"1"}}
	if status, page := v.do("/workspaces/"+slug+"/say", form); status != 200 {
		t.Fatalf("say: %d %s", status, page)
	}
	s.poll("the run does not end", func() bool {
		for _, r := range s.runs() {
			if r.Name() == run.Name() {
				return r.Ended()
			}
		}
		return false
	})

	told := transcript()
	for text, from := range map[string]string{"from the thread": "slack", "from the terminal": "cli", "from the assistant": "mcp",
		"from the page": "web"} {
		if n := prompts(t, told, text, from); n != 1 {
			t.Errorf("%q came %d times from %s:\n%s", text, n, from, told)
		}
	}
	_, page := v.do("/workspaces/"+slug+"?pane=chat", nil)
	for _, want := range []string{"in Slack", "on the command line", "by an assistant", "from the page"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// prompts counts the prompts of a transcript with a text and an origin, which have an author.
func prompts(t *testing.T, transcript, text, from string) (n int) {
	t.Helper()
	var told struct {
		Turns []struct {
			Entries []struct {
				Kind, Text, From string
				By               struct{ Name string }
			}
		}
	}
	if err := json.Unmarshal([]byte(transcript), &told); err != nil {
		t.Fatalf("%v: %s", err, transcript)
	}
	for _, turn := range told.Turns {
		for _, e := range turn.Entries {
			if e.Kind == "prompt" && strings.Contains(e.Text, text) && e.From == from && e.By.Name != "" {
				n++
			}
		}
	}
	return n
}
