package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// yamlCases are small documents with what is hard about YAML.
var yamlCases = []string{
	"a: >\n  x\n  y\n\n  z\nb: c\n",
	"a: \"x\n  y\"\nb: c\n",
	"a: 'x\n\n  y'\nb: c\n",
	"a: x\n  y\nb: c\n",
	"a: |+\n  x\n\n\nb: c\n",
	"a: |2\n    x\n   y\nb: c\n",
	"# äöü\na: äöü # x\nb: [ä, ö, {c: d}]\ne: f\n",
	"a: \"\\\n  b\"\nc: d\n",
	"a:\n\n  # c\n\n  b: c\n\n\nd: e",
	"a: |\n  x # no\n\n  # y\nb: c\n",
	"a: \"x\\ny\\t\"\nb: c\n",
	"a: 'it''s'\nb: c\n",
	"a: |-\n\n  x\n\ty\nb: c\n",
	"a: |\n  x\ty\n  \tz\nb: c\n",
	"a: 'x\ty'\nb: c\n",
	"a: {b: c,\n  d: e}\nf: g\n",
	"a: \"b\" # c\nd: e\n",
	"- - a\n  - b\n- c\n",
	"a: b #c\nd: |\n  e\n# f\ng: h\n",
	"a: >-\n   x\n     y\n   z\nb: c\n",
	"a: &x {b: c}\nd: *x\ne: [*x, *x]\n",
	"a: 1\nb: -2.5\nc: true\nd: null\ne: ~\nf:\ng: '1'\nh: 0x10\ni: yes\nj: on\n",
	"\ufeffa: b\n",
	"--- # start\na: b\n...\n",
}

// The YAML library that ramus uses is held against another one: the same
// values at the same places, also with the line ends of Windows.
func TestYAMLAgainstAnotherParser(t *testing.T) {
	texts := map[string]string{}
	for i, s := range yamlCases {
		texts[fmt.Sprintf("case %d", i)] = s
	}
	for _, pattern := range []string{examples + "/*.yaml", "testdata/run/*.yaml", "testdata/sub/*.yaml", "testdata/bad/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = string(text)
		}
	}
	compared := 0
	for name, text := range texts {
		for _, text := range []string{text, strings.ReplaceAll(text, "\n", "\r\n")} {
			var want yaml.Node
			if err := yaml.Unmarshal([]byte(text), &want); err != nil || len(want.Content) == 0 {
				continue // mistakes are compared in golden files
			}
			d, got := parseYAML(name, []byte(text))
			if got == nil || len(d.problems) > 0 {
				if !strings.Contains(name, "bad/") {
					t.Errorf("%s: %v", name, d.problems)
				}
				continue
			}
			compared++
			sameYAML(t, name, got, want.Content[0])
		}
	}
	if compared < 40 {
		t.Errorf("only %d documents were compared", compared)
	}
}

// sameYAML compares a value with the node of the other parser.
func sameYAML(t *testing.T, name string, got *value, want *yaml.Node) {
	t.Helper()
	if want.Kind == yaml.AliasNode {
		want = want.Alias
	}
	switch want.Kind {
	case yaml.MappingNode:
		if got.kind != mapValue || len(got.fields) != len(want.Content)/2 {
			t.Errorf("%s:%d:%d: %s with %d keys, want a mapping with %d", name, want.Line, want.Column, got.kind, len(got.fields), len(want.Content)/2)
			return
		}
		for i, f := range got.fields {
			key := want.Content[2*i]
			if f.key != key.Value || f.line != key.Line || f.column != key.Column {
				t.Errorf("%s: key %q at %d:%d, want %q at %d:%d", name, f.key, f.line, f.column, key.Value, key.Line, key.Column)
			}
			sameYAML(t, name, f.value, want.Content[2*i+1])
		}
	case yaml.SequenceNode:
		if got.kind != listValue || len(got.items) != len(want.Content) {
			t.Errorf("%s:%d:%d: %s with %d items, want a list with %d", name, want.Line, want.Column, got.kind, len(got.items), len(want.Content))
			return
		}
		for i, item := range got.items {
			sameYAML(t, name, item, want.Content[i])
		}
	default:
		if got.kind == nullValue {
			if want.Tag != "!!null" {
				t.Errorf("%s:%d:%d: nothing, want %q", name, want.Line, want.Column, want.Value)
			}
			return
		}
		if got.kind == stringValue && got.text != want.Value {
			t.Errorf("%s:%d:%d: text %q, want %q", name, want.Line, want.Column, got.text, want.Value)
		}
		if want.Anchor == "" && (got.line != want.Line || got.column != want.Column) {
			t.Errorf("%s: %q at %d:%d, want %d:%d", name, want.Value, got.line, got.column, want.Line, want.Column)
		}
		var v any
		if err := want.Decode(&v); err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(got.data())
		b, _ := json.Marshal(v)
		if !bytes.Equal(a, b) {
			t.Errorf("%s:%d:%d: %s, want %s", name, want.Line, want.Column, a, b)
		}
	}
}

