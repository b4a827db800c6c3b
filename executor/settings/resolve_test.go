package settings

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/tasks/environment"
)

func host(name string) Host { return Host{Egress: environment.Egress{Host: name}} }

// server are the bounds of the tests.
var server = Bounds{
	Image: "ramus/task:latest",
	Limits: containers.Limits{Memory: 2 << 30, CPUs: 2, PIDs: 512, Tmp: 512 << 20, FileSize: 8 << 30,
		Output: 1 << 30, Disk: -1},
	Env:     []string{"LANG=C"},
	Egress:  []Host{host("registry.npmjs.org"), {Egress: environment.Egress{Host: "*.corp.example"}, Private: true}},
	Timeout: 30 * time.Minute,
	Agents:  []string{"claude", "codex"},
	Allow:   Allow{Images: []string{"ramus/*"}, Egress: []Host{host("pypi.org:8443")}},
	Repos: map[string]Repo{
		"app": {Allow: Allow{Limits: environment.Limits{Memory: 8 << 30}, Egress: []Host{host("api.example.org")},
			Images: []string{"node:*-slim"}}},
		"safe": {Merge: environment.MergePullRequest},
	},
	Configured: map[string]bool{"limits.memory": true},
}

func file(t *testing.T, text string) environment.File {
	t.Helper()
	f, err := environment.Parse(environment.Path, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestNothingSet checks that a repository without a file has the server's values.
func TestNothingSet(t *testing.T) {
	s := Resolve(server, "app", environment.File{})
	if s.Image != server.Image || s.Timeout != server.Timeout || s.Limits != server.Limits.WithDefaults() ||
		!reflect.DeepEqual(s.Egress, server.Egress) {
		t.Errorf("%+v", s)
	}
	if s.Dependencies != nil || s.Checks != nil || len(s.Warnings) > 0 {
		t.Errorf("%+v", s)
	}
	origins := map[string]string{}
	for _, v := range s.Values {
		origins[v.Key] = v.Origin
	}
	for key, want := range map[string]string{"limits.memory": OriginServer, "limits.cpus": OriginDefault,
		"env.LANG": OriginServer, "setup": OriginDefault, "image": OriginDefault} {
		if origins[key] != want {
			t.Errorf("%s is from %q, want %q", key, origins[key], want)
		}
	}
}

// TestNarrows checks that a file has what it asks for within the bounds.
func TestNarrows(t *testing.T) {
	s := Resolve(server, "app", file(t, `
image: node:22-slim
limits: {memory: 6GiB, cpus: 1, disk: 1GiB}
timeout: 5m
env: {CI: "1"}
egress: [registry.npmjs.org, {host: api.example.org, header: {Authorization: "Bearer secret:TOKEN"}}, git.corp.example]
secrets: [OTHER]
agent: codex
checks: [tests]
dependencies: []
merge: push
setup: make
`))
	if len(s.Warnings) > 0 {
		t.Error(s.Warnings)
	}
	if s.Image != "node:22-slim" || s.Limits.Memory != 6<<30 || s.Limits.CPUs != 1 || s.Limits.Disk != 1<<30 ||
		s.Timeout != 5*time.Minute || s.Agent != "codex" || s.Merge != "push" {
		t.Errorf("%+v", s)
	}
	if !slices.Equal(s.Env, []string{"CI=1"}) || !slices.Equal(s.Secrets, []string{"OTHER", "TOKEN"}) || s.Dependencies == nil {
		t.Errorf("%+v", s)
	}
	if len(s.Egress) != 3 || s.Egress[0].Private || !s.Egress[2].Private || s.Egress[1].Trusted {
		t.Errorf("%+v", s.Egress)
	}
	if i := slices.IndexFunc(s.Values,
		func(v Value) bool { return v.Key == "limits.memory" }); s.Values[i].Origin != ".ramus/config.yaml:3:18" {
		t.Errorf("%+v", s.Values[i])
	}
}

// TestNeverWidens checks that each value beyond the bounds is replaced, and told.
func TestNeverWidens(t *testing.T) {
	for text, want := range map[string]string{
		"image: evil:1":                      ".ramus/config.yaml:1:8: the image evil:1 is not used",
		"image: node:22":                     "is not used",
		"dockerfile: Dockerfile":             "Dockerfile is not built",
		"devcontainer: .devcontainer/a.json": "is not built",
		"limits: {memory: 9GiB}":             ".ramus/config.yaml:1:18: 9 GiB is asked for; the server allows 8 GiB",
		"limits: {pids: 513}":                "513 is asked for; the server allows 512",
		"timeout: 31m":                       "31m0s is asked for; the server allows 30m0s",
		"egress: [evil.example]":             ".ramus/config.yaml:1:10: containers may not reach evil.example",
		"egress: ['*.example.org']":          "containers may not reach *.example.org",
		"egress: ['registry.npmjs.org:22']":  "containers may not reach registry.npmjs.org:22",
		"egress: [pypi.org]":                 "containers may not reach pypi.org",
		"env: {LANG: de}":                    ".ramus/config.yaml:1:13: the server sets LANG",
		"agent: gemini":                      "the server has no agent gemini; it has claude, codex",
	} {
		s := Resolve(server, "app", file(t, text))
		if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], want) {
			t.Errorf("%s: %q, want %q", text, s.Warnings, want)
		}
		none := Resolve(server, "app", environment.File{})
		if s.Image != none.Image || len(s.Env) > 0 || s.Agent != "" || s.Timeout != none.Timeout ||
			s.Limits.Memory > 8<<30 || s.Limits.PIDs > 512 || strings.HasPrefix(text, "egress") && len(s.Egress) > 0 {
			t.Errorf("%s: %+v", text, s)
		}
	}
	if s := Resolve(server, "safe", file(t, "merge: here")); s.Merge != environment.MergePullRequest || len(s.Warnings) != 1 {
		t.Errorf("%+v", s)
	}
	if s := Resolve(server, "other", file(t, "egress: [api.example.org]\nlimits: {memory: 3GiB}")); len(s.Egress) > 0 ||
		s.Limits.Memory != 2<<30 || len(s.Warnings) != 2 {
		t.Errorf("another repository has what app may have: %+v", s)
	}
	sandbox := server
	sandbox.Image = ""
	if s := Resolve(sandbox, "app", file(t, "image: node:22-slim")); s.Image != "" || len(s.Warnings) != 1 {
		t.Errorf("%+v", s)
	}
}

