package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
	"github.com/ramus-dev/ramus/tasks/devcontainer"
	"github.com/ramus-dev/ramus/tasks/environment"
)

// TestCovering looks for the entry that covers another one.
func TestCovering(t *testing.T) {
	list := []Host{host("api.example.org"), host("*.Corp.example"), host("db.example.org:5432"), host("*.example.net:8443"),
		host("[2001:db8::1]"), host("*.com")}
	for entry, want := range map[string]string{
		"api.example.org":        "api.example.org",
		"API.example.org":        "api.example.org",
		"api.example.org:80":     "api.example.org",
		"api.example.org:443":    "api.example.org",
		"api.example.org:8443":   "",
		"x.api.example.org":      "",
		"git.corp.example":       "*.Corp.example",
		"a.git.corp.example:443": "*.Corp.example",
		"*.git.corp.example":     "*.Corp.example",
		"*.corp.example":         "*.Corp.example",
		"corp.example":           "",
		"evilcorp.example":       "",
		".corp.example":          "",
		"*.example":              "",
		"db.example.org:5432":    "db.example.org:5432",
		"db.example.org":         "",
		"db.example.org:443":     "",
		"a.example.net:8443":     "*.example.net:8443",
		"a.example.net":          "",
		"[2001:db8::1]":          "[2001:db8::1]",
		"[2001:db8::1]:443":      "[2001:db8::1]",
		"a.com":                  "*.com",
	} {
		if got, ok := covering(list, entry); got.Host != want || ok != (want != "") {
			t.Errorf("%s is covered by %q, want %q", entry, got.Host, want)
		}
	}
	if got, ok := covering(append(list, host("*")), "anything:99"); !ok || got.Host != "*" {
		t.Errorf("* covers nothing: %+v", got)
	}
	if _, ok := covering(nil, "a"); ok {
		t.Error("an empty list covers a host")
	}
}

// TestAllowsImage asks for images of two repositories.
func TestAllowsImage(t *testing.T) {
	for _, c := range []struct {
		repo, image string
		want        bool
	}{
		{"app", "ramus/task:latest", true}, {"app", "ramus/other:1", true}, {"app", "node:22-slim", true},
		{"app", "node:22", false}, {"other", "node:22-slim", false}, {"other", "ramus/x", true}, {"other", "", false},
	} {
		if got := server.AllowsImage(c.repo, c.image); got != c.want {
			t.Errorf("%s may have %q: %t, want %t", c.repo, c.image, got, c.want)
		}
	}
	if b := (Bounds{}); !b.AllowsImage("app", "anything") {
		t.Error("an engine without images refuses one")
	}
}

// TestMatchTextEnds compares texts with patterns whose parts must not overlap.
func TestMatchTextEnds(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"ab", "a", false}, {"*", "", true}, {"a*a", "a", false}, {"a*a", "aa", true},
		{"a*", "a", true}, {"a*", "b", false}, {"*a", "ba", true}, {"*a", "ab", false}, {"a*b*a", "aba", true},
		{"a*b*a", "aca", false}, {"a**a", "aba", true}, {"*b*", "abc", true}, {"*b*", "ac", false},
	} {
		if got := matchText(c.pattern, c.text); got != c.want {
			t.Errorf("%q matches %q: %t, want %t", c.pattern, c.text, got, c.want)
		}
	}
}

