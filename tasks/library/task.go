package library

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/ramus-dev/ramus/tasks"
)

// All returns the tasks of ramus, sorted by name.
func All() []tasks.Task { return slices.Clone(library()) }

// Lookup returns the task with a name.
func Lookup(name string) (tasks.Task, bool) {
	for _, t := range library() {
		if t.Name == name {
			return t, true
		}
	}
	return tasks.Task{}, false
}

// library is made once, at its first use, because schemas are derived by reflection.
var library = sync.OnceValue(func() []tasks.Task {
	list := []tasks.Task{
		gitCommit(), gitPush(), gitStatus(),
		runTests(), runLint(), runBuild(),
		readFile(), writeFile(), listFiles(),
		browserTest(), captureScreenshot(),
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
})

// newTask makes a task with parameters of type P. P is a struct with json and jsonschema tags, in which omitempty marks
// optional fields.
func newTask[P any](name, doc string, run func(ctx context.Context, sh tasks.Shell, p P) (tasks.Output, error)) tasks.Task {
	schema, err := jsonschema.For[P](nil)
	if err != nil {
		// Only a parameter type of this package can cause this, and every test would show it.
		panic(fmt.Sprintf("task %s: %v", name, err))
	}
	for _, p := range schema.Properties {
		// A nil slice would be `null`. Omitting the field is clearer.
		if len(p.Types) == 2 && p.Types[0] == "null" {
			p.Type, p.Types = p.Types[1], nil
		}
	}
	if a, ok := any(*new(P)).(adjuster); ok {
		a.adjust(schema)
	}
	text, err := json.Marshal(schema)
	if err != nil {
		panic(fmt.Sprintf("task %s: %v", name, err))
	}
	return tasks.Task{
		Name:   name,
		Doc:    doc,
		Schema: text,
		Run: func(ctx context.Context, sh tasks.Shell, params json.RawMessage) (tasks.Output, error) {
			p, err := decodeParams[P](schema, params)
			if err != nil {
				return tasks.Output{}, fmt.Errorf("cannot run %s: %w", name, err)
			}
			out, err := run(ctx, sh, p)
			if err != nil {
				return tasks.Output{}, fmt.Errorf("cannot run %s: %w", name, err)
			}
			return out, nil
		},
	}
}

// adjuster is a parameter struct whose schema needs more than tags can express.
type adjuster interface{ adjust(*jsonschema.Schema) }

// decodeParams reads params strictly. Names are case-sensitive, unlike in encoding/json. The error names unknown and
// missing ones.
func decodeParams[P any](schema *jsonschema.Schema, params json.RawMessage) (p P, err error) {
	fail := func(format string, args ...any) (P, error) {
		return p, fmt.Errorf("%w: %s", tasks.ErrParams, fmt.Sprintf(format, args...))
	}
	// A step without parameters has none or null.
	if given := bytes.TrimSpace(params); len(given) == 0 || string(given) == "null" {
		params = json.RawMessage("{}")
	}
	if got := jsonKind(params); got != "an object" {
		return fail("they must be an object, not %s", got)
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(params, &given); err != nil {
		return fail("they are not JSON: %v", err)
	}
	var unknown []string
	for name := range given {
		if schema.Properties[name] == nil {
			unknown = append(unknown, fmt.Sprintf("%.100q", name))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		if len(unknown) > 10 {
			unknown = append(unknown[:10], "…")
		}
		known := strings.Join(schema.PropertyOrder, ", ")
		if known == "" {
			known = "none"
		}
		return fail("there is no parameter %s; known are: %s", strings.Join(unknown, ", "), known)
	}
	for _, name := range schema.Required {
		if _, ok := given[name]; !ok {
			return fail("parameter %q is missing", name)
		}
	}
	for _, name := range schema.PropertyOrder {
		value, ok := given[name]
		if !ok {
			continue
		}
		s := schema.Properties[name]
		if why := wrongType(s, value); why != "" {
			return fail("parameter %q %s", name, why)
		}
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return fail("%v", err)
	}
	return p, nil
}

// wrongType explains why a value does not match s, a schema without references.
func wrongType(s *jsonschema.Schema, value json.RawMessage) string {
	want := map[string]string{
		"string": "a string", "boolean": "true or false", "array": "a list",
		"object": "an object", "number": "a number", "integer": "a number",
	}[s.Type]
	if got := jsonKind(value); got != want {
		return fmt.Sprintf("must be %s, not %s", want, got)
	}
	if s.Type == "integer" {
		// The schema accepts 3.0 as a whole number, and not 3.5.
		if n, ok := new(big.Float).SetString(string(bytes.TrimSpace(value))); !ok || !n.IsInt() {
			return fmt.Sprintf("must be a whole number, not %.40s", value)
		}
	}
	if s.Type == "array" {
		var items []json.RawMessage
		if err := json.Unmarshal(value, &items); err != nil {
			return err.Error()
		}
		for i, item := range items {
			if why := wrongType(s.Items, item); why != "" {
				return fmt.Sprintf("item %d %s", i+1, why)
			}
		}
	}
	return ""
}

// jsonKind returns the kind of a JSON text by its first byte.
func jsonKind(v json.RawMessage) string {
	v = bytes.TrimSpace(v)
	if len(v) == 0 {
		return "nothing"
	}
	switch v[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}
