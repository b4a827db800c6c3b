package workflow

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/ramus-dev/ramus/tasks/service"
)

func workflowSchemaResolved(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// An editor must not underline what ramus accepts.
func TestSchemaAcceptsValidFiles(t *testing.T) {
	schema := workflowSchemaResolved(t)
	n := 0
	for _, pattern := range []string{examples + "/*.yaml", "testdata/run/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			d, root := workflowFile.Parse(file, text)
			if root == nil {
				t.Fatal(d.Problems)
			}
			n++
			if err := schema.Validate(normal(root.Data())); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d files", n)
	}
}

// And it should underline what is plainly wrong.
func TestSchemaRejectsGrossMistakes(t *testing.T) {
	schema := workflowSchemaResolved(t)
	for _, text := range []string{
		"id: a",
		"nodes: [{id: a, run: x}]",
		"{id: a, nodes: []}",
		"{id: a, nodes: [{id: a}]}",
		"{id: A B, nodes: [{id: a, run: x}]}",
		"{id: a, nodez: [], nodes: [{id: a, run: x}]}",
		"{id: a, nodes: [{id: a, run: 5}]}",
		"{id: a, nodes: [{id: a, run: x, exec: y}]}",
		"{id: a, nodes: [{id: a, run: x, execution: {timeout_ms: -1}}]}",
		"{id: a, nodes: [{id: a, kind: shel}]}",
		"{id: a, nodes: [{id: a, run: x}], repo: {merge_strategy: octopus}}",
		"{id: a, nodes: [{id: a, run: x}], transitions: [{from: a}]}",
		"{id: a, nodes: [{id: a, run: x}], transitions: [{from: a, to: a, on: maybe}]}",
		"{id: a, nodes: [{id: a, run: x}], transitions: [{from: a, to: a, fan_out: {}}]}",
		"{id: a, nodes: [{id: a, run: x}], input: {x: {type: text}}}",
		"[1]",
	} {
		_, root := workflowFile.Parse("x", []byte(text))
		if root == nil {
			t.Fatalf("%s is not YAML", text)
		}
		if schema.Validate(normal(root.Data())) == nil {
			t.Errorf("the schema accepts %s", text)
		}
		if _, err := Parse(t.Context(), "x", []byte(text), testOptions); err == nil {
			t.Errorf("the parser accepts %s", text)
		}
	}
}

// The keys of the schema, of the parser and of the reference are the same.
func TestKeysAreTheSameEverywhere(t *testing.T) {
	var s struct {
		Properties map[string]json.RawMessage
		Defs       map[string]struct{ Properties map[string]json.RawMessage } `json:"$defs"`
	}
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	inner := func(m map[string]json.RawMessage, name string) map[string]json.RawMessage {
		var p struct {
			Properties           map[string]json.RawMessage
			AdditionalProperties json.RawMessage
			OneOf                []json.RawMessage
		}
		if err := json.Unmarshal(m[name], &p); err != nil {
			t.Fatal(err)
		}
		if p.Properties == nil && len(p.OneOf) > 0 {
			_ = json.Unmarshal(p.OneOf[len(p.OneOf)-1], &p)
		}
		if p.Properties == nil {
			_ = json.Unmarshal(p.AdditionalProperties, &p)
		}
		return p.Properties
	}
	node, transition := s.Defs["node"].Properties, s.Defs["transition"].Properties
	reference, err := os.ReadFile("../../docs/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	var human struct {
		OneOf []struct{ Properties map[string]json.RawMessage }
	}
	var defs struct {
		Defs map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(Schema(), &defs); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(defs.Defs["human"], &human); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		keys   []string
		schema map[string]json.RawMessage
	}{
		{"workflow", workflowKeys, s.Properties},
		{"repo", repoKeys, inner(s.Properties, "repo")},
		{"on", onKeys, inner(s.Properties, "on")},
		{"push", pushKeys, inner(inner(s.Properties, "on"), "push")},
		{"concurrency", groupKeys, inner(s.Properties, "concurrency")},
		{"input", inputKeys, inner(s.Properties, "input")},
		{"node", nodeKeys, node},
		{"execution", executionKeys, inner(node, "execution")},
		{"service", service.Keys(), s.Defs["service"].Properties},
		{"implementation", slices.Concat(shellKeys, taskKeys, subKeys, llmKeys, humanKeys), inner(node, "implementation")},
		{"llm", llmKeys, s.Defs["llm"].Properties},
		{"human", humanKeys, human.OneOf[1].Properties},
		{"transition", transitionKeys, transition},
		{"fan_out", fanOutKeys, inner(transition, "fan_out")},
		{"fan_in", fanInKeys, inner(transition, "fan_in")},
	} {
		if len(c.schema) == 0 {
			t.Errorf("%s: nothing found in the schema", c.what)
		}
		for _, key := range c.keys {
			if _, ok := c.schema[key]; !ok {
				t.Errorf("%s: the schema has no %s", c.what, key)
			}
			if !strings.Contains(string(reference), "`"+key+"`") {
				t.Errorf("%s: the reference says nothing about %s", c.what, key)
			}
		}
		for key := range c.schema {
			if !slices.Contains(c.keys, key) {
				t.Errorf("%s: only the schema has %s", c.what, key)
			}
		}
	}
}
