package main

import (
	"testing"

	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/signin"
)

// TestOwnersAddress checks where the link for the first sign-in is, and which servers print none.
func TestOwnersAddress(t *testing.T) {
	t.Parallel()
	const loopback = "http://127.0.0.1:8080"
	for name, x := range map[string]struct {
		config   Config
		loopback string
		oidc     *signin.OIDC
		github   *signin.GitHub
		want     string
	}{
		"loopback":      {loopback: loopback, want: loopback},
		"all addresses": {},
		"URL":           {config: Config{URL: "https://ramus.example.org"}, loopback: loopback},
		"local domain": {config: Config{Domain: "http://localhost:8080"}, loopback: loopback,
			want: "http://app.localhost:8080"},
		"local domain and proxy": {config: Config{Domain: "https://a.localhost"}, loopback: loopback,
			want: "https://app.a.localhost"},
		"local domain, reached": {config: Config{Domain: "http://localhost:8080"}},
		"domain and proxy":      {config: Config{Domain: "ramus.example.org"}, loopback: loopback},
		"OpenID Connect": {config: Config{Domain: "http://localhost:8080"}, loopback: loopback,
			oidc: &signin.OIDC{}},
		"GitHub": {config: Config{Domain: "http://localhost:8080"}, loopback: loopback,
			github: &signin.GitHub{}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := x.config.settleDomain(); err != nil {
				t.Fatal(err)
			}
			d, err := newDomain(x.config)
			if err != nil {
				t.Fatal(err)
			}
			i := &installation{config: x.config, domain: d, gateway: &gateway.Server{Loopback: x.loopback},
				oidc: x.oidc, forges: &forges{hub: &hub{signIn: x.github}}}
			if got := i.ownersAddress(); got != x.want {
				t.Errorf("%q, want %q", got, x.want)
			}
		})
	}
}
