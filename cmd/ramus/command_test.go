package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/route"
)

// ramus runs a command line in this process. The environment has only a data
// folder of the test's own.
func ramus(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, stdio{strings.NewReader(""), &out, &err},
		[]string{"RAMUS_DATA=" + t.TempDir(), "PATH=/usr/bin:/bin"})
	return code, out.String(), err.String()
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ line, want string }{
		{"sevre", `unknown command "sevre"; did you mean "serve"?`},
		{"repo crate", `unknown command "repo crate"; did you mean "repo create"?`},
		{"repo", "a subcommand is missing: create, import, list, show, refresh, verify, rename, move, rm"},
		{"ps --lvie", "unknown flag --lvie; did you mean --live?"},
		{"ps extra", `unexpected argument "extra"`},
		{"log", "CALLER is missing"},
		{"exec", "CALLER is missing"},
		{"exec mallard", "the command is missing"},
		{"merge x --strategy octopus", `unknown strategy "octopus"`},
		{"run", "FILE is missing"},
		{"run f --of r", "--of needs --from"},
		{"run f --input novalue", "want K=V"},
		{"exec x --timeout soon -- ls", "invalid value"},
		{"gitd", "--root is missing"},
		{"token create", "--subject is missing"},
		{"completion csh", "no completion"},
		{"help nothing", "unknown command"},
	} {
		code, out, err := ramus(t, strings.Fields(x.line)...)
		if code != exitUsage || out != "" || !strings.Contains(err, x.want) || !strings.Contains(err, "hint:") {
			t.Errorf("ramus %s: status %d\n%s%swant %q", x.line, code, out, err, x.want)
		}
	}
}

func TestHelpOfEveryCommand(t *testing.T) {
	t.Parallel()
	var walk func(table []command, path []string)
	walk = func(table []command, path []string) {
		for _, c := range table {
			line := append(slices.Clone(path), c.name)
			if c.short == "" || strings.HasSuffix(c.short, ".") || strings.ToLower(c.short[:1]) != c.short[:1] {
				t.Errorf("%v: its one line is %q", line, c.short)
			}
			if c.subs != nil {
				walk(c.subs, line)
				continue
			}
			for _, args := range [][]string{append(slices.Clone(line), "-h"), append([]string{"help"}, line...)} {
				code, out, err := ramus(t, args...)
				if code != 0 || err != "" || !strings.HasPrefix(out, "Usage: ramus "+strings.Join(line, " ")) ||
					!strings.Contains(out, "--data folder") {
					t.Errorf("%v: status %d: %s%s", args, code, out, err)
				}
			}
			// Every flag has a description, and none is declared twice.
			c.flags(newEnv(stdio{}, nil), "x").VisitAll(func(f *flag.Flag) {
				if f.Usage == "" {
					t.Errorf("%v: flag %s has no text", line, f.Name)
				}
			})
		}
	}
	walk(commands(), nil)
	if code, out, _ := ramus(t, "help"); code != 0 || !strings.Contains(out, "checkout") {
		t.Errorf("help: status %d: %s", code, out)
	}
	if code, out, _ := ramus(t); code != exitUsage || !strings.Contains(out, "Usage") {
		t.Errorf("no arguments: status %d: %s", code, out)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		rest bool
		line string
		want []string
		flag string
	}{
		{false, "a --f 1 b", []string{"a", "b"}, "1"},
		{false, "--f=1 a", []string{"a"}, "1"},
		{false, "a -- --f 1", []string{"a", "--f", "1"}, ""},
		{false, "-- a", []string{"a"}, ""},
		{true, "a --f 1 -- ls -la --f 2", []string{"a", "ls", "-la", "--f", "2"}, "1"},
		{true, "a ls -la --f 2", []string{"a", "ls", "-la", "--f", "2"}, ""},
		{true, "a -- ls -- x", []string{"a", "ls", "--", "x"}, ""},
		{true, "--f 1 a ls", []string{"a", "ls"}, "1"},
	} {
		var f string
		c := command{rest: x.rest, set: func(fs *flag.FlagSet, _ *env) { fs.StringVar(&f, "f", "", "") }}
		got, err := c.parse(newEnv(stdio{}, nil), "x", strings.Fields(x.line))
		if err != nil || !slices.Equal(got, x.want) || f != x.flag {
			t.Errorf("%q: %q flag %q, %v; want %q flag %q", x.line, got, f, err, x.want, x.flag)
		}
	}
}

func TestExitStatuses(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{usage("x"), 2},
		{&unreadable{fs.ErrNotExist}, 2},
		{&route.Problem{Kind: route.KindNotFound}, 3},
		{fmt.Errorf("x: %w", &route.Problem{Kind: route.KindConflict}), 4},
		{&route.Problem{Kind: route.KindAmbiguous}, 4},
		{&route.Problem{Kind: route.KindUnauthorized}, 4},
		{&route.Problem{Kind: route.KindUnavailable}, 5},
		{&route.Problem{Kind: route.KindProblems}, 1},
		{&exitStatus{code: 42}, 42},
		{&exitStatus{125, &route.Problem{Kind: route.KindNotFound}}, 125},
		{context.Canceled, 130},
	} {
		if got := exitCode(x.err); got != x.want {
			t.Errorf("%v: status %d, want %d", x.err, got, x.want)
		}
	}
}

func TestInputFlag(t *testing.T) {
	t.Parallel()
	var f inputFlag
	for _, s := range []string{"a=1", "b:=1", "c:={\"d\":[true]}", "e=x=y", "f="} {
		if err := f.Set(s); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(map[string]any(f)); got != "map[a:1 b:1 c:map[d:[true]] e:x=y f:]" {
		t.Error(got)
	}
	if _, isText := f["a"].(string); !isText {
		t.Errorf("a is %T", f["a"])
	}
	for _, s := range []string{"a", "=x", "b:=nothing"} {
		if err := f.Set(s); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

func TestSafe(t *testing.T) {
	t.Parallel()
	e := newEnv(stdio{}, nil)
	hostile := "a\x1b]0;title\x07b\u202Ec\xff\r\nd"
	if got := e.safe(hostile); strings.ContainsAny(got, "\x1b\x07\u202e\r") {
		t.Errorf("%q", got)
	}
	if got := e.oneLine(hostile, 5); strings.Contains(got, "\n") || len([]rune(got)) > 5 {
		t.Errorf("%q", got)
	}
}

func TestShellWord(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "''", "ramus/run-a": "ramus/run-a", "a b": "'a b'", "it's": `'it'\''s'`,
		"$(x)": "'$(x)'", "~/a": "'~/a'"} {
		if got := shellWord(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestCompletionNamesEverything(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		code, out, _ := ramus(t, "completion", shell)
		if code != 0 {
			t.Fatalf("%s: status %d", shell, code)
		}
		for _, word := range []string{"checkout", "refresh", "strategy"} {
			if !strings.Contains(out, word) {
				t.Errorf("%s completes no %s", shell, word)
			}
		}
	}
}
