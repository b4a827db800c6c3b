package workflow

import (
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/tasks/document"
)

// TestPathWords compiles paths of a result, whose first word may be left out unless it has a meaning of its own.
func TestPathWords(t *testing.T) {
	for source, want := range map[string]string{
		"count": "result.count", "a.b": "result.a.b", "truth": "result.truth",
		"result.count": "result.count", "state.a": "state.a", "input.a": "input.a", "context.a": "context.a",
		"true": "true", "false": "false", "null": "null",
	} {
		c, wrong := compileCondition(source, nil, true, true)
		if c == nil || c.source != want {
			t.Errorf("%s: %+v, %v; want %s", source, c, wrong, want)
		}
	}
}

// TestExpressionsTogether bounds the expressions of a workflow together.
func TestExpressionsTogether(t *testing.T) {
	for size, ok := range map[int]bool{maxExpressions: true, maxExpressions + 1: false} {
		p := &parsing{Document: &document.Document{}, ctx: t.Context(), expressions: size - len("true")}
		v := &document.Value{Kind: document.StringValue, Text: "true"}
		if c := p.condition(v, "when", nil, nil, false, false); (c != nil) != ok {
			t.Errorf("%d bytes are accepted: %t", size, c != nil)
		}
	}
}

// TestSlotsInShellWords reads the parts of a command around a slot.
func TestSlotsInShellWords(t *testing.T) {
	for command, want := range map[string]string{
		"echo $((0+9+a_0+z+A+Z)) {{v}}":  "",
		"echo $((a[1])) {{v}}":           "numbers, names and operators",
		"echo `echo \\\\{{v}}`":          "inside backticks",
		"echo `echo \\$HOME` {{v}}":      "",
		"echo `echo \\`echo a\\`` {{v}}": "",
	} {
		tm, wrong := parseTemplate(command)
		wrong = append(wrong, checkCommand(tm)...)
		var all []string
		for _, w := range wrong {
			all = append(all, w.message)
		}
		if said := strings.Join(all, "; "); (want == "") != (said == "") || !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", command, said, want)
		}
	}
}