// TestAllow adds the bounds of one repository to those of all.
func TestAllow(t *testing.T) {
	b := Bounds{Allow: Allow{Images: make([]string, 1, 9), Egress: make([]Host, 1, 9), Limits: environment.Limits{Memory: 4, CPUs: 1, Tmp: 9}},
		Repos: map[string]Repo{
			"a": {Allow: Allow{Images: []string{"a"}, Egress: []Host{host("a")}, Build: true,
				Limits: environment.Limits{Memory: 2, CPUs: 3, PIDs: 5, FileSize: 6, Output: 7, Disk: 8}}},
			"b": {Allow: Allow{Images: []string{"b"}, Egress: []Host{host("b")}}},
		}}
	a, other := b.allow("a"), b.allow("b")
	if a.Images[1] != "a" || other.Images[1] != "b" || a.Egress[1].Host != "a" || other.Egress[1].Host != "b" {
		t.Errorf("one repository has the entries of another: %+v, %+v", a, other)
	}
	if want := (environment.Limits{Memory: 4, CPUs: 3, PIDs: 5, Tmp: 9, FileSize: 6, Output: 7, Disk: 8}); a.Limits != want {
		t.Errorf("%+v, want %+v", a.Limits, want)
	}
	if !a.Build || other.Build || b.allow("c").Build {
		t.Error("the wrong repositories may build images")
	}
	b.Allow.Build = true
	if !b.allow("b").Build {
		t.Error("no repository may build images")
	}
}

// TestServerHeader checks that a host has the server's header unless the file gives its own.
func TestServerHeader(t *testing.T) {
	key := map[string]string{"X-Key": "secret:SERVER"}
	b := Bounds{Egress: []Host{{Egress: environment.Egress{Host: "api.example.org", Header: key}, Trusted: true}, host("b.example.org")}}
	s := Resolve(b, "app", file(t, "egress: [api.example.org, b.example.org]"))
	if len(s.Egress) != 2 || !reflect.DeepEqual(s.Egress[0].Header, key) || !s.Egress[0].Trusted ||
		len(s.Egress[1].Header) > 0 || s.Egress[1].Trusted {
		t.Errorf("%+v", s.Egress)
	}
	s = Resolve(b, "app", file(t, `egress: [{host: api.example.org, header: {X-Own: "secret:OWN"}}]`))
	if len(s.Egress) != 1 || s.Egress[0].Trusted || s.Egress[0].Header["X-Own"] == "" || s.Egress[0].Header["X-Key"] != "" {
		t.Errorf("%+v", s.Egress)
	}
	if got := hostNames(s.Egress); !slices.Equal(got, []string{"api.example.org (with X-Own)"}) {
		t.Errorf("%q", got)
	}
	hosts, private := (Settings{Egress: []Host{{Egress: environment.Egress{Host: "a"}, Private: true}, host("b")}}).Reachable()
	if !slices.Equal(hosts, []string{"a", "b"}) || !slices.Equal(private, []string{"a"}) {
		t.Errorf("%q, of them private %q", hosts, private)
	}
}

