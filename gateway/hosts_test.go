package gateway_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/domain"
	"github.com/ramus-dev/ramus/gateway/preview"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/session"
	"github.com/ramus-dev/ramus/gitd"
)

// withDomain gives a server hosts below ramus.example.org.
func withDomain(t *testing.T) func(*gateway.Server) {
	d, err := domain.Parse("ramus.example.org")
	if err != nil {
		t.Fatal(err)
	}
	return func(s *gateway.Server) {
		s.Domain, s.URL, s.Content, s.Preview = d, d.Pages(), d.Content(), preview.OfDomain(d)
		s.Links.URL = d.Pages()
	}
}

// hosted are the routes of hosts for programs, by the beginning of their paths. All others are of the pages.
var hosted = []string{"/api/", "/mcp", "/metrics", "/.well-known/", "/hooks/", "/webhooks/", "/slack/", "/engineer/",
	"/team/app.git/"}

// hostsOf repeats the places of routes independently of package domain.
func hostsOf(key string, want row) []string {
	const app, api, ws = "app", "api", "ws-run-subject"
	pattern := strings.Fields(key)[len(strings.Fields(key))-1]
	workspace := strings.Contains(pattern, "{caller}") || strings.Contains(pattern, "{workspace}")
	switch {
	case key == "GET /workspaces/{caller}/agent":
		return []string{api, ws}
	case want.path == "/health" || want.access == route.AccessSigned && !workspace:
		return []string{app, api}
	case want.access == route.AccessSigned:
		return []string{app, api, ws}
	case slices.ContainsFunc(hosted, func(begin string) bool { return strings.HasPrefix(want.path, begin) }):
		if workspace {
			return []string{api, ws}
		}
		return []string{api}
	}
	return []string{app}
}

