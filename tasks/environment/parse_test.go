package environment

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/internal/growth"
	"github.com/ramus-dev/ramus/tasks/document"
	"github.com/ramus-dev/ramus/tasks/service"
)

// whole is a file with every key.
const whole = `# The environment of this repository.
image: ramus/task:node
setup:
  - corepack enable
  - make tools
start:
  - {name: web, run: pnpm dev, dir: web, port: 3000}
  - node worker.js
env: {NODE_ENV: test, WORKERS: 2, EMPTY: ""}
secrets: [API_TOKEN]
egress:
  - registry.npmjs.org
  - {host: "api.example.org", header: {Authorization: "Bearer secret:API_TOKEN"}}
  - "*.example.net:8443"
limits: {memory: 1GiB, cpus: 1.5, pids: 256, tmp: 1048576, disk: 4GiB, file_size: 1GiB, output: 10MiB}
timeout: 10m
dependencies:
  - {manager: pnpm, lock: web/pnpm-lock.yaml, install: pnpm install --offline, store: ~/.local/share/pnpm}
checks:
  - tests
  - {task: lib_run_lint, params: {target: ./api}}
  - {name: contract, run: make contract}
agent: codex
merge: pull-request
browser: .ramus/browser/todo.yaml
services:
  db: {image: "postgres:16", env: {POSTGRES_PASSWORD: test}, ready: pg_isready, ports: [5432], timeout: 1m}
  cache: {command: redis-server --port 6379}
keep: [node_modules, web/.env.local]
`

func TestParse(t *testing.T) {
	f, err := Parse(Path, []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if line, column := f.Place("egress.1.host"); line != 13 || column != 12 {
		t.Errorf("the host is at %d:%d", line, column)
	}
	if line, _ := f.Place("egress.1.unknown"); line != 13 {
		t.Errorf("what is in the entry is in line %d", line)
	}
	if !f.Has("limits.memory") || f.Has("dockerfile") {
		t.Error("Has is wrong")
	}
	f.places = nil
	want := File{
		Image: "ramus/task:node", Setup: []string{"corepack enable", "make tools"},
		Start: []Start{{Name: "web", Run: "pnpm dev", Dir: "web", Port: 3000}, {Name: "start-2", Run: "node worker.js"}},
		Env:   map[string]string{"NODE_ENV": "test", "WORKERS": "2", "EMPTY": ""}, Secrets: []string{"API_TOKEN"},
		Egress: []Egress{{Host: "registry.npmjs.org"},
			{Host: "api.example.org", Header: map[string]string{"Authorization": "Bearer secret:API_TOKEN"}},
			{Host: "*.example.net:8443"}},
		Limits: Limits{Memory: 1 << 30, CPUs: 1.5, PIDs: 256, Tmp: 1 << 20, Disk: 4 << 30, FileSize: 1 << 30,
			Output: 10 << 20},
		Timeout: 10 * time.Minute,
		Dependencies: []Dependency{{Manager: "pnpm", Lock: "web/pnpm-lock.yaml", Install: "pnpm install --offline",
			Store: "~/.local/share/pnpm"}},
		Checks: []Check{{Task: "lib_run_tests"}, {Task: "lib_run_lint",
			Params: map[string]any{"target": "./api"}}, {Name: "contract", Run: "make contract"}},
		Agent: "codex", Merge: MergePullRequest, Browser: []string{".ramus/browser/todo.yaml"},
		Services: []service.Service{
			{Name: "db", Image: "postgres:16", Env: map[string]string{"POSTGRES_PASSWORD": "test"}, Ready: "pg_isready",
				Ports: []int{5432}, Timeout: time.Minute},
			{Name: "cache", Command: "redis-server --port 6379"},
		},
		Keep: []string{"node_modules", "web/.env.local"},
	}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("got  %+v\nwant %+v", f, want)
	}
	for _, empty := range []string{"", "\n", "# nothing yet\n\n"} {
		if f, err := Parse(Path, []byte(empty)); err != nil || !reflect.DeepEqual(f, File{}) {
			t.Errorf("%q: %+v, %v", empty, f, err)
		}
	}
}

