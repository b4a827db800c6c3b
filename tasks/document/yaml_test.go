package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var file = Format{Noun: "file", Needs: "it needs something", MaxBytes: 1 << 20}

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
	for _, pattern := range []string{"../../examples/workflows/*.yaml", "../testdata/*/*.yaml"} {
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
			d, got := file.Parse(name, []byte(text))
			if got == nil || len(d.Problems) > 0 {
				if !strings.Contains(name, "bad/") {
					t.Errorf("%s: %v", name, d.Problems)
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
func sameYAML(t *testing.T, name string, got *Value, want *yaml.Node) {
	t.Helper()
	if want.Kind == yaml.AliasNode {
		want = want.Alias
	}
	switch want.Kind {
	case yaml.MappingNode:
		if got.Kind != MapValue || len(got.Fields) != len(want.Content)/2 {
			t.Errorf("%s:%d:%d: %s with %d keys, want a mapping with %d", name, want.Line, want.Column, got.Kind,
				len(got.Fields), len(want.Content)/2)
			return
		}
		for i, f := range got.Fields {
			key := want.Content[2*i]
			if f.Key != key.Value || f.Line != key.Line || f.Column != key.Column {
				t.Errorf("%s: key %q at %d:%d, want %q at %d:%d", name, f.Key, f.Line, f.Column, key.Value,
					key.Line, key.Column)
			}
			sameYAML(t, name, f.Value, want.Content[2*i+1])
		}
	case yaml.SequenceNode:
		if got.Kind != ListValue || len(got.Items) != len(want.Content) {
			t.Errorf("%s:%d:%d: %s with %d items, want a list with %d", name, want.Line, want.Column, got.Kind,
				len(got.Items), len(want.Content))
			return
		}
		for i, item := range got.Items {
			sameYAML(t, name, item, want.Content[i])
		}
	default:
		if got.Kind == NullValue {
			if want.Tag != "!!null" {
				t.Errorf("%s:%d:%d: nothing, want %q", name, want.Line, want.Column, want.Value)
			}
			return
		}
		if got.Kind == StringValue && got.Text != want.Value {
			t.Errorf("%s:%d:%d: text %q, want %q", name, want.Line, want.Column, got.Text, want.Value)
		}
		if want.Anchor == "" && (got.Line != want.Line || got.Column != want.Column) {
			t.Errorf("%s: %q at %d:%d, want %d:%d", name, want.Value, got.Line, got.Column, want.Line, want.Column)
		}
		var v any
		if err := want.Decode(&v); err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(got.Data())
		b, _ := json.Marshal(v)
		if !bytes.Equal(a, b) {
			t.Errorf("%s:%d:%d: %s, want %s", name, want.Line, want.Column, a, b)
		}
	}
}

// Reading ends for every file, and names only places that the file has.
func FuzzParse(f *testing.F) {
	for _, s := range yamlCases {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, v := file.Parse("fuzz.yaml", data)
		if v == nil && len(d.Problems) == 0 {
			t.Fatalf("neither a value nor a mistake: %q", data)
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, p := range d.Problems.Sorted() {
			if p.Line < 1 || p.Line > lines+1 || p.Column < 1 || p.Message == "" || !utf8.ValidString(p.Message) {
				t.Fatalf("a problem at no place: %+v in %q", p, data)
			}
		}
		if v != nil {
			if _, err := json.Marshal(v.Data()); err != nil {
				t.Fatalf("%q: %v", data, err)
			}
		}
	})
}
