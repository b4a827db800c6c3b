package executor_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/prune"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// pruneNames prunes and returns the kind and the name of each removed thing.
func (w *world) pruneNames(p prune.Pruning) []string {
	w.t.Helper()
	list, err := w.x.Prune(w.t.Context(), p)
	if err != nil {
		w.t.Fatal(err)
	}
	names := []string{}
	for _, p := range list {
		names = append(names, p.Kind+" "+strings.TrimPrefix(strings.TrimPrefix(p.Name, "refs/heads/"), "refs/ramus/"))
	}
	slices.Sort(names)
	return names
}

// retire removes a caller's container.
func (w *world) retire(name string) {
	w.t.Helper()
	if err := w.x.Stop(w.t.Context(), name, gitd.Person{Name: "Ada"}); err != nil {
		w.t.Fatal(err)
	}
}

// clock is a clock that a test sets.
type clock struct{ later atomic.Int64 }

func (c *clock) now() time.Time        { return time.Now().Add(time.Duration(c.later.Load())) }
func (c *clock) after(d time.Duration) { c.later.Add(int64(d)) }

func TestPrune(t *testing.T) {
	t.Parallel()
	var at clock
	w := newWorld(t, func(x *executor.Executor) {
		x.Now = at.now
		x.Options.Keep = prune.Retention{Branches: prune.Keep{Age: time.Hour},
			Runs: prune.Keep{Age: 48 * time.Hour, Count: 1}}
	})
	same := func(what string, got, want []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s\n got %q\nwant %q", what, got, want)
		}
	}
	w.layer()                  // a layer made in the background would stay or be removed by chance
	w.exec("run:idle", "true") // everything it has is in the base
	w.exec("run:first", "head -c 9000000 /dev/zero >/artifacts/zeros; echo a >a")
	w.exec("run:second", "echo b >b")
	w.exec("run:busy", "echo c >c")
	for _, name := range []string{"run:idle", "run:first", "run:second"} {
		w.retire(name)
	}
	w.inRepo("branch", "ramus/my-own", "main")
	w.inRepo("update-ref", "refs/ramus/wip/run-second", "ramus/run-second")

	dry := prune.Pruning{DryRun: true}
	same("merged", w.pruneNames(dry), []string{"branches ramus/run-idle"})
	at.after(2 * time.Hour)
	same("of an age", w.pruneNames(dry), []string{"branches ramus/run-first", "branches ramus/run-idle",
		"branches ramus/run-second", "branches wip/run-second"})
	same("of one kind", w.pruneNames(prune.Pruning{DryRun: true, Kinds: []string{prune.Runs}}), []string{})
	if w.inRepo("rev-parse", "ramus/run-first") == "" {
		t.Error("a dry run removed a branch")
	}
	git := prune.Pruning{Kinds: []string{prune.Branches, prune.Runs, prune.Artifacts,
		prune.Objects}}
	dry.Kinds = git.Kinds
	want := w.pruneNames(dry)
	same("for good", w.pruneNames(git), want)
	branches := strings.Fields(w.inRepo("for-each-ref", "--format=%(refname:short)", "refs/heads"))
	same("branches that stay", branches, []string{"main", "ramus/my-own", "ramus/run-busy"})
	if _, err := os.Stat(w.stored()); err != nil {
		t.Errorf("an artifact that a run names: %v", err)
	}

	// Of the three runs the newest stays.
	at.after(72 * time.Hour)
	runs := w.pruneNames(prune.Pruning{Kinds: []string{prune.Runs}})
	if len(runs) != 2 || slices.ContainsFunc(runs, func(s string) bool { return strings.Contains(s, "busy") }) {
		t.Errorf("runs %q", runs)
	}
	left, err := w.x.Runs(t.Context(), record.Filter{})
	if err != nil || len(left) != 2 {
		t.Errorf("the index has %d runs, %v", len(left), err)
	}
	if n, err := w.x.Reindex(t.Context()); err != nil || n != 2 {
		t.Errorf("the refs have %d runs, %v", n, err)
	}

	// A removed caller can begin again.
	if res, _, _ := w.exec("run:second", "test ! -e b"); res.ExitCode != 0 {
		t.Error("the old branch is back")
	}
	if _, err := w.x.Prune(t.Context(), prune.Pruning{Kinds: []string{"house"}}); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("a kind that is none: %v", err)
	}
}

// stored returns the file of the one artifact in the store, or "" if there is none.
func (w *world) stored() string {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.data, "artifacts", "sha256", "*", "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(files, "\n")
}

func TestPruneArtifacts(t *testing.T) {
	t.Parallel()
	var at clock
	w := newWorld(t, func(x *executor.Executor) { x.Now = at.now })
	w.exec("run:a", "head -c 9000000 /dev/zero >/artifacts/zeros; echo a >a")
	w.retire("run:a")
	before := w.stored()
	if before == "" || strings.Contains(before, "\n") {
		t.Fatalf("artifacts %q", before)
	}
	// The branch and the run are removed, and with them the last reference to the artifact. The artifact
	// stays, because it was relied on a moment ago.
	if got := w.pruneNames(prune.Pruning{Kinds: []string{prune.Branches, prune.Runs,
		prune.Artifacts}}); len(got) != 2 {
		t.Errorf("pruned %q", got)
	}
	if w.stored() != before {
		t.Error("an artifact went that a run may be about to name")
	}
	at.after(48 * time.Hour)
	if got := w.pruneNames(prune.Pruning{Kinds: []string{prune.Artifacts}}); len(got) != 1 ||
		!strings.HasPrefix(got[0], prune.Artifacts) {
		t.Errorf("pruned %q", got)
	}
	if w.stored() != "" {
		t.Error("the artifact is still there")
	}
	// The same content is made again, and stays.
	w.exec("run:b", "head -c 9000000 /dev/zero >/artifacts/zeros; echo b >b")
	if w.stored() != before {
		t.Error("the artifact is not there again")
	}
	at.after(48 * time.Hour)
	if got := w.pruneNames(prune.Pruning{Kinds: []string{prune.Artifacts}}); len(got) != 0 {
		t.Errorf("pruned %q", got)
	}
}
