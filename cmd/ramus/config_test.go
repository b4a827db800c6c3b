package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/gateway/gate"
)

const example = "../../ramus.example.yaml"

func TestExampleIsTheDefaults(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	// The test begins with an empty Config, not with the defaults, so that it
	// detects a key that the example lacks.
	var got Config
	if err := parseConfig(example, text, &got); err != nil {
		t.Fatal(err)
	}
	if want := Defaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("the example says\n%+v\nthe defaults are\n%+v", got, want)
	}
}

// The Helm chart writes a configuration for all of its values, which its own tests keep in this file.
func TestConfigOfChart(t *testing.T) {
	t.Parallel()
	c, err := LoadConfig("../../deploy/helm/testdata/ramus.yaml", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := c.Kubernetes
	if c.Engine != "kubernetes" || k.Namespace != "ramus-containers" || k.Template != "ramus" || k.Sidecars != 1 ||
		!k.UserNamespaces || k.Requests.Memory != 64<<20 {
		t.Errorf("%+v", c.Kubernetes)
	}
}

func TestExampleHasEveryKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	var walk func(reflect.Type, int)
	walk = func(typ reflect.Type, depth int) {
		for i, key := range keys(typ) {
			if !strings.Contains(string(text), "\n"+strings.Repeat("  ", depth)+key+":") {
				t.Errorf("%s has no key %s", example, key)
			}
			if f := typ.Field(i).Type; f.Kind() == reflect.Struct {
				walk(f, depth+1)
			}
		}
	}
	walk(reflect.TypeFor[Config](), 0)
}

func TestConfigMistakes(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ text, want string }{
		{"lisen: x", `f:1:1: unknown key "lisen"; did you mean "listen"?` + "\n    lisen: x"},
		{"limits:\n  memroy: 1GiB", `f:2:3: unknown key "limits.memroy"; did you mean "limits.memory"?`},
		{"zzzzzzzzzzzz: 1", `unknown key "zzzzzzzzzzzz"; known are data, listen`},
		{"listen: a\nlisten: b", "already defined"},
		{"limits: 3", "limits must be a mapping"},
		{"egress: one", "egress must be a list"},
		{"listen: [a]", "listen must be a single value"},
		{"capacity: many", `capacity: "many" is not a whole number`},
		{"capacity: -1", "not a whole number"},
		{"timeout: 10", "not a duration"},
		{"timeout: -1s", "not a duration"},
		{"limits:\n  memory: 2GB", "not a size"},
		{"limits:\n  memory: 9999999TiB", "not a size"},
		{"limits:\n  cpus: .nan", "single value"},
		{"limits:\n  cpus: \"nan\"", "not a number"},
		{"engine: dcoker", `did you mean "docker"?`},
		{"- a", "must be a mapping"},
		{"a: b: c", "f:1:"},
		{"listen: &a x\nurl: *a", "single value"},
		{"listen: x\n---\nurl: y", "second one"},
		{"listen: \"x", "f:1:"},
	} {
		c := Defaults()
		err := parseConfig("f", []byte(x.text), &c)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: %v, want %q", x.text, err, x.want)
		}
	}
	c := Defaults()
	err := parseConfig("f", []byte("lisen: 1\nengin: docker\ntimeout: x\n"), &c)
	if list, ok := err.(ConfigError); !ok || len(list) != 3 {
		t.Errorf("three mistakes are reported as %v", err)
	}
}

func TestConfigLayers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ramus.yaml")
	if err := os.WriteFile(path,
		[]byte("timeout: 1m\nlimits:\n  memory: 1GiB\negress: [a.example.org]\nenv:\n  A: b\nlisten:\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	c, err := LoadConfig(path, false, []string{"RAMUS_LIMITS_MEMORY=3GiB", "RAMUS_EGRESS=x, y", "RAMUS_ENV=K=V,L=a=b",
		"RAMUS_GIT_LIMITS_IDLE=3s", "RAMUS_TOKEN=t", "RAMUS_SOMETHING_ELSE_ENTIRELY=1"})
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	want.Timeout, want.Limits.Memory, want.Egress = Duration(time.Minute), 3<<30, []EgressConfig{{Host: "x"}, {Host: "y"}}
	want.Env, want.Git.Limits.Idle = map[string]string{"K": "V", "L": "a=b"}, Duration(3*time.Second)
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v\nwant\n%+v", c, want)
	}
	for _, env := range []string{"RAMUS_LISTN=x", "RAMUS_TIMEOUT=soon"} {
		if _, err := LoadConfig(path, false, []string{env}); err == nil {
			t.Errorf("%s is accepted", env)
		}
	}
	if _, err := LoadConfig(path+"x", true, nil); err != nil {
		t.Error(err)
	}
	if _, err := LoadConfig(path+"x", false, nil); err == nil {
		t.Error("a missing file that was named is no error")
	}
}

