package gateway_test

import (
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/audit"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/session"
	"github.com/ramus-dev/ramus/gateway/share"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/gitd"
)

// withPeople returns a change that lets people sign in to the server.
func withPeople(t *testing.T) func(*gateway.Server) {
	return func(s *gateway.Server) {
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		db, _, err := session.OpenFile(filepath.Join(s.Executor.Data, "web.db"))
		if err != nil {
			t.Fatal(err)
		}
		db.NoSync = true // no power is cut here
		bot := gitd.Person{Name: "ramus", Email: "ramus@localhost"}
		s.Accounts = &account.Store{Rules: account.Rules{Default: route.RoleViewer},
			Options: people.Options{Git: s.Git, Committer: bot, Log: log}}
		sessions := &session.Store{DB: db}
		actions := &audit.Log{Git: s.Git, Author: bot, Log: log}
		if err := s.Accounts.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := sessions.Open(); err != nil {
			t.Fatal(err)
		}
		actions.Open()
		s.Shares = &share.Store{Options: s.Accounts.Options}
		if err := s.Shares.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.People = &signin.People{Accounts: s.Accounts, Sessions: sessions, Actions: actions, Log: log, Now: time.Now}
		s.Accounts.Changed = s.People.Changed
		t.Cleanup(func() { db.Close() })
	}
}

// person makes an account with roles.
func (r *rooms) person(t *testing.T, login string, role route.Role, repos map[string]route.Role) string {
	t.Helper()
	id := account.Identity{Provider: account.ProviderOIDC, Subject: login, Login: login, Name: login,
		Email: login + "@example.org"}
	p, err := r.Accounts.SignIn(t.Context(), id)
	if err == nil {
		p, err = r.Accounts.Apply(t.Context(), p.ID, account.Change{Role: &role, Repos: repos},
			gitd.Person{Name: "A", Email: "a@example.org"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p.ID
}

// signed is a kind of browser.
type signed struct {
	name  string
	id    string // of the account; "" for nobody
	ended bool   // the session has ended
	admin bool
	other bool // has a role only in another repository

	session, cookie string
}

// TestSessions tries every route as a browser of every kind, with and without the page of another origin. A cookie opens
// pages, and changes nothing on all other routes.
func TestSessions(t *testing.T) {
	t.Parallel()
	r := open(t, false, withPeople(t))
	r.repo(t, "team/app")
	r.repo(t, "other")
	kinds := []*signed{
		{name: "nobody"}, {name: "viewer", id: r.person(t, "viewer", route.RoleViewer, nil)},
		{name: "member", id: r.person(t, "member", route.RoleMember, nil)},
		{name: "other repository",
			id: r.person(t, "other", route.RoleNone, map[string]route.Role{"other": route.RoleAdmin}), other: true},
		{name: "admin", id: r.person(t, "admin", route.RoleAdmin, nil), admin: true},
		{name: "ended", id: r.person(t, "ended", route.RoleAdmin, nil), ended: true},
		{name: "without a role", id: r.person(t, "out", route.RoleNone, nil), ended: true},
		{name: "garbage", cookie: strings.Repeat("A", 64)},
	}
	owner, err := r.Accounts.SignIn(t.Context(),
		account.Identity{Provider: account.ProviderOwner, Subject: "0", Login: "owner"})
	if err != nil {
		t.Fatal(err)
	}
	kinds = append(kinds, &signed{name: "owner", id: owner.ID, admin: true})
	for _, row := range r.Table() {
		key := row.Method + " " + row.Pattern
		want := expected[key]
		method := row.Method
		if method == "" {
			method = "GET"
		}
		nobody := map[string]int{}
		for _, origin := range []string{"", r.web.URL, "http://evil.example"} {
			for _, k := range kinds {
				status, to := r.browse(t, k, method, want.path, want.body, origin)
				what := key + ", " + k.name + ", origin " + origin
				if row.Access != route.AccessPage && row.Access != route.AccessSocket {
					if k.name == "nobody" {
						nobody[origin] = status
					}
					if in := key == "GET /auth" && k.id != "" && !k.ended; in != (status == 303) &&
						key == "GET /auth" || status != nobody[origin] && key != "GET /auth" {
						t.Errorf("%s: status %d, nobody gets %d: a cookie opens pages alone", what, status, nobody[origin])
					}
					continue
				}
				if expect := pageStatus(row, want, k, origin, r.web.URL); !expect(status, to) {
					t.Errorf("%s: status %d to %q", what, status, to)
				}
			}
		}
	}
}

// pageStatus returns the check of the answer of a page or socket.
func pageStatus(row route.Route, want row, k *signed, origin, own string) func(status int, to string) bool {
	is := func(expected int) func(int, string) bool {
		return func(status int, _ string) bool { return status == expected }
	}
	in := k.id != "" && !k.ended
	read := row.Method == "GET" && row.Access == route.AccessPage
	switch {
	case row.Access == route.AccessSocket && origin != own, !read && origin != "" && origin != own,
		!read && origin == "" && (k.id != "" || k.cookie != ""):
		return is(403)
	case !in && read:
		return func(status int, to string) bool { return status == 303 && strings.HasPrefix(to, "/auth?to=") }
	case !in:
		return is(401)
	case want.of == "admin" && !k.admin:
		return is(403)
	case want.of == "repo" && k.other:
		return is(404)
	}
	if want.of == "form" { // TestStrangers of package web tests what a form does
		return func(status int, to string) bool {
			return status != 401 && status < 500 && !strings.HasPrefix(to, "/auth?to=")
		}
	}
	return func(status int, to string) bool {
		return status != 401 && status != 403 && status < 500 && !strings.HasPrefix(to, "/auth?to=")
	}
}

// browse sends a request of a browser. A kind of browser that is signed in has a session again, if it was ended.
func (r *rooms) browse(t *testing.T, k *signed, method, path, body, origin string) (status int, to string) {
	t.Helper()
	if _, still := r.People.Sessions.Get(k.session); k.id != "" && !still && (!k.ended || k.session == "") {
		s, cookie, err := r.People.Sessions.Begin(k.id, session.From{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		k.session, k.cookie = s.ID, cookie
		if k.name == "ended" {
			if err := r.People.Sessions.End(s.ID, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, r.web.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if k.cookie != "" {
		req.AddCookie(&http.Cookie{Name: route.SessionCookieLoopback, Value: k.cookie})
		req.AddCookie(&http.Cookie{Name: route.SessionCookie, Value: k.cookie})
	}
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	c := &http.Client{Transport: r.web.Client().Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Location")
}
