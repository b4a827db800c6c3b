package workflow

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestParseCancelled checks that Parse ends with its context, also in the middle of a large text.
func TestParseCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	text := "id: a\nnodes:\n- {id: a, workflow: b}\n- {id: c, run: '" + strings.Repeat("{{a}}", 20_000) + "'}\n"
	loads := 0
	_, err := Parse(ctx, "a.yaml", []byte(text), Options{Load: func(string) ([]byte, error) {
		loads++
		cancel()
		return []byte(text), nil
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if loads != 1 {
		t.Errorf("%d sub-workflows were read", loads)
	}
	if _, err := Parse(ctx, "a.yaml", []byte(text), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is done: %v", err)
	}
}

// TestPlacesOfSlots checks places in texts of every style: the fast search gives what one reads in the file.
func TestPlacesOfSlots(t *testing.T) {
	for _, c := range []struct {
		text         string
		line, column int
	}{
		{"id: a\nnodes:\n- id: a\n  run: echo {{nope}}\n", 4, 13},
		{"id: a\nnodes:\n- id: a\n  run: 'é {{nope}}'\n", 4, 11},
		{"id: a\nnodes:\n- id: a\n  run: |\n    é\n    é {{nope}}\n", 6, 7},
		{"id: a\nnodes:\n- id: a\n  run: >\n    a\n    {{nope}}\n", 4, 8},
		{"id: a\nnodes:\n- id: a\n  run: |\n    " + strings.Repeat("é", 1000) + " {{nope}}\n", 5, 1006},
	} {
		_, err := Parse(t.Context(), "a.yaml", []byte(c.text), Options{})
		var problems Problems
		if !errors.As(err, &problems) || len(problems) != 1 {
			t.Errorf("%.60q: got %v", c.text, err)
			continue
		}
		if p := problems[0]; p.Line != c.line || p.Column != c.column {
			t.Errorf("%.60q: got %d:%d, want %d:%d", c.text, p.Line, p.Column, c.line, c.column)
		}
	}
}
