package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ramusmcp "github.com/ramus-dev/ramus/gateway/mcp"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// withToken adds a token to each request.
type withToken struct {
	token string
	next  http.RoundTripper
}

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	return w.next.RoundTrip(r)
}

// assistant returns an MCP client with a token. It uses the socket if local is set.
func (r *rooms) assistant(t *testing.T, token string, local bool, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	url, transport := r.web.URL, http.RoundTripper(r.web.Client().Transport)
	if local {
		socket := r.socketTransport()
		t.Cleanup(socket.CloseIdleConnections)
		url, transport = "http://socket", socket
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "assistant", Version: "1"}, o)
	session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: url + ramusmcp.Path, HTTPClient: &http.Client{Transport: withToken{token, transport}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// use calls a tool.
func use(t *testing.T, s *mcp.ClientSession, name string, args any) *mcp.CallToolResult {
	t.Helper()
	result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return result
}

func InlineText(r *mcp.CallToolResult) string {
	var all strings.Builder
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			all.WriteString(text.Text)
		}
	}
	return all.String()
}

// structured decodes a tool's structured result.
func structured[T any](t *testing.T, r *mcp.CallToolResult) (v T) {
	t.Helper()
	if r.IsError {
		t.Fatalf("the tool failed: %s", InlineText(r))
	}
	b, err := json.Marshal(r.StructuredContent)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return v
}

func tools(t *testing.T, s *mcp.ClientSession) (names []string) {
	t.Helper()
	for tool, err := range s.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

// TestMCPTools checks that a bearer sees exactly the tools that it may use.
func TestMCPTools(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, withEngineer(t))
	r.repo(t, "team/app")
	reading := []string{"get_run", "get_task_status", "get_tournament", "list_active_tasks", "list_comments", "list_tournaments", "radar", "search", "verify", "why"}
	var library []string
	for _, task := range executor.Library() {
		library = append(library, task.Name)
	}
	writing := slices.Concat(reading, library, []string{"answer_comment", "answer_question", "begin_tournament", "bisect", "comment_on_lines", "export", "fork", "judge_tournament", "pick", "replay", "resolve_comment", "restart", "resume_code_session", "start_code_session", "submit_task", "take_entry", "undo"})
	administering := append([]string{"import"}, writing...)
	slices.Sort(writing)
	slices.Sort(administering)
	for _, x := range []struct {
		name  string
		grant gitd.Grant
		local bool
		want  []string
	}{
		{"read", gitd.Grant{Repo: "team/app", Scopes: []string{"read"}}, false, reading},
		{"write", gitd.Grant{Repo: "team/app", Scopes: []string{"write"}}, false, writing},
		{"admin", gitd.Grant{Repo: "*", Scopes: []string{"admin"}}, false, administering},
		{"socket", gitd.Grant{}, true, administering},
	} {
		t.Run(x.name, func(t *testing.T) {
			token := ""
			if !x.local {
				x.grant.Subject = x.name
				token = r.token(t, x.grant)
			}
			s := r.assistant(t, token, x.local, nil)
			if got := tools(t, s); !slices.Equal(got, x.want) {
				t.Errorf("it sees %v\nwant %v", got, x.want)
			}
			for _, name := range []string{"submit_task", "lib_write_file", "browser_test", "fallback_session"} {
				if slices.Contains(x.want, name) {
					continue
				}
				if _, err := s.CallTool(t.Context(),
					&mcp.CallToolParams{Name: name, Arguments: map[string]any{"description": "x"}}); err == nil {
					t.Errorf("%s can be called", name)
				}
			}
		})
	}
}

