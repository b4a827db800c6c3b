package web_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/naming"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gitd"
)

// openNamed is openWith with names of sessions.
func openNamed(t *testing.T) *world {
	t.Helper()
	w := openWith(t, ada, func(x *executor.Executor, _ *sandbox.Engine) {
		x.Options.Agents = map[string]agent.Agent{"coder": {Protocol: agent.ProtocolACP,
			Command: []string{"cat"}}} // it keeps sessions apart
	}, func(api *web.API) {
		store := &naming.Store{Options: people.Options{Git: api.Git,
			Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"}}}
		if err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		api.Names = store
	})
	w.repo("app")
	return w
}

// nameForm returns the path of the form of a session of the workspace of the tests.
func nameForm(id string) string {
	return "/workspaces/run-named/sessions/" + url.PathEscape(id) + "/name"
}

// TestNameSession names a session by the page of its workspace, and takes the name away.
func TestNameSession(t *testing.T) {
	w, form := openNamed(t), nameForm
	const path = "/workspaces/run-named"
	page := func(query string) string {
		t.Helper()
		status, _, body := w.get(path + query)
		if status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		parse(t, query, body).check()
		return body
	}
	w.run("named", record.Request{Agent: &record.AgentCall{Name: "coder", Prompt: "x"}})
	if body := page("?pane=chat"); !strings.Contains(body, `action="`+form("coder")+`"`) {
		t.Error("the only session cannot be named")
	}
	w.post(form("coder"), url.Values{"name": {"The only one"}})
	if body := page("?pane=chat"); !strings.Contains(body, ">The only one<") {
		t.Error("the name of the only session is not shown")
	}
	w.run("named", record.Request{Agent: &record.AgentCall{Name: "coder", Session: "docs", Prompt: "y"}})
	id := conversation.SessionID("coder", "docs")
	if body := page("?pane=chat"); strings.Contains(body, "/name\"") || !strings.Contains(body, "docs (coder)") {
		t.Error("all sessions together can be named, or have no labels")
	}
	status, h, body := w.post(form(id), url.Values{"name": {" <b>The\nmanual</b> "}, "back": {id}})
	if want := path + "?pane=chat&session=" + url.QueryEscape(id); status != 303 || h.Get("Location") != want {
		t.Fatalf("%d %s %s", status, h.Get("Location"), body)
	}
	if body := page("?pane=chat&session=" + id); !strings.Contains(body, "&lt;b&gt;The manual&lt;/b&gt; (coder)") ||
		!strings.Contains(body, `title="&lt;b&gt;The manual&lt;/b&gt;, label docs"`) ||
		!strings.Contains(body, `action="`+form(id)+`"`) {
		t.Error("the session has no name")
	}
	if status, _, _ := w.post(form("coder.none"), url.Values{"name": {"x"}}); status != 404 {
		t.Errorf("a session that is not there: %d", status)
	}
	if status, _, _ := w.post(form(id), url.Values{}); status != 303 {
		t.Errorf("%d", status)
	}
	if body := page("?pane=chat"); !strings.Contains(body, "docs (coder)") || strings.Contains(body, "manual") {
		t.Error("the name stays")
	}
}

// TestRefusedName sends names that a session cannot have. The page has the mistake next to the field, with the text of
// the field.
func TestRefusedName(t *testing.T) {
	w := openNamed(t)
	w.run("named", record.Request{Agent: &record.AgentCall{Name: "coder", Prompt: "x"}})
	w.run("named", record.Request{Agent: &record.AgentCall{Name: "coder", Session: "docs", Prompt: "y"}})
	if status, _, body := w.post(nameForm("coder"), url.Values{"name": {strings.Repeat("é", naming.MaxRunes)},
		"back": {"coder"}}); status != 303 {
		t.Errorf("a name of as many characters as can be: %d %s", status, body)
	}
	for _, x := range []struct {
		name, mistake string
		status        int
	}{
		{strings.Repeat("x", naming.MaxRunes+1), "The name has more than 120 characters. Choose a shorter name.", 422},
		{"Docs", "Another session of run:named has the label", 409},
	} {
		status, _, body := w.post(nameForm("coder"), url.Values{"name": {x.name}, "back": {"coder"}})
		d := parse(t, x.name, body)
		d.check()
		if status != x.status || !d.ids["session-name-wrong"] || !strings.Contains(body, x.mistake) ||
			!strings.Contains(body, `value="`+x.name+`"`) || !strings.Contains(body, `aria-invalid="true"`) {
			t.Errorf("%s: %d %s", x.name, status, body)
		}
	}
	// Bytes that are not UTF-8 harm no later start.
	if status, _, body := w.post(nameForm("coder"), url.Values{"name": {strings.Repeat("a\xff", 50)}}); status != 303 {
		t.Errorf("%d %s", status, body)
	}
	again := &naming.Store{Options: people.Options{Git: w.git}}
	if err := again.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	caller, err := record.RunCaller("named")
	if err != nil {
		t.Fatal(err)
	}
	if got := again.Name(caller, "coder", time.Time{}); got != strings.Repeat("a\uFFFD", 50) {
		t.Errorf("the name is %q after a start", got)
	}
	w.post(nameForm("coder"), url.Values{"name": {"\u200b\u202e"}})
	if _, _, body := w.get("/workspaces/run-named"); !strings.Contains(body, ">coder<") {
		t.Error("a name that nobody sees is shown")
	}
}

// TestNameReachesPages names a session while somebody else has the page of its workspace open.
func TestNameReachesPages(t *testing.T) {
	w := openNamed(t)
	w.run("named", record.Request{Agent: &record.AgentCall{Name: "coder", Prompt: "x"}})
	w.run("named", record.Request{Agent: &record.AgentCall{Name: "coder", Session: "docs", Prompt: "y"}})
	d := websocket.Dialer{Subprotocols: []string{live.Protocol}}
	conn, resp, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(w.server.URL, "http")+"/live",
		http.Header{"Origin": {w.server.URL}})
	if err != nil {
		t.Fatalf("%v %v", err, resp)
	}
	defer conn.Close()
	if err := conn.WriteJSON(map[string]any{"sub": "/workspaces/run-named?pane=chat",
		"have": map[string]string{}}); err != nil {
		t.Fatal(err)
	}
	wait := func(words string) {
		t.Helper()
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		for {
			_, text, err := conn.ReadMessage()
			if err != nil {
				t.Fatalf("the page does not get %q: %v", words, err)
			}
			var m struct{ Ops []live.Op }
			if err := json.Unmarshal(text, &m); err != nil {
				t.Fatal(err)
			}
			for _, op := range m.Ops {
				if op.Key == "talk sessions" && strings.Contains(op.HTML, words) {
					return
				}
			}
		}
	}
	wait("docs (coder)")
	w.post(nameForm(conversation.SessionID("coder", "docs")), url.Values{"name": {"The manual"}})
	wait("The manual (coder)")
}
