package executor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// TestExamples runs the example workflows on the sample repository, on every engine.
func TestExamples(t *testing.T) {
	t.Parallel()
	onEngines(t, examples)
}

func examples(t *testing.T, engine string) {
	w := newWorldOn(t, engine, func(x *executor.Executor) {
		x.LLM = &scriptedLLM{answers: []string{`{"verdict": "keep", "good": true, "rationale": "fine"}`}}
	})
	dir := filepath.Join("..", "examples", "workflows")
	src := filepath.Join(t.TempDir(), "sample")
	w.sh("..", "cp -r examples/sample "+src+" && cd "+src+
		" && git init -q -b main && git config receive.denyCurrentBranch ignore && git add -A && git -c user.name=T -c user.email=t@example.com commit -qm sample")
	if _, err := w.git.Import(t.Context(), "sample", src, nil); err != nil {
		t.Fatal(err)
	}
	sub := map[string]string{}
	for _, id := range []string{"everything-shared", "everything-isolated", "everything-leaf"} {
		text, err := os.ReadFile(filepath.Join(dir, id+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		sub[id] = string(text)
	}
	for _, name := range []string{"hello", "gate", "resume", "fanout-branches", "everything"} {
		t.Run(name, func(t *testing.T) {
			v := *w
			v.t = t
			text, err := os.ReadFile(filepath.Join(dir, name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			r := v.submit(record.Request{Repo: "sample", Workflow: string(text), Sub: sub})
			for range 5 {
				if r.State != record.StateAwaitingReview {
					break
				}
				if _, err := v.x.Decide(t.Context(), r.Name(), record.Decision{Approved: true, By: "Ada", Comment: "go on"}); err != nil {
					t.Fatal(err)
				}
				r = v.wait(r.Name())
			}
			if name == "resume" { // fails at first; its comment has the remedy
				if r.Reason != record.ReasonCommandFailed {
					t.Fatalf("%+v", r)
				}
				r = v.submit(record.Request{Repo: "sample", Workflow: string(text), From: "deploy",
					Input: map[string]any{"target": "stage"}})
			}
			if r.State != record.StateComplete {
				t.Fatalf("%+v\n%s", r, v.journal(r.Name()))
			}
			// Every commit of the run names the command that made it.
			log, err := v.git.Repo("sample")
			if err != nil {
				t.Fatal(err)
			}
			commits, err := log.Log(t.Context(), "refs/heads/"+r.Branch, gitd.LogOptions{Not: string(r.BaseCommit)})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range commits {
				if c.Trailer("Ramus-Caller") == "" && !strings.HasPrefix(c.Subject, "Merge") {
					t.Errorf("commit %s %q has no trailer", c.Hash, c.Subject)
				}
			}
		})
	}
}
