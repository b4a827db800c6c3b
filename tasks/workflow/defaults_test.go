package workflow

import (
	"strings"
	"testing"
)

// TestDefaults parses a workflow with few keys, and the same with all of them.
func TestDefaults(t *testing.T) {
	parse := func(text string) *Workflow {
		t.Helper()
		w, err := Parse(t.Context(), "w.yaml", []byte(text), testOptions)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	short := parse("id: w\nconcurrency: {group: one}\nnodes:\n  - {id: ask, kind: llm, llm: {prompt: hello}}\n")
	if short.Concurrency.Group != "one" || short.Concurrency.CancelPrevious {
		t.Errorf("the concurrency is %+v", short.Concurrency)
	}
	if got := short.nodes[0].Action; got != "ask a model" {
		t.Errorf("the action is %q", got)
	}
	long := parse("id: w\nconcurrency: {group: one, cancel_previous: true}\nnodes:\n  - {id: ask, kind: llm, llm: {prompt: hello, model: small}}\n")
	if !long.Concurrency.CancelPrevious {
		t.Errorf("the concurrency is %+v", long.Concurrency)
	}
	if got := long.nodes[0].Action; got != "ask small" {
		t.Errorf("the action is %q", got)
	}
}

// TestCellNames has values whose names are equal, or are so when they are cut.
func TestCellNames(t *testing.T) {
	long := strings.Repeat("x", maxCellName)
	text := "id: w\nnodes:\n  - {id: a, run: echo, matrix: {v: [a/b, a b, a-b, " + long + "1, " + long + "2, '//']}}\n"
	w, err := Parse(t.Context(), "w.yaml", []byte(text), testOptions)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range w.nodes[0].matrix.cells {
		names = append(names, c.name)
	}
	if got, want := strings.Join(names, " "), "a-b a-b-2 a-b-3 "+long+" "+long+"-2 x"; got != want {
		t.Errorf("the cells are %s, want %s", got, want)
	}
}