// Files that were made to hurt are refused, quickly, with a sentence.
func TestHostileYAML(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 40; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1)
	}
	chain := "a0: &a0 [x]\n"
	for i := 1; i < 1000; i++ {
		chain += fmt.Sprintf("a%d: &a%d [*a%d]\n", i, i, i-1)
	}
	many := "id: many\nnodes:\n"
	for i := range 1001 {
		many += fmt.Sprintf("  - {id: n%d, run: x}\n", i)
	}
	var stairs strings.Builder
	for i := range 1200 {
		stairs.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	deep := 1 << 18
	for name, c := range map[string]struct{ text, want string }{
		"ten megabytes":        {strings.Repeat("# ten megabytes\n", 10<<20/16), "the file has 10485760 bytes; a workflow file may have 1048576"},
		"aliases of aliases":   {bomb, "values once its aliases are expanded"},
		"a chain of aliases":   {chain, "nested more than 64 deep once its aliases are expanded"},
		"a circle of aliases":  {"a: &a [*a]\n", "no anchor &a stands before this alias"},
		"open brackets":        {strings.Repeat("[", deep), "YAML tokens"},
		"fewer open brackets":  {strings.Repeat("[", 5000), "nested more than 64 deep"},
		"braces":               {strings.Repeat("{a: ", 5000), "nested more than 64 deep"},
		"dashes":               {strings.Repeat("- ", 5000), "nested more than 64 deep"},
		"question marks":       {strings.Repeat("? ", 5000), "nested more than 64 deep"},
		"anchors":              {strings.Repeat("&a ", 5000), "nested more than 64 deep"},
		"tags":                 {strings.Repeat("!a ", 5000), "nested more than 64 deep"},
		"stairs":               {stairs.String(), "nested more than 64 deep"},
		"a thousand nodes":     {many, "a workflow may have 1000 nodes, this one has 1001"},
		"control characters":   {"id: a\x1b[31m\n", "a control character (0x1b)"},
		"carriage returns":     {"id: a\rnodes: b\n", "a control character (0x0d)"},
		"NUL":                  {"id: \x00\n", "a control character (0x00)"},
		"not UTF-8":            {"id: \xff\n", "this is not UTF-8"},
		"one endless line":     {"id: " + strings.Repeat("x", 1<<19) + "\nnodes: [{id: a, run: a}]\n", "id must be 1 to 64"},
		"infinity":             {"id: a\nnodes: [{id: a, run: a, max_visits: .inf}]\n", "infinity cannot stand in a workflow file"},
		"a huge number":        {"id: a\nnodes: [{id: a, run: a, max_visits: 99999999999999999999999}]\n", "max_visits"},
		"tab in double quotes": {"id: \"a\tb\"\nnodes: []\n", "write \\t for it"},
		"tab in plain text":    {"id: a\tb\nnodes: []\n", "would be lost"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Parse("hostile.yaml", []byte(c.text), testOptions)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				text := fmt.Sprint(err)
				t.Errorf("got %.500s, want %q in it", text, c.want)
			}
			if err != nil && len(err.Error()) > 100_000 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
			t.Logf("%d bytes took %v", len(c.text), time.Since(start))
		})
	}
}