// TestMCPTasks checks the arguments and results of the three task tools.
func TestMCPTasks(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, withEngineer(t))
	r.repo(t, "team/app")
	r.repo(t, "other")
	s := r.assistant(t, r.token(t,
		gitd.Grant{Subject: "assistant", Repo: "team/app", Scopes: []string{"write"}}), false, nil)
	if init := s.InitializeResult(); init.ServerInfo.Name != "engineer" || !strings.Contains(init.Instructions, "Do not delegate") {
		t.Errorf("the server says %+v", init)
	}
	first := structured[map[string]any](t,
		use(t, s, "submit_task", map[string]any{"description": "make it work", "context": "it does not", "key": "k"}))
	if len(first) != 2 || first["status"] != "submitted" || first["task_id"] == "" {
		t.Errorf("submit_task answers %v", first)
	}
	id, _ := first["task_id"].(string)
	if again := structured[map[string]any](t,
		use(t, s, "submit_task", map[string]any{"description": "make it work", "key": "k"})); again["task_id"] != id {
		t.Errorf("with the same key it is another task: %v", again)
	}
	task, err := r.Engineer.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if task.Repo != "team/app" || task.Description != "make it work" || task.Context != "it does not" || task.Asker.Name != "assistant" {
		t.Errorf("the task is %+v", task)
	}
	status := structured[map[string]any](t, use(t, s, "get_task_status", map[string]any{"task_id": id}))
	for _, key := range []string{"task_id", "status", "pr_url", "pr_number", "error"} {
		if _, ok := status[key]; !ok {
			t.Errorf("get_task_status answers without %s: %v", key, status)
		}
	}
	if status["pr_url"] != nil || status["pr_number"] != nil {
		t.Errorf("a pull request that is not there: %v", status)
	}
	active := use(t, s, "list_active_tasks", map[string]any{})
	var list []map[string]any
	if err := json.Unmarshal([]byte(InlineText(active)), &list); err != nil {
		t.Fatalf("%v: %s", err, InlineText(active))
	}
	// The agent may have failed already, because there are no containers.
	if !task.Ended() && len(list) == 1 && (list[0]["task_id"] != id || list[0]["description"] != "make it work") {
		t.Errorf("list_active_tasks answers %v", list)
	}

	other := r.assistant(t, r.token(t, gitd.Grant{Subject: "other", Repo: "other", Scopes: []string{"write"}}), false, nil)
	for name, args := range map[string]map[string]any{
		"get_task_status": {"task_id": id},
		"submit_task":     {"description": "x", "repo": "team/app"},
		"lib_read_file":   {"path": "README", "repo": "team/app"},
		"get_run":         {"run": task.Run},
	} {
		if result := use(t, other, name, args); !result.IsError || strings.Contains(InlineText(result), "make it work") {
			t.Errorf("%s for another repository: %s", name, InlineText(result))
		}
	}
	if result := use(t, other, "list_active_tasks", map[string]any{}); InlineText(result) != "[]" {
		t.Errorf("another repository's token lists %s", InlineText(result))
	}
	// A key belongs to its bearer, in the repository of its task.
	same := r.assistant(t, r.token(t,
		gitd.Grant{Subject: "assistant", Repo: "other", Scopes: []string{"write"}}), false, nil)
	if result := use(t, same, "submit_task", map[string]any{"description": "x", "key": "k"}); !result.IsError {
		t.Errorf("a key shows another repository's task: %s", InlineText(result))
	}
}

// TestMCPArguments checks that wrong arguments are reported to the model, which can correct them.
func TestMCPArguments(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, withEngineer(t))
	r.repo(t, "team/app")
	s := r.assistant(t, "", true, nil)
	for _, x := range []struct {
		tool string
		args any
	}{
		{"submit_task", map[string]any{}},
		{"submit_task", map[string]any{"description": ""}},
		{"submit_task", map[string]any{"description": 1}},
		{"submit_task", map[string]any{"description": "x", "bogus": true}},
		{"submit_task", map[string]any{"description": strings.Repeat("x", 96_001)}},
		{"submit_task", map[string]any{"description": strings.Repeat("x", 50_000), "context": strings.Repeat("x", 46_001)}},
		{"submit_task", map[string]any{"description": "x", "repo": "nowhere"}},
		{"submit_task", map[string]any{"description": "x", "agent": "nobody"}},
		{"get_task_status", map[string]any{"task_id": "nothing"}},
		{"list_active_tasks", map[string]any{"x": 1}},
		{"lib_read_file", map[string]any{"repo": "team/app"}},
		{"lib_read_file", map[string]any{"path": "README"}},
		{"lib_read_file", map[string]any{"path": "README", "caller": "run:nobody"}},
		{"resume_code_session", map[string]any{"caller": "run:nobody", "prompt": "x"}},
		{"get_run", map[string]any{"run": "run:nobody/1"}},
	} {
		if result := use(t, s, x.tool, x.args); !result.IsError || InlineText(result) == "" || len(InlineText(result)) > 4000 {
			t.Errorf("%s %.100v: %.300s", x.tool, x.args, InlineText(result))
		}
	}
}

