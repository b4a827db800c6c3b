package mcp

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/route"
)

// FuzzToolArguments checks that any arguments are either refused or an object that is valid for the tool's schema.
func FuzzToolArguments(f *testing.F) {
	schemas := toolSchemas()
	for _, args := range []string{
		``, `null`, `{}`, `[]`, `"x"`, `1`, `{`, `{"description":"x"}`, `{"description":""}`,
		`{"description":"x","bogus":1}`, `{"description":"x","description":1}`,
		`{"task_id":"x"}`, `{"task_id":"x","text":"y","key":"z"}`, `{"prompt":"x","caller":"run:y","wait":false}`,
		`{"run":"x/y"}`,
		`{"path":"a","content":"b","caller":"c","repo":"d"}`, `{"pattern":"**","repo":"app"}`,
		`{"message":"m","files":["a"]}`, `{"message":"m","files":[1]}`,
		`{"description":"\ud800"}`, `{"DESCRIPTION":"x"}`, `{"description":{"a":[[[[]]]]}}`, `{"wait":"true","prompt":"x"}`,
	} {
		f.Add(args)
	}
	f.Fuzz(func(t *testing.T, args string) {
		for name, schema := range schemas {
			got, err := arguments(schema, json.RawMessage(args))
			if err != nil {
				continue
			}
			var given map[string]json.RawMessage
			if err := json.Unmarshal(got, &given); err != nil {
				t.Fatalf("%s takes %q: %v", name, args, err)
			}
			var s struct {
				Required   []string                   `json:"required"`
				Properties map[string]json.RawMessage `json:"properties"`
			}
			if err := json.Unmarshal(schema, &s); err != nil {
				t.Fatal(err)
			}
			for _, key := range s.Required {
				if _, ok := given[key]; !ok {
					t.Errorf("%s takes %q without %s", name, args, key)
				}
			}
			for key := range given {
				if s.Properties[key] == nil {
					t.Errorf("%s takes %q with %s", name, args, key)
				}
			}
		}
	})
}

// TestSchemasOfAllTools checks that the schema of every tool is strict and describes each argument.
func TestSchemasOfAllTools(t *testing.T) {
	for name, schema := range toolSchemas() {
		var s struct {
			Type       string
			Required   []string
			Properties map[string]struct{ Type, Description string }
		}
		if err := json.Unmarshal(schema, &s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.Type != "object" || slices.Contains(s.Required, "") {
			t.Errorf("%s: %s", name, schema)
		}
		for key, p := range s.Properties {
			if p.Type == "" || p.Description == "" {
				t.Errorf("%s: argument %s: %+v", name, key, p)
			}
		}
		if _, err := arguments(schema, json.RawMessage(`{"surely_not":1}`)); err == nil {
			t.Errorf("%s takes what it does not know", name)
		}
	}
}

// toolSchemas returns the schemas of the arguments of all tools, by the names of the tools.
func toolSchemas() map[string]json.RawMessage {
	api := &API{Engineer: new(engineer.Engineer), Executor: new(executor.Executor)}
	schemas := map[string]json.RawMessage{}
	for _, t := range slices.Concat(api.tools(route.Local), api.sessionTools(route.Local), new(door).taskTools(record.Task{})) {
		schemas[t.Name] = t.Schema
	}
	return schemas
}
