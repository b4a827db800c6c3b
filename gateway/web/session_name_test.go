package web_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/naming"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gitd"
)

// TestNameSession names a session by the page of its workspace, and takes the name away.
func TestNameSession(t *testing.T) {
	w := openWith(t, ada, func(x *executor.Executor, _ *sandbox.Engine) {
		x.Agents = map[string]agent.Agent{"coder": {Protocol: agent.ProtocolACP, Command: []string{"cat"}}} // it keeps sessions apart
	}, func(api *web.API) {
		store := &naming.Store{Git: api.Git, Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"}}
		if err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		api.Names = store
	})
	w.repo("app")
	const path = "/workspaces/run-named"
	form := func(id string) string { return path + "/sessions/" + url.PathEscape(id) + "/name" }
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
	status, h, body := w.post(form(id), url.Values{"name": {" <b>The\nmanual</b> "}, "show": {id}})
	if want := path + "?pane=chat&session=" + url.QueryEscape(id); status != 303 || h.Get("Location") != want {
		t.Fatalf("%d %s %s", status, h.Get("Location"), body)
	}
	if body := page("?pane=chat&session=" + id); !strings.Contains(body, "&lt;b&gt;The manual&lt;/b&gt; (coder)") ||
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
