package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gitd"
)

// row is what the authorisation test expects of one route.
type row struct {
	access gateway.Access
	// of says what the route is about: "repo" names one repository or something
	// of it (bearers for another are told that there is nothing), "list" lists
	// things (they get an empty list), "" neither.
	of   string
	path string // with names filled in
	body string
}

// expected is the security surface, written down a second time: whoever changes
// the table of routes has to say here, too, whom they mean to let in.
var expected = map[string]row{
	"GET /health":                                          {gateway.AccessPublic, "", "/health", ""},
	"GET /metrics":                                         {gateway.AccessMetrics, "", "/metrics", ""},
	"GET /.well-known/allowed_signers":                     {gateway.AccessPublic, "", "/.well-known/allowed_signers", ""},
	"GET /.well-known/jwks.json":                           {gateway.AccessPublic, "", "/.well-known/jwks.json", ""},
	"GET /api/openapi.json":                                {gateway.AccessPublic, "", "/api/openapi.json", ""},
	"GET /api/schema/workflow":                             {gateway.AccessPublic, "", "/api/schema/workflow", ""},
	"GET /api/whoami":                                      {gateway.AccessRead, "", "/api/whoami", ""},
	"GET /api/library":                                     {gateway.AccessRead, "", "/api/library", ""},
	"GET /api/tasks":                                       {gateway.AccessRead, "list", "/api/tasks", ""},
	"POST /api/tasks":                                      {gateway.AccessWrite, "repo", "/api/tasks", `{"repo":"team/app","description":"x","key":"x"}`},
	"GET /api/tasks/{task}":                                {gateway.AccessRead, "repo", "/api/tasks/TASK", ""},
	"POST /api/tasks/{task}/retry":                         {gateway.AccessWrite, "repo", "/api/tasks/TASK/retry", ""},
	"POST /api/tasks/{task}/say":                           {gateway.AccessWrite, "repo", "/api/tasks/TASK/say", `{"text":"go on"}`},
	"DELETE /api/tasks/{task}":                             {gateway.AccessWrite, "repo", "/api/tasks/TASK", ""},
	"GET /engineer/tasks":                                  {gateway.AccessRead, "list", "/engineer/tasks", ""},
	"POST /engineer/tasks":                                 {gateway.AccessWrite, "repo", "/engineer/tasks", `{"repo":"team/app","description":"x","key":"x"}`},
	"GET /engineer/tasks/{task}":                           {gateway.AccessRead, "repo", "/engineer/tasks/TASK", ""},
	"POST /engineer/tasks/{task}/retry":                    {gateway.AccessWrite, "repo", "/engineer/tasks/TASK/retry", ""},
	"POST /engineer/tasks/{task}/say":                      {gateway.AccessWrite, "repo", "/engineer/tasks/TASK/say", `{"text":"go on"}`},
	"DELETE /engineer/tasks/{task}":                        {gateway.AccessWrite, "repo", "/engineer/tasks/TASK", ""},
	"POST /mcp":                                            {gateway.AccessRead, "", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
	"GET /mcp":                                             {gateway.AccessRead, "", "/mcp", ""},
	"DELETE /mcp":                                          {gateway.AccessRead, "", "/mcp", ""},
	"POST /api/check":                                      {gateway.AccessRead, "repo", "/api/check?repo=team/app", "id: x\nnodes: [{id: a, run: 'true'}]"},
	"GET /api/repos":                                       {gateway.AccessRead, "list", "/api/repos", ""},
	"POST /api/repos":                                      {gateway.AccessAdmin, "", "/api/repos", `{"name":"team/app"}`},
	"GET /api/repos/{repo}":                                {gateway.AccessRead, "repo", "/api/repos/team%2Fapp", ""},
	"POST /api/repos/{repo}/refresh":                       {gateway.AccessWrite, "repo", "/api/repos/team%2Fapp/refresh", ""},
	"GET /api/repos/{repo}/bases":                          {gateway.AccessRead, "repo", "/api/repos/team%2Fapp/bases", ""},
	"GET /api/repos/{repo}/log":                            {gateway.AccessRead, "repo", "/api/repos/team%2Fapp/log", ""},
	"GET /api/repos/{repo}/diff":                           {gateway.AccessRead, "repo", "/api/repos/team%2Fapp/diff?to=main", ""},
	"GET /api/repos/{repo}/changes":                        {gateway.AccessRead, "repo", "/api/repos/team%2Fapp/changes?to=main", ""},
	"GET /api/repos/{repo}/tree":                           {gateway.AccessRead, "repo", "/api/repos/team%2Fapp/tree?path=a", ""},
	"GET /api/repos/{repo}/file":                           {gateway.AccessRead, "repo", "/api/repos/team%2Fapp/file?path=a/b", ""},
	"GET /api/runs":                                        {gateway.AccessRead, "list", "/api/runs", ""},
	"POST /api/runs":                                       {gateway.AccessWrite, "repo", "/api/runs", `{"repo":"team/app","command":{"shell":"true"}}`},
	"GET /api/runs/{run}":                                  {gateway.AccessRead, "repo", "/api/runs/RUN", ""},
	"GET /api/runs/{run}/events":                           {gateway.AccessRead, "repo", "/api/runs/RUN/events", ""},
	"GET /api/runs/{run}/output/{step}/{stream}":           {gateway.AccessRead, "repo", "/api/runs/RUN/output/exec/stdout", ""},
	"GET /api/runs/{run}/evidence":                         {gateway.AccessRead, "repo", "/api/runs/RUN/evidence", ""},
	"POST /api/runs/{run}/stop":                            {gateway.AccessWrite, "repo", "/api/runs/RUN/stop", ""},
	"POST /api/runs/{run}/retry":                           {gateway.AccessWrite, "repo", "/api/runs/RUN/retry", ""},
	"POST /api/runs/{run}/say":                             {gateway.AccessWrite, "repo", "/api/runs/RUN/say", `{"text":"go on"}`},
	"POST /api/runs/{run}/decide":                          {gateway.AccessWrite, "repo", "/api/runs/RUN/decide", `{"approved":true}`},
	"GET /api/callers":                                     {gateway.AccessRead, "list", "/api/callers", ""},
	"GET /api/callers/{caller}":                            {gateway.AccessRead, "repo", "/api/callers/run:subject", ""},
	"POST /api/callers/{caller}/exec":                      {gateway.AccessWrite, "repo", "/api/callers/run:subject/exec", `{"command":{"shell":"true"}}`},
	"GET /api/callers/{caller}/log":                        {gateway.AccessRead, "repo", "/api/callers/run:subject/log", ""},
	"GET /api/callers/{caller}/diff":                       {gateway.AccessRead, "repo", "/api/callers/run:subject/diff", ""},
	"GET /api/callers/{caller}/changes":                    {gateway.AccessRead, "repo", "/api/callers/run:subject/changes", ""},
	"POST /api/callers/{caller}/merge":                     {gateway.AccessWrite, "repo", "/api/callers/run:subject/merge", ""},
	"POST /api/callers/{caller}/rollback":                  {gateway.AccessWrite, "repo", "/api/callers/run:subject/rollback", `{"to":"main"}`},
	"POST /api/callers/{caller}/stop":                      {gateway.AccessWrite, "repo", "/api/callers/run:subject/stop", ""},
	"GET /api/callers/{caller}/sessions":                   {gateway.AccessRead, "repo", "/api/callers/run:subject/sessions", ""},
	"GET /api/callers/{caller}/processes":                  {gateway.AccessRead, "repo", "/api/callers/run:subject/processes", ""},
	"GET /api/callers/{caller}/processes/{process}/output": {gateway.AccessRead, "repo", "/api/callers/run:subject/processes/1/output", ""},
	"DELETE /api/callers/{caller}/processes/{process}":     {gateway.AccessWrite, "repo", "/api/callers/run:subject/processes/1", ""},
	"GET /api/callers/{caller}/ports":                      {gateway.AccessRead, "repo", "/api/callers/run:subject/ports", ""},
	"POST /api/callers/{caller}/ports/{port}/connect":      {gateway.AccessWrite, "repo", "/api/callers/run:subject/ports/5173/connect", ""},
	"GET /api/watch":                                       {gateway.AccessRead, "repo", "/api/watch?caller=run:subject", ""},
	"POST /api/runs/{run}/link":                            {gateway.AccessRead, "repo", "/api/runs/RUN/link", ""},
	"GET /evidence/{caller}/{run}":                         {gateway.AccessSigned, "repo", "/evidence/NAME", ""},
	"GET /evidence/{caller}/{run}/status.json":             {gateway.AccessSigned, "repo", "/evidence/NAME/status.json", ""},
	"GET /evidence/{caller}/{run}/bundle.tar.gz":           {gateway.AccessSigned, "repo", "/evidence/NAME/bundle.tar.gz", ""},
	"GET /evidence/{caller}/{run}/files/{name...}":         {gateway.AccessSigned, "repo", "/evidence/NAME/files/journal.jsonl", ""},
	"GET /trace/{file...}":                                 {gateway.AccessPublic, "", "/trace/index.html", ""},
	"GET /preview/{caller}/{port}/{$}":                     {gateway.AccessSigned, "repo", "/preview/run:subject/5173/", ""},
	" /preview/{caller}/{port}/{pass}/{path...}":           {gateway.AccessPreview, "", "/preview/run:subject/5173/1.x/", ""},
	"POST /hooks/deploy":                                   {gateway.AccessHook, "", "/hooks/deploy", `{"repo":"team/app","commit":"0000000000000000000000000000000000000000"}`},
	"POST /api/tokens":                                     {gateway.AccessAdmin, "", "/api/tokens", `{"subject":"x","scopes":["read"]}`},
	"POST /api/reindex":                                    {gateway.AccessAdmin, "", "/api/reindex", ""},
	"POST /api/prune":                                      {gateway.AccessAdmin, "", "/api/prune", `{"dry_run":true}`},
	"POST /slack/events":                                   {gateway.AccessHook, "", "/slack/events", "{}"},
	"POST /webhooks/slack":                                 {gateway.AccessHook, "", "/webhooks/slack", "{}"},
	"POST /webhooks/github":                                {gateway.AccessHook, "", "/webhooks/github", "{}"},
	"GET /api/github/installations":                        {gateway.AccessAdmin, "", "/api/github/installations", ""},
	"GET /api/github/repos":                                {gateway.AccessAdmin, "", "/api/github/repos", ""},
	"GET /auth/github":                                     {gateway.AccessPublic, "", "/auth/github", ""},
	"GET /auth/github/callback":                            {gateway.AccessPublic, "", "/auth/github/callback", ""},
	"POST /slack/interactions":                             {gateway.AccessHook, "", "/slack/interactions", "payload={}"},
	"POST /slack/commands":                                 {gateway.AccessHook, "", "/slack/commands", "command=/ramus"},
	" /":                                                   {gateway.AccessGit, "", "/team/app.git/info/refs?service=git-upload-pack", ""},
}

// kinds of callers, and the classes of access that each is let in to.
var callerKinds = []struct {
	name   string
	grant  *gitd.Grant // nil: see token
	token  string
	local  bool
	may    []gateway.Access
	other  bool // bearer for another repository
	status int  // when not let in
	// hidden: it sees the base, and no branch of a caller; bound: it changes none of both.
	hidden, bound bool
}{
	{name: "nobody", status: 401},
	{name: "garbage", token: "garbage", status: 401},
	{name: "forged", token: "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIiwicmVwbyI6IioiLCJzY29wZXMiOlsiYWRtaW4iXX0.", status: 401},
	{name: "expired admin", grant: &gitd.Grant{Repo: "*", Scopes: []string{"admin"}, Expires: time.Now().Add(-time.Hour)}, status: 401},
	{name: "no scopes", grant: &gitd.Grant{Repo: "*", Write: []string{"refs/heads/*"}}, status: 403},
	{name: "metrics", grant: &gitd.Grant{Repo: "*", Scopes: []string{"metrics"}}, may: []gateway.Access{gateway.AccessMetrics}, status: 403},
	{name: "metrics of a repository", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"metrics"}}, status: 403},
	{name: "read other", grant: &gitd.Grant{Repo: "other", Scopes: []string{"read"}}, may: []gateway.Access{gateway.AccessRead, gateway.AccessSigned}, other: true, status: 403},
	{name: "write other", grant: &gitd.Grant{Repo: "other", Scopes: []string{"write"}}, may: []gateway.Access{gateway.AccessRead, gateway.AccessSigned, gateway.AccessWrite}, other: true, status: 403},
	{name: "admin other", grant: &gitd.Grant{Repo: "other", Scopes: []string{"admin"}}, may: []gateway.Access{gateway.AccessRead, gateway.AccessSigned, gateway.AccessWrite}, other: true, status: 403},
	{name: "read", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"read"}}, may: []gateway.Access{gateway.AccessRead, gateway.AccessSigned}, status: 403},
	{name: "write", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"write"}}, may: []gateway.Access{gateway.AccessRead, gateway.AccessSigned, gateway.AccessWrite}, status: 403},
	{name: "admin", grant: &gitd.Grant{Repo: "*", Scopes: []string{"admin"}}, may: []gateway.Access{gateway.AccessMetrics, gateway.AccessRead, gateway.AccessSigned, gateway.AccessWrite, gateway.AccessAdmin}},
	{name: "read main", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"read"}, Read: []string{"refs/heads/main"}}, may: []gateway.Access{gateway.AccessRead, gateway.AccessSigned}, status: 403, hidden: true},
	{name: "read main everywhere", grant: &gitd.Grant{Repo: "*", Scopes: []string{"read"}, Read: []string{"refs/heads/main"}}, may: []gateway.Access{gateway.AccessRead, gateway.AccessSigned}, status: 403, hidden: true},
	{name: "read with refs to push", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"read"}, Write: []string{"refs/heads/*"}}, may: []gateway.Access{gateway.AccessRead, gateway.AccessSigned}, status: 403},
	{name: "metrics with refs", grant: &gitd.Grant{Repo: "*", Scopes: []string{"metrics"}, Read: []string{"refs/heads/*"}, Write: []string{"refs/heads/*"}}, may: []gateway.Access{gateway.AccessMetrics}, status: 403},
	{name: "write below w", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"write"}, Write: []string{"refs/heads/w/*"}}, may: []gateway.Access{gateway.AccessRead, gateway.AccessSigned, gateway.AccessWrite}, status: 403, bound: true},
	{name: "write main", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"write"}, Read: []string{"refs/heads/main"}, Write: []string{"refs/heads/main"}}, may: []gateway.Access{gateway.AccessRead, gateway.AccessSigned, gateway.AccessWrite}, status: 403, hidden: true},
	{name: "socket", local: true, may: []gateway.Access{gateway.AccessMetrics, gateway.AccessRead, gateway.AccessSigned, gateway.AccessWrite, gateway.AccessAdmin}},
}