func TestConfigOfMappings(t *testing.T) {
	t.Parallel()
	c := Defaults()
	text := "slack:\n  channels:\n    C1: {repo: app, base: next}\n    C2:\n      agent: codex\ngate:\n  enabled: true\n  percentage: 2.5\n"
	if err := parseConfig("f", []byte(text), &c); err != nil {
		t.Fatal(err)
	}
	want := map[string]ChannelConfig{"C1": {Repo: "app", Base: "next"}, "C2": {Agent: "codex"}}
	if !reflect.DeepEqual(c.Slack.Channels, want) || !c.Gate.Enabled || c.Gate.Percentage != 2.5 {
		t.Errorf("%+v %+v", c.Slack, c.Gate)
	}
	text = "egress:\n  - registry.example.org\n  - {host: git.internal, private: true}\ngate: {people: {U1: {may: [run, merge], repos: [app]}, starter: {may: [run]}}}\n"
	if err := parseConfig("f", []byte(text), &c); err != nil {
		t.Fatal(err)
	}
	if all, private := hosts(c.Egress); !slices.Equal(all, []string{"registry.example.org", "git.internal"}) ||
		!slices.Equal(private, all[1:]) {
		t.Errorf("egress: %q, private %q", all, private)
	}
	var policy gate.Gate
	if err := readPeople(c.Gate.People, &policy); err != nil || len(policy.People) != 2 ||
		!slices.Equal(policy.People["U1"].May, []gate.Deed{gate.DeedRun, gate.DeedMerge}) {
		t.Errorf("people: %+v, %v", policy.People, err)
	}
	if err := readPeople(map[string]PersonConfig{"U1": {May: []string{"fly"}}}, &policy); err == nil ||
		!strings.Contains(err.Error(), "gate.people.U1.may") {
		t.Errorf("a deed that is none: %v", err)
	}
	for text, want := range map[string]string{
		"egress: [{hst: a}]":                      `unknown key "egress.hst"; did you mean "egress.host"?`,
		"egress: [{host: a, private: perhaps}]":   `egress.private: "perhaps" is neither true nor false`,
		"egress: [[a]]":                           "egress must be a single value",
		"slack:\n  channels:\n    C1: {rep: app}": `unknown key "slack.channels.C1.rep"; did you mean "slack.channels.C1.repo"?`,
		"slack:\n  channels: {C1: app}":           "slack.channels.C1 must be a mapping",
		"slack:\n  channels: [C1]":                "slack.channels must be a mapping of names",
		"gate:\n  enabled: perhaps":               `gate.enabled: "perhaps" is neither true nor false`,
	} {
		if err := parseConfig("f", []byte(text), &c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	text, err := os.ReadFile(example)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	for _, s := range []string{"a: b", "- a", "&a [*a]", "? {a: b}\n: c", "a: |\n x", "{}", "<<: *x", "!!binary x",
		"1: 2", "env: {1: 2, a: [b]}", "limits: {memory: }", "egress: [a, [b]]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := Defaults()
		_ = parseConfig("f", []byte(text), &c)
	})
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"serve", "run", "exec", "merge", "checkout"}
	for word, want := range map[string]string{"sevre": "serve", "mrege": "merge", "chekout": "checkout", "exce": "exec",
		"zzzz": "", "": ""} {
		if got := nearest(word, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

// TestExampleAgents reads the agents of the examples like a server's
// configuration.
func TestExampleAgents(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/agents/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		c, err := LoadConfig(file, false, nil)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if len(c.Agents) == 0 {
			t.Errorf("%s has no agents", file)
		}
		for name, a := range newAgents(c.Agents) {
			resumes := len(a.Resume) > 1 || a.Protocol == agent.ProtocolACP
			if len(a.Command) == 0 || !resumes || len(a.State) == 0 || a.Checks[0] != "lib_run_tests" || a.Timeout == 0 {
				t.Errorf("%s: %s: %+v", file, name, a)
			}
		}
	}
	for text, want := range map[string]string{
		"agents:\n  x: {kind: other, command: [x]}": `agents.x.kind: want one of command, acp`,
		"agents:\n  x: {permission: maybe}":         `agents.x.permission: want one of allow, ask, deny`,
		"agents:\n  x: {prompt: file}":              `agents.x.prompt: want one of stdin, argument`,
		"agents:\n  x: {comand: [x]}":               `did you mean "agents.x.command"?`,
		"agents:\n  x: {timeout: soon}":             "not a duration",
		"agents: [x]":                               "agents must be a mapping of names",
		"agents:\n  x: {command: x}":                "agents.x.command must be a list",
	} {
		c := Defaults()
		if err := parseConfig("f", []byte(text), &c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