// TestOrigins reads values at the bounds, and the origins that people see.
func TestOrigins(t *testing.T) {
	build := server
	build.Allow.Build = true
	none := server
	none.Image = ""
	tasks := server
	tasks.Tasks = []string{"lib_run_lint"}
	free := server
	free.Timeout = 0
	for _, c := range []struct {
		name   string
		bounds Bounds
		repo   string
		text   string
		key    string // of the value; its text is that of fmt.Sprint
		want   string
		origin string
		warn   string // in the only warning
	}{
		{"image of the server", server, "app", "image: ramus/task:latest", "image", "ramus/task:latest", ".ramus/config.yaml:1:8", ""},
		{"allowed image", server, "app", "image: node:1-slim", "image", "node:1-slim", ".ramus/config.yaml:1:8", ""},
		{"built image", build, "app", "dockerfile: D", "dockerfile", "D", ".ramus/config.yaml:1:13", ""},
		{"devcontainer", build, "app", "devcontainer: a.json", "devcontainer", "a.json", ".ramus/config.yaml:1:15", ""},
		{"refused build", server, "app", "dockerfile: D", "image", "ramus/task:latest", OriginDefault, "D is not built"},
		{"no images", none, "app", "dockerfile: D", "image", "", OriginServer, "D is not used: the engine of this server has no images"},
		{"no images and none wanted", none, "app", "setup: make", "image", "", OriginDefault, ""},
		{"most memory", server, "app", "limits: {memory: 8GiB}", "limits.memory", "8 GiB", ".ramus/config.yaml:1:18", ""},
		{"memory of the server", server, "app", "setup: make", "limits.memory", "2 GiB", OriginServer, ""},
		{"most processes", server, "app", "limits: {pids: 512}", "limits.pids", "512", ".ramus/config.yaml:1:16", ""},
		{"no limit of the disk", server, "app", "setup: make", "limits.disk", "none", OriginDefault, ""},
		{"longest timeout", server, "app", "timeout: 30m", "timeout", "30m0s", ".ramus/config.yaml:1:10", ""},
		{"no timeout of the server", free, "app", "timeout: 31m", "timeout", "31m0s", ".ramus/config.yaml:1:10", ""},
		{"timeout of the server", server, "app", "timeout: 31m", "timeout", "30m0s", OriginDefault, "the server allows 30m0s"},
		{"agent", server, "app", "agent: claude", "agent", "claude", ".ramus/config.yaml:1:8", ""},
		{"no agent", server, "app", "setup: make", "agent", "", OriginDefault, ""},
		{"merge as the server says", server, "safe", "merge: pull-request", "merge", "pull-request", OriginServer, ""},
		{"merge of the server", server, "safe", "setup: make", "merge", "pull-request", OriginServer, ""},
		{"known task", tasks, "app", "checks: [{task: lib_run_lint}]", "checks", "", ".ramus/config.yaml:1:9", ""},
		{"no such task", tasks, "app", "checks: [{task: lib_run_other}]", "checks", "those of the agent", OriginDefault, "there is no task lib_run_other"},
		{"no hosts", server, "app", "egress: []", "egress", "[]", ".ramus/config.yaml:1:9", ""},
		{"refused host", server, "app", "egress: [evil.example, pypi.org:8443]", "egress", "[pypi.org:8443]",
			".ramus/config.yaml:1:9", "containers may not reach evil.example"},
		{"specs", server, "app", "browser: a.yaml", "browser", "[a.yaml]", ".ramus/config.yaml:1:10", ""},
		{"usual specs", server, "app", "setup: make", "browser", ".ramus/browser/*.yaml", OriginDefault, ""},
		{"kept files", server, "app", "keep: a", "keep", "[a]", ".ramus/config.yaml:1:7", ""},
		{"no kept files", server, "app", "setup: make", "keep", "[]", OriginDefault, ""},
		{"plan", server, "app", "plan: true", "plan", "true", ".ramus/config.yaml:1:7", ""},
		{"no plan", server, "app", "setup: make", "plan", "false", OriginDefault, ""},
		{"no secrets", server, "app", "setup: make", "secrets", "[]", OriginDefault, ""},
		{"no services", server, "app", "setup: make", "services", "[]", OriginDefault, ""},
		{"merge of the file", server, "app", "merge: push", "merge", "push", ".ramus/config.yaml:1:8", ""},
		{"no merge", server, "app", "setup: make", "merge", "", OriginDefault, ""},
		{"no dependencies", server, "app", "dependencies: []", "dependencies", "[]", ".ramus/config.yaml:1:15", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Resolve(c.bounds, c.repo, file(t, c.text))
			i := slices.IndexFunc(s.Values, func(v Value) bool { return v.Key == c.key })
			if i < 0 {
				t.Fatalf("there is no value %s", c.key)
			}
			v := s.Values[i]
			if got := fmt.Sprint(v.Value); c.key != "checks" && got != c.want || v.Origin != c.origin {
				t.Errorf("%s from %s, want %s from %s", got, v.Origin, c.want, c.origin)
			}
			if len(s.Warnings) > 1 || (len(s.Warnings) == 1) != (c.warn != "") || !strings.Contains(strings.Join(s.Warnings, ""), c.warn) {
				t.Errorf("warnings %q, want %q", s.Warnings, c.warn)
			}
			if c.key != "checks" && (v.Note != "") != (c.warn != "") {
				t.Errorf("note %q, warnings %q", v.Note, s.Warnings)
			}
		})
	}
}

