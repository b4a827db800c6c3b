package route

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

func TestRoles(t *testing.T) {
	order := []Role{RoleNone, RoleViewer, RoleMember, RoleAdmin}
	for i, a := range order {
		for j, b := range order {
			if a.Includes(b) != (i >= j) {
				t.Errorf("%s includes %s: %t", a, b, a.Includes(b))
			}
		}
		if got, ok := ParseRole(a.String()); !ok || got != a {
			t.Errorf("%s is parsed as %q, %t", a, got, ok)
		}
	}
	if _, ok := ParseRole("owner"); ok || Role("owner").Includes(RoleViewer) {
		t.Error("an unknown role is taken")
	}
}

// TestAccount tries every role, on the server and in one repository, on every decision of a Who.
func TestAccount(t *testing.T) {
	type may struct{ sees, changes bool }
	of := map[Role]may{RoleNone: {}, RoleViewer: {sees: true}, RoleMember: {true, true}, RoleAdmin: {true, true}}
	for _, role := range append(Roles(), RoleNone) {
		for _, in := range append(Roles(), RoleNone) {
			w := NewWho(Account{ID: "github:1", Login: "ada", Name: "Ada", Email: "ada@example.org", Role: role,
				Repos: map[string]Role{"app": in}})
			best := role
			if in.Includes(role) {
				best = in
			}
			for repo, want := range map[string]may{"app": of[best], "other": of[role], "": {}} {
				if got := w.Sees(repo); got != want.sees {
					t.Errorf("%s, %s in app: sees %q: %t", role, in, repo, got)
				}
				if got := w.SeesBranch(repo, "ramus/run-x"); got != want.sees {
					t.Errorf("%s, %s in app: sees a branch of %q: %t", role, in, repo, got)
				}
				if got := w.CheckChange(repo, "main") == nil; got != want.changes {
					t.Errorf("%s, %s in app: changes %q: %t", role, in, repo, got)
				}
			}
			for a, want := range map[Access]bool{AccessPage: true, AccessSocket: true, AccessRead: of[best].sees,
				AccessSigned: of[best].sees,
				AccessWrite:  of[best].changes, AccessAdmin: role == RoleAdmin, AccessMetrics: role == RoleAdmin,
				"": false} {
				if w.May(a) != want {
					t.Errorf("%s, %s in app: may %q: %t", role, in, a, w.May(a))
				}
			}
			if w.Admin() != (role == RoleAdmin) || w.SeesAll() != of[role].sees || w.ReadsAll() != of[best].sees ||
				w.RoleIn("app") != best || w.RoleIn("other") != role {
				t.Errorf("%s, %s in app: admin %t, all %t %t, roles %s %s", role, in, w.Admin(), w.SeesAll(),
					w.ReadsAll(), w.RoleIn("app"), w.RoleIn("other"))
			}
			if p := w.Person(gitd.Person{Name: "Somebody Else", Email: "else@example.org"}); p.Name != "Ada" {
				t.Errorf("%s acts as %s", role, p.Name)
			}
			if w.GrantIn("app").MayWriteRef("app", "refs/ramus/runs/x") || w.CheckChange("app", "x") == nil && w.GrantIn("app").Force {
				t.Errorf("%s changes the records of ramus", role)
			}
		}
	}
}

func TestRoleOfTokens(t *testing.T) {
	for _, x := range []struct {
		who  Who
		role Role
	}{
		{Who{}, RoleNone}, {Local, RoleAdmin}, {Who{Subject: "a", Repo: "app", Scopes: []string{"read"}}, RoleViewer},
		{Who{Subject: "a", Repo: "app", Scopes: []string{"admin"}}, RoleMember},
		{Who{Subject: "a", Repo: "*", Scopes: []string{"admin"}}, RoleAdmin},
		{Who{Subject: "a", Repo: "other", Scopes: []string{"write"}}, RoleNone},
		{Who{Subject: "a", Repo: "*", Scopes: []string{"metrics"}}, RoleNone},
	} {
		if got := x.who.RoleIn("app"); got != x.role {
			t.Errorf("%+v: %s, want %s", x.who, got, x.role)
		}
		if x.who.May(AccessPage) || x.who.May(AccessSocket) {
			t.Errorf("%+v may open pages", x.who)
		}
	}
}

