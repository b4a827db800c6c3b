package agent

import (
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/acp"
)

// TestReadLines reads parts of files by lines.
func TestReadLines(t *testing.T) {
	n := func(i int) *int { return &i }
	for _, c := range []struct {
		text        string
		line, limit *int
		want        string
	}{
		{"a\nb\nc\n", nil, nil, "a\nb\nc\n"},
		{"a\nb\nc", n(2), nil, "b\nc"},
		{"a\nb\nc\n", n(2), n(1), "b\n"},
		{"a\nb\nc\n", nil, n(2), "a\nb\n"},
		{"a\nb\n", n(9), n(1), ""},
		{"a\nb\n", n(1), n(0), ""},
		{"a\nb\n", n(-4), n(-4), ""},
		{"\xff\n", nil, nil, "\uFFFD\n"},
		{strings.Repeat("x", 200<<10) + "\nb\n", n(2), n(1), "b\n"},
		{"", nil, nil, ""},
	} {
		got, err := readLines(strings.NewReader(c.text), c.line, c.limit)
		if err != nil || got != c.want {
			t.Errorf("%.20q from %v, %v: %.40q, %v", c.text, c.line, c.limit, got, err)
		}
	}
	if _, err := readLines(strings.NewReader(strings.Repeat("x\n", maxReadBytes)), nil, nil); err == nil {
		t.Error("a file that is too long was read")
	}
}

// TestPlanWords describes how far a plan is done.
func TestPlanWords(t *testing.T) {
	for want, plan := range map[string][]acp.PlanItem{
		"0 of 0 done": nil,
		"1 of 3 done: b b": {{Content: "a", Status: "completed"}, {Content: "b\n b", Status: "in_progress"},
			{Content: "c", Status: "pending"}},
		"0 of 2 done: a":    {{Content: "a", Status: "pending"}, {Content: "b", Status: "pending"}},
		"1 of 1 done":       {{Content: "a", Status: "completed"}},
		"0 of 2 done: then": {{Content: "first", Status: "pending"}, {Content: "then", Status: "in_progress"}},
	} {
		if got := planWords(plan); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
