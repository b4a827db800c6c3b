package pushed

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

func TestParse(t *testing.T) {
	for _, x := range []struct {
		options string // one a line
		want    Ask
	}{
		{"", Ask{}},
		{"run=ci.yaml\nparam.x=1\nparam.y:=[1]", Ask{File: "ci.yaml", Input: map[string]any{"x": "1", "y": []any{1.0}}}},
		{"agent=fix it = now", Ask{Prompt: "fix it = now"}},
		{"agent.coder=fix it\ndetach", Ask{Agent: "coder", Prompt: "fix it", Detach: true}},
		{"test", Ask{Task: testTask}},
		{"task=lib_run_lint", Ask{Task: "lib_run_lint"}},
		{"task=" + strings.Repeat("x", maxName), Ask{Task: strings.Repeat("x", maxName)}},
		{"agent=" + strings.Repeat("x", maxPrompt), Ask{Prompt: strings.Repeat("x", maxPrompt)}},
		{"ci.skip\nmerge_request.create\ntest=1\nrun", Ask{Ignored: []string{"ci.skip", "merge_request.create", "test=1", "run"}}},
	} {
		var options []string
		if x.options != "" {
			options = strings.Split(x.options, "\n")
		}
		if got, err := Parse(options); err != nil || !reflect.DeepEqual(got, x.want) {
			t.Errorf("%q: %+v, %v", x.options, got, err)
		}
	}
	for _, options := range [][]string{{"run="}, {"agent="}, {"agent.=x"}, {"task="}, {"param.x=1"}, {"run=a", "param.=1"}, {"run=a", "param.x:={"},
		{"run=a", "test"}, {"test", "test"}, {"detach"}, {"run=" + strings.Repeat("x", maxName+1)},
		{"agent=" + strings.Repeat("x", maxPrompt+1)}, make([]string, maxOptions+1)} {
		if got, err := Parse(options); !errors.Is(err, record.ErrInvalid) {
			t.Errorf("%.100q: %+v, %v", options, got, err)
		}
	}
}

// TestParseBound reads as many options as there may be.
func TestParseBound(t *testing.T) {
	if got, err := Parse(make([]string, maxOptions)); err != nil || len(got.Ignored) != maxOptions {
		t.Errorf("got %d options, %v, want %d", len(got.Ignored), err, maxOptions)
	}
}

// TestAskOfNotice reads the work from the options of a push, and else from the names of its refs.
func TestAskOfNotice(t *testing.T) {
	for _, x := range []struct {
		options string
		refs    []string
		want    Ask
		wrong   bool
	}{
		{"", []string{"refs/heads/a", "refs/heads/b"}, Ask{}, false},
		{"", []string{gitd.AskRefs + "ci"}, Ask{File: "ci.yaml"}, false},
		{"", []string{gitd.ReviewRefs + "main"}, Ask{Task: testTask}, false},
		{"run=ci.yaml", []string{gitd.ReviewRefs + "main"}, Ask{File: "ci.yaml"}, false},
		{"run=ci.yaml", []string{gitd.AskRefs + "other"}, Ask{File: "ci.yaml"}, false},
		{"", []string{gitd.AskRefs + "ci", "refs/heads/a"}, Ask{}, true},
		{"", []string{"refs/heads/a", gitd.ReviewRefs + "main"}, Ask{}, true},
		{"run=", []string{"refs/heads/a"}, Ask{}, true},
	} {
		n := &notice{}
		if x.options != "" {
			n.Options = []string{x.options}
		}
		for _, name := range x.refs {
			n.Refs = append(n.Refs, gitd.PushedRef{Name: name})
		}
		got, err := n.ask()
		if x.wrong != errors.Is(err, record.ErrInvalid) || err == nil && !reflect.DeepEqual(got, x.want) {
			t.Errorf("%q of %q: got %+v, %v, want %+v", x.options, x.refs, got, err, x.want)
		}
	}
}

// TestByName reads the names of refs.
func TestByName(t *testing.T) {
	for name, want := range map[string]Ask{"test": {Task: testTask}, "ci": {File: "ci.yaml"}, "a/b.yml": {File: "a/b.yml"}} {
		if got, err := (Ask{}).byName(name); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := (Ask{Prompt: "x"}).byName("ci"); err != nil || got.File != "" || got.Prompt != "x" {
		t.Errorf("%+v, %v", got, err)
	}
}

// FuzzParse parses any options. Those that it takes have at most one kind of work.
func FuzzParse(f *testing.F) {
	f.Add("run=ci.yaml\nparam.x=1\nparam.y:=[1]")
	f.Add("agent.coder=fix it\ndetach")
	f.Add("test\ntask=x\nother")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := Parse(strings.Split(text, "\n"))
		if err != nil {
			if !errors.Is(err, record.ErrInvalid) {
				t.Error(err)
			}
			return
		}
		work := 0
		for _, s := range []string{a.File, a.Prompt, a.Task} {
			if s != "" {
				work++
			}
		}
		if work > 1 || work == 0 != a.None() || a.None() && a.Detach {
			t.Errorf("%+v", a)
		}
	})
}

// TestRequest begins at the commit that was pushed, and works for the caller whose branch it was.
func TestRequest(t *testing.T) {
	push := func(names ...string) gitd.Push {
		p := gitd.Push{Repo: "app"}
		for _, n := range names {
			p.Refs = append(p.Refs, gitd.PushedRef{Name: n, Commit: "1"})
		}
		return p
	}
	r, err := request(push("refs/heads/topic"), Ask{Prompt: "x"})
	if err != nil || r.Base != "topic" || r.At != "1" || r.Agent == nil || !r.Caller.IsZero() {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = request(push("refs/heads/ramus/run-otter"), Ask{File: "ci.yaml"})
	if err != nil || r.Base != "" || r.At != "" || r.File != "ci.yaml" || r.Caller.String() != "run:otter" {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = request(push(gitd.AskRefs+"ci"), Ask{File: "ci.yaml"})
	if err != nil || r.Base != "" || r.At != "1" || !r.Anywhere {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = request(push(gitd.ReviewRefs+"release"), Ask{Task: testTask})
	if err != nil || r.Base != "release" || r.At != "1" || !r.Anywhere || r.Task == nil || r.Task.Name != testTask {
		t.Errorf("%+v, %v", r, err)
	}
	for _, p := range []gitd.Push{push(gitd.ReviewRefs + "ramus/run-otter"), push(), push("refs/heads/a", "refs/heads/b"), push("refs/tags/a"), push("refs/heads/ramus/x")} {
		if _, err := request(p, Ask{Task: "x"}); !errors.Is(err, record.ErrInvalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