// TestKeepsOthers checks that entries of a list are in effect next to one that is refused, and told in order.
func TestKeepsOthers(t *testing.T) {
	tasks := server
	tasks.Tasks = []string{"lib_run_lint"}
	sandbox := server
	sandbox.Image = ""
	for _, c := range []struct {
		name   string
		bounds Bounds
		text   string
		want   string // the variables, the hosts, the checks and the services that are in effect
		warn   string // in the only warning
	}{
		{"variables", server, "env: {A: '1', LANG: de, Z: '2'}", "A=1 Z=2", "the server sets LANG"},
		{"hosts", server, "egress: [a.corp.example, evil.example, pypi.org:8443]", "a.corp.example pypi.org:8443",
			"may not reach evil.example"},
		{"checks", tasks, "checks: [{name: a, run: make}, {task: lib_run_other}, {task: lib_run_lint}]", "a lib_run_lint",
			"there is no task lib_run_other"},
		{"any task", server, "checks: [{task: lib_run_other}]", "lib_run_other", ""},
		{"services", server, "services: {a: {command: make}, b: {image: evil}, c: {image: ramus/x}}", "a c",
			"the image evil is not used"},
		{"image of the server", server, "services: {a: {image: 'ramus/task:latest'}}", "a", ""},
		{"services without images", sandbox, "services: {a: {image: evil, command: make}}", "a", ""},
	} {
		s := Resolve(c.bounds, "app", file(t, c.text))
		got := slices.Clone(s.Env)
		if strings.HasPrefix(c.text, "egress") {
			got, _ = s.Reachable()
		}
		for _, k := range s.Checks {
			got = append(got, k.Name+k.Task)
		}
		for _, v := range s.Services {
			got = append(got, v.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %s", c.name, got, c.want)
		}
		if (len(s.Warnings) == 1) != (c.warn != "") || !strings.Contains(strings.Join(s.Warnings, "\n"), c.warn) {
			t.Errorf("%s: warnings %q, want %q", c.name, s.Warnings, c.warn)
		}
	}
}

func TestMatchText(t *testing.T) {
	for pattern, texts := range map[string][2]string{"a": {"a", "b"}, "*": {"any/thing:1", "-"},
		"ramus/*": {"ramus/task:1", "ramus"}, "a*b*c": {"a1b2c", "acb"}} {
		if !matchText(pattern, texts[0]) {
			t.Errorf("%s does not match %s", pattern, texts[0])
		}
		if pattern != "*" && matchText(pattern, texts[1]) {
			t.Errorf("%s matches %s", pattern, texts[1])
		}
	}
}

// FuzzResolve checks that no file widens the bounds.
func FuzzResolve(f *testing.F) {
	f.Add("egress: [a.corp.example, '*.x.corp.example', 'a.corp.example:443']\nlimits: {memory: 100GiB, disk: 1}\nimage: ramus/x\ntimeout: 1h\n")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := environment.Parse(environment.Path, []byte(text))
		if err != nil {
			return
		}
		s := Resolve(server, "other", parsed)
		most := server.Limits.WithDefaults()
		if l := s.Limits; l.Memory > most.Memory || l.CPUs > most.CPUs || l.PIDs > most.PIDs || l.Tmp > most.Tmp ||
			l.FileSize > most.FileSize || l.Output > most.Output || s.Timeout > server.Timeout {
			t.Errorf("wider limits: %+v", l)
		}
		if s.Image != server.Image && !strings.HasPrefix(s.Image, "ramus/") {
			t.Errorf("another image: %s", s.Image)
		}
		for _, h := range s.Egress {
			if _, ok := covering(slices.Concat(server.Egress, server.Allow.Egress), h.Host); !ok || h.Private &&
				!strings.Contains(h.Host, "corp.example") {
				t.Errorf("another host: %+v", h)
			}
		}
	})
}