// TestWords describes settings to commands and people.
func TestWords(t *testing.T) {
	s := Settings{Env: make([]string, 1, 9), Secrets: []string{"KEY"}, Mistake: "bad"}
	s.Env[0] = "A=1"
	if got := s.CommandEnv(); !slices.Equal(got, []string{"A=1", "KEY=secret:KEY"}) || len(s.Env) != 1 {
		t.Errorf("%q", got)
	}
	if got := s.MistakeWords(); got != "bad; until it is corrected, none is used" {
		t.Error(got)
	}
	s.From = "0123456789abcdef"
	if got := s.MistakeWords(); got != "bad; until it is corrected, that of 0123456789ab is used" {
		t.Error(got)
	}
}

// TestDevcontainer refuses images, and keeps the variables of the server and of the repository.
func TestDevcontainer(t *testing.T) {
	build := devcontainer.File{Build: &devcontainer.Build{Dockerfile: "D"}}
	for _, c := range []struct {
		name   string
		change func(*Bounds)
		file   devcontainer.File
		want   string
	}{
		{"allowed image", nil, devcontainer.File{Image: "ramus/x"}, ""},
		{"another image", nil, devcontainer.File{Image: "evil"}, "the image evil is not used"},
		{"build", nil, build, "its image is not built"},
		{"allowed build", func(b *Bounds) { b.Allow.Build = true }, build, ""},
		{"no images", func(b *Bounds) { b.Image = "" }, devcontainer.File{Image: "ramus/x"}, "has no images"},
	} {
		b := server
		if c.change != nil {
			c.change(&b)
		}
		if got := b.refuses("app", c.file); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	s := Settings{Env: []string{"OWN=1"}}
	if got := s.under(server, []string{"LANG=de", "OWN=2", "NEW=3"}); !slices.Equal(got, []string{"NEW=3", "OWN=1"}) {
		t.Errorf("%q", got)
	}
}

// TestPropose proposes the file of a branch, or setup commands, for its base.
func TestPropose(t *testing.T) {
	repo := repotest.NewRepo(t)
	ada := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	commit := func(text string) gitd.Hash {
		t.Helper()
		put := []gitd.File{{Path: "a", Content: []byte("a")}}
		if text != "" {
			put = append(put, gitd.File{Path: environment.Path, Content: []byte(text)})
		}
		h, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Put: put, Author: ada, Committer: ada, When: time.Unix(1e9, 0), Message: "m"})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	none, one, two, bad := commit(""), commit("setup: make one\n"), commit("setup: make two\n"), commit("setpu: x\n")
	for _, c := range []struct {
		name         string
		base, branch gitd.Hash
		setup        []string
		want         string // in the file; the error if it begins with "!"
	}{
		{"another file", one, two, nil, "make two"},
		{"a new file", none, two, nil, "make two"},
		{"the same file", one, one, nil, "!nothing"},
		{"no file", none, none, nil, "!nothing"},
		{"a removed file", one, none, nil, "!nothing"},
		{"a removed file and a command", one, none, []string{"make three"}, "make three"},
		{"a command of the base", one, one, []string{"make one"}, "!nothing"},
		{"a command", none, none, []string{"make three"}, "make three"},
		{"a mistake", one, bad, nil, "!invalid"},
	} {
		text, err := Propose(t.Context(), repo, c.base, c.branch, c.setup)
		switch {
		case c.want == "!nothing" && errors.Is(err, ErrNothing) && text == nil:
		case c.want == "!invalid" && errors.Is(err, gitd.ErrInvalid) && text == nil:
		case err == nil && strings.Contains(string(text), c.want):
		default:
			t.Errorf("%s: %q, %v; want %s", c.name, text, err, c.want)
		}
	}
}