// TestMCPLibrary checks that library tasks run for the named caller or for a new one.
func TestMCPLibrary(t *testing.T) {
	t.Parallel()
	r := openWith(t, true, coder, nil)
	r.repo(t, "team/app")
	var mu sync.Mutex
	var progress []string
	s := r.assistant(t, r.token(t, gitd.Grant{Subject: "assistant", Repo: "team/app", Scopes: []string{"write"}}),
		false, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, n *mcp.ProgressNotificationClientRequest) {
				mu.Lock()
				defer mu.Unlock()
				progress = append(progress, n.Params.Message)
			},
		})
	type report struct {
		Run, Caller, State string
		OK                 bool
		Result             map[string]any
		Changed            []string
	}
	params := &mcp.CallToolParams{Name: "lib_write_file",
		Arguments: map[string]any{"path": "new.txt", "content": "written\n"}}
	params.SetProgressToken("token")
	result, err := s.CallTool(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	wrote := structured[report](t, result)
	if wrote.State != "complete" || !wrote.OK || !slices.Equal(wrote.Changed, []string{"new.txt"}) {
		t.Errorf("lib_write_file answers %+v", wrote)
	}
	// The client may deliver the result before the notifications that it received earlier.
	eventually(t, "something is heard of how it went on", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(progress) > 0
	})
	read := structured[report](t, use(t, s, "lib_read_file", map[string]any{"path": "new.txt", "caller": wrote.Caller}))
	if read.Caller != wrote.Caller || !strings.Contains(fmt.Sprint(read.Result), "written") {
		t.Errorf("lib_read_file answers %+v", read)
	}
	if shown := structured[report](t, use(t, s, "get_run", map[string]any{"run": wrote.Run})); shown.State != "complete" {
		t.Errorf("get_run answers %+v", shown)
	}
	// A reader may see the runs of a writer.
	reader := r.assistant(t,
		r.token(t, gitd.Grant{Subject: "reader", Repo: "team/app", Scopes: []string{"read"}}), false, nil)
	if shown := structured[report](t, use(t, reader, "get_run", map[string]any{"run": wrote.Run})); shown.Run != wrote.Run {
		t.Errorf("get_run answers %+v", shown)
	}
}

