package workflow

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
)

// TestAccept checks values for inputs of each type. A text is read as JSON unless the type is text.
func TestAccept(t *testing.T) {
	for _, c := range []struct {
		kind  string
		value any
		want  any
		says  string // the mistake; empty if there is none
	}{
		{"string", "1", "1", ""},
		{"string", int64(1), nil, "is not text"},
		{"any", "1", "1", ""},
		{"any", true, true, ""},
		{"boolean", true, true, ""},
		{"boolean", "false", false, ""},
		{"boolean", "no", nil, `"no" is not true or false`},
		{"boolean", int64(1), nil, "is not true or false"},
		{"integer", int64(1), int64(1), ""},
		{"integer", "12", int64(12), ""},
		{"integer", "12 13", nil, `"12 13" is not a whole number`},
		{"integer", 1.5, nil, "is not a whole number"},
		{"number", int64(1), int64(1), ""},
		{"number", "1.5", 1.5, ""},
		{"number", true, nil, "is not a number"},
		{"list", "[1]", []any{int64(1)}, ""},
		{"list", "{}", nil, "is not a list"},
		{"object", `{"a":1}`, map[string]any{"a": int64(1)}, ""},
		{"object", "[]", nil, "is not a mapping"},
	} {
		got, err := (Input{Type: c.kind}).accept(c.value)
		if !reflect.DeepEqual(got, c.want) || (err == nil) != (c.says == "") || err != nil && !hasEnd(err.Error(), c.says) {
			t.Errorf("%s %#v: %#v, %v; want %#v, %q", c.kind, c.value, got, err, c.want, c.says)
		}
	}
}

func hasEnd(s, end string) bool { return len(s) >= len(end) && s[len(s)-len(end):] == end }

// TestNumbers reads whole numbers as int64 and others as float64.
func TestNumbers(t *testing.T) {
	for text, want := range map[string]any{
		"1": int64(1), "-9223372036854775808": int64(math.MinInt64), "1.0": 1.0, "1e2": 100.0, "9223372036854775808": float64(1 << 63),
		"1e999": math.MaxFloat64, "-1e999": -math.MaxFloat64, `[1,[2]]`: []any{int64(1), []any{int64(2)}},
		`{"a":{"b":1}}`: map[string]any{"a": map[string]any{"b": int64(1)}}, "null": nil, `"1"`: "1",
	} {
		var got any
		if err := decodeJSON([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, %v; want %#v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "{", "1 2", "[] x"} {
		var got any
		if err := decodeJSON([]byte(text), &got); err == nil {
			t.Errorf("%q is read as %#v", text, got)
		}
	}
}

// TestResolveInput sets defaults, and lists all mistakes in order.
func TestResolveInput(t *testing.T) {
	w := &Workflow{ID: "w", inputs: []Input{{Name: "must", Type: "string", Required: true}, {Name: "may", Type: "integer", Default: int64(7)},
		{Name: "free", Type: "any"}}}
	for _, c := range []struct {
		given map[string]any
		want  map[string]any
		wrong []string
	}{
		{map[string]any{"must": "x"}, map[string]any{"must": "x", "may": int64(7)}, nil},
		{map[string]any{"must": "x", "may": 3, "free": []int{1}}, map[string]any{"must": "x", "may": int64(3), "free": []any{int64(1)}}, nil},
		{map[string]any{"must": "x", "may": nil}, map[string]any{"must": "x", "may": int64(7)}, nil},
		{nil, nil, []string{"must is required"}},
		{map[string]any{"must": nil}, nil, []string{"must is required"}},
		{map[string]any{"mus": "x", "may": "y"}, nil, []string{`may: "y" is not a whole number`, "must is required", `unknown input "mus"; did you mean "must"?`}},
	} {
		got, err := w.resolveInput(c.given)
		var bad *InputError
		if errors.As(err, &bad); c.wrong == nil && (err != nil || !reflect.DeepEqual(got, c.want)) {
			t.Errorf("%v: %v, %v; want %v", c.given, got, err, c.want)
		} else if c.wrong != nil && (bad == nil || bad.Workflow != "w" || !slices.Equal(bad.Mistakes, c.wrong)) {
			t.Errorf("%v: %v, want %q", c.given, err, c.wrong)
		}
	}
}

// TestTextLines splits texts into lines.
func TestTextLines(t *testing.T) {
	for text, want := range map[string][]string{"": {}, "\n": {}, "a": {"a"}, "a\n": {"a"}, "a\nb\n": {"a", "b"}, "a\n\n": {"a", ""}} {
		if got := textLines(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
