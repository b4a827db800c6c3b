package workflow

import (
	"strings"
	"testing"
)

func TestReadOn(t *testing.T) {
	for _, test := range []struct{ text, branch, wrong string }{
		{"on: push\n", "any", ""},
		{"on:\n  push:\n", "any/one", ""},
		{"on: {push: {branches: [main, 'topic/*']}}\n", "topic/a", ""},
		{"on: pull\n", "", "push"},
		{"on: {pull: {}}\n", "", "pull"},
		{"'on': push\n", "any", ""},
		{"{on: push}", "any", ""},
		{"on: {push: {branches: ['topic/**']}}\n", "topic/a/b", ""},
		{"on: {push: {paths: ['src/**/*.go']}}\n", "any", ""},
		{"on: {push: {paths: []}}\n", "", "1 to 100"},
		{"on: {push: {paths: ['/abs']}}\n", "", "pattern of paths"},
		{"on: {push: {branches: ['[']}}\n", "", "pattern"},
		{"on: {push: {branches: []}}\n", "", "1 to 100"},
		{"on: {push: {branches: [" + strings.Repeat("a,", 101) + "]}}\n", "", "1 to 100"},
	} {
		text := "id: x\n" + test.text
		if strings.HasPrefix(test.text, "{") {
			text = test.text
		}
		on, err := ReadOn("x.yaml", []byte(text))
		if test.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), test.wrong) || on.Push {
				t.Errorf("%q: %+v, %v", test.text, on, err)
			}
			continue
		}
		if err != nil || !on.Matches(test.branch) {
			t.Errorf("%q: %+v, %v", test.text, on, err)
		}
	}
	if on, err := ReadOn("x.yaml", []byte("id: x\n")); err != nil || on.Matches("main") {
		t.Errorf("without events: %+v, %v", on, err)
	}
	if (On{Push: true, Branches: []string{"topic/*"}}).Matches("main") {
		t.Error("main matches topic/*")
	}
	for _, test := range []struct {
		paths, changed string
		want           bool
	}{{"", "", true}, {"", "a", true}, {"docs/**", "docs/a/b.md", true}, {"docs/**", "src/a,docs/b", true}, {"*.go", "a/b.go", false},
		{"**/*.go", "b.go", true}, {"docs/", "docs/a", true}, {"docs/**", "", false}} {
		var on On
		if test.paths != "" {
			on.Paths = []string{test.paths}
		}
		if got := on.Touches(strings.Split(test.changed, ",")); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func FuzzReadOn(f *testing.F) {
	f.Add("id: x\non: push\n")
	f.Add("on: {push: {branches: [a, 'b/*'], paths: ['**/*.go', '{a,b}/']}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if on, err := ReadOn("x.yaml", []byte(text)); err != nil && on.Push || len(on.Branches) > maxPatterns || len(on.Paths) > maxPatterns {
			t.Errorf("%+v, %v", on, err)
		}
	})
}
