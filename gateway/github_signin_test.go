package gateway_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/goroutines"
	"github.com/ramus-dev/ramus/internal/loopback"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

// browser keeps cookies and does not follow redirects by itself.
type browser struct {
	t    *testing.T
	http *http.Client
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	// The rooms count goroutines when they close, so connections must not be kept.
	return &browser{t, &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// get opens a page. accept is text/html by default.
func (b *browser) get(at string, accept ...string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), "GET", at, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header["Accept"] = append(accept, "text/html")[:1]
	resp, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(body)
}

// callback signs in at GitHub as a user and returns the address to which GitHub redirects.
func (b *browser) callback(at, login string) string {
	b.t.Helper()
	resp, body := b.get(at + "/auth/github")
	if resp.StatusCode != http.StatusFound {
		b.t.Fatalf("status %d: %s", resp.StatusCode, body)
	}
	resp, body = b.get(resp.Header.Get("Location") + "&login=" + login)
	if resp.StatusCode != http.StatusFound {
		b.t.Fatalf("GitHub says %d: %s", resp.StatusCode, body)
	}
	return resp.Header.Get("Location")
}

// openSignIn opens rooms where the user "reviewer", or every member of an organization, may sign in.
func openSignIn(t *testing.T, change func(*signin.GitHub)) (*githubtest.Server, *rooms) {
	t.Helper()
	goroutines.Watch(t) // before the stand-in, which ends later
	hub := githubtest.New(t,
		func(s *githubtest.Server) { s.Addr = loopback.Address(t) }) // a fixed address, so that the server can start again
	s := &signin.GitHub{Users: []string{"Reviewer"}, Scopes: []string{"read", "write"}, Life: time.Hour,
		Client: &github.SignIn{URL: hub.URL(), API: hub.API(),
			ClientID: githubtest.ClientID, ClientSecret: githubtest.ClientSecret, HTTP: newBrowser(t).http,
			Log: slog.New(slog.NewTextHandler(t.Output(), nil))}}
	if change != nil {
		change(s)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return hub, open(t, false, func(g *gateway.Server) { g.SignIn = s })
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	hub, r := openSignIn(t, nil)
	r.repo(t, "team/app")
	b := newBrowser(t)
	resp, body := b.get(b.callback(r.web.URL, "reviewer"), "application/json")
	var token signin.Token
	if err := json.Unmarshal([]byte(body), &token); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.StatusCode, body, err)
	}
	id := token.Grant.Person.ID
	if number, ok := strings.CutPrefix(id, "github:"); !ok || number == "" || strings.Trim(number, "0123456789") != "" {
		t.Errorf("the token is for %q, want the number of the person", id)
	}
	if g := token.Grant; g.Subject != id || g.Repo != "*" ||
		!slices.Equal(g.Write, []string{"refs/heads/*", "refs/tags/*"}) || time.Until(g.Expires) > time.Hour {
		t.Errorf("%+v", g)
	}
	var who route.Who
	if status, body := r.ask(t, false, token.Token, "GET", "/api/whoami", ""); status != 200 || json.Unmarshal([]byte(body), &who) != nil {
		t.Fatal(status, body)
	}
	if p := who.Person(gitd.Person{Name: "somebody else"}); p != (gitd.Person{Name: "reviewer",
		Email: "reviewer@example.org", ID: id}) {
		t.Errorf("acts as %+v", p)
	}
	if status, body := r.ask(t, false, token.Token, "POST", "/api/runs", `{"repo":"team/app","command":{"shell":"true"}}`); status != 201 {
		t.Error(status, body)
	} else {
		var run record.Run
		if err := json.Unmarshal([]byte(body), &run); err != nil || run.Asker.Email != "reviewer@example.org" {
			t.Errorf("%+v, %v", run.Asker, err)
		}
	}
	// No token of GitHub remains valid, and no cookie remains.
	for _, text := range hub.Tokens() {
		t.Errorf("a token of GitHub's is good still: %.4s…", text)
	}
	at, _ := url.Parse(r.web.URL)
	if left := b.http.Jar.Cookies(at); len(left) > 0 {
		t.Errorf("cookies are left: %v", left)
	}
	// As a page, which must not be cached.
	resp, body = b.get(b.callback(r.web.URL, "reviewer"))
	if resp.StatusCode != 200 || !strings.Contains(body, "RAMUS_TOKEN=ey") ||
		resp.Header.Get("Cache-Control") != "no-store" ||
		!strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") ||
		resp.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("status %d, %v\n%s", resp.StatusCode, resp.Header, body)
	}
}