// TestMistakes checks that each mistake is reported with its position.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"setpu: make\n":                                 `1:1: the configuration of a repository has no key "setpu"; did you mean "setup"?`,
		"limits:\n  memroy: 1GiB\n":                     `2:3: limits has no key "memroy"; did you mean "memory"?`,
		"limits:\n  memory: much\n":                     `2:11: limits.memory: "much" is not a size`,
		"limits: {cpus: 0}\n":                           `1:16: limits.cpus must be above 0`,
		"image: a\ndockerfile: b\n":                     `2:1: image and dockerfile are both set`,
		"dockerfile: ../b\n":                            `1:13: dockerfile: "../b" is not a path in the repository`,
		"image: a b\n":                                  `1:8: image: "a b" is no name of an image`,
		"merge: pul-request\n":                          `did you mean "pull-request"?`,
		"egress: [https://example.org]\n":               `1:10: egress.0: "https://example.org" is no host`,
		"egress: [{host: '*.a.org', header: {A: b}}]":   "headers are for one host",
		"egress: [{host: a.org, header: {Host: b}}]":    `1:33: egress.0.header: "Host" is no header that can be added`,
		"egress: [{host: a.org, private: true}]":        `egress.0 has no key "private"`,
		"secrets: [hunter2]\n":                          `1:11: secrets.0: "hunter2" is not possible; want the name of a secret`,
		"env: {A-B: c}\n":                               `1:7: env: "A-B" is no name of an environment variable`,
		"env: {RAMUS_X: c}\n":                           `belongs to ramus`,
		"checks: [test, lnt]\n":                         `1:16: checks.1: there is no check "lnt"; did you mean "lint"?`,
		"checks: [{run: make}]\n":                       "needs a name",
		"services:\n  db: {}\n":                         "2:7: a service needs image, or command",
		"services: {Db: {image: a}}\n":                  "1:12: the name of a service must be a host name",
		"start: [{name: a, run: b}, {name: a, run: c}]": `there are two programs called "a"`,
		"timeout: 10\n":                                 "timeout must be text",
		"timeout: soon\n":                               `1:10: timeout: "soon" is not a duration`,
		"keep: ['*.log']\n":                             `1:8: keep: "*.log" is not the path`,
		"dependencies: [{lock: a}]\n":                   "needs manager and lock",
		"setup: ''\n":                                   "1:8: setup.0 is empty",
		"setup: [a\n":                                   "1:",
		strings.Repeat("#", MaxBytes+1):                 "the file has 65537 bytes",
	} {
		_, err := Parse(Path, []byte(text))
		var problems document.Problems
		if !errors.As(err, &problems) {
			t.Errorf("%.60q is no mistake: %v", text, err)
		} else if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), Path+":") {
			t.Errorf("%.60q:\n%v\nwant %s", text, err, want)
		}
	}
}

// TestBounds checks values at their bounds.
func TestBounds(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	list := func(n int, item string) string {
		var items []string
		for i := range n {
			items = append(items, strings.ReplaceAll(item, "#", fmt.Sprint(i)))
		}
		return strings.Join(items, ", ")
	}
	for name, tt := range map[string][2]string{ // what is possible, and the first that is not
		"comments":     {strings.Repeat("#", MaxBytes), strings.Repeat("#", MaxBytes+1)},
		"command":      {"setup: " + text(maxCommand), "setup: " + text(maxCommand+1)},
		"commands":     {"setup: [" + list(maxCommands, "a") + "]", "setup: [" + list(maxCommands+1, "a") + "]"},
		"tab":          {`setup: "a\tb"`, `setup: "a\u001fb"`},
		"delete":       {`setup: "a~"`, `setup: "a\u007f"`},
		"blank":        {"setup: a", "setup: ' '"},
		"image":        {"image: " + text(maxImageName), "image: " + text(maxImageName+1)},
		"image option": {"image: a-b", "image: -b"},
		"path":         {"dockerfile: " + text(maxPath), "dockerfile: " + text(maxPath+1)},
		"inside":       {"dockerfile: a/../b", "dockerfile: a/../../b"},
		"above":        {"dockerfile: ..b", "dockerfile: .."},
		"absolute":     {"dockerfile: a", "dockerfile: /a"},
		"git":          {"dockerfile: .gitx", "dockerfile: .git"},
		"in git":       {"dockerfile: a/.git/b", "dockerfile: .git/b"},
		"keep":         {"keep: a", "keep: ."},
		"timeout":      {"timeout: 1ns", "timeout: 0s"},
		"size":         {"limits: {memory: 1}", "limits: {memory: 0}"},
		"no size":      {"limits: {memory: 1MiB}", "limits: {memory: true}"},
		"pids":         {"limits: {pids: 4194304}", "limits: {pids: 4194305}"},
		"cpus":         {"limits: {cpus: 1024}", "limits: {cpus: 1025}"},
		"port":         {"start: [{run: a, port: 65535}]", "start: [{run: a, port: 65536}]"},
		"no command":   {"start: [{run: a}]", "start: [{name: a}]"},
		"names":        {"start: [a, {run: b, name: c}]", "start: [a, {run: b, name: start-1}]"},
		"env":          {"env: {" + list(maxNames, "A#: b") + "}", "env: {" + list(maxNames+1, "A#: b") + "}"},
		"env value":    {"env: {A: " + text(maxEnvValue) + "}", "env: {A: " + text(maxEnvValue+1) + "}"},
		"env scalar":   {"env: {A: 5, B: true, C: }", "env: {A: [b]}"},
		"NUL":          {`env: {A: "\u0001"}`, `env: {A: "\0"}`},
		"secrets":      {"secrets: [A, B]", "secrets: [A, A]"},
		"hosts":        {"egress: [" + list(maxNames, "a#.org") + "]", "egress: [" + list(maxNames+1, "a#.org") + "]"},
		"no host":      {"egress: [{host: a.org}]", "egress: [{header: {A: b}}]"},
		"headers": {"egress: [{host: a.org, header: {" + list(maxHeaders, "A#: b") + "}}]",
			"egress: [{host: a.org, header: {" + list(maxHeaders+1, "A#: b") + "}}]"},
		"header": {"egress: [{host: a.org, header: {A: " + text(maxHeader) + "}}]",
			"egress: [{host: a.org, header: {A: " + text(maxHeader+1) + "}}]"},
		"header end":  {`egress: [{host: a.org, header: {A: "~ "}}]`, `egress: [{host: a.org, header: {A: "\x7f"}}]`},
		"header line": {"egress: [{host: a.org, header: {A: b}}]", `egress: [{host: a.org, header: {A: "b\r"}}]`},
		"any host":    {"egress: ['*.a.org']", "egress: [{host: '*.a.org', header: {A: b}}]"},
		"home": {"dependencies: [{manager: npm, lock: a, store: ~/.npm}]",
			"dependencies: [{manager: npm, lock: a, store: .npm}]"},
		"store": {"dependencies: [{manager: npm, lock: a, store: /a..b}]",
			"dependencies: [{manager: npm, lock: a, store: /a/../b}]"},
		"lock":       {"dependencies: [{manager: npm, lock: a}]", "dependencies: [{manager: npm}]"},
		"manager":    {"dependencies: [{manager: npm, lock: a}]", "dependencies: [{lock: a}]"},
		"check":      {"checks: [{name: a, run: b}]", "checks: [{name: a}]"},
		"check name": {"checks: [{task: lint}]", "checks: [{run: a}]"},
		"params":     {"checks: [{task: lint, params: {a: b}}]", "checks: [{name: a, run: b, params: {a: b}}]"},
		"no params":  {"checks: [{task: lint, params: {}}]", "checks: [{task: lint, params: [a]}]"},
		"task":       {"checks: [my_task]", "checks: [mytask]"},
		"one image":  {"image: a\ndockerfile: ", "image: a\ndockerfile: b"},
	} {
		if _, err := Parse(Path, []byte(tt[0])); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_, err := Parse(Path, []byte(tt[1]))
		var problems document.Problems
		if !errors.As(err, &problems) || len(problems) != 1 {
			t.Errorf("%s: want one mistake, got %v", name, err)
		}
	}
}

