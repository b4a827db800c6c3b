package document

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// lines returns n lines, each by a format with its number from 0 on.
func lines(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// stairs returns mappings that are nested n deep.
func stairs(n int) string {
	var b strings.Builder
	for i := range n - 1 {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String() + strings.Repeat(" ", n-1) + "a: b\n"
}

// chain returns n lists that are nested by aliases.
func chain(n int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x]\n")
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d]\n", i, i, i-1)
	}
	return b.String()
}

// aliases returns a list of an alias, n times.
func aliases(target string, n int) string {
	return "a: &a " + target + "\nb: [" + strings.TrimSuffix(strings.Repeat("*a, ", n), ", ") + "]\n"
}

// TestMistakesOfFiles names the mistake of each file, and accepts files at the bounds.
func TestMistakesOfFiles(t *testing.T) {
	thousand := strings.TrimSuffix(strings.Repeat("x, ", 999), ", ")
	for _, c := range []struct {
		name, text string
		want       string // begin of the first mistake; empty if there is none
	}{
		{"empty", "", "1:1: the file is empty; it needs something"},
		{"one document", "---\na: 1\n...\n", ""},
		{"two documents", "a: 1\n---\nb: 2\n", "3:1: a second YAML document begins here; a file holds one"},
		{"mark of the byte order", "\ufeffa: b\n", ""},
		{"not UTF-8", "a: b\nc: é\xff\n", "2:5: this is not UTF-8"},
		{"control character", "a: é\x01\n", "1:5: a control character (0x01) is not allowed in a YAML file"},
		{"delete", "a: b\nc: d\x7f\n", "2:5: a control character (0x7f) is not allowed in a YAML file"},
		{"tab in single quotes", "a: 'x\ty'\n", ""},
		{"tab in double quotes", "a: b\nc: \"x\ty\"\n", `2:4: this text has a tab; write \t for it, or put the text into a | block`},
		{"tab in plain text", "a: b\nc: x\ty\n", "2:4: this text has a tab, which would be lost"},
		{"tab in a block", "a: |\n  x\ty\nb: >\n  x\ty\n", ""},
		{"tab before a line", "a:\n\t- b: c\n", "2:1: a tab indents this line; YAML wants spaces"},
		{"braces", "a: {{b.c}}\n", "1:5: could not find flow map content; a value that begins with {{ must be in quotes"},

		{"most lines without text", "a: b" + strings.Repeat("\n", maxYAMLBlank+1) + "c: d\n", ""},
		{"too many lines without text", "a: b" + strings.Repeat("\n \t", maxYAMLBlank+1) + "\nc: d\n",
			"102:1: more than 100 lines without text in a row"},
		{"lines without text at two places", "a: b" + strings.Repeat("\n", 80) + "c: d" + strings.Repeat("\n", 80) + "e: f\n", ""},
		{"too many tokens", strings.Repeat("[", maxYAMLTokens+1), "1:100001: the file has 100001 YAML tokens; a file may have 100000"},
		{"most keys", lines(maxYAMLKeys, "k%d: v\n"), ""},
		{"too many keys", lines(maxYAMLKeys+1, "k%d: v\n"), "1001:1: a mapping has more than 1000 keys"},
		{"keys of two mappings", "x:\n" + lines(600, " k%d: v\n") + "y:\n" + lines(600, " k%d: v\n"), ""},
		{"keys around a mapping", lines(600, "k%d: v\n") + "x:\n" + lines(600, "  k%d: v\n") + lines(401, "z%d: v\n"),
			"1601:1: a mapping has more than 1000 keys"},
		{"keys of many mappings in a list", lines(maxYAMLKeys+1, "- k%d: v\n"), ""},

		{"deepest brackets", strings.Repeat("[", maxYAMLDepth) + strings.Repeat("]", maxYAMLDepth), ""},
		{"too deep brackets", strings.Repeat("[", maxYAMLDepth+1) + strings.Repeat("]", maxYAMLDepth+1), "1:65: nested more than 64 deep"},
		{"too deep braces", strings.Repeat("{a: ", maxYAMLDepth+1) + strings.Repeat("}", maxYAMLDepth+1), "nested more than 64 deep"},
		{"brackets one after another", "a: [" + strings.Repeat("[], ", maxYAMLDepth+1) + "[]]\n", ""},
		{"deepest dashes", strings.Repeat("- ", maxYAMLDepth) + "a\n", ""},
		{"too deep dashes", strings.Repeat("- ", maxYAMLDepth+1) + "a\n", "1:129: nested more than 64 deep"},
		{"dashes on many lines", lines(2*maxYAMLDepth, "- x%d\n"), ""},
		{"deepest mappings", stairs(maxYAMLDepth), ""},
		{"too deep mappings", stairs(maxYAMLDepth + 1), "nested more than 64 deep"},

		{"no anchor", "a: b\nc: *x\n", "no anchor &x comes before this alias"},
		{"alias", "a: &x [b]\nc: *x\n", ""},
		{"deepest aliases", chain(61), ""},
		{"too deep aliases", chain(62), "nested more than 64 deep once its aliases are expanded"},
		{"values by aliases", aliases("["+thousand+"]", 40), ""},
		{"too many values by aliases", aliases("["+thousand+"]", 60), "the file has more than 50000 values once its aliases are expanded"},
		{"tag", "a: !!str b\n", "1:4: tags (!!str) are not used here"},
		{"merge key", "a: &x {b: c}\nd:\n  <<: *x\n", "3:3: merge keys (<<) are not used here"},
		{"key that is no text", "? a\n: b\n", "a key must be plain text"},
		{"key twice", "a: 1\nb: 2\na: 3\n", `3:1: the key "a" is here twice, first in line 1`},
		{"same key in two mappings", "a: {x: 1}\nb: {x: 1}\n", ""},
		{"infinity", "a: .inf\n", "infinity is not allowed in a file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, v := file.Parse("a.yaml", []byte(c.text))
			if c.want == "" {
				if len(d.Problems) > 0 || v == nil {
					t.Fatal(d.Problems)
				}
				return
			}
			if len(d.Problems) == 0 {
				t.Fatal("no mistake")
			}
			p := d.Problems[0]
			if got := fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message); !strings.Contains(got, c.want) {
				t.Errorf("%.300s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestBytes checks the bounds of a file and of the text that its aliases repeat.
func TestBytes(t *testing.T) {
	small := Format{Noun: "file", MaxBytes: 1000}
	text, key := strings.Repeat("x", 300), strings.Repeat("k", 300)
	for _, c := range []struct {
		name, text string
		want       string
	}{
		{"longest file", "a: " + strings.Repeat("x", 997), ""},
		{"too long file", "a: " + strings.Repeat("x", 998), "the file has 1001 bytes; a file may have 1000"},
		{"text by aliases", aliases(text, 4), ""},
		{"too much text by aliases", aliases(text, 8), "the file has more than 2000 bytes of text once its aliases are expanded"},
		{"too much text by aliases of lists", aliases("["+text+"]", 8), "the file has more than 2000 bytes of text once its aliases are expanded"},
		{"too many keys by aliases", aliases("{"+key+": x}", 8), "the file has more than 2000 bytes of text once its aliases are expanded"},
	} {
		d, v := small.Parse("a.yaml", []byte(c.text))
		switch {
		case c.want == "" && (len(d.Problems) > 0 || v == nil):
			t.Errorf("%s: %v", c.name, d.Problems)
		case c.want != "" && (len(d.Problems) != 1 || v != nil || d.Problems[0].Message != c.want):
			t.Errorf("%s: %v, want %s", c.name, d.Problems, c.want)
		}
	}
}

// TestScalars checks kinds and values of scalars.
func TestScalars(t *testing.T) {
	for text, want := range map[string]struct {
		kind  ValueKind
		value any
	}{
		"1": {NumberValue, int64(1)}, "-2": {NumberValue, int64(-2)}, "0x10": {NumberValue, int64(16)},
		"9223372036854775807": {NumberValue, int64(math.MaxInt64)}, "9223372036854775808": {NumberValue, float64(1 << 63)},
		"1.5": {NumberValue, 1.5}, "true": {BoolValue, true}, "false": {BoolValue, false}, "null": {NullValue, nil},
		"~": {NullValue, nil}, "x": {StringValue, "x"}, "'1'": {StringValue, "1"}, `"true"`: {StringValue, "true"},
		"|\n  x": {StringValue, "x"}, ">\n  x\n  y": {StringValue, "x y"}, "[]": {ListValue, nil}, "{}": {MapValue, nil},
	} {
		_, v := parse(t, "a: "+text)
		if a := v.Get("a"); a.Kind != want.kind || a.Any != want.value || a.Line != 1 || a.Column != 4 {
			t.Errorf("%q: %s %#v at %d:%d, want %s %#v", text, a.Kind, a.Any, a.Line, a.Column, want.kind, want.value)
		}
	}
	// The text at the end of a file ends with a line break if the file does.
	for text, want := range map[string]string{
		"|\n  x\n": "x\n", "|\n  x": "x", "|\n  x\n  ": "x\n", "|-\n  x": "x", "|+\n  x": "x", "|+\n  x\n\n": "x\n\n",
		">\n  x\n  y\n": "x y\n", ">\n  x\n  y": "x y", ">-\n  x\n  y\n  z": "x y z", ">\n  x\n\n  y": "x\ny",
		">\n  x\n  y\nb: 1": "x y\n", "|\n  x\nb: 1": "x\n", "x\n  y": "x y", "'x\n  y'": "x y",
	} {
		if _, v := parse(t, "a: "+text); v.Get("a").Text != want || v.Get("a").Any != want {
			t.Errorf("%q is %q, want %q", text, v.Get("a").Text, want)
		}
	}
	for text, want := range map[string]style{"x": plainStyle, "'x'": singleQuoted, `"x"`: doubleQuoted,
		"|\n  x": literalStyle, ">\n  x": foldedStyle} {
		if _, v := parse(t, "a: "+text); v.Get("a").style != want {
			t.Errorf("%q has the style %d, want %d", text, v.Get("a").style, want)
		}
	}
}

// TestBlank checks which files have nothing but comments, and that a file that is too large is not blank.
func TestBlank(t *testing.T) {
	f := Format{Noun: "file", MaxBytes: 10}
	for text, want := range map[string]bool{"": true, "# a\n\n \t# b": true, "#23456789\n": true, "#23456789\n\n": false, "a: b": false, "---": false} {
		if got := f.Blank([]byte(text)); got != want {
			t.Errorf("%q: blank %v", text, got)
		}
	}
}

// TestTabs checks that a block keeps the tabs of its text, and that a tab elsewhere is a mistake.
func TestTabs(t *testing.T) {
	for text, good := range map[string]bool{
		"a: |\n  x\ty\n":             true,
		"a: | # a comment\n  x\ty\n": true,
		"a: >-\n  x\ty\n":            true,
		"a: \"x\ty\"\n":              false,
		"a: x\ty\n":                  false,
		"# a comment\na: x\ty\n":     false,
	} {
		d, v := file.Parse("a.yaml", []byte(text))
		if (len(d.Problems) == 0) != good {
			t.Errorf("%q: %v", text, d.Problems)
		}
		if good && !strings.Contains(v.Get("a").Text, "x\ty") {
			t.Errorf("%q: the text is %q", text, v.Get("a").Text)
		}
	}
}

// TestPositionOfMappings checks that a mapping is at its first key, or at its brace.
func TestPositionOfMappings(t *testing.T) {
	for text, want := range map[string][2]int{
		"a:\n  b: 1\n  c: 2\n":     {2, 3},
		"a:\n\n    b: 1\n":         {3, 5},
		"a: {b: 1,\n  c: 2}\n":     {1, 4},
		"a: # b\n  b:\n    c: 1\n": {2, 3},
	} {
		d, v := parse(t, text)
		if at := v.Get("a"); len(d.Problems) > 0 || [2]int{at.Line, at.Column} != want {
			t.Errorf("%q: at %d:%d, want %v, %v", text, at.Line, at.Column, want, d.Problems)
		}
	}
}