func TestSignInRefused(t *testing.T) {
	t.Parallel()
	hub, r := openSignIn(t, nil)
	want := func(what string, b *browser, at string, status int) {
		t.Helper()
		resp, body := b.get(at)
		if resp.StatusCode != status || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") ||
			strings.Contains(body, "RAMUS_TOKEN") != (status == 200) {
			t.Errorf("%s: status %d, want %d: %s", what, resp.StatusCode, status, body)
		}
	}
	b := newBrowser(t)
	want("not let in", b, b.callback(r.web.URL, "visitor"), 403)
	at := b.callback(r.web.URL, "reviewer")
	want("another browser", newBrowser(t), at, 400)
	b.callback(r.web.URL, "reviewer") // begins a new attempt
	want("an older attempt", b, at, 400)
	at = b.callback(r.web.URL, "reviewer")
	want("let in", b, at, 200)
	want("once more", b, at, 400)
	u, _ := url.Parse(b.callback(r.web.URL, "reviewer"))
	q := u.Query()
	q.Set("code", "made-up")
	u.RawQuery = q.Encode()
	want("a code that is made up", b, u.String(), 403)
	u, _ = url.Parse(b.callback(r.web.URL, "reviewer"))
	q = u.Query()
	q.Del("code")
	q.Set("error", "access_denied<script>")
	u.RawQuery = q.Encode()
	want("refused at GitHub", b, u.String(), 403)
	at = b.callback(r.web.URL, "reviewer")
	hub.Down()
	want("GitHub is away", b, at, 503)
	if err := hub.Up(); err != nil {
		t.Fatal(err)
	}

	_, r = openSignIn(t, func(s *signin.GitHub) { s.Client.ClientSecret = "wrong" })
	want("a wrong secret", b, b.callback(r.web.URL, "reviewer"), 403)
}

func TestSignInOfAnOrganization(t *testing.T) {
	t.Parallel()
	_, r := openSignIn(t, func(s *signin.GitHub) {
		s.Users, s.Organizations, s.Scopes = nil, []string{"ACME"}, []string{"read"}
	})
	b := newBrowser(t)
	resp, body := b.get(b.callback(r.web.URL, "developer"), "application/json")
	var token signin.Token
	if err := json.Unmarshal([]byte(body), &token); err != nil || resp.StatusCode != 200 || len(token.Grant.Write) > 0 {
		t.Fatal(resp.StatusCode, body, err)
	}
	if status, body := r.ask(t, false, token.Token, "POST", "/api/runs", `{"repo":"team/app","command":{"shell":"true"}}`); status != 403 {
		t.Error(status, body)
	}
}

func TestSignInChecked(t *testing.T) {
	t.Parallel()
	for _, s := range []*signin.GitHub{
		{Life: time.Hour}, {Life: time.Hour, Scopes: []string{"all"}}, {Scopes: []string{"read"}},
		{Scopes: []string{"read"}, Life: 11 * 366 * 24 * time.Hour},
	} {
		if s.Check() == nil {
			t.Errorf("%v for %v is taken", s.Scopes, s.Life)
		}
	}
}

func TestGitHubLists(t *testing.T) {
	t.Parallel()
	goroutines.Watch(t) // before the stand-in, which ends later
	hub := githubtest.New(t)
	for _, name := range []string{"web", "app"} {
		if _, err := hub.AddRepo(name, ""); err != nil {
			t.Fatal(err)
		}
	}
	b := newBrowser(t)
	app := &github.App{ID: hub.App, Key: hub.Key, URL: hub.API(), HTTP: b.http}
	for name, c := range map[string]*github.Client{
		"an App": {URL: hub.API(), Tokens: app, HTTP: b.http, Log: slog.New(slog.DiscardHandler)},
		"a token": {URL: hub.API(), Tokens: github.Token(hub.AddToken("developer", nil, nil)), HTTP: b.http,
			Log: slog.New(slog.DiscardHandler)},
	} {
		r := open(t, false, func(s *gateway.Server) { s.GitHub = c })
		for account, want := range map[string]string{"": "[acme/app acme/web]", "ACME": "[acme/app acme/web]", "nobody": "[]"} {
			var got []github.Repo
			status, body := r.ask(t, true, "", "GET", "/api/github/repos?account="+account, "")
			if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
				t.Fatal(status, body, err)
			}
			names := []string{}
			for _, g := range got {
				names = append(names, g.Name)
			}
			if text := strings.Join(names, " "); "["+text+"]" != want {
				t.Errorf("%s: %q has %s, want %s", name, account, text, want)
			}
			if len(got) > 0 && (!got[0].Organization || got[0].URL != hub.Upstream("app") || got[0].Base != "main") {
				t.Errorf("%s: %+v", name, got[0])
			}
		}
		var where []github.Installation
		status, body := r.ask(t, true, "", "GET", "/api/github/installations", "")
		if err := json.Unmarshal([]byte(body), &where); err != nil || status != 200 {
			t.Fatal(status, body, err)
		}
		if name == "an App" && (len(where) != 1 || where[0].Account != "acme" || !where[0].Organization ||
			where[0].Permissions["contents"] != "write") || name != "an App" && len(where) != 0 {
			t.Errorf("%s: %+v", name, where)
		}
	}
	r := open(t, false, func(s *gateway.Server) {
		s.GitHub = &github.Client{URL: hub.API(), Tokens: github.Token("ghp_wrong"), HTTP: b.http,
			Log: slog.New(slog.DiscardHandler)}
	})
	if status, body := r.ask(t, true, "", "GET", "/api/github/repos", ""); status != 409 || strings.Contains(body, "ghp_") {
		t.Error(status, body)
	}
}
