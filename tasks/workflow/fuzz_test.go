package workflow

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// Parse ends for every file, and names only places that the file has.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{examples + "/*.yaml", "testdata/*/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := Parse(t.Context(), "fuzz.yaml", data, Options{LLM: true, Load: loadExample})
		if err == nil {
			if w.ID == "" || w.start == nil || len(w.Nodes()) == 0 {
				t.Fatalf("a workflow without id, start or nodes: %q", data)
			}
			return
		}
		var problems Problems
		if !errors.As(err, &problems) || len(problems) == 0 {
			t.Fatalf("got %v, want problems", err)
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, p := range problems {
			if p.Line < 1 || p.Line > lines+1 || p.Column < 1 || p.Message == "" || !utf8.ValidString(p.Message) {
				t.Fatalf("a problem at no place: %+v in %q", p, data)
			}
		}
	})
}

// The template and shell lexers end on any text, and only find slots that are there.
func FuzzTemplate(f *testing.F) {
	for _, s := range append(pieces, "echo {{a}} \"{{b}}\" '{{c}}'", "\\{{x}}", "{{", "{{a.0.b}}{{c}}", "cat <<E\n{{x}}\nE\n{{y}}") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tm, _ := parseTemplate(s)
		for _, slot := range tm.slots() {
			if !strings.HasPrefix(s[slot.offset:], "{{") {
				t.Fatalf("a slot at %d of %q", slot.offset, s)
			}
		}
		for _, m := range checkCommand(tm) {
			if m.offset < 0 || m.offset > len(s) {
				t.Fatalf("a mistake at %d of %q", m.offset, s)
			}
		}
	})
}

// The cost of every expression is bounded.
func FuzzCondition(f *testing.F) {
	for _, s := range []string{"result.ok", "state.x + 1", `result.stdout.lines().map(l, l.split(" ")[0]).join(",")`,
		"json(result.stdout).a[0]", "stdout", "has(state.x) ? state.x : 1", "'x'.trim()"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, wrong := compileCondition(s, nil, true, true)
		if (c == nil) == (len(wrong) == 0) {
			t.Fatalf("%q: neither an expression nor a mistake", s)
		}
		if c == nil {
			return
		}
		v, err := c.eval(scope{state: map[string]any{"x": int64(1)}, input: map[string]any{},
			context: map[string]any{}}, map[string]any{"ok": true, "stdout": `{"a": [1]}`})
		if err != nil {
			return
		}
		if _, _, err := throughJSON(v); err != nil {
			t.Fatalf("%q gives %v, which is no JSON: %v", s, v, err)
		}
	})
}
