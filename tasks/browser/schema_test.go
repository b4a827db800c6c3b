package browser_test

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ramus-dev/ramus/tasks/browser"
	"github.com/ramus-dev/ramus/tasks/document"
)

func schema(t *testing.T) (*jsonschema.Schema, *jsonschema.Resolved) {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(browser.Schema(), &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &s, resolved
}

// The schema has the fields of the types, neither more nor fewer, and each with a description.
func TestSchemaHasTheFieldsOfASpec(t *testing.T) {
	s, _ := schema(t)
	for _, c := range []struct {
		name   string
		schema *jsonschema.Schema
		of     any
	}{
		{"spec", s, browser.Spec{}},
		{"viewport", s.Properties["viewports"].Items.AnyOf[1], browser.Viewport{}},
		{"allow", s.Properties["allow"], browser.Allow{}},
		{"screenshot", s.Properties["screenshot"], browser.Shot{}},
		{"compare", s.Properties["compare"], browser.Against{}},
	} {
		var got, want []string
		for name, p := range c.schema.Properties {
			got = append(got, name)
			if p.Description == "" {
				t.Errorf("%s: %s has no description", c.name, name)
			}
		}
		for f := range reflect.TypeOf(c.of).Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
				want = append(want, name)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %q, the type %q", c.name, got, want)
		}
	}
	step := s.Properties["steps"].Items
	want := append(slices.Clone(browser.Actions), "value", "in", "secret", "timeout")
	for name := range step.Properties {
		if !slices.Contains(want, name) {
			t.Errorf("a step has no %q", name)
		}
	}
	if len(step.Properties) != len(want) || len(step.OneOf) != len(browser.Actions) {
		t.Errorf("%d properties of a step, want %q", len(step.Properties), want)
	}
}

// What the schema takes the parser takes, and the other way round.
func TestSchemaAgreesWithTheParser(t *testing.T) {
	_, schema := schema(t)
	whole, err := os.ReadFile("testdata/todo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{
		string(whole), "{}", "name: a", `name: ""`, "name: 5", "nme: a",
		"start: none\nurl: http://a/", "url: http://localhost:5173", "url: HTTPS://a/b?c#d", "url: ftp://a",
		"url: a", "url: 5",
		"wait: 90s", "wait: 1m30s", "wait: 90", `wait: "90"`, "wait: soon", "timeout: 1.5m", "timeout: 500000ms",
		"viewports: []", "viewports: [desktop]", "viewports: [huge]", "viewports: desktop",
		"viewports: [{width: 200, height: 200}]", "viewports: [{width: 199, height: 200}]",
		"viewports: [{width: 200, height: 8001}]",
		"viewports: [{width: 4000, height: 8000}]", "viewports: [{width: 4001, height: 200}]",
		"viewports: [{width: 200, height: 199}]",
		"viewports: [{width: 200}]", "viewports: [{width: 200.5, height: 200}]",
		"viewports: [{width: 200, height: 200, scale: 0.5}]",
		"viewports: [{width: 200, height: 200, scale: 0.4}]", "viewports: [{width: 200, height: 200, scale: 4}]",
		"viewports: [{width: 200, height: 200, scale: 4.1}]",
		"viewports: [{name: A, width: 200, height: 200}]", "viewports: [{name: a-1, width: 200, height: 200, mobile: true}]",
		"viewports: [{name: a, width: 200, height: 200, depth: 1}]",
		"steps: []", "steps: {click: a}", "steps: [click]", "steps: [{}]", "steps: [{value: a}]",
		"steps: [{click: a, hover: b}]",
		"steps: [{click: a, timeout: 5s}]", "steps: [{click: a, timeout: 5}]", `steps: [{click: ""}]`, "steps: [{click: 5}]",
		`steps: [{fill: a, value: "", secret: true}]`, "steps: [{fill: a, value: 5}]", "steps: [{fill: a, value: [5]}]",
		"steps: [{fill: a, value: b, secret: 1}]", "steps: [{press: Enter, in: a}]", `steps: [{press: Enter, in: ""}]`,
		"steps: [{expect_count: a, value: 3}]", `steps: [{expect_count: a, value: "3"}]`,
		"allow: {}", "allow: {console: [a], page_errors: [b], requests: [c]}", "allow: {console: a}",
		`allow: {console: [""]}`, "allow: {css: [a]}", "allow: [a]",
		"screenshot: {}", "screenshot: {full_page: true, selector: a, mask: [b]}",
		`screenshot: {selector: a, mask: [""]}`, "screenshot: {mask: a}", "screenshot: true",
		"video: true", "video: 1", "pdf: false", `pdf: "no"`, "compare: {}", "compare: true", "compare:",
		"compare: {base: main, max_changed: 0, threshold: 1}",
		"compare: {max_changed: 1.1}", "compare: {threshold: -0.1}", "compare: {branch: main}",
		"clock: 2026-03-01T12:00:00Z", "clock: 5", "[]", "null", "5",
	}
	for _, action := range browser.Actions {
		texts = append(texts, "steps: [{"+action+": /a, value: 1}]", "steps: [{"+action+": /a}]",
			"steps: [{"+action+"s: /a}]")
	}
	file := document.Format{Noun: "spec", Needs: "it needs something", MaxBytes: 1 << 20}
	for _, text := range texts {
		_, v := file.Parse("x", []byte(text))
		if v == nil {
			t.Fatalf("%s is not YAML", text)
		}
		// Through JSON, as an editor would see it.
		data, err := json.Marshal(v.Data())
		if err != nil {
			t.Fatal(err)
		}
		var plain any
		if err := json.Unmarshal(data, &plain); err != nil {
			t.Fatal(err)
		}
		bySchema := schema.Validate(plain)
		_, byParser := browser.Parse("x.yaml", []byte(text))
		// Which actions take a value is the parser's alone.
		if (bySchema == nil) != (byParser == nil) && !strings.Contains(text, "/a") {
			t.Errorf("%s: the schema says %v, the parser %v", text, bySchema, byParser)
		}
		if bySchema != nil && byParser == nil {
			t.Errorf("%s: the schema refuses what the parser takes: %v", text, bySchema)
		}
	}
}

// docs/browser.md names every key and every action.
func TestReferenceIsComplete(t *testing.T) {
	text, err := os.ReadFile("../../docs/browser.md")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := schema(t)
	for name := range s.Properties {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/browser.md has no key `%s`", name)
		}
	}
	for _, action := range browser.Actions {
		if !strings.Contains(string(text), "`{"+action+": ") {
			t.Errorf("docs/browser.md has no step `{%s: …}`", action)
		}
	}
}
