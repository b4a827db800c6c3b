package workflow

import (
	"reflect"
	"strings"
	"testing"
)

// TestNamesOfBranches accepts the names that git accepts.
func TestNamesOfBranches(t *testing.T) {
	for name, good := range map[string]bool{
		"main": true, "a/b.c": true, "é": true, "a@b": true, "a-": true, "refs": true, "a.lock.b": true,
		"": false, "@": false, "-a": false, "refs/heads/a": false, "a.": false, "a..b": false, "a@{b": false, "a b": false, "a~b": false,
		"a^": false, "a:b": false, "a?": false, "a*": false, "a[": false, `a\b`: false, "a\x7f": false, "a\nb": false,
		"a//b": false, "/a": false, "a/": false, "a/.b": false, ".a": false, "a.lock": false, "a.lock/b": false,
	} {
		if branchName(name) != good {
			t.Errorf("%q is the name of a branch: %t", name, !good)
		}
	}
	for name, good := range map[string]bool{"app": true, "a/b": true, "": false, "-a": false, "a b": false, "a:b": false, "a{": false} {
		if repoName(name) != good {
			t.Errorf("%q is the name of a repository: %t", name, !good)
		}
	}
}

// TestLookup follows the paths of slots.
func TestLookup(t *testing.T) {
	s := scope{
		state:   map[string]any{"a": map[string]any{"b": []any{"x", map[string]any{"c": int64(1)}}}, "n": nil, "both": "state"},
		input:   map[string]any{"i": "in", "both": "input"},
		context: map[string]any{"run": "r"},
	}
	for path, want := range map[string]any{"a.b.0": "x", "a.b.1.c": int64(1), "state.a.b.0": "x", "i": "in", "input.i": "in", "both": "state",
		"input.both": "input", "context.run": "r", "n": nil, "state.n": nil} {
		if got, ok := s.lookup(strings.Split(path, ".")); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %t; want %v", path, got, ok, want)
		}
	}
	for _, path := range []string{"none", "state.none", "input.none", "context.none", "a.none", "a.b.2", "a.b.-1", "a.b.x", "a.b.0.x", "n.x",
		"matrix.os", "i.x", "a.b.1.none"} {
		if got, ok := s.lookup(strings.Split(path, ".")); ok || got != nil {
			t.Errorf("%s: %v, %t", path, got, ok)
		}
		if _, err := s.value(&slot{path: strings.Split(path, ".")}); err == nil || !strings.Contains(err.Error(), "has no value here") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := s.value(&slot{path: []string{"n"}}); err == nil || !strings.Contains(err.Error(), "is null") {
		t.Errorf("null: %v", err)
	}
	s.matrix = map[string]any{"os": "linux"}
	if got, ok := s.lookup([]string{"matrix", "os"}); !ok || got != "linux" {
		t.Errorf("%v, %t", got, ok)
	}
}

// TestHereDocuments accepts slots on the line of a here-document and after it, and refuses them in it.
func TestHereDocuments(t *testing.T) {
	for text, good := range map[string]bool{
		"cat <<END {{v}}\nx\nEND\n":               false,
		"cat <<'END'\nx\nEND\necho {{v}}":         true,
		"cat <<\"END\" && ls\nx\nEND\necho {{v}}": true,
		"cat <<-'END'\n\tx\n\tEND\necho {{v}}":    true,
		"cat <<'A' <<'B'\nA\nB\necho {{v}}":       true,
		"cat <<'END'\n'\nEND\necho {{v}}":         true,
		"cat <<'END'\n{{v}}\nEND\n":               false,
		"cat <<END\n{{v}}\nEND\n":                 false,
		"cat <<END\nx\n END\n{{v}}\nEND\n":        false,
		"cat <<-END\nx\n\tEND\necho {{v}}":        true,
		"cat <<'E N D' {{v}}\nx\nE N D\n":         false,
		"cat <<\\END {{v}}\nx\nEND\n":             false,
		"cat <<END\n$(x)\nEND\necho {{v}}":        false,
		"cat <<'END'\n$(x)\nEND\necho {{v}}":      true,
		"echo $(cat <<END\nx\nEND\n) && x {{v}}":  false,
	} {
		w, err := Parse(t.Context(), "a.yaml", []byte("id: a\ninput: {v: {type: string}}\nnodes:\n  - id: n\n    run: |\n      "+
			strings.ReplaceAll(text, "\n", "\n      ")+"\n"), testOptions)
		if (err == nil) != good || (w != nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestDescribe draws a workflow, and has the values of the keys that it leaves out.
func TestDescribe(t *testing.T) {
	w := parsed(t, `id: drawn
description: Draws.
nodes:
  - id: a
    run: |
      echo a
      echo b
    output: {list: '["x", "y"]'}
  - id: b
    run: echo b
  - id: c
    run: echo c
  - id: d
    run: echo d
  - id: e
    run: echo e
transitions:
  - {from: a, to: b, fan_out: {over: state.list, branch: true}}
  - {from: b, to: c, fan_in: true}
  - {from: c, to: d, fan_out: {spawn_count: 3, branch: true}}
  - {from: d, to: e, fan_in: true}
  - {from: c, to: e, on: failure}
  - {from: e, to: a, when: 'size(state.list)  >  5'}
`)
	want := `drawn: Draws.
  a  [shell] echo a …
      → b, a line for each of state.list
  | b  [shell] echo b
  |     → c, together
  c  [shell] echo c
      → d, 3 lines
      → e on failure
  | d  [shell] echo d
  |     → e, together
  e  [shell] echo e
      → a when size(state.list) > 5
`
	if got := w.Describe(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for text, want := range map[string]bool{"": false, "repo: {base_branch: main}\n": false, "repo: {merge_on_success: false}\n": false,
		"repo: {merge_on_success: true}\n": true} {
		if got := parsed(t, "id: a\n"+text+"nodes: [{id: n, run: x}]\n").Repo.MergeOnSuccess; got != want {
			t.Errorf("%q merges: %t", text, got)
		}
	}
}
