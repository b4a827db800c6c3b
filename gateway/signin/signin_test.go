package signin_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/session"
	"github.com/ramus-dev/ramus/gateway/signin"
)

// named are rules that name logins of GitHub.
func named(t *testing.T, admins, members, viewers string) account.Rules {
	t.Helper()
	var r account.Rules
	for text, to := range map[string]*[]account.Rule{admins: &r.Admins, members: &r.Members, viewers: &r.Viewers} {
		list, err := account.ParseRules(strings.Fields(text))
		if err != nil {
			t.Fatal(err)
		}
		*to = append(*to, list...)
	}
	return r
}

func TestOwnerLink(t *testing.T) {
	w := openWorld(t, account.Rules{}, nil)
	b := w.browser()
	b.want("nobody", b.do("/page", nil), 303, "/auth?to=%2Fpage")
	b.want("the page where people sign in", b.do("/auth?to=%2Fpage", nil), 200, "Sign in with GitHub")
	link := w.link()
	b.want("a link in advance", b.do(link, nil, "Sec-Purpose", "prefetch"), 503, "not loaded in advance")
	s := b.do(link, nil)
	b.want("the link", s, 303, "/settings/sessions")
	k := s.header.Get("Set-Cookie")
	for _, part := range []string{"ramus=", "HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=604800"} {
		if !strings.Contains(k, part) {
			t.Errorf("the cookie is %q, without %s", k, part)
		}
	}
	if strings.Contains(k, "Domain") || strings.Contains(k, "Secure") || s.header.Get("Cache-Control") != "no-store" ||
		s.header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%q, %v", k, s.header)
	}
	page := b.do(s.to, nil)
	b.want("the sessions", page, 200, "Firefox on Linux")
	if strings.Contains(page.body, b.cookie()) {
		t.Error("a page has the cookie")
	}
	b.want("a page", b.do("/page", nil), 200, "")
	b.want("signed in already", b.do("/auth?to=%2Fpage", nil), 303, "/page")
	b.want("once more", w.browser().do(link, nil), 403, "used before")

	link = w.link()
	w.clock.Add(10 * time.Minute)
	b.want("too late", w.browser().do(link, nil), 403, "ten minutes")
	b.want("made up", w.browser().do("/auth/link?code=x", nil), 403, "used before")
	l, _ := w.people.OwnerLink(w.web.URL, "https://evil.example/")
	b.want("a way to another host", w.browser().do(strings.TrimPrefix(l, w.web.URL), nil), 303, "/settings/sessions")
	l, _ = w.people.OwnerLink(w.web.URL, "/page?a=b")
	b.want("a way back", w.browser().do(strings.TrimPrefix(l, w.web.URL), nil), 303, "/page?a=b")
	if status, body := w.atSocket("POST", "/api/sign-in/link", `{"to":"/page"}`); status != 200 ||
		!strings.Contains(body, "http://127.0.0.1:1/auth/link?code=") {
		t.Error(status, body)
	}
	if got := w.actions(); !strings.HasPrefix(got, "owner:0 session.begin ok\n") {
		t.Errorf("the log of actions:\n%s", got)
	}
	// The links that nobody uses are bounded.
	first := w.link()
	for range 20 {
		w.link()
	}
	b.want("the oldest of too many", w.browser().do(first, nil), 403, "used before")
}

