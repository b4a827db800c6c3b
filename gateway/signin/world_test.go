package signin_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/audit"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/session"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/clocktest"
	"github.com/ramus-dev/ramus/internal/loopback"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

// world is a server that people sign in to, with a stand-in of GitHub and a clock that tests set.
type world struct {
	t      *testing.T
	hub    *githubtest.Server
	people *signin.People
	web    *httptest.Server
	local  http.Handler // the unix socket
	clock  *clocktest.Clock
}

// ask is a route of each class that cookies open.
func ask(c *route.Call) error { return c.Reply(c.Who.Account.Login) }

func openWorld(t *testing.T, rules account.Rules, change func(*world, *signin.API)) *world {
	t.Helper()
	w := &world{t: t, clock: clocktest.At(time.Now())}
	w.hub = githubtest.New(t, func(s *githubtest.Server) { s.Addr = loopback.Address(t) })
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	dir := t.TempDir()
	git := &gitd.Server{Root: filepath.Join(dir, "repos"), KeyFile: filepath.Join(dir, "key.pem"), Log: log}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { git.Close() })
	db, _, err := session.OpenFile(filepath.Join(dir, "web.db"))
	if err != nil {
		t.Fatal(err)
	}
	db.NoSync = true // no power is cut here
	t.Cleanup(func() { db.Close() })
	bot := gitd.Person{Name: "ramus", Email: "ramus@localhost"}
	accounts := &account.Store{Rules: rules,
		Options: people.Options{Git: git, Committer: bot, Now: w.clock.Now, Log: log}}
	sessions := &session.Store{DB: db, Now: w.clock.Now}
	actions := &audit.Log{Git: git, Author: bot, Now: w.clock.Now, Log: log}
	for _, err := range []error{accounts.Open(t.Context()), sessions.Open()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	actions.Open()
	t.Cleanup(func() { actions.Close() })
	w.people = &signin.People{Accounts: accounts, Sessions: sessions, Actions: actions,
		Owner: gitd.Person{Name: "Owner", Email: "owner@example.org"}, Log: log, Now: w.clock.Now}
	accounts.Changed = w.people.Changed
	api := signin.API{Git: git, People: w.people, Web: new(web.API), Accounts: accounts, Loopback: "http://127.0.0.1:1",
		Log: log, Now: w.clock.Now,
		GitHub: &signin.GitHub{Users: []string{"reviewer"}, Scopes: []string{"read"}, Life: time.Hour,
			Client: &github.SignIn{URL: w.hub.URL(), API: w.hub.API(),
				ClientID: githubtest.ClientID, ClientSecret: githubtest.ClientSecret,
				HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Log: log}}}
	if change != nil {
		change(w, &api)
	}
	mux := &route.Mux{Verify: git.Verify, Log: log, Now: w.clock.Now, Account: w.people.Account, Again: w.people.Again,
		Ended: w.people.Ended, Audit: w.people.Audit}
	table := append(signin.NewAPI(api).Routes(),
		route.Route{Method: "GET", Pattern: "/page", Access: route.AccessPage, Handle: ask},
		route.Route{Method: "GET", Pattern: "/socket", Access: route.AccessSocket, Handle: wait},
	)
	for _, row := range api.Web.Routes() {
		if strings.HasPrefix(row.Pattern, "/assets/") {
			table = append(table, row)
		}
	}
	w.web = httptest.NewServer(mux.Handler(table, nil))
	t.Cleanup(w.web.Close)
	w.local = mux.Handler(table, &route.Local)
	return w
}

// wait answers, and goes on until the session of the call has ended.
func wait(c *route.Call) error {
	s := c.BeginStream(route.MediaText)
	if err := s.Write([]byte("open\n")); err != nil {
		return err
	}
	<-c.R.Context().Done()
	return s.Write([]byte("ended\n"))
}

// actions returns the log of actions, the oldest first, without its times.
func (w *world) actions() string {
	w.t.Helper()
	list, err := w.people.Actions.Read(w.t.Context(), 100)
	if err != nil {
		w.t.Fatal(err)
	}
	var lines []string
	for _, e := range list {
		lines = append([]string{e.Who + " " + e.Action + " " + e.Result}, lines...)
	}
	return strings.Join(lines, "\n")
}

// atSocket sends a request by the unix socket.
func (w *world) atSocket(method, path, body string) (int, string) {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, "http://ramus"+path, strings.NewReader(body))
	a := httptest.NewRecorder()
	w.local.ServeHTTP(a, r)
	return a.Code, a.Body.String()
}

// link returns the path and query of a new owner's link.
func (w *world) link() string {
	l, _ := w.people.OwnerLink(w.web.URL, "")
	return strings.TrimPrefix(l, w.web.URL)
}

// browser keeps cookies and does not follow redirects.
type browser struct {
	t    *testing.T
	w    *world
	http *http.Client
}

func (w *world) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return &browser{w.t, w, &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// seen is an answer.
type seen struct {
	status int
	to     string // of a redirect
	body   string
	header http.Header
}

// do sends a request as a browser does. at is a path of the server, or a URL. A form is sent by POST.
func (b *browser) do(at string, form url.Values, header ...string) seen {
	b.t.Helper()
	if strings.HasPrefix(at, "/") {
		at = b.w.web.URL + at
	}
	method, body := "GET", io.Reader(nil)
	if form != nil {
		method, body = "POST", strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, at, body)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", b.w.web.URL)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return seen{resp.StatusCode, strings.TrimPrefix(resp.Header.Get("Location"), b.w.web.URL), string(text), resp.Header}
}

// want checks an answer.
func (b *browser) want(what string, s seen, status int, part string) {
	b.t.Helper()
	if s.status != status || !strings.Contains(s.body+s.to, part) {
		_, text, _ := strings.Cut(s.body, "</head>") // the rest is style
		b.t.Errorf("%s: %d to %q, want %d with %q: %s", what, s.status, s.to, status, part, text)
	}
}

// hub signs in by GitHub, from the beginning at a path, and returns the last answer.
func (b *browser) hub(from, login string) seen {
	b.t.Helper()
	s := b.do(from, nil)
	s = b.do(s.to+"&login="+login, nil)
	return b.do(s.to, nil)
}

// cookie returns the session's cookie.
func (b *browser) cookie() string {
	u, _ := url.Parse(b.w.web.URL)
	for _, k := range b.http.Jar.Cookies(u) {
		if k.Name == route.SessionCookieLoopback {
			return k.Value
		}
	}
	return ""
}

// setCookie sets the session's cookie.
func (b *browser) setCookie(value string) {
	u, _ := url.Parse(b.w.web.URL)
	b.http.Jar.SetCookies(u, []*http.Cookie{{Name: route.SessionCookieLoopback, Value: value, Path: "/"}})
}
