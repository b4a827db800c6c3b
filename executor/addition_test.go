package executor_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
)

// newPairWorld returns a world with a second repository, "lib", that callers of demo may work in.
func newPairWorld(t *testing.T) (*world, *gitd.Repo) {
	t.Helper()
	w := newWorld(t, func(x *executor.Executor) { x.With = map[string][]string{"demo": {"lib"}} })
	src := t.TempDir()
	w.sh(src, "git init -q -b main && git -c user.name=T -c user.email=t@example.com commit -q --allow-empty -m begin")
	lib, err := w.git.Import(t.Context(), "lib", src, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w, lib
}

func pairRequest(t *testing.T, name, line string) record.Request {
	t.Helper()
	c, err := record.RunCaller(name)
	if err != nil {
		t.Fatal(err)
	}
	return record.Request{Caller: c, Repo: "demo", With: []string{"lib"}, Command: &record.Command{Shell: line}}
}

// A push by somebody else to the additional repository fails the command alone if both changed the same. Its work is
// kept there.
func TestAdditionConflicts(t *testing.T) {
	w, lib := newPairWorld(t)
	if _, err := w.x.Exec(t.Context(), pairRequest(t, "pair", "true"), nil, nil); err != nil {
		t.Fatal(err)
	}
	from, out := io.Pipe()
	done := make(chan record.Result, 1)
	go func() {
		res, err := w.x.Exec(t.Context(), pairRequest(t, "pair",
			"echo mine >own; echo mine >$RAMUS_REPOS/lib/f; echo ready; while [ ! -e go ]; do sleep 0.05; done"), out, nil)
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	if _, err := io.ReadFull(from, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	old, err := lib.Resolve(t.Context(), "refs/heads/ramus/run-pair")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := lib.WriteCommit(t.Context(), gitd.NewCommit{From: old, Parents: []gitd.Hash{old}, When: time.Now(),
		Author: gitd.Person{Name: "T", Email: "t@example.com"}, Message: "theirs", Put: []gitd.File{{Path: "f", Content: []byte("theirs\n")}}})
	if err == nil {
		err = lib.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/ramus/run-pair", Old: &old, New: theirs})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.x.Touch(t.Context(), "run:pair", "go"); err != nil {
		t.Fatal(err)
	}
	if res := <-done; res.Reason != string(record.ReasonConflict) || res.Commit == "" {
		t.Errorf("%+v", res)
	}
	if tip, _ := lib.Resolve(t.Context(), "refs/heads/ramus/run-pair"); tip != theirs {
		t.Errorf("the branch of lib is at %s", tip)
	}
	if refs, err := lib.Refs(t.Context(), "refs/ramus/conflicts/run-pair"); err != nil || len(refs) != 1 {
		t.Errorf("%v, %v", refs, err)
	}
}

// A branch that a killed claim left is taken over. One with commits is refused.
func TestAdditionTakesOverBranches(t *testing.T) {
	w, lib := newPairWorld(t)
	base := gitd.Hash(gittest.Run(t, lib.Dir(), "rev-parse", "main"))
	gittest.Run(t, lib.Dir(), "update-ref", "refs/heads/ramus/run-left", string(base))
	if _, err := w.x.Exec(t.Context(), pairRequest(t, "left", "echo a >$RAMUS_REPOS/lib/a"), nil, nil); err != nil {
		t.Fatal(err)
	}
	moved := gittest.Run(t, lib.Dir(), "rev-parse", "ramus/run-left")
	gittest.Run(t, lib.Dir(), "update-ref", "refs/heads/ramus/run-taken", moved)
	_, err := w.x.Exec(t.Context(), pairRequest(t, "taken", "true"), nil, nil)
	if !errors.Is(err, record.ErrConflict) || !strings.Contains(err.Error(), "ramus/run-taken") {
		t.Fatal(err)
	}
	if _, err := w.x.Caller(t.Context(), "run:taken"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("the caller was begun: %v", err)
	}
}

// A command that a restart of the server meets is committed in all repositories, once.
func TestAdditionSurvivesRestart(t *testing.T) {
	w, lib := newPairWorld(t)
	r := pairRequest(t, "pair", "echo a >>$RAMUS_REPOS/lib/a; echo a >>a; echo ready; sleep 2; echo b >>$RAMUS_REPOS/lib/a")
	r.Key = "once"
	run, err := w.x.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	w.until(run.Name(), func(e record.Event) bool { return e.Type == record.EventOutput })
	w.stop(true)
	w.start()
	if run = w.ended(run.Name()); run.State != record.StateComplete {
		t.Fatalf("%+v", run)
	}
	if got := gittest.Run(t, lib.Dir(), "show", "ramus/run-pair:a"); got != "a\nb" {
		t.Errorf("lib has %q", got)
	}
	if a, ok := run.Addition("lib"); !ok || !a.Changed() {
		t.Errorf("%+v", run.With)
	}
}