// ofCaller matches the paths of what is on a caller's branch.
var ofCaller = regexp.MustCompile(`RUN|NAME|TASK|run:subject`)

// TestAuthorisation tries every kind of caller on every route.
func TestAuthorisation(t *testing.T) {
	r := openWith(t, false, coder, withEngineer(t))
	r.repo(t, "team/app")
	r.repo(t, "other")
	task, err := r.Engineer.Submit(t.Context(), gateway.Submission{Repo: "team/app", Description: "the subject"})
	if err != nil {
		t.Fatal(err)
	}
	// A caller with a run that failed, for want of containers.
	subject, err := record.RunCaller("subject")
	if err != nil {
		t.Fatal(err)
	}
	run, err := r.local.Submit(t.Context(), record.Request{Caller: subject, Repo: "team/app", Command: &record.Command{Shell: "true"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range r.local.Events(t.Context(), run.Name(), 0) {
		if err != nil {
			t.Fatal(err)
		}
	}

	seen := map[string]bool{}
	for _, route := range r.Table() {
		key := route.Method + " " + route.Pattern
		seen[key] = true
		want, ok := expected[key]
		if !ok {
			t.Errorf("route %s has no row in the authorisation test", key)
			continue
		}
		if route.Access != want.access {
			t.Errorf("route %s is for %s, expected %s", key, route.Access, want.access)
		}
		if route.Access == gateway.AccessGit {
			continue // TestGitAuthorisation
		}
		path := strings.ReplaceAll(want.path, "RUN", strings.ReplaceAll(run.Name(), "/", "%2F"))
		path = strings.ReplaceAll(strings.ReplaceAll(path, "NAME", run.Name()), "TASK", task.ID)
		for _, k := range callerKinds {
			token := k.token
			if k.grant != nil {
				g := *k.grant
				g.Subject = k.name
				token = r.token(t, g)
			}
			status, body := r.ask(t, k.local, token, route.Method, path, want.body)
			if route.Access == gateway.AccessPreview {
				if status != 403 {
					t.Errorf("%s, %s: status %d, want 403: only a link leads there: %s", key, k.name, status, body)
				}
				continue
			}
			if route.Access == gateway.AccessHook {
				// Nobody's token counts, only the sender's signature; 404 while no sender is configured.
				if status != 401 && status != 404 {
					t.Errorf("%s, %s: status %d without a signature: %s", key, k.name, status, body)
				}
				continue
			}
			in := want.access == gateway.AccessPublic
			for _, a := range k.may {
				in = in || a == want.access
			}
			switch {
			case !in:
				if status != k.status {
					t.Errorf("%s, %s: status %d, want %d: %s", key, k.name, status, k.status, body)
				}
			case k.hidden && want.of != "" && ofCaller.MatchString(want.path):
				if status != 404 || strings.Contains(body, "team/app") && !strings.Contains(path, "team") {
					t.Errorf("%s, %s: status %d, want 404 without a word of what is hidden: %s", key, k.name, status, body)
				}
			case k.hidden && want.of == "list" && !strings.HasSuffix(want.path, "/repos"):
				if status != 200 || strings.Contains(body, "subject") {
					t.Errorf("%s, %s: status %d: %s", key, k.name, status, body)
				}
			case k.hidden && want.access == gateway.AccessWrite && !strings.Contains(path, "refresh"), k.bound && want.access == gateway.AccessWrite:
				if status != 403 {
					t.Errorf("%s, %s: status %d, want 403: it changes a branch that the token may not: %s", key, k.name, status, body)
				}
			case k.other && want.of == "repo":
				if status != 404 || strings.Contains(body, "team/app") && !strings.Contains(path+want.body, "team") {
					t.Errorf("%s, %s: status %d, want 404 without a word of the other repository: %s", key, k.name, status, body)
				}
			case k.other && want.of == "list":
				if status != 200 || strings.Contains(body, "team/app") {
					t.Errorf("%s, %s: status %d: %s", key, k.name, status, body)
				}
			case status == 401 || status == 403 || status == 404 && !strings.Contains(path, "/processes/") && !strings.Contains(path, "/output/"):
				t.Errorf("%s, %s: status %d, want to be let in: %s", key, k.name, status, body)
			case want.of == "list" && !strings.Contains(body, "team/app"):
				t.Errorf("%s, %s: the list is empty: %s", key, k.name, body)
			}
		}
	}
	r.tryLinks(t, run)
	for key := range expected {
		if !seen[key] {
			t.Errorf("the authorisation test has a row for %s, which is no route", key)
		}
	}
}

// tryLinks tries on every route what a signed link opens: the path that it was
// signed for, until it expires, and nothing else.
func (r *rooms) tryLinks(t *testing.T, run record.Run) {
	t.Helper()
	now := time.Now()
	expired := *r.Links
	expired.Now = func() time.Time { return now.Add(-8 * 24 * time.Hour) }
	forged := *r.Links
	forged.Key = []byte(strings.Repeat("x", 32))
	other := r.token(t, gitd.Grant{Subject: "other", Repo: "other", Scopes: []string{"read"}})
	own := r.token(t, gitd.Grant{Subject: "own", Repo: "team/app", Scopes: []string{"read"}})
	for _, route := range r.Table() {
		row := expected[route.Method+" "+route.Pattern]
		if route.Access == gateway.AccessGit || route.Access == gateway.AccessPublic || route.Access == gateway.AccessHook || route.Access == gateway.AccessPreview {
			continue
		}
		name := route.Method + " " + route.Pattern
		path, query, _ := strings.Cut(strings.NewReplacer("RUN", run.Name(), "NAME", run.Name(), "TASK", "task").Replace(row.path), "?")
		with := func(link string) string {
			if query != "" {
				link += "&" + query
			}
			return link
		}
		for _, k := range []struct {
			who, path, token string
			status           int
		}{
			{"a link", with(r.Links.Sign(path)), "", 200},
			{"a link, and a token for another repository", with(r.Links.Sign(path)), other, 200},
			{"an expired link", with(expired.Sign(path)), "", 403},
			{"an expired link, and a token", with(expired.Sign(path)), own, 200},
			{"a link by another key", with(forged.Sign(path)), "", 403},
			{"a link to another path", strings.Replace(with(r.Links.Sign(path+"x")), path+"x", path, 1), "", 403},
		} {
			if k.status == 200 && strings.HasPrefix(path, "/preview/") {
				k.status = 503 // the link leads to where it would be seen, but there is no container
			}
			status, body := r.ask(t, false, k.token, route.Method, k.path, row.body)
			switch {
			case route.Access == gateway.AccessSigned && status != k.status:
				t.Errorf("%s, %s: status %d, want %d: %s", name, k.who, status, k.status, body)
			case route.Access != gateway.AccessSigned && k.token == "" && status != 401 && status != 404:
				t.Errorf("%s, %s: status %d, want 401: only evidence is opened by links: %s", name, k.who, status, body)
			}
		}
	}
}

// ask makes one request and returns its status and the beginning of its answer.
func (r *rooms) ask(t *testing.T, local bool, token, method, path, body string) (int, string) {
	t.Helper()
	// Streams that do not end are hung up after their status is known.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server, c := r.web.URL, r.web.Client()
	if local {
		server = "http://socket"
		c = &http.Client{Transport: r.socketTransport()}
		defer c.CloseIdleConnections()
	}
	req, err := http.NewRequestWithContext(ctx, method, server+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if strings.HasPrefix(path, "/api/watch") && resp.StatusCode == 200 {
		return resp.StatusCode, ""
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if resp.StatusCode >= 400 {
		var p gateway.Problem
		if err := json.Unmarshal(b, &p); err != nil || p.Status != resp.StatusCode || p.Kind == "" {
			t.Errorf("%s %s: status %d is no problem: %s", method, path, resp.StatusCode, b)
		}
		if resp.StatusCode == 401 && resp.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s %s: 401 without WWW-Authenticate", method, path)
		}
	}
	return resp.StatusCode, string(b)
}

func (r *rooms) socketTransport() *http.Transport {
	return &http.Transport{DialContext: dialUnix(r.socket.Listener.Addr().String())}
}
