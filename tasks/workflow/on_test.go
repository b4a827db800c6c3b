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
		{"on: {push: {branches: ['[']}}\n", "", "pattern"},
		{"on: {push: {branches: []}}\n", "", "1 to 100"},
		{"on: {push: {branches: [" + strings.Repeat("a,", 101) + "]}}\n", "", "1 to 100"},
	} {
		on, err := ReadOn("x.yaml", []byte("id: x\n"+test.text))
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
}

func FuzzReadOn(f *testing.F) {
	f.Add("id: x\non: push\n")
	f.Add("on: {push: {branches: [a, 'b/*']}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if on, err := ReadOn("x.yaml", []byte(text)); err != nil && on.Push || len(on.Branches) > maxPatterns {
			t.Errorf("%+v, %v", on, err)
		}
	})
}