// TestMCPCancel checks that cancelling the call of a library task stops its run.
func TestMCPCancel(t *testing.T) {
	t.Parallel()
	r := openWith(t, true, coder, nil)
	repo := "team/app"
	r.repo(t, repo)
	writer := r.assistant(t, "", true, nil)
	type report struct{ Caller string }
	made := structured[report](t, use(t, writer, "lib_write_file",
		map[string]any{"repo": repo, "path": "Makefile", "content": "test:\n\tsleep 600\n"}))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := r.assistant(t, "", true, &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { cancel() },
	})
	params := &mcp.CallToolParams{Name: "lib_run_tests",
		Arguments: map[string]any{"caller": made.Caller, "framework": "make"}}
	params.SetProgressToken("token")
	if result, err := s.CallTool(ctx, params); err == nil {
		t.Fatalf("it was cancelled: %s", InlineText(result))
	}
	caller, err := record.ParseCaller(made.Caller)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the run is stopped", func() bool {
		runs := r.Executor.OfCaller(caller)
		last := runs[len(runs)-1]
		return last.Task != nil && last.Task.Name == "lib_run_tests" && last.State == record.StateFailed &&
			last.Reason == record.ReasonCancelled
	})
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestMCPSession checks the session tools. A call waits for its run, and a second one continues with the same caller.
func TestMCPSession(t *testing.T) {
	t.Parallel()
	r := openWith(t, true, coder, nil)
	r.repo(t, "team/app")
	s := r.assistant(t, "", true, nil)
	type report struct{ Run, Caller, State, Error string }
	begun := structured[report](t,
		use(t, s, "start_code_session", map[string]any{"prompt": "say nothing", "repo": "team/app", "wait": false}))
	if begun.Caller == "" || begun.Run == "" {
		t.Fatalf("start_code_session answers %+v", begun)
	}
	eventually(t, "the first run ends", func() bool {
		run, err := r.Executor.Run(t.Context(), begun.Run)
		return err == nil && run.Ended()
	})
	next, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "resume_code_session",
		Arguments: map[string]any{"prompt": "go on", "caller": begun.Caller}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(next.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	var after report
	if err := json.Unmarshal(b, &after); err != nil {
		t.Fatal(err)
	}
	if after.Caller != begun.Caller || after.Run == begun.Run || after.State != "complete" && after.State != "failed" {
		t.Errorf("resume_code_session answers %s", b)
	}
}

// TestMCPSessions checks that a session belongs to its bearer, can be ended, and ends with the server.
func TestMCPSessions(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, withEngineer(t))
	r.repo(t, "team/app")
	own := r.token(t, gitd.Grant{Subject: "own", Repo: "team/app", Scopes: []string{"read"}})
	begin := func(token string) string {
		t.Helper()
		resp := r.mcp(t, "POST", token, "", nil, hello)
		if resp.status != 200 || resp.header.Get("Mcp-Session-Id") == "" {
			t.Fatalf("initialize: %d %s", resp.status, resp.body)
		}
		return resp.header.Get("Mcp-Session-Id")
	}
	const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	id := begin(own)
	for name, token := range map[string]string{
		"another":     r.token(t, gitd.Grant{Subject: "another", Repo: "team/app", Scopes: []string{"read"}}),
		"more scopes": r.token(t, gitd.Grant{Subject: "own", Repo: "team/app", Scopes: []string{"read", "write"}}),
		"other repo":  r.token(t, gitd.Grant{Subject: "own", Repo: "*", Scopes: []string{"read"}}),
	} {
		for _, method := range []string{"POST", "GET", "DELETE"} {
			if resp := r.mcp(t, method, token, id, nil, ping); resp.status != 404 {
				t.Errorf("%s, %s: status %d: %s", name, method, resp.status, resp.body)
			}
		}
	}
	if resp := r.mcp(t, "POST", own, id, nil, ping); resp.status != 200 {
		t.Errorf("its own bearer: status %d: %s", resp.status, resp.body)
	}
	if resp := r.mcp(t, "DELETE", own, id, nil, ""); resp.status != 204 {
		t.Errorf("its end: status %d: %s", resp.status, resp.body)
	}
	if resp := r.mcp(t, "POST", own, id, nil, ping); resp.status != 404 {
		t.Errorf("after its end: status %d: %s", resp.status, resp.body)
	}
	for name, x := range map[string]struct {
		method, body string
		status       int
		header       http.Header
	}{
		"no message":            {"POST", "", 400, nil},
		"no JSON":               {"POST", "{", 400, nil},
		"no session to listen":  {"GET", "", 400, nil},
		"no session to end":     {"DELETE", "", 400, nil},
		"unknown version":       {"POST", ping, 400, http.Header{"Mcp-Protocol-Version": {"1999-01-01"}}},
		"a form":                {"POST", ping, 400, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}},
		"an answer as it wants": {"POST", ping, 400, http.Header{"Accept": {"text/html"}}},
	} {
		resp := r.mcp(t, x.method, own, "", x.header, x.body)
		var p route.Problem
		if resp.status != x.status || json.Unmarshal([]byte(resp.body), &p) != nil || p.Detail == "" {
			t.Errorf("%s: status %d: %s", name, resp.status, resp.body)
		}
	}
	last := begin(own)
	listening, err := http.NewRequestWithContext(t.Context(), "GET", r.web.URL+ramusmcp.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	listening.Header = http.Header{"Authorization": {"Bearer " + own}, "Accept": {"text/event-stream"},
		"Mcp-Session-Id": {last}}
	stream, err := r.web.Client().Do(listening)
	if err != nil || stream.StatusCode != 200 {
		t.Fatalf("%v, %v", stream, err)
	}
	defer stream.Body.Close()
	r.Drain()
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("a stream at the server's end: %v", err)
	}
	if resp := r.mcp(t, "POST", own, last, nil, ping); resp.status != 404 {
		t.Errorf("after the server's end: status %d: %s", resp.status, resp.body)
	}
	if resp := r.mcp(t, "POST", own, "", nil, ping); resp.status != 503 {
		t.Errorf("a new session after the server's end: status %d: %s", resp.status, resp.body)
	}
}

