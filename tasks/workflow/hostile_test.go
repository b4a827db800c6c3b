package workflow

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Files that were made to hurt are refused, quickly, with a sentence.
func TestHostileYAML(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 40; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1,
			i-1, i-1, i-1, i-1, i-1, i-1)
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
		"ten megabytes": {strings.Repeat("# ten megabytes\n", 10<<20/16),
			"the file has 10485760 bytes; a workflow file may have 1048576"},
		"aliases of aliases":  {bomb, "values once its aliases are expanded"},
		"a chain of aliases":  {chain, "nested more than 64 deep once its aliases are expanded"},
		"a circle of aliases": {"a: &a [*a]\n", "no anchor &a comes before this alias"},
		"open brackets":       {strings.Repeat("[", deep), "YAML tokens"},
		"fewer open brackets": {strings.Repeat("[", 5000), "nested more than 64 deep"},
		"braces":              {strings.Repeat("{a: ", 5000), "nested more than 64 deep"},
		"dashes":              {strings.Repeat("- ", 5000), "nested more than 64 deep"},
		"question marks":      {strings.Repeat("? ", 5000), "nested more than 64 deep"},
		"anchors":             {strings.Repeat("&a ", 5000), "nested more than 64 deep"},
		"tags":                {strings.Repeat("!a ", 5000), "nested more than 64 deep"},
		"stairs":              {stairs.String(), "nested more than 64 deep"},
		"a thousand nodes":    {many, "a workflow may have 1000 nodes, this one has 1001"},
		"control characters":  {"id: a\x1b[31m\n", "a control character (0x1b)"},
		"carriage returns":    {"id: a\rnodes: b\n", "a control character (0x0d)"},
		"NUL":                 {"id: \x00\n", "a control character (0x00)"},
		"not UTF-8":           {"id: \xff\n", "this is not UTF-8"},
		"one endless line":    {"id: " + strings.Repeat("x", 1<<19) + "\nnodes: [{id: a, run: a}]\n", "id must be 1 to 64"},
		"infinity": {"id: a\nnodes: [{id: a, run: a, max_visits: .inf}]\n",
			"infinity is not allowed in a workflow file"},
		"a huge number":        {"id: a\nnodes: [{id: a, run: a, max_visits: 99999999999999999999999}]\n", "max_visits"},
		"tab in double quotes": {"id: \"a\tb\"\nnodes: []\n", "write \\t for it"},
		"tab in plain text":    {"id: a\tb\nnodes: []\n", "would be lost"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Parse(t.Context(), "hostile.yaml", []byte(c.text), testOptions)
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
