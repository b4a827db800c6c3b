package signin_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
)

// provider is a real provider of OpenID Connect, with its page where people type a password.
type provider struct {
	issuer  string
	clients map[string]*storage.Client
	web     *httptest.Server
}

// openProvider starts a provider with the users test-user@127.0.0.1 and test-user2.
func openProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{clients: map[string]*storage.Client{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.issuer = "http://" + l.Addr().String()
	handler := exampleop.SetupServer(p.issuer,
		storage.NewStorageWithClients(storage.NewUserStore(p.issuer), p.clients), nil, false)
	p.web = httptest.NewUnstartedServer(handler)
	p.web.Listener.Close()
	p.web.Listener = l
	p.web.Start()
	t.Cleanup(p.web.Close)
	return p
}

// with lets people of a server in by the provider.
func (p *provider) with(secret string) func(*world, *signin.API) {
	return func(w *world, _ *signin.API) {
		w.people.OIDC = &signin.OIDC{Issuer: p.issuer, ClientID: "ramus", ClientSecret: secret, Title: "Example",
			HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	}
}

// register has the provider know the server.
func (p *provider) register(w *world) {
	p.clients["ramus"] = storage.WebClient("ramus", "secret", w.web.URL+"/auth/oidc/callback")
}

// oidc signs in at the provider, from the beginning at a path, and returns the URL to which the provider sends the
// browser back.
func (b *browser) oidc(p *provider, from, user, password string) string {
	b.t.Helper()
	s := b.do(from, nil)
	if s.status != http.StatusFound || !strings.HasPrefix(s.to, p.issuer+"/auth?") {
		b.t.Fatalf("%d to %q: %s", s.status, s.to, s.body)
	}
	if q, _ := url.Parse(s.to); q.Query().Get("code_challenge_method") != "S256" || q.Query().Get("nonce") == "" ||
		q.Query().Get("state") == "" {
		b.t.Errorf("the way to the provider is %s", s.to)
	}
	s = b.do(s.to, nil)
	u, err := url.Parse(s.to)
	if err != nil || s.status != http.StatusFound {
		b.t.Fatalf("%d to %q: %s", s.status, s.to, s.body)
	}
	id := u.Query().Get("authRequestID")
	s = b.do(p.issuer+"/login/username", url.Values{"username": {user}, "password": {password}, "id": {id}},
		"Origin", p.issuer)
	if s.status != http.StatusFound {
		return ""
	}
	at := s.to
	if strings.HasPrefix(at, "/") {
		at = p.issuer + at
	}
	return b.do(at, nil).to
}

func TestOIDC(t *testing.T) {
	p := openProvider(t)
	rules := named(t, "oidc:Test-User@zitadel.ch", "", "oidc:sub=id2")
	w := openWorld(t, rules, p.with("secret"))
	p.register(w)
	b := w.browser()
	b.want("the page where people sign in", b.do("/auth?to=%2Fpage", nil), 200,
		`/auth/oidc?to=%2Fpage">Sign in with Example`)
	if back := b.oidc(p, "/auth/oidc", "test-user2", "wrong"); back != "" {
		t.Errorf("a wrong password leads to %s", back)
	}
	back := b.oidc(p, "/auth/oidc?to=/page", "test-user@127.0.0.1", "verysecure")
	b.want("another browser", w.browser().do(back, nil), 400, "has not begun to sign in")
	b.want("an admin, by address", b.do(back, nil), 303, "/page")
	b.want("once more", b.do(back, nil), 400, "has not begun")
	b.want("a page", b.do("/page", nil), 200, "test-user@zitadel.ch")
	list := w.people.Accounts.List()
	if len(list) != 1 || list[0].Role != "admin" || list[0].Name != "Test User" ||
		list[0].Email != "test-user@zitadel.ch" || !strings.HasPrefix(list[0].ID, "oidc:") {
		t.Errorf("%+v", list)
	}
	second := w.browser()
	second.want("a viewer, by subject", second.do(second.oidc(p, "/auth/oidc", "test-user2", "verysecure"), nil), 303,
		"/settings/sessions")
	b.want("again, with the password", b.do("/auth?again=1", nil), 200, "/auth/oidc?again=1")
	if s := b.do("/auth/oidc?again=1", nil); !strings.Contains(s.to, "prompt=login") {
		t.Errorf("again leads to %s", s.to)
	}
	// The person does not want, and codes that are made up.
	third := w.browser()
	s := third.do("/auth/oidc", nil)
	u, _ := url.Parse(s.to)
	state := u.Query().Get("state")
	third.want("refused at the provider", third.do("/auth/oidc/callback?error=access_denied%3Cscript%3E&state="+state,
		nil), 403, "Example did not let you sign in")
	third.do("/auth/oidc", nil)
	third.want("a wrong state", third.do("/auth/oidc/callback?code=x&state=y", nil), 400, "has not begun")
	s = third.do("/auth/oidc", nil)
	u, _ = url.Parse(s.to)
	third.want("a made-up code", third.do("/auth/oidc/callback?code=x&state="+u.Query().Get("state"), nil), 403,
		"refuses the sign-in")

	// A wrong secret of the client, and a provider that is away.
	w = openWorld(t, rules, p.with("wrong"))
	p.register(w)
	b = w.browser()
	b.want("a wrong secret", b.do(b.oidc(p, "/auth/oidc", "test-user2", "verysecure"), nil), 403, "refuses the sign-in")
	w = openWorld(t, rules, p.with("secret"))
	p.web.Close()
	b.want("a provider that is away", w.browser().do("/auth/oidc", nil), 503, "does not answer")
	w = openWorld(t, account.Rules{}, nil)
	b.want("no provider", w.browser().do("/auth/oidc", nil), 400, "OpenID Connect here")
}
