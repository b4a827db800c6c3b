package library

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

func TestParseStatus(t *testing.T) {
	const in = "# branch.oid 0123\n# branch.head work\n# branch.upstream origin/work\n# branch.ab +2 -3\n# unknown thing\n" +
		"1 .M N... 100644 100644 100644 aa bb a b.txt\n" +
		"1 A. N... 000000 100644 100644 aa bb \"tab\\there\"\n" +
		"1 .D N... 100644 100644 000000 aa bb gone\n" +
		"2 R. N... 100644 100644 100644 aa bb R100 new name\told name\n" +
		"u UU N... 100644 100644 100644 100644 aa bb cc clash\n" +
		"? \"new\\nline\"\n! ignored\n9 future\n"
	got, err := parseStatus([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	want := Status{Branch: "work", Head: "0123", Upstream: "origin/work", Ahead: 2, Behind: 3, Changed: 6,
		Files: []FileStatus{
			{"a b.txt", "", "modified"}, {"tab\there", "", "added"}, {"gone", "", "deleted"},
			{"new name", "old name", "renamed"}, {"clash", "", "conflict"}, {"new\nline", "", "untracked"},
		}}
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if !bytes.Equal(g, w) {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
	for _, in := range []string{"1 x\n", "# branch.ab ++\n", "2 R. a b\n"} {
		if _, err := parseStatus([]byte(in)); err == nil {
			t.Errorf("%q was read", in)
		}
	}
}

func FuzzStatus(f *testing.F) {
	f.Add([]byte("# branch.head work\n1 .M N... 1 1 1 a b c\n? \"x\\\"y\"\n2 R. N... 1 1 1 a b R1 c\td\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s, _ := parseStatus(in)
		if s.Changed < len(s.Files) || s.Clean != (s.Changed == 0) {
			t.Errorf("got %+v", s)
		}
	})
}

func FuzzMakeTargets(f *testing.F) {
	f.Add([]byte("all: build test\nbuild:\n\tgo build\n.PHONY: all\nX := y\ndefine d\na:\nendef\n%.o: %.c\na b c:: d\nV: X = 1\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, name := range parseMakeTargets(in) {
			if name == "" || name[0] == '-' || strings.ContainsAny(name, "=$%: \t\n'") {
				t.Errorf("target %q", name)
			}
		}
	})
}

func FuzzNodeTool(f *testing.F) {
	f.Add("tsc && NODE_ENV=test npx vitest run | cat")
	f.Fuzz(func(t *testing.T, script string) { nodeTool(script) })
}

// TestDetectGrowth checks that the time to read what commands and files say grows with the text.
func TestDetectGrowth(t *testing.T) {
	common := growth.Tokens("a", "\n", "a\n", " ", "    \n", "\x1b[", "\x1b[1m", "\x1b[0;", "{", "{\n", "[", "[\n", "<",
		"<a>", "\"", "é", "\xff", "\x00", "\r\n", "0 a", ": ", "1")
	growth.Check(t, "status", func(text []byte) { _, _ = parseStatus(text) },
		append(growth.Tokens("? a\n", `? "\"`, `? "\141"`+"\n", "1 .M N... 1 1 1 a b c\n",
			"2 R. N... 1 1 1 a b R1 c\td\n", "# branch.head a\n"), common...)...)
	growth.Check(t, "make targets", func(text []byte) { parseMakeTargets(text) },
		append(growth.Tokens("a:\n", "a ", "a b: c\n", "define a\n", "endef\n", "\ta\n", "a\\\n", ".PHONY: a\n", "X := y\n"),
			append(common, growth.Case{Name: "names", Each: func(n int) string { return fmt.Sprintf("n%d:\n", n) }})...)...)
	growth.Check(t, "node tool", func(text []byte) { nodeTool(string(text)) },
		append(growth.Tokens("a ", "&&", "| ", "; ", "A=b ", "npx ", "vitest "), common...)...)
}
