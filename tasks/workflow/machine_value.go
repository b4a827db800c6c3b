package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/tasks/document"
)

// Bounds on a run's state, in bytes of JSON.
const (
	maxStateValue = 1 << 20
	maxState      = 8 << 20
)

// decodeJSON reads one JSON value. Whole numbers become int64, so that expressions can count with them, and all others
// float64.
func decodeJSON(data []byte, into *any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	*into = numbers(*into)
	return nil
}

// numbers replaces json.Number in a freshly decoded value, in place.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, err := v.Float64()
		if err != nil {
			// The number is too large for a float64, and becomes the nearest one that JSON can write again.
			return math.Copysign(math.MaxFloat64, f)
		}
		return f
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = numbers(v[key])
		}
	}
	return v
}

// throughJSON encodes a value as JSON and returns the decoded copy and the length of the JSON. A run that was rebuilt
// from its journal must see the same values as the first one.
func throughJSON(v any) (any, int, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, 0, err
	}
	var copied any
	if err := decodeJSON(raw, &copied); err != nil {
		return nil, 0, err
	}
	return copied, len(raw), nil
}

// normal is throughJSON for a value from a file, which cannot fail.
func normal(v any) any {
	if n, _, err := throughJSON(v); err == nil {
		return n
	}
	return v
}

// normalObject is throughJSON for a mapping. nil becomes an empty one.
func normalObject(m map[string]any) (map[string]any, error) {
	if len(m) == 0 {
		return map[string]any{}, nil
	}
	v, _, err := throughJSON(m)
	if err != nil {
		return nil, err
	}
	return v.(map[string]any), nil
}

// accept checks a value for an input. If the type of the input is not text, a text is read as JSON, because a command
// line has only texts.
func (in Input) accept(v any) (any, error) {
	if text, ok := v.(string); ok && in.Type != "string" && in.Type != "any" {
		var parsed any
		if err := decodeJSON([]byte(text), &parsed); err != nil {
			return nil, fmt.Errorf("%q is not %s", text, article(in.Type))
		}
		v = parsed
	}
	ok := true
	switch in.Type {
	case "string":
		_, ok = v.(string)
	case "boolean":
		_, ok = v.(bool)
	case "integer":
		_, ok = v.(int64)
	case "number":
		if _, ok = v.(int64); !ok {
			_, ok = v.(float64)
		}
	case "list":
		_, ok = v.([]any)
	case "object":
		_, ok = v.(map[string]any)
	}
	if !ok {
		return nil, fmt.Errorf("%s is not %s", kindOfJSON(v), article(in.Type))
	}
	return v, nil
}

// article returns an input type for use in a sentence.
func article(kind string) string {
	switch kind {
	case "string":
		return "text"
	case "boolean":
		return "true or false"
	case "integer":
		return "a whole number"
	case "object":
		return "a mapping"
	default:
		return "a " + kind
	}
}

// InputError is input that does not match the workflow's declarations.
type InputError struct {
	Workflow string
	Mistakes []string // one sentence each, sorted
}

func (e *InputError) Error() string {
	return "the input of " + e.Workflow + " does not fit: " + strings.Join(e.Mistakes, "; ")
}

// resolveInput checks the given input and sets defaults.
func (w *Workflow) resolveInput(given map[string]any) (map[string]any, error) {
	given, err := normalObject(given)
	if err != nil {
		return nil, &InputError{w.ID, []string{err.Error()}}
	}
	var wrong, names []string
	resolved := map[string]any{}
	for _, in := range w.inputs {
		names = append(names, in.Name)
		v, ok := given[in.Name]
		switch {
		case ok && v != nil:
			if v, err = in.accept(v); err != nil {
				wrong = append(wrong, in.Name+": "+err.Error())
				continue
			}
			resolved[in.Name] = v
		case in.Required:
			wrong = append(wrong, in.Name+" is required")
		case in.Default != nil:
			resolved[in.Name] = in.Default
		}
	}
	for name := range given {
		if !slices.Contains(names, name) {
			wrong = append(wrong, fmt.Sprintf("unknown input %q%s", name, document.Suggest(name, names)))
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return nil, &InputError{w.ID, wrong}
	}
	return resolved, nil
}