// TestMCPSessionsAreBounded checks the limit of a bearer's sessions. A new session ends the oldest idle one of the
// same bearer and none of another.
func TestMCPSessionsAreBounded(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, nil)
	gateway.MCP(r.Server).MaxSessions = 8
	one, two := r.token(t, gitd.Grant{Subject: "one", Repo: "*", Scopes: []string{"read"}}),
		r.token(t, gitd.Grant{Subject: "two", Repo: "*", Scopes: []string{"read"}})
	begin := func(token string) string {
		resp := r.mcp(t, "POST", token, "", nil, hello)
		return resp.header.Get("Mcp-Session-Id")
	}
	stays := begin(two)
	var ids []string
	for range 5 {
		ids = append(ids, begin(one))
	}
	for i, id := range ids {
		want := 404
		if i >= 3 {
			want = 200
		}
		if resp := r.mcp(t, "POST", one, id, nil, `{"jsonrpc":"2.0","id":2,"method":"ping"}`); resp.status != want {
			t.Errorf("session %d of 5: status %d, want %d", i, resp.status, want)
		}
	}
	if resp := r.mcp(t, "POST", two, stays, nil, `{"jsonrpc":"2.0","id":2,"method":"ping"}`); resp.status != 200 {
		t.Errorf("another's session: status %d", resp.status)
	}
}

// TestMCPIdle checks that an idle session ends.
func TestMCPIdle(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, nil)
	gateway.MCP(r.Server).Idle = time.Millisecond
	token := r.token(t, gitd.Grant{Subject: "x", Repo: "*", Scopes: []string{"read"}})
	var id string
	eventually(t, "a session begins, and does not end before it is told of", func() bool {
		id = r.mcp(t, "POST", token, "", nil, hello).header.Get("Mcp-Session-Id")
		return id != ""
	})
	eventually(t, "the session ends", func() bool {
		time.Sleep(10 * time.Millisecond) // every request keeps the session alive
		return r.mcp(t, "POST", token, id, nil, `{"jsonrpc":"2.0","id":2,"method":"ping"}`).status == 404
	})
}

// TestMCPResults checks that results contain no secrets, and that a long result is cut and stays valid.
func TestMCPResults(t *testing.T) {
	t.Parallel()
	secrets, _ := redact.New(map[string]string{"KEY": "the-value-of-a-secret"})
	r := openWith(t, true, coder, func(s *gateway.Server) { s.Secrets = secrets })
	r.repo(t, "team/app")
	s := r.assistant(t, "", true, nil)
	if got := InlineText(use(t, s, "get_run", map[string]any{"run": "the-value-of-a-secret"})); strings.Contains(got,
		"the-value") || !strings.Contains(got, "[secret KEY]") {
		t.Errorf("%s", got)
	}
	type report struct {
		Caller string
		OK     bool
		Result map[string]any
	}
	made := structured[report](t, use(t, s, "lib_write_file", map[string]any{"repo": "team/app", "path": "long.txt",
		"content": strings.Repeat("0123456789abcdef\n", 20_000)}))
	result := use(t, s, "lib_read_file", map[string]any{"caller": made.Caller, "path": "long.txt"})
	if read := structured[report](t, result); !read.OK || read.Result != nil {
		t.Errorf("%+v", read)
	}
	if text := InlineText(result); len(text) > 150<<10 || !strings.Contains(text, "bytes left out") {
		t.Errorf("%d bytes: %.200s", len(text), text)
	}
}

// TestMCPRebinding checks that pages of other sites are refused under any name that resolves to this address.
func TestMCPRebinding(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, func(s *gateway.Server) {
		s.URL = "https://ramus.example.org"
		s.CORS = []string{"https://app.example.org"}
	})
	token := r.token(t, gitd.Grant{Subject: "x", Repo: "*", Scopes: []string{"read"}})
	for _, x := range []struct {
		host, origin string
		ok           bool
	}{
		{"", "", true},
		{"localhost", "", true},
		{"localhost:1", "http://localhost:6274", true},
		{"127.0.0.1:9", "http://127.0.0.1:3000", true},
		{"[::1]:9", "", true},
		{"ramus.example.org", "https://ramus.example.org", true},
		{"RAMUS.example.org:443", "", true},
		{"", "https://app.example.org", true},
		{"evil.example.org", "", false},
		{"evil.example.org", "http://evil.example.org", false},
		{"localhost.evil.example.org", "", false},
		{"127.0.0.1.evil.example.org", "", false},
		{"192.0.2.1", "", false},
		{"ramus.example.org.evil.example.org", "", false},
		{"", "http://evil.example.org", false},
		{"", "null", false},
		{"", "file://localhost", false},
		{"localhost", "http://localhost.evil.example.org", false},
	} {
		header := http.Header{}
		if x.host != "" {
			header.Set("Host", x.host)
		}
		if x.origin != "" {
			header.Set("Origin", x.origin)
		}
		resp := r.mcp(t, "POST", token, "", header, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		if (resp.status == 403) == x.ok || x.ok && resp.status != 200 {
			t.Errorf("host %q, origin %q: status %d: %s", x.host, x.origin, resp.status, resp.body)
		}
	}
}

