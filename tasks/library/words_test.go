package library

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ramus-dev/ramus/tasks/browser"
)

// TestMakeTargets reads the targets of Makefiles.
func TestMakeTargets(t *testing.T) {
	for text, want := range map[string][]string{
		"":                          {},
		"all: build\nbuild:\n":      {"all", "build"},
		"a b: c\nb:: d\n":           {"a", "b"},
		"A = x:\nB := y\nC:= z\n":   {},
		"D: E = f\ng: export H=i\n": {},
		"\ta:\nb:\n":                {"b"},
		"define a\nb:\nendef\nc:":   {"c"},
		"define a\nendef x\nc:\n":   {"c"},
		"x = a \\\nb:\nc:\n":        {"c"},
		"%.o: %.c\n$(X): y\n-a:\n":  {},
		".PHONY: a\na/b.c+d@e:\n":   {"a/b.c+d@e"},
		"a:\r\nb:\r\n":              {"a", "b"},
		"not a rule\na: b # c\n":    {"a"},
	} {
		if got := parseMakeTargets([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := parseMakeTargets([]byte(strings.Repeat("a:\n", 5) + numbered(1000))); len(got) != 1000 || got[0] != "a" || got[999] != "n998" {
		t.Errorf("%d targets", len(got))
	}
}

// numbered returns rules of n targets.
func numbered(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "n%d:\n", i)
	}
	return text.String()
}

// TestNodeTools finds the tool at the end of a script.
func TestNodeTools(t *testing.T) {
	for script, want := range map[string]string{
		"": "", "jest": "jest", "vitest run": "vitest", "mocha test": "mocha", "eslint .": "eslint", "tsc --noEmit": "tsc",
		"tsc && jest": "jest", "jest; echo": "", "jest | cat": "", "lint & mocha": "mocha", "a\njest\n": "jest",
		"npx jest": "jest", "npx --yes jest": "jest", "cross-env A=1 jest": "jest", "A=1 B_2=x jest": "jest", "=1 jest": "",
		"c8 mocha": "mocha", "nyc mocha": "mocha", "env A=1 jest": "jest", "pnpm exec jest": "jest", "yarn jest": "jest",
		"./node_modules/.bin/jest": "jest", "node_modules/jest/bin/jest.js": "jest",
		"node --test": "node", "tsx --test a.ts": "node", "node a.js": "", "node node_modules/.bin/mocha": "mocha",
		"node --x ./bin/eslint.js": "eslint", "node ./bin/tsc": "", "node vitest.js": "vitest", "make": "", "npx": "", "A=1": "",
	} {
		if got := nodeTool(script); got != want {
			t.Errorf("%q is %q, want %q", script, got, want)
		}
	}
}

// TestNodeResults reads the results of tests from a report or the output, and trusts no text that was cut.
func TestNodeResults(t *testing.T) {
	const jest = `{"numTotalTests":2,"numPassedTests":2,"numFailedTests":0,"testResults":[{"assertionResults":[{"status":"passed","title":"a"},{"status":"passed","title":"b"}]}]}`
	const words = "Tests:       3 passed, 3 total\n"
	const tap = "TAP version 13\nok 1 - a\n1..1\n# tests 1\n# pass 1\n# fail 0\n"
	for _, c := range []struct {
		name, tool             string
		report, stdout, stderr string
		cut                    bool
		want                   int // passed; -1 if nothing is known
	}{
		{"a report", "jest", jest, "", "", false, 2},
		{"a report of a long run", "jest", jest, words, "", true, 2},
		{"the output", "vitest", "", jest, "", false, 2},
		{"words", "jest", "", words, "", false, 3},
		{"words of stderr", "jest", "", "", words, false, 3},
		{"words that are cut", "jest", "", words, "", true, -1},
		{"TAP", "node", "", tap, "", false, 1},
		{"TAP that is cut", "node", "", tap, "", true, 1},
		{"nothing", "mocha", "", "", "", false, -1},
		{"nothing that is cut", "mocha", "", "", "", true, -1},
	} {
		got, ok := nodeParse(c.tool)([]byte(c.report), []byte(c.stdout), []byte(c.stderr), c.cut)
		if ok != (c.want >= 0) || ok && got.Passed != c.want {
			t.Errorf("%s: %+v, %t; want %d", c.name, got, ok, c.want)
		}
	}
}

// TestPythonCommands chooses between pytest and unittest.
func TestPythonCommands(t *testing.T) {
	for _, c := range []struct {
		which    int
		pattern  string
		flat     bool
		tool     string
		has, not []string
	}{
		{pytestOnly, "", false, "pytest", []string{"-m pytest --junitxml"}, []string{"unittest", " -k="}},
		{pytestOnly, "a or b", false, "pytest", []string{"-k='a or b'"}, []string{"unittest"}},
		{unittestOnly, "", false, "unittest", []string{pythonEnv + `"$py" -m unittest -v`}, []string{"discover", "pytest"}},
		{unittestOnly, "", true, "unittest", []string{"unittest discover -v -s tests"}, []string{"pytest"}},
		{unittestOnly, "x", true, "unittest", []string{"unittest discover -v -s tests -k='x'"}, []string{"pytest"}},
		{unittestOnly, "tests/test_a.py", true, "unittest", []string{"unittest -v 'tests/test_a.py'"}, []string{"discover"}},
		{pytestIfThere, "", true, "pytest", []string{"import pytest", "-m pytest", "else \"$py\" -m unittest discover -v -s tests; fi"}, nil},
	} {
		j := pythonTests(c.which, c.pattern, c.flat)
		if j.tool != c.tool || !strings.HasPrefix(j.command, pythonEnv) {
			t.Errorf("%+v: %s by %s", c, j.tool, j.command)
		}
		for _, text := range c.has {
			if !strings.Contains(j.command, text) {
				t.Errorf("%q is not in %s", text, j.command)
			}
		}
		for _, text := range c.not {
			if strings.Contains(j.command, text) {
				t.Errorf("%q is in %s", text, j.command)
			}
		}
	}
}

// TestKindsOfParameters compares values with schemas.
func TestKindsOfParameters(t *testing.T) {
	for _, c := range []struct{ kind, value, want string }{
		{"string", `"a"`, ""}, {"string", "1", "must be a string, not a number"}, {"boolean", "true", ""},
		{"boolean", "0", "must be true or false, not a number"}, {"number", "1.5", ""}, {"number", `"1"`, "must be a number, not a string"},
		{"integer", "3", ""}, {"integer", " 3.0 ", ""}, {"integer", "3e2", ""}, {"integer", "3.5", "must be a whole number, not 3.5"},
		{"integer", "-1", ""}, {"integer", "1e-1", "must be a whole number, not 1e-1"}, {"object", "{}", ""}, {"object", "[]", "must be an object, not a list"},
	} {
		if got := wrongType(&jsonschema.Schema{Type: c.kind}, json.RawMessage(c.value)); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.kind, c.value, got, c.want)
		}
	}
}