func TestValidHost(t *testing.T) {
	for host, want := range map[string]bool{
		"example.org": true, "*.example.org": true, "example.org:8443": true, "localhost": true, "127.0.0.1": true,
		"127.0.0.1:80": true,
		"[::1]:80":     true, "::1": true, "": false, "*": false, "a..b": false, "-a.org": false, "a.org:": false,
		"a.org:0": false, "a.org:x": false,
		"a/b": false, "a@b": false, "*.": false, "a.*.org": false,
	} {
		if got := ValidHost(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

// FuzzParse checks that Parse ends for any file, and that its mistakes are at places that the file has.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	for _, text := range []string{"", "a", "env: [", "start: [a, {run: b}]", "limits: {memory: 9999999999GiB}",
		"egress: {host: a}", "services: {a: {ports: [1, x]}}", "keep: &a [*a]"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := Parse(Path, text)
		if err == nil {
			return
		}
		var problems document.Problems
		if !errors.As(err, &problems) || len(problems) == 0 {
			t.Fatalf("got %v, want problems", err)
		}
		lines := strings.Count(string(text), "\n") + 1
		for _, p := range problems {
			if p.Line < 1 || p.Line > lines+1 || p.Column < 1 || p.Message == "" || !utf8.ValidString(p.Message) {
				t.Fatalf("a problem at no place: %+v", p)
			}
		}
	})
}

// TestGrowth checks that the time to read a file grows with it.
func TestGrowth(t *testing.T) {
	var cases []growth.Case
	for _, c := range [][3]string{{"env:\n", "  A%d: b\n"}, {"services:\n", "  a%d: {image: b}\n"},
		{"setup:\n", "  - a%d\n"}, {"egress:\n", "  - a%d.org\n"}, {"keep: [", "a%d,", "]"}} {
		cases = append(cases, growth.Case{Name: c[0], Prefix: c[0], Suffix: c[2], Limit: MaxBytes,
			Each: func(n int) string { return fmt.Sprintf(c[1], n) }})
	}
	cases = append(cases, growth.Tokens("image: a\n", "- a\n", "limits: {", "a-", "a.")...)
	growth.Check(t, "config", func(text []byte) { _, _ = Parse(Path, text) }, cases...)
}