func TestOwnPath(t *testing.T) {
	for _, to := range []string{"/", "/dashboard", "/workspaces/x?a=b&c=%2F", "/a#b", "/repos/team%2Fapp", "/x?to=https://evil.example"} {
		if got := OwnPath(to); got != to {
			t.Errorf("%q became %q", to, got)
		}
	}
	for _, to := range []string{"", "x", "//evil.example", "/\\evil.example", "\\\\evil.example",
		"https://evil.example/", "/\t/evil.example", "/ /x", "/%5cevil.example",
		"/%2Fevil.example", "/a/../../x", "/./x", "javascript:alert(1)", "/\n", "/x\x00",
		"/" + strings.Repeat("x", 3000), "///evil.example", "/%zz"} {
		if got := OwnPath(to); got != "/" {
			t.Errorf("%q leads to %q", to, got)
		}
	}
}

func FuzzOwnPath(f *testing.F) {
	f.Add("/dashboard?x=y")
	f.Add("/%2f/evil.example")
	f.Add("//evil.example")
	f.Add("/\\evil.example")
	base := "https://ramus.example.org/auth"
	f.Fuzz(func(t *testing.T, to string) {
		r := httptest.NewRequest("GET", base, nil)
		u, err := r.URL.Parse(OwnPath(to))
		if err != nil || u.Host != "ramus.example.org" || u.Scheme != "https" || strings.HasPrefix(u.Path, "//") {
			t.Errorf("%q leads to %v, %v", to, u, err)
		}
	})
}

// signedIn answers as a session store with one session, whose cookie is "good".
func signedIn(c *Call) (Who, error) {
	if k, err := c.R.Cookie(SessionCookieLoopback); err == nil && k.Value == "good" {
		return NewWho(Account{ID: "github:1", Login: "ada", Role: RoleMember, Session: "s",
			Recent: time.Now().Add(-time.Hour)}), nil
	}
	return Who{}, nil
}