// TestSummaries shortens the texts of checks by their share.
func TestSummaries(t *testing.T) {
	long := strings.Repeat("x", 5000)
	c := browser.Check{Reason: long, Log: long, Views: []browser.View{{Title: long, Status: 200}}}
	for range 20 {
		c.Views[0].Console.Errors = append(c.Views[0].Console.Errors, long)
		c.Views[0].Console.PageErrors = append(c.Views[0].Console.PageErrors, "p")
		c.Views[0].Network = append(c.Views[0].Network, browser.NetworkError{Method: "GET", URL: "u", Status: 404})
	}
	for share, faults := range map[int]int{1: 10, 2: 5, 3: 4, 4: 3, 8: 2, 16: 1, 32: 1} {
		got := summary(c, share)
		v := got.Views[0]
		if len(v.Console) != faults || len(v.Network) != faults || v.Console[0] != "p" || v.Network[0] != "GET u: 404" {
			t.Errorf("share %d: %q, %q; want %d", share, v.Console, v.Network, faults)
		}
		if len(got.Reason) != 1000/share+len("…") || len(got.Log) != 4000/share || len(v.Title) != 200/share+len("…") || v.Status != 200 {
			t.Errorf("share %d: %d, %d and %d bytes", share, len(got.Reason), len(got.Log), len(v.Title))
		}
	}
	if got := brief("abc", 3); got != "abc" {
		t.Errorf("%q", got)
	}
	if got := brief("abcd", 3); got != "abc…" {
		t.Errorf("%q", got)
	}
	all := []browser.Check{{Name: "a", Verdict: browser.Pass, Reason: "fine"}, {Name: "b", Verdict: browser.Unverified, Reason: "late"},
		{Name: "c", Verdict: browser.Fail, Reason: "red"}}
	for n, want := range map[int]string{1: "fine", 2: "b: late", 3: "c: red"} {
		if got := browsed(all[:n]); got.Reason != want || got.Verdict != all[n-1].Verdict {
			t.Errorf("%d checks: %s %q, want %q", n, got.Verdict, got.Reason, want)
		}
	}
}
