package signin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
	"github.com/ramus-dev/ramus/internal/webbuild/bundle"
)

// built are the style sheets and scripts of pages.
func built(t *testing.T) *web.Assets {
	t.Helper()
	out, err := bundle.Build("../web")
	if err != nil {
		t.Fatal(err)
	}
	return webtest.Assets(t, out.Files)
}

const (
	axeFile = "../web/node_modules/axe-core/axe.min.js"
	wide    = `document.documentElement.scrollWidth > innerWidth`
)

// TestInChromium signs in with a real browser, looks at all pages, and signs out. Each page is looked at by axe, if it is
// installed, and for violations of the policy. With RAMUS_SHOTS=DIR a picture of each is written.
func TestInChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	axe, err := os.ReadFile(axeFile)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	b := webtest.Start(t)
	w := openWorld(t, account.Rules{Default: route.RoleViewer},
		func(_ *world, api *signin.API) { api.Web.Assets = built(t) })
	for _, login := range []string{"ada", "bo", "a-rather-long-login-of-somebody-with-many-names"} {
		id := account.Identity{Provider: account.ProviderOIDC, Subject: login, Login: login, Name: "A Person",
			Email: login + "@example.org"}
		if _, err := w.people.Accounts.SignIn(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	w.atSocket("PATCH", "/api/people/ada", `{"role":"member","repos":{"team/app":"admin"}}`)
	p := b.Open(nil)
	// look looks at the page that is open, in three sizes. prepare is a script that runs first.
	look := func(name, prepare string) {
		t.Helper()
		var here string
		p.Eval(`location.href`, &here)
		for _, l := range []struct {
			width, height int
			theme         string
		}{{1440, 900, "light"}, {390, 844, "dark"}, {320, 640, "light"}} {
			p.Look(l.width, l.height, l.theme)
			p.Go(here)
			p.Eval(prepare+";0", nil)
			if dir := os.Getenv("RAMUS_SHOTS"); dir != "" {
				p.Shot(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, l.width, l.theme)), true)
			}
			var found []string
			if axe != nil {
				found = p.Axe(string(axe))
			}
			var scrolls bool
			if p.Eval(wide, &scrolls); scrolls {
				found = append(found, "it scrolls sideways")
			}
			if found = append(found, p.Faults()...); len(found) > 0 {
				t.Errorf("%s, %d px, %s: %s", name, l.width, l.theme, strings.Join(found, "\n"))
			}
		}
	}
	at := func(path string) {
		t.Helper()
		var is string
		if p.Eval(`location.pathname`, &is); is != path {
			t.Fatalf("the browser is at %s, want %s", is, path)
		}
	}

	p.Go(w.web.URL + "/settings/sessions")
	at("/auth")
	look("sign-in", "")
	p.Go(w.web.URL + w.link())
	at("/settings/sessions")
	look("browsers", "")
	p.Go(w.web.URL + "/admin/people")
	look("people", `document.querySelector('details.change').open = true`)
	p.Eval(`const f = document.querySelector('details.change form'); f.querySelector('select').value = 'member'; f.querySelector('button').click()`, nil)
	p.Loaded()
	at("/admin/people")
	p.Go(w.web.URL + "/admin/audit")
	look("actions", "")
	if !strings.Contains(w.actions(), "owner:0 people.role ok") {
		t.Errorf("the form did nothing:\n%s", w.actions())
	}
	p.Go(w.web.URL + "/settings/sessions")
	p.Eval(`[...document.querySelectorAll('button')].find(b => b.innerText === 'Sign out').click()`, nil)
	p.Loaded()
	at("/auth")
	look("signed-out", "")
	if n := len(w.people.Sessions.List("owner:0")); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}
