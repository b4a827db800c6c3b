package library_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ramus-dev/ramus/tasks/library"
	"github.com/ramus-dev/ramus/tasks/results"
	"github.com/ramus-dev/ramus/tasks/taskstest"
)

// TestSample runs every library task that fits on the sample repository, which
// shows that its own tests pass too.
func TestSample(t *testing.T) {
	l := taskstest.GitTree(t, nil)
	if err := os.CopyFS(l.Dir, os.DirFS(filepath.FromSlash("../../examples/sample"))); err != nil {
		t.Fatal(err)
	}
	run := func(name, params string) any {
		t.Helper()
		task, _ := library.Lookup(name)
		out, err := task.Run(t.Context(), l, []byte(params))
		if err != nil {
			t.Fatal(err)
		}
		if !out.OK {
			t.Fatalf("%s %s: %+v", name, params, out)
		}
		return out.Value
	}
	if v := run("lib_git_commit", `{"message":"Add the sample"}`).(library.Committed); !v.Committed {
		t.Errorf("got %+v", v)
	}
	if v := run("lib_run_tests", `{}`).(results.Tests); v.Framework != "go" || v.Passed < 20 || v.Failed+v.Skipped > 0 || v.Unknown {
		t.Errorf("got %+v", v)
	}
	if v := run("lib_run_tests", `{"pattern":"TestParse"}`).(results.Tests); v.Passed < 6 {
		t.Errorf("got %+v", v)
	}
	if v := run("lib_run_lint", `{"fix":true}`).(results.Lint); v.Count > 0 {
		t.Errorf("got %+v", v)
	}
	run("lib_run_build", `{}`)
	run("lib_run_build", `{"target":"./cmd/larder"}`)
	if v := run("lib_git_status", `{}`).(library.Status); !v.Clean {
		t.Errorf("a task has changed something: %+v", v)
	}
	clean(t, l)
	run("lib_git_push", `{}`)

	t.Run("JavaScript", func(t *testing.T) {
		need(t, "npm")
		for _, params := range []string{`{"framework":"node"}`, `{"framework":"npm"}`} {
			if v := run("lib_run_tests", params).(results.Tests); v.Framework != "node" || v.Passed != 10 || v.Unknown {
				t.Errorf("%s: got %+v", params, v)
			}
		}
		clean(t, l)
	})
}