// TestMCPWithoutSessions checks the newest version, which has no sessions. Its requests are independent.
func TestMCPWithoutSessions(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, withEngineer(t))
	r.repo(t, "team/app")
	token := r.token(t, gitd.Grant{Subject: "x", Repo: "*", Scopes: []string{"read"}})
	header := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"},
		"Mcp-Name": {"list_active_tasks"}}
	resp := r.mcp(t, "POST", token, "", header,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_active_tasks","arguments":{},`+
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	if resp.status != 200 || !strings.Contains(resp.body, `\"result\":[]`) &&
		!strings.Contains(resp.body, `"result":[]`) || resp.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("status %d: %s", resp.status, resp.body)
	}
}

// TestMCPPing checks pings of all versions. Clients send them even to servers without sessions.
func TestMCPPing(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, withEngineer(t))
	s := r.assistant(t, r.token(t, gitd.Grant{Subject: "x", Repo: "*", Scopes: []string{"read"}}), false, nil)
	for range 2 {
		if err := s.Ping(t.Context(), nil); err != nil {
			t.Errorf("the SDK's own client: %v", err)
		}
	}
	token := r.token(t, gitd.Grant{Subject: "x", Repo: "*", Scopes: []string{"read"}})
	header := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"ping"}}
	for _, x := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"jsonrpc":"2.0","id":"a","method":"ping"}`, 200, `{"jsonrpc":"2.0","id":"a","result":{}}`},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, 200, `{"jsonrpc":"2.0","id":7,"result":{}}`},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, 400, ""},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, 400, ""},
		{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, 400, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"nothing"}`, 404, ""},
	} {
		got := r.mcp(t, "POST", token, "", header, x.body)
		if got.status != x.status || x.want != "" && strings.TrimSpace(got.body) != x.want {
			t.Errorf("%s: status %d: %s", x.body, got.status, got.body)
		}
	}
}

// TestMCPSchemaTypes checks that schemas have no lists of types, because strict clients do not support them.
func TestMCPSchemaTypes(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, withEngineer(t))
	var look func(at string, v any)
	look = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, value := range v {
				if _, list := value.([]any); list && name == "type" {
					t.Errorf("%s.type is the list %v", at, value)
				}
				look(at+"."+name, value)
			}
		case []any:
			for _, value := range v {
				look(at+"[]", value)
			}
		}
	}
	for tool, err := range r.assistant(t, "", true, nil).Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		look(tool.Name+" input", tool.InputSchema)
		look(tool.Name+" output", tool.OutputSchema)
	}
}

// TestMCPLongDescription checks that a task's description may have the maximal length of a prompt.
func TestMCPLongDescription(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, withEngineer(t))
	r.repo(t, "team/app")
	s := r.assistant(t, "", true, nil)
	for _, description := range []string{strings.Repeat("x", 96_000), strings.Repeat("é", 20_001)} {
		made := structured[map[string]any](t, use(t, s, "submit_task", map[string]any{"description": description}))
		task, err := r.Engineer.Task(t.Context(), fmt.Sprint(made["task_id"]))
		if err != nil || task.Description != description {
			t.Errorf("a description of %d bytes is kept as %d, %v", len(description), len(task.Description), err)
		}
		if _, err := render.Prompt("", render.PromptData{Task: task, Conventions: []string{"AGENTS.md", "CLAUDE.md"}}); err != nil {
			t.Errorf("a description of %d bytes: %v", len(description), err)
		}
	}
	result := use(t, s, "submit_task", map[string]any{"description": strings.Repeat("é", 48_001)})
	if !result.IsError || !strings.Contains(InlineText(result), "at most 96000 together; put the details into a file of the repository") {
		t.Errorf("a description that is too long: %.300s", InlineText(result))
	}
}

// plain is a response with its whole body.
type plain struct {
	status int
	header http.Header
	body   string
}

// mcp sends one raw message.
func (r *rooms) mcp(t *testing.T, method, token, session string, header http.Header, body string) plain {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.web.URL+ramusmcp.Path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"},
		"Accept": {"application/json, text/event-stream"}}
	for k, v := range header {
		req.Header[k] = v
	}
	if host := header.Get("Host"); host != "" {
		req.Host = host
	}
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	resp, err := r.web.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	return plain{resp.StatusCode, resp.Header, string(b)}
}