// A browser signs in as somebody else, and its former session ends.
func TestNewSessionEndsTheFormer(t *testing.T) {
	w := openWorld(t, named(t, "", "", "github:reviewer"), nil)
	b := w.browser()
	b.do(w.link(), nil)
	old := b.cookie()
	b.want("by GitHub", b.hub("/auth/github?to=/page", "reviewer"), 303, "/page")
	b.want("as somebody else", b.do("/page", nil), 200, "reviewer")
	thief := w.browser()
	thief.setCookie(old)
	thief.want("the former session", thief.do("/page", nil), 303, "/auth")
	if n := len(w.people.Sessions.List("")); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func TestGitHub(t *testing.T) {
	w := openWorld(t, named(t, "github:developer", "", "github:reviewer"), nil)
	b := w.browser()
	b.want("somebody whom no rule names", b.hub("/auth/github", "visitor"), 403, "Visitor is not let in here")
	b.want("a viewer", b.hub("/auth/github?to=https://evil.example", "reviewer"), 303, "/settings/sessions")
	page := b.do("/settings/sessions", nil)
	b.want("the page", page, 200, "reviewer")
	if strings.Contains(page.body, "/admin/people") {
		t.Error("a viewer gets the links of administrators")
	}
	b.want("people, for a viewer", b.do("/admin/people", nil), 403, "for administrators")
	for _, token := range w.hub.Tokens() {
		t.Errorf("a token of GitHub is left: %.4s…", token)
	}
	// The login changes hands at GitHub.
	w.hub.Rename("reviewer", "reviewer2")
	w.hub.AddUser("reviewer", "write")
	thief := w.browser()
	thief.want("the new owner of a login", thief.hub("/auth/github", "reviewer"), 403, "belonged to somebody else")
	thief.want("the new owner of a login, for a token", thief.hub("/auth/github?for=token", "reviewer"), 403,
		"belonged to somebody else")
	b.want("the session of the old owner", b.do("/page", nil), 200, "reviewer")
	b.want("the old owner, whom no rule names any more", w.browser().hub("/auth/github", "reviewer2"), 403, "not let in")
	// Tokens for programs stay.
	tokens := w.browser()
	tokens.want("a token, for somebody who gets none", tokens.hub("/auth/github?for=token", "developer"), 403, "not let in")
	if got := w.actions(); !strings.Contains(got, "session.begin denied") || !strings.Contains(got, "session.begin ok") {
		t.Errorf("the log of actions:\n%s", got)
	}
}

func TestOrganizationIsAskedAgain(t *testing.T) {
	w := openWorld(t, named(t, "", "github:org=acme", ""), nil)
	b, second := w.browser(), w.browser()
	b.want("a member", b.hub("/auth/github", "developer"), 303, "/settings/sessions")
	second.hub("/auth/github", "developer")
	asked := func() (n int) {
		for _, r := range w.hub.Requests() {
			if strings.HasSuffix(r.Route, "/user/orgs") {
				n++
			}
		}
		return n
	}
	before := asked()
	for range 3 {
		b.want("a page", b.do("/page", nil), 200, "developer")
	}
	if n := asked() - before; n != 0 {
		t.Errorf("GitHub was asked %d times within 15 minutes", n)
	}
	w.clock.Add(15 * time.Minute)
	for range 3 {
		b.want("a page, after 15 minutes", b.do("/page", nil), 200, "developer")
	}
	if n := asked() - before; n != 1 {
		t.Errorf("GitHub was asked %d times after 15 minutes", n)
	}
	// GitHub is away: the session goes on for an hour.
	w.hub.Down()
	w.clock.Add(50 * time.Minute)
	b.want("while GitHub is away", b.do("/page", nil), 200, "developer")
	if err := w.hub.Up(); err != nil {
		t.Fatal(err)
	}
	w.clock.Add(5 * time.Minute)
	b.want("when GitHub is back", b.do("/page", nil), 200, "developer")
	w.hub.Leave("developer")
	w.clock.Add(15 * time.Minute)
	b.want("no member any more", b.do("/page", nil), 303, "/auth")
	second.want("another browser of the person", second.do("/page", nil), 303, "/auth")
	b.want("signing in again", b.hub("/auth/github", "developer"), 403, "not let in")

	b.want("another member", b.hub("/auth/github", "reviewer"), 303, "/settings/sessions")
	w.hub.Down()
	w.clock.Add(16 * time.Minute)
	b.want("while GitHub is away", b.do("/page", nil), 200, "reviewer")
	w.clock.Add(45 * time.Minute)
	b.want("while GitHub is away for an hour", b.do("/page", nil), 303, "/auth")
	if err := w.hub.Up(); err != nil {
		t.Fatal(err)
	}
}

// The token of a session that asks about organizations is revoked when its person signs out.
func TestTokenIsRevokedAtSignOut(t *testing.T) {
	w := openWorld(t, named(t, "", "github:org=acme", ""), nil)
	b := w.browser()
	b.hub("/auth/github", "developer")
	if n := len(w.hub.Tokens()); n != 1 {
		t.Errorf("%d tokens", n)
	}
	b.want("sign out", b.do("/auth/out", url.Values{}), 303, "/auth?out=1")
	if n := len(w.hub.Tokens()); n != 0 {
		t.Errorf("%d tokens are left", n)
	}
}

func TestSignOut(t *testing.T) {
	w := openWorld(t, account.Rules{}, nil)
	b, second, third := w.browser(), w.browser(), w.browser()
	for _, one := range []*browser{b, second, third} {
		one.do(w.link(), nil)
	}
	cookie := b.cookie()
	b.want("a form of another origin", b.do("/auth/out", url.Values{}, "Origin", "http://evil.example"), 403,
		"another origin")
	b.want("a form of nowhere", b.do("/auth/out", url.Values{}, "Origin", ""), 403, "which page")
	b.want("a link", b.do("/auth/out", nil), 405, "")
	s := b.do("/auth/out", url.Values{})
	b.want("sign out", s, 303, "/auth?out=1")
	if b.cookie() != "" || !strings.Contains(s.header.Get("Clear-Site-Data"), "storage") {
		t.Errorf("%v", s.header)
	}
	b.want("the page after it", b.do(s.to, nil), 200, "You are signed out")
	b.setCookie(cookie)
	b.want("the old cookie", b.do("/page", nil), 303, "/auth")

	// One of the others is ended from another browser, and all of them.
	list := w.people.Sessions.List("owner:0")
	own, _ := w.people.Sessions.Find(third.cookie(), session.From{}, false)
	for _, one := range list {
		if one.ID != own.ID {
			third.want("end another browser", third.do("/settings/sessions/"+one.ID+"/end", url.Values{}), 303,
				"/settings/sessions")
		}
	}
	second.want("the ended browser", second.do("/page", nil), 303, "/auth")
	third.want("a session that nobody has", third.do("/settings/sessions/x/end", url.Values{}), 404, "no session")
	second.do(w.link(), nil)
	second.want("everywhere", second.do("/auth/out/everywhere", url.Values{}), 303, "/auth?out=1")
	third.want("the third browser", third.do("/page", nil), 303, "/auth")
}

// A socket ends within a second when its session does, or when the roles of its person change.
func TestSocketsEnd(t *testing.T) {
	w := openWorld(t, named(t, "github:developer", "github:reviewer", ""), nil)
	for what, end := range map[string]func(b *browser, id string){
		"sign out":      func(b *browser, _ string) { b.do("/auth/out", url.Values{}) },
		"ended by REST": func(_ *browser, id string) { w.atSocket("DELETE", "/api/sessions?person="+id, "") },
		"another role":  func(_ *browser, id string) { w.atSocket("PATCH", "/api/people/"+id, `{"role":"viewer"}`) },
		"another repo": func(_ *browser,
			id string) {
			w.atSocket("PATCH", "/api/people/"+id, `{"repos":{"app":"member"}}`)
		},
		"removed person": func(_ *browser, id string) { w.atSocket("DELETE", "/api/people/"+id, "") },
	} {
		b := w.browser()
		b.hub("/auth/github", "reviewer")
		people := w.people.Accounts.List()
		r, err := http.NewRequestWithContext(t.Context(), "GET", w.web.URL+"/socket", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", w.web.URL)
		resp, err := b.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		if !lines.Scan() || lines.Text() != "open" {
			t.Fatalf("%s: %d %s", what, resp.StatusCode, lines.Text())
		}
		begun := time.Now()
		end(b, people[0].ID)
		if !lines.Scan() || lines.Text() != "ended" || time.Since(begun) > 10*time.Second {
			t.Errorf("%s: the socket says %q after %v", what, lines.Text(), time.Since(begun))
		}
		resp.Body.Close()
	}
}

func TestPeopleByREST(t *testing.T) {
	w := openWorld(t, named(t, "", "github:reviewer", ""), nil)
	b := w.browser()
	b.hub("/auth/github", "reviewer")
	var list []signin.Person
	if status, body := w.atSocket("GET", "/api/people", ""); status != 200 || json.Unmarshal([]byte(body),
		&list) != nil || len(list) != 1 || list[0].Role != route.RoleMember || list[0].Sessions != 1 {
		t.Fatal(status, body)
	}
	for _, x := range []struct {
		body   string
		status int
		part   string
	}{
		{`{"role":"admin","repos":{"app":"member"}}`, 200, `"role":"admin"`},
		{`{"role":"rules"}`, 200, `"role":"member"`}, {`{"role":"owner"}`, 400, "unknown role"},
		{`{}`, 400, "nothing to change"}, {`{"repos":{"app":"king"}}`, 400, "unknown role"},
		{`{"repos":{"../x":"viewer"}}`, 400, ""}, {`{"role":"none","repos":{"app":"none"}}`, 200, `"role":""`},
	} {
		if status, body := w.atSocket("PATCH", "/api/people/reviewer", x.body); status != x.status || !strings.Contains(body, x.part) {
			t.Errorf("%s: %d %s", x.body, status, body)
		}
	}
	b.want("a person without a role", b.do("/page", nil), 303, "/auth")
	if status, body := w.atSocket("PATCH", "/api/people/nobody", `{"role":"admin"}`); status != 404 {
		t.Error(status, body)
	}
	if status, body := w.atSocket("GET", "/api/sessions?person=reviewer", ""); status != 200 || body != "[]\n" {
		t.Error(status, body)
	}
	if status, body := w.atSocket("DELETE", "/api/sessions", ""); status != 400 {
		t.Error(status, body)
	}
	if status, body := w.atSocket("DELETE", "/api/people/reviewer", ""); status != 200 {
		t.Error(status, body)
	}
	want := "local people.role ok"
	if got := w.actions(); strings.Count(got, want) != 3 || !strings.Contains(got, "local people.remove ok") ||
		!strings.Contains(got, "local PATCH /api/people/{person} invalid") {
		t.Errorf("the log of actions:\n%s", got)
	}
}

func TestPeoplePage(t *testing.T) {
	w := openWorld(t, named(t, "github:developer", "", "github:reviewer"), nil)
	admin, b := w.browser(), w.browser()
	b.hub("/auth/github", "reviewer")
	admin.hub("/auth/github", "developer")
	id := w.people.Accounts.List()[1].ID
	admin.want("people", admin.do("/admin/people", nil), 200, id)
	role := func(role, repo string) url.Values { return url.Values{"do": {"role"}, "role": {role}, "repo": {repo}} }
	admin.want("a role", admin.do("/admin/people/"+id, role("member", "")), 303, "/admin/people")
	admin.want("a role in a repository", admin.do("/admin/people/"+id, role("member", "app")), 303, "/admin/people")
	admin.want("a role in no repository", admin.do("/admin/people/"+id, role("member", "../app")), 400, "../app")
	admin.want("no role", admin.do("/admin/people/"+id, role("king", "")), 400, "Unknown role")
	admin.want("nothing", admin.do("/admin/people/"+id, url.Values{}), 400, "nothing that is known")
	admin.want("nobody", admin.do("/admin/people/x", role("member", "")), 404, "no person")
	if p, _ := w.people.Accounts.Get(id); p.Role != route.RoleMember || p.Repos["app"] != route.RoleMember {
		t.Errorf("%+v", p)
	}
	b.want("a member's form", b.do("/admin/people/"+id, role("admin", "")), 403, "for administrators")
	admin.want("a form of another origin",
		admin.do("/admin/people/"+id, role("admin", ""), "Origin", "http://evil.example"), 403, "another origin")
	admin.want("actions", admin.do("/admin/audit", nil), 200, "people.role")
	admin.want("sign out somebody", admin.do("/admin/people/"+id, url.Values{"do": {"sessions"}}), 303, "/admin/people")
	b.want("who was signed out", b.do("/page", nil), 303, "/auth")
	admin.want("remove somebody", admin.do("/admin/people/"+id, url.Values{"do": {"remove"}}), 303, "/admin/people")

	// After ten minutes, an administrator authenticates again.
	w.clock.Add(11 * time.Minute)
	admin.want("an old sign-in", admin.do("/admin/people", nil), 303, "/auth?again=1&to=%2Fadmin%2Fpeople")
	admin.want("an old sign-in's form", admin.do("/admin/people/"+id, role("admin", "")), 403, "last ten minutes")
	admin.want("a page that needs no new sign-in", admin.do("/page", nil), 200, "developer")
	again := admin.do("/auth?again=1&to=%2Fadmin%2Fpeople", nil)
	admin.want("the page to sign in again", again, 200, "/auth/github?again=1&amp;to=%2Fadmin%2Fpeople")
	admin.want("again", admin.hub("/auth/github?to=%2Fadmin%2Fpeople", "developer"), 303, "/admin/people")
	admin.want("after it", admin.do("/admin/people", nil), 200, "People")
}

// TestHTTPS checks the cookie of a server that people reach by https, and that nothing is set over plain HTTP.
func TestHTTPS(t *testing.T) {
	for _, x := range []struct {
		url, host string
		status    int
		cookie    string
	}{
		{"https://ramus.example.org", "ramus.example.org", 303, "__Host-ramus="}, {"", "localhost:8080", 303, "ramus="},
		{"", "[::1]:8080", 303, "ramus="},
		{"", "ramus.example.org", 400, ""}, {"http://ramus.example.org", "ramus.example.org", 400, ""},
	} {
		w := openWorld(t, account.Rules{}, nil)
		mux := &route.Mux{URL: x.url, Account: w.people.Account, Audit: w.people.Audit, Now: w.clock.Now}
		h := mux.Handler(signin.NewAPI(signin.API{People: w.people, Accounts: w.people.Accounts,
			Now: w.clock.Now}).Routes(), nil)
		r := httptest.NewRequest("GET", w.link(), nil)
		r.Host = x.host
		a := httptest.NewRecorder()
		h.ServeHTTP(a, r)
		k := a.Header().Get("Set-Cookie")
		if a.Code != x.status || !strings.HasPrefix(k, x.cookie) ||
			strings.Contains(k, "Secure") != strings.HasPrefix(x.cookie, "__Host-") {
			t.Errorf("%s at %s: %d %q %s", x.url, x.host, a.Code, k, a.Body)
		}
	}
}
