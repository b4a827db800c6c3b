package github_test

import (
	"net/url"
	"testing"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
)

func TestParseName(t *testing.T) {
	for _, text := range []string{"acme/app", "acme/app.git", "https://github.com/acme/app",
		"https://github.com/acme/app.git", "https://github.com/acme/app/",
		"https://user:password@ghe.example.org:8443/acme/app.git", "http://127.0.0.1:1234/acme/app.git",
		"ssh://git@github.com/acme/app.git",
		"ssh://git@ssh.github.com:443/acme/app", "git@github.com:acme/app.git", "github.com:acme/app",
		"git@github.com:/acme/app.git"} {
		if n, ok := github.ParseName(text); !ok || n != (forge.Name{Owner: "acme", Repo: "app"}) {
			t.Errorf("%q: %v %v", text, n, ok)
		}
	}
	for _, text := range []string{"", "/", "acme", "acme/", "/app", "/srv/acme/app.git", "./acme/app", "../app",
		"acme/..", "acme/.git", "a/b/c", "https://github.com/acme",
		"https://github.com/", "https://github.com/a/b/c", "https:///acme/app", "file:///acme/app",
		"ftp://example.org/acme/app", "acme/a b", "-acme/app", "acme/app?x",
		"acme/app#x", "git@github.com:app", "a/b:acme/app", ":acme/app", "https://github.com/acme/%2e%2e", "acme/app\n"} {
		if n, ok := github.ParseName(text); ok {
			t.Errorf("%q is taken for %v", text, n)
		}
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("https://github.com/acme/app.git")
	f.Add("git@github.com:acme/app.git")
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := github.ParseName(text)
		if !ok {
			return
		}
		// It is literal, and adds two folders to a path.
		if again, ok := github.ParseName("https://example.org/" + n.String() + ".git"); !ok || again != n {
			t.Errorf("%q is %v, then %v", text, n, again)
		}
		base := &url.URL{Scheme: "https", Host: "h", Path: "/x/"}
		if u, err := base.Parse("repos/" + n.String() + "/pulls"); err != nil || u.Path != "/x/repos/"+n.Owner+"/"+
			n.Repo+"/pulls" || u.RawQuery+u.Fragment != "" {
			t.Errorf("%q is %v: %v", text, u, err)
		}
	})
}