func TestSessionRoutes(t *testing.T) {
	m := &Mux{Account: signedIn, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Verify: func(string) (gitd.Grant, error) {
			return gitd.Grant{Subject: "admin", Repo: "*", Scopes: []string{"admin"}}, nil
		}}
	ok := func(c *Call) error { return c.Reply("in") }
	table := []Route{
		{Method: "GET", Pattern: "/page", Access: AccessPage, Handle: ok},
		{Method: "POST", Pattern: "/page", Access: AccessPage, Handle: ok},
		{Method: "GET", Pattern: "/socket", Access: AccessSocket, Handle: ok},
		{Method: "GET", Pattern: "/api", Access: AccessRead, Handle: ok},
		{Method: "GET", Pattern: "/repos/{repo}", Access: AccessPage, Handle: ok},
		{Method: "GET", Pattern: "/recent", Access: AccessPage, Handle: func(c *Call) error { return c.CheckRecent() }},
		{Method: "POST", Pattern: "/recent", Access: AccessPage, Handle: func(c *Call) error { return c.CheckRecent() }},
	}
	h := m.Handler(table, nil)
	const own, other = "http://127.0.0.1:8080", "http://127.0.0.1:9090"
	for _, x := range []struct {
		what, method, path, cookie string
		header                     map[string]string
		status                     int
		to                         string
	}{
		{"a session", "GET", "/page", "good", nil, 200, ""},
		{"nobody", "GET", "/page?a=b", "", nil, 303, "/auth?to=%2Fpage%3Fa%3Db"},
		{"a made-up cookie", "GET", "/page", "bad", nil, 303, "/auth?to=%2Fpage"},
		{"a token", "GET", "/page", "", map[string]string{"Authorization": "Bearer x"}, 303, "/auth?to=%2Fpage"},
		{"nobody's HEAD", "HEAD", "/page", "", nil, 303, "/auth?to=%2Fpage"},
		{"nobody's form", "POST", "/page", "", map[string]string{"Origin": own}, 401, ""},
		{"a form of our own", "POST", "/page", "good", map[string]string{"Origin": own}, 200, ""},
		{"a form of our own", "POST", "/page", "good", map[string]string{"Sec-Fetch-Site": "same-origin"}, 200, ""},
		{"a form of nowhere", "POST", "/page", "good", nil, 403, ""},
		{"a form of another port", "POST", "/page", "good", map[string]string{"Origin": other}, 403, ""},
		{"a form of another site", "POST", "/page", "good",
			map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": own}, 403, ""},
		{"a form of a sibling", "POST", "/page", "good", map[string]string{"Sec-Fetch-Site": "same-site"}, 403, ""},
		{"a form of an opaque origin", "POST", "/page", "good", map[string]string{"Origin": "null"}, 403, ""},
		{"a link from elsewhere", "GET", "/page", "good", map[string]string{"Sec-Fetch-Site": "cross-site"}, 200, ""},
		{"our own socket", "GET", "/socket", "good", map[string]string{"Origin": own}, 200, ""},
		{"a socket of another port", "GET", "/socket", "good", map[string]string{"Origin": other}, 403, ""},
		{"a socket without an origin", "GET", "/socket", "good", nil, 403, ""},
		{"a socket of nobody", "GET", "/socket", "", map[string]string{"Origin": own}, 401, ""},
		{"a socket by a token", "GET", "/socket", "",
			map[string]string{"Origin": own, "Authorization": "Bearer x"}, 401, ""},
		{"a cookie at the API", "GET", "/api", "good", nil, 401, ""},
		{"a repository", "GET", "/repos/app", "good", nil, 200, ""},
		{"an old sign-in", "GET", "/recent", "good", nil, 303, "/auth?again=1&to=%2Frecent"},
		{"an old sign-in's form", "POST", "/recent", "good", map[string]string{"Origin": own}, 403, ""},
	} {
		r := httptest.NewRequest(x.method, own+x.path, nil)
		for k, v := range x.header {
			r.Header.Set(k, v)
		}
		if x.cookie != "" {
			r.AddCookie(&http.Cookie{Name: SessionCookieLoopback, Value: x.cookie})
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body, _ := io.ReadAll(w.Body)
		if w.Code != x.status || w.Header().Get("Location") != x.to {
			t.Errorf("%s: %d %q, want %d %q: %s", x.what, w.Code, w.Header().Get("Location"), x.status, x.to, body)
		}
	}
}

// TestSocketsEndWithTheirSession ends a session under the handler of a socket.
func TestSocketsEndWithTheirSession(t *testing.T) {
	ended, stopped := make(chan struct{}), make(chan struct{})
	m := &Mux{Account: signedIn, Ended: func(w Who) (<-chan struct{}, func()) {
		if w.Account.Session != "s" {
			t.Errorf("watches %q", w.Account.Session)
		}
		return ended, func() { close(stopped) }
	}}
	h := m.Serve(Route{Method: "GET", Pattern: "/", Access: AccessSocket, Handle: func(c *Call) error {
		close(ended)
		<-c.R.Context().Done()
		return context.Cause(c.R.Context())
	}}, nil)
	r := httptest.NewRequest("GET", "http://127.0.0.1:8080/", nil)
	r.Header.Set("Origin", "http://127.0.0.1:8080")
	r.AddCookie(&http.Cookie{Name: SessionCookieLoopback, Value: "good"})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	<-stopped
	if w.Code != 401 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestRequestsEndWithTheirToken revokes a token under the handler of a stream.
func TestRequestsEndWithTheirToken(t *testing.T) {
	ended, stopped := make(chan struct{}), make(chan struct{})
	m := &Mux{Verify: func(string) (gitd.Grant, error) {
		return gitd.Grant{ID: "x", Subject: "ada", Repo: "*", Scopes: []string{"read"}}, nil
	}, Ended: func(w Who) (<-chan struct{}, func()) {
		if w.Token != "x" {
			t.Errorf("watches the token %q", w.Token)
		}
		return ended, func() { close(stopped) }
	}}
	h := m.Serve(Route{Method: "GET", Pattern: "/", Access: AccessRead, Handle: func(c *Call) error {
		close(ended)
		<-c.R.Context().Done()
		return context.Cause(c.R.Context())
	}}, nil)
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer x")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	<-stopped
	if w.Code != 401 || !strings.Contains(w.Body.String(), "revoked") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestSeveralRepositories tries the role in an additional repository on the decisions about a run there.
func TestSeveralRepositories(t *testing.T) {
	run := record.Run{Repo: "app", Base: "main", Branch: "ramus/run-pair",
		With: []record.Addition{{Repo: "lib", Base: "main"}}}
	st := executor.CallerStatus{Repo: "app", Branch: run.Branch, With: []string{"lib"}}
	for _, in := range append(Roles(), RoleNone) {
		w := NewWho(Account{ID: "github:1", Login: "ada", Repos: map[string]Role{"app": RoleMember, "lib": in}})
		sees, changes := in.Includes(RoleViewer), in.Includes(RoleMember)
		if w.SeesRun(run) != sees || w.SeesCaller(st) != sees {
			t.Errorf("%q in lib: sees the run %t, the caller %t", in, w.SeesRun(run), w.SeesCaller(st))
		}
		if (w.CheckRun(run, "") == nil) != changes || (w.CheckRun(run, "main") == nil) != changes ||
			(w.CheckChangeRun(run) == nil) != changes || (w.CheckChangeCaller(st) == nil) != changes {
			t.Errorf("%q in lib: %v, %v", in, w.CheckRun(run, ""), w.CheckChangeRun(run))
		}
	}
}