// askHost sends a request to a host.
func (r *rooms) askHost(t *testing.T, host, method, path string,
	header http.Header) (*http.Response, route.Problem, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.web.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := (&http.Client{Transport: r.web.Client().Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	var p route.Problem
	_ = json.Unmarshal(text, &p) // pages are none
	return resp, p, string(text)
}

// isElsewhere reports whether an answer is that of a host without the route.
func isElsewhere(p route.Problem) bool {
	return p.Status == 404 && (strings.HasPrefix(p.Detail, "there is nothing at ") ||
		strings.HasPrefix(p.Detail, "this server has no host ") ||
		strings.HasSuffix(p.Detail, "is not the workspace of this host"))
}

// TestHosts tries every route at every host, without credentials, so that nothing changes.
func TestHosts(t *testing.T) {
	t.Parallel()
	r := open(t, false, func(s *gateway.Server) {
		withPeople(t)(s)
		withDomain(t)(s)
	})
	r.repo(t, "team/app")
	for _, way := range r.Table() {
		key := way.Method + " " + way.Pattern
		want := expected[key]
		method := way.Method
		if method == "" {
			method = "GET"
		}
		if key == "GET /{$}" {
			continue // the host of a workspace leads elsewhere; see below
		}
		want.path = strings.Replace(want.path, "NAME", "run:subject/x", 1)
		for _, label := range []string{"app", "api", "ws-run-subject"} {
			_, p, text := r.askHost(t, label+".ramus.example.org", method, want.path, nil)
			if served := !isElsewhere(p); served != slices.Contains(hostsOf(key, want), label) {
				t.Errorf("%s at %s is served: %t: %.200s", key, label, served, text)
			}
		}
		for _, host := range []string{"ramus.example.org", "www.ramus.example.org", "127.0.0.1", "[::1]:443",
			"evil.example",
			"app.ramus.example.org:8080", "app.ramus.example.org.evil.example", "ws-otter.ramus.example.org"} {
			header := http.Header{"X-Forwarded-Host": {"app.ramus.example.org"},
				"Forwarded": {"host=app.ramus.example.org"}}
			resp, p, text := r.askHost(t, host, method, want.path, header)
			if !isElsewhere(p) || resp.Header.Get("Set-Cookie") != "" || resp.Header.Get("Location") != "" {
				t.Errorf("%s at %s: %d %v %.200s", key, host, resp.StatusCode, resp.Header, text)
			}
			if strings.Contains(text, "ramus.example.org") && !strings.Contains(host, "ramus.example.org") {
				t.Errorf("%s at %s names the domain: %.200s", key, host, text)
			}
		}
		if resp, _, text := r.askHost(t, "content.ramus.example.org", method, want.path, nil); resp.StatusCode != 404 &&
			!strings.HasPrefix(want.path, "/trace/") && !strings.HasPrefix(want.path, "/evidence/") {
			t.Errorf("%s at the host of content: %d %.200s", key, resp.StatusCode, text)
		}
	}
}

// TestHostOfWorkspace checks that the host of a workspace has this workspace alone, and leads people to its page.
func TestHostOfWorkspace(t *testing.T) {
	t.Parallel()
	r := open(t, false, func(s *gateway.Server) {
		withPeople(t)(s)
		withDomain(t)(s)
	})
	r.repo(t, "app")
	for _, id := range []string{"otter", "badger"} {
		c, err := record.RunCaller(id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.local.Submit(t.Context(),
			record.Request{Caller: c, Repo: "app", Command: &record.Command{Shell: "true"}}); err != nil {
			t.Fatal(err)
		}
	}
	token := http.Header{"Authorization": {"Bearer " + r.token(t, gitd.Grant{Subject: "ada", Repo: "*",
		Scopes: []string{"write"}, Write: []string{"refs/heads/*"}})}, "X-Ramus-Workspace-Id": {"run-badger"}}
	const own = "ws-run-otter.ramus.example.org"
	for _, x := range []struct {
		host, path string
		header     http.Header
		status     int
		to         string
	}{
		{own, "/", nil, 303, "https://app.ramus.example.org/workspaces/run-otter"},
		{strings.ToUpper(own) + ".:443", "/", nil, 303, "https://app.ramus.example.org/workspaces/run-otter"},
		{"ws-run-nobody.ramus.example.org", "/", nil, 303, "https://app.ramus.example.org/workspaces/run-nobody"},
		{own, "/api/workspaces/run-otter", token, 200, ""},
		{own, "/api/callers/run:otter", token, 200, ""},
		{own, "/api/workspaces/run-otter", nil, 401, ""},
		{own, "/api/workspaces/run-badger", token, 404, ""},
		{own, "/api/callers/run:badger", token, 404, ""},
		{own, "/api/callers/otter", token, 404, ""}, // a part of a name could mean another one
		{own, "/api/callers/ramus%2Frun-otter", token, 404, ""},
		{own, "/api/workspaces", token, 404, ""},
		{own, "/api/runs", token, 404, ""},
		{own, "/workspaces/run-otter", token, 404, ""},
		{own, "/app.git/info/refs?service=git-upload-pack", token, 404, ""},
		{"ws-run-nobody.ramus.example.org", "/api/workspaces/run-nobody", token, 404, ""},
		{"api.ramus.example.org", "/api/workspaces/run-badger", token, 200, ""},
		{"api.ramus.example.org", "/", token, 404, ""},
		// Another method is refused as such at each host.
		{"app.ramus.example.org", "/auth/out", nil, 405, ""},
		{"api.ramus.example.org", "/api/callers/run:otter/ports/80/connect", token, 405, ""},
		{own, "/api/callers/run:otter/ports/80/connect", token, 405, ""},
	} {
		resp, _, text := r.askHost(t, x.host, "GET", x.path, x.header)
		if resp.StatusCode != x.status || resp.Header.Get("Location") != x.to {
			t.Errorf("%s at %s: %d to %q: %s", x.path, x.host, resp.StatusCode, resp.Header.Get("Location"), text)
		}
		want := ""
		if strings.EqualFold(x.host[:len("ws-run-otter")], "ws-run-otter") {
			want = "run-otter"
		}
		if got := resp.Header.Get(domain.WorkspaceHeader); want != "" && got != want {
			t.Errorf("%s at %s: the header has %q", x.path, x.host, got)
		}
	}

	// A problem at the host of programs is no page that needs files of the host of pages.
	for host, framed := range map[string]bool{"app": true, "api": false, "ws-run-otter": false, "www": false} {
		resp, _, text := r.askHost(t, host+".ramus.example.org", "GET", "/nowhere",
			http.Header{"Accept": {"text/html"}})
		if resp.StatusCode != 404 || strings.Contains(text, "/assets/") != framed {
			t.Errorf("%s: %d %.300s", host, resp.StatusCode, text)
		}
	}

	// Clone lines are at the host of programs.
	_, _, text := r.askHost(t, "api.ramus.example.org", "GET", "/api/repos/app", token)
	if !strings.Contains(text, `"https://api.ramus.example.org/app.git"`) {
		t.Errorf("the repository is at another host: %s", text)
	}
}

// TestCookiesOfHosts checks that a session is valid at the host of pages alone, and that a page of a sibling host, such
// as an application in a container, can do nothing with it.
func TestCookiesOfHosts(t *testing.T) {
	t.Parallel()
	r := open(t, false, func(s *gateway.Server) {
		withPeople(t)(s)
		withDomain(t)(s)
	})
	r.repo(t, "app")
	s, cookie, err := r.People.Sessions.Begin(r.person(t, "ada", route.RoleAdmin, nil), session.From{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(more ...string) http.Header {
		h := http.Header{"Cookie": {route.SessionCookie + "=" + cookie}}
		for i := 0; i+1 < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	const app = "app.ramus.example.org"
	const sibling = "https://ws-run-otter--8080.ramus.example.org"
	for _, x := range []struct {
		host, method, path string
		header             http.Header
		want               func(status int) bool
	}{
		{app, "GET", "/dashboard", signed(), func(s int) bool { return s == 200 }},
		{app + ".", "GET", "/dashboard", signed(), func(s int) bool { return s == 200 }},
		{app, "GET", "/dashboard", http.Header{"Cookie": {"ramus=" + cookie}}, func(s int) bool { return s == 303 }},
		{app, "GET", "/api/runs", signed(), func(s int) bool { return s == 404 }},
		{"api.ramus.example.org", "GET", "/api/runs", signed(), func(s int) bool { return s == 401 }},
		{"api.ramus.example.org", "GET", "/dashboard", signed(), func(s int) bool { return s == 404 }},
		{"ws-run-otter.ramus.example.org", "GET", "/dashboard", signed(), func(s int) bool { return s == 404 }},
		{"content.ramus.example.org", "GET", "/dashboard", signed(), func(s int) bool { return s == 404 }},
		{"ws-run-otter--8080.ramus.example.org", "GET", "/", signed(), func(s int) bool { return s == 403 }},
		// A form, and a connection, of each other origin.
		{app, "POST", "/auth/out/everywhere", signed("Origin", sibling), func(s int) bool { return s == 403 }},
		{app, "POST", "/auth/out/everywhere", signed("Origin", sibling, "Sec-Fetch-Site", "same-site"),
			func(s int) bool { return s == 403 }},
		{app, "POST", "/auth/out/everywhere", signed("Origin", "https://api.ramus.example.org"),
			func(s int) bool { return s == 403 }},
		{app, "POST", "/auth/out/everywhere", signed("Origin", "null"), func(s int) bool { return s == 403 }},
		{app, "POST", "/auth/out/everywhere", signed("Origin", "https://app.ramus.example.org:8443"),
			func(s int) bool { return s == 403 }},
		{app, "POST", "/auth/out/everywhere", signed(), func(s int) bool { return s == 403 }},
		{app, "GET", "/live", signed("Origin", sibling), func(s int) bool { return s == 403 }},
		{app, "GET", "/live", signed("Origin", "http://app.ramus.example.org"), func(s int) bool { return s == 403 }},
		{app, "GET", "/live", signed(), func(s int) bool { return s == 403 }},
		{app, "GET", "/live", signed("Origin", "https://app.ramus.example.org"), func(s int) bool {
			return s != 403 &&
				s != 404 && s < 500
		}},
		// A header that a client adds changes no address.
		{app, "GET", "/dashboard", http.Header{"X-Forwarded-Host": {"evil.example"}},
			func(s int) bool { return s == 303 }},
	} {
		resp, _, text := r.askHost(t, x.host, x.method, x.path, x.header)
		if !x.want(resp.StatusCode) || strings.Contains(resp.Header.Get("Location"), "evil") {
			t.Errorf("%s %s at %s with %v: %d to %q: %.200s", x.method, x.path, x.host, x.header, resp.StatusCode,
				resp.Header.Get("Location"), text)
		}
		for _, c := range resp.Cookies() {
			if c.Domain != "" || !strings.HasPrefix(c.Name, "__Host-") || !c.Secure || c.Path != "/" {
				t.Errorf("%s at %s sets %v", x.path, x.host, c)
			}
		}
	}
	if _, still := r.People.Sessions.Get(s.ID); !still {
		t.Error("another origin has ended the session")
	}
	resp, _, _ := r.askHost(t, app, "GET", "/dashboard", signed())
	if policy := resp.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") ||
		strings.Contains(policy, "ramus.example.org") {
		t.Errorf("the policy lets pages reach other hosts: %s", policy)
	}
}

// TestFormsLeaveNoFiles sends a form that is too large for the memory to the host of pages. Its temporary files end
// with the request.
func TestFormsLeaveNoFiles(t *testing.T) {
	r := open(t, false, func(s *gateway.Server) {
		withPeople(t)(s)
		withDomain(t)(s)
	})
	_, cookie, err := r.People.Sessions.Begin(r.person(t, "ada", route.RoleAdmin, nil), session.From{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("files", "large.txt")
	if err == nil {
		_, err = file.Write(bytes.Repeat([]byte("x"), 2<<20))
	}
	if err := errors.Join(err, form.WriteField("prompt", "Look"), form.Close()); err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	const app = "app.ramus.example.org"
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.web.URL+"/workspaces/run-nobody/say", &body)
	if err != nil {
		t.Fatal(err)
	}
	req.Host, req.Header = app, http.Header{"Content-Type": {form.FormDataContentType()}, "Origin": {"https://" + app},
		"Cookie": {route.SessionCookie + "=" + cookie}}
	resp, err := r.web.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 404 || !strings.Contains(string(text), "nobody") {
		t.Errorf("%d %s, %v", resp.StatusCode, text, err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestPreviewBelowDomain opens an application at its own host below the domain of the server.
func TestPreviewBelowDomain(t *testing.T) {
	t.Parallel()
	b := openViewer(t, "", func(s *gateway.Server) {
		// Without TLS, so that the jar of the test's browser sends the cookies.
		d, err := domain.Parse("http://ramus.localhost")
		if err != nil {
			t.Fatal(err)
		}
		s.Domain, s.URL, s.Content, s.Preview = d, d.Pages(), d.Content(), preview.OfDomain(d)
	})
	resp, seen := b.do("GET", b.link(5173), nil, "")
	if at := resp.Request.URL.String(); resp.StatusCode != 200 || at != "http://ws-run-subject--5173.ramus.localhost/" {
		t.Fatalf("%d at %s", resp.StatusCode, at)
	}
	for name, want := range map[string]string{"X-Ramus-Workspace-Id": "run-subject", "X-Ramus-Node-Id": "local",
		"X-Forwarded-Host": "ws-run-subject--5173.ramus.localhost"} {
		if got := seen.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	resp, seen = b.do("GET", "http://ws-run-subject--5173.ramus.localhost/",
		http.Header{"X-Ramus-Workspace-Id": {"run-other"},
			"X_Ramus_Workspace_Id": {"run-other"}, "X-Ramus_Node-ID": {"other"}, "Cookie": {"__Host-ramus=x; ramus=y"}}, "")
	for name, values := range seen.Header {
		if own := strings.Contains(strings.ToLower(name), "ramus"); own &&
			(strings.Contains(name, "_") || len(values) != 1) {
			t.Errorf("the application gets %s: %q", name, values)
		}
	}
	if resp.StatusCode != 200 || seen.Header.Get("X-Ramus-Workspace-Id") != "run-subject" ||
		strings.Contains(seen.Header.Get("Cookie"), "ramus") {
		t.Errorf("%d %v", resp.StatusCode, seen.Header)
	}
	for _, host := range []string{"ws-run-subject--5174", "ws-run-other--5173", "ws-run-subject", "app"} {
		if resp, _ := b.do("GET", "http://"+host+".ramus.localhost/to/?to=x", nil, ""); resp.StatusCode != 403 &&
			resp.StatusCode != 404 {
			t.Errorf("%s: %d", host, resp.StatusCode)
		}
	}
}
