package executor_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/prune"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/internal/redact"
)

// newPairWorld returns a world with a second repository, "lib", that callers of demo may work in.
func newPairWorld(t *testing.T, opts ...func(*executor.Executor)) (*world, *gitd.Repo) {
	return newPairWorldOn(t, "sandbox", opts...)
}

func newPairWorldOn(t *testing.T, engine string, opts ...func(*executor.Executor)) (*world, *gitd.Repo) {
	t.Helper()
	w := newWorldOn(t, engine, func(x *executor.Executor) {
		x.With = map[string][]string{"demo": {"lib"}}
		for _, opt := range opts {
			opt(x)
		}
	})
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
	t.Parallel()
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
	t.Parallel()
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

// A command that a restart of the server meets is committed in all repositories, once, on every engine. The next server
// knows the caller's repositories also without its index.
func TestAdditionSurvivesRestart(t *testing.T) {
	t.Parallel()
	onEngines(t, testAdditionSurvivesRestart)
}

func testAdditionSurvivesRestart(t *testing.T, engine string) {
	w, lib := newPairWorldOn(t, engine)
	r := pairRequest(t, "pair", "echo a >>$RAMUS_REPOS/lib/a; echo a >>a; echo ready; "+
		"until [ -e go ]; do sleep 0.05; done; rm go; echo b >>$RAMUS_REPOS/lib/a; "+
		"git -C $RAMUS_REPOS/lib push -q origin HEAD:refs/heads/free || echo refused")
	r.Key = "once"
	run, err := w.x.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	w.until(run.Name(), printed("ready"))
	w.stop(true)
	w.start()
	w.release(run, "go")
	if run = w.ended(run.Name()); run.State != record.StateComplete {
		t.Fatalf("%+v", run)
	}
	if out := w.stdout(run.Name(), "exec"); out != "ready\nrefused\n" {
		t.Errorf("it printed %q", out)
	}
	if got := gittest.Run(t, lib.Dir(), "show", "ramus/run-pair:a"); got != "a\nb" {
		t.Errorf("lib has %q", got)
	}
	if a, ok := run.Addition("lib"); !ok || !a.Changed() {
		t.Errorf("%+v", run.With)
	}
	w.stop(false)
	if err := os.Remove(filepath.Join(w.data, "index.db")); err != nil {
		t.Fatal(err)
	}
	w.start()
	res, out, errs := w.exec("run:pair", "cat $RAMUS_REPOS/lib/a")
	if out != "a\nb\n" || len(res.With) != 1 {
		t.Errorf("after the index was lost: %q %q %+v", out, errs, res)
	}
}

// Terminals and SFTP commit one repository, so they are refused to a caller of several, and several are refused to a
// caller with a terminal.
func TestAdditionGuards(t *testing.T) {
	t.Parallel()
	w, _ := newPairWorld(t)
	p := w.openTerminal("run:typing", record.TerminalCall{})
	p.prompts(1)
	if _, err := w.x.Submit(t.Context(), pairRequest(t, "typing", "true")); !errors.Is(err, record.ErrConflict) ||
		!strings.Contains(err.Error(), "terminal") {
		t.Errorf("a second repository for a caller with a terminal: %v", err)
	}
	if err := w.x.Shells.Close(t.Context(), caller(t, "run:typing"), p.term.Name, ada); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"typing", "pair"} {
		if _, err := w.x.Exec(t.Context(), pairRequest(t, name, "true"), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	c := caller(t, "run:pair")
	_, err := w.x.OpenTerminal(t.Context(), record.Request{Caller: c, Repo: "demo", Terminal: &record.TerminalCall{}, Asker: ada})
	if !errors.Is(err, record.ErrConflict) {
		t.Errorf("a terminal: %v", err)
	}
	if err := w.x.Files.Serve(t.Context(), c, ada, struct{ io.ReadWriter }{}); !errors.Is(err, record.ErrConflict) {
		t.Errorf("SFTP: %v", err)
	}
	r := pairRequest(t, "pair", "")
	r.Command, r.Workflow, r.From = nil, "id: w\nnodes:\n  - {id: n, run: 'true'}\n", "n"
	if _, err := w.x.Submit(t.Context(), r); !errors.Is(err, record.ErrConflict) {
		t.Errorf("a workflow that begins at a node: %v", err)
	}
}

// A repository in which a caller works cannot be removed. If it is gone all the same, the server says so, and the
// caller can be removed.
func TestAdditionIsRemoved(t *testing.T) {
	t.Parallel()
	w, lib := newPairWorld(t)
	if _, err := w.x.Exec(t.Context(), pairRequest(t, "pair", pairCommand), nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, force := range []bool{false, true} {
		if err := w.x.Repos.Remove(t.Context(), "lib", force, ada); !errors.Is(err, record.ErrConflict) || !strings.Contains(err.Error(), "run:pair") {
			t.Errorf("force %v: %v", force, err)
		}
	}
	if _, err := w.x.Repos.Rename(t.Context(), "lib", "lib2", ada); !errors.Is(err, record.ErrConflict) {
		t.Error(err)
	}
	run, err := w.x.Submit(t.Context(), func() record.Request {
		r := pairRequest(t, "pair", pairCommand+"; echo ready; until [ -e go ]; do sleep 0.05; done")
		r.Key = "late"
		return r
	}())
	if err != nil {
		t.Fatal(err)
	}
	w.until(run.Name(), printed("ready"))
	w.stop(true)
	if err := os.RemoveAll(lib.Dir()); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.release(run, "go")
	if run = w.ended(run.Name()); run.State != record.StateComplete {
		t.Errorf("%+v", run)
	}
	if _, err := w.x.Exec(t.Context(), pairRequest(t, "pair", "true"), nil, nil); err == nil || !strings.Contains(err.Error(), "lib") {
		t.Errorf("a command: %v", err)
	}
	if _, err := w.x.Merge(t.Context(), "run:pair", record.Merge{}); !errors.Is(err, gitd.ErrNotFound) {
		t.Errorf("a merge: %v", err)
	}
	if _, err := w.x.Remove(t.Context(), "run:pair", ada); err != nil {
		t.Error(err)
	}
}

// Prune removes the branch of a caller in all repositories, or in none.
func TestAdditionIsPruned(t *testing.T) {
	t.Parallel()
	var at clock
	w, lib := newPairWorld(t, func(x *executor.Executor) {
		x.Now = at.now
		x.Options.Keep = prune.Retention{Branches: prune.Keep{Age: time.Hour}}
	})
	if _, err := w.x.Exec(t.Context(), pairRequest(t, "pair", pairCommand), nil, nil); err != nil {
		t.Fatal(err)
	}
	at.after(2 * time.Hour)
	// Its container is there.
	if got := w.pruneNames(prune.Pruning{}); slices.Contains(got, "branch ramus/run-pair") {
		t.Errorf("pruned %q", got)
	}
	w.retire("run:pair")
	got := w.pruneNames(prune.Pruning{})
	if got = slices.DeleteFunc(got, func(name string) bool { return !strings.HasSuffix(name, " ramus/run-pair") }); len(got) != 2 {
		t.Errorf("pruned %q", got)
	}
	for _, in := range []string{"demo", "lib"} {
		repo, err := w.git.Repo(in)
		if err == nil {
			_, err = repo.Resolve(t.Context(), "refs/heads/ramus/run-pair")
		}
		if !errors.Is(err, gitd.ErrNotFound) {
			t.Errorf("%s: %v", in, err)
		}
	}
	// Another caller of the name begins in both.
	if _, err := w.x.Exec(t.Context(), pairRequest(t, "pair", pairCommand), nil, nil); err != nil {
		t.Fatal(err)
	}
	gone, err := w.x.Remove(t.Context(), "run:pair", ada)
	if err != nil || len(gone.With) != 1 || gone.With[0].Repo != lib.Name() || gone.With[0].Head == "" {
		t.Errorf("%+v, %v", gone, err)
	}
}

// The value of a secret is taken out of the commits in additional repositories and of the patches, and a push of it is
// refused.
func TestAdditionLeaks(t *testing.T) {
	t.Parallel()
	const value = "correct-horse-battery-staple"
	secrets := new(redact.Secrets)
	secrets.Add(map[string]string{"HORSE": value})
	w, lib := newPairWorld(t, func(x *executor.Executor) { x.Secrets, x.Git.Secrets = secrets, secrets })
	r := pairRequest(t, "pair", "cd $RAMUS_REPOS/lib; echo correct-horse-battery''-staple >leaked; "+
		"git add -A; git commit -qm leak; git push -q origin HEAD:refs/heads/ramus/run-pair || echo refused")
	r.Key = "leak"
	var out strings.Builder
	if _, err := w.x.Exec(t.Context(), r, &out, nil); err != nil {
		t.Fatal(err)
	}
	if out.String() != "refused\n" {
		t.Errorf("it printed %q", out.String())
	}
	got := gittest.Run(t, lib.Dir(), "log", "-p", "--all") + w.inRepo("log", "-p", "--all", "--glob=refs/ramus/*")
	if strings.Contains(got, value) || !strings.Contains(got, "leaked") {
		t.Errorf("%s", got)
	}
}
