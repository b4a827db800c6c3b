package runs_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/runs"
	"github.com/ramus-dev/ramus/executor/runs/runstest"
	"github.com/ramus-dev/ramus/gitd"
)

// newReader returns a reader of runs. The folder has those that work.
func newReader(t *testing.T, sealed ...record.Run) (*runs.Reader, *live.Folder, runstest.AtWork) {
	t.Helper()
	ix, _, err := index.Open(filepath.Join(t.TempDir(), "index.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ix.Close() })
	if err := ix.Put(sealed...); err != nil {
		t.Fatal(err)
	}
	working := runstest.AtWork{}
	folder := &live.Folder{Dir: t.TempDir(), Now: time.Now}
	return &runs.Reader{Context: t.Context(), Index: ix, Folder: folder, Live: working}, folder, working
}

func run(t *testing.T, caller, id string, minute int, change ...func(*record.Run)) record.Run {
	t.Helper()
	c, err := record.ParseCaller(caller)
	if err != nil {
		t.Fatal(err)
	}
	r := record.Run{ID: id, Caller: c, Repo: "app", Kind: record.KindExec, State: record.StateComplete, Branch: c.Branch(),
		CreatedAt: time.Date(2026, 5, 4, 12, minute, 0, 0, time.UTC)}
	for _, f := range change {
		f(&r)
	}
	return r
}

func names(list []record.Run) string {
	var all []string
	for _, r := range list {
		all = append(all, r.Name())
	}
	return strings.Join(all, " ")
}

// TestAtWork looks at a run that the index has as it was when it began. Readers get it as it is now, unless it is another
// repository's.
func TestAtWork(t *testing.T) {
	began := func(r *record.Run) { r.State = record.StateSubmitted }
	r := run(t, "run:otter", "one", 1, began)
	rd, folder, working := newReader(t, r, run(t, "run:otter", "two", 2, began))
	l, err := folder.Open(r)
	if err != nil {
		t.Fatal(err)
	}
	defer l.End()
	working[r.Name()] = l
	if err := l.SetState(record.StateRunning, "", ""); err != nil {
		t.Fatal(err)
	}
	state := func(id string) record.State {
		got, known := rd.Find(r.Caller, id)
		if !known {
			t.Errorf("%s is not known", id)
		}
		return got.State
	}
	if one, two := state("one"), state("two"); one != record.StateRunning || two != record.StateSubmitted {
		t.Errorf("found %s and %s", one, two)
	}
	if _, known := rd.Find(r.Caller, "three"); known {
		t.Error("a run that is nowhere is known")
	}
	for _, got := range append(rd.Current(), rd.OfCaller(r.Caller)...) {
		if (got.State == record.StateRunning) != (got.ID == "one") {
			t.Errorf("%s is %s", got.Name(), got.State)
		}
	}
	r.Repo = "other"
	if err := errors.Join(rd.Index.Remove(run(t, "run:otter", "one", 1)), rd.Index.Put(r)); err != nil {
		t.Fatal(err)
	}
	if got := state("one"); got != record.StateSubmitted {
		t.Errorf("the run of another repository is %s", got)
	}
}

// TestNames finds runs and callers by what people type.
func TestNames(t *testing.T) {
	rd, _, _ := newReader(t,
		run(t, "run:otter", "first", 1),
		run(t, "run:otter", "second", 3, func(r *record.Run) { r.With = []record.Addition{{Repo: "lib"}, {Repo: "docs"}} }),
		run(t, "run:otter-2", "first", 2),
		run(t, "conv:otter", "first", 4, func(r *record.Run) { r.Kind = record.KindConversation }))
	for name, want := range map[string]string{
		"run:otter/first": "run:otter/first",
		"run:otter/sec":   "run:otter/second",
		"otter-2/first":   "run:otter-2/first",
		"run:otter/none":  record.ErrNotFound.Error(),
		"run:heron/first": record.ErrNotFound.Error(),
		"":                record.ErrInvalid.Error(),
	} {
		r, err := rd.Run(t.Context(), name)
		got := r.Name()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("run %q: %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]error{"run:otter": nil, "otter-2": nil, "ramus/run-otter-2": nil, "n:otter": record.ErrAmbiguous,
		"heron": record.ErrNotFound, "": record.ErrInvalid} {
		if _, err := rd.Named(name); !errors.Is(err, want) {
			t.Errorf("caller %q: %v, want %v", name, err, want)
		}
	}
	c, err := rd.Named("run:otter")
	if err != nil || c.Runs != 2 || c.Last.ID != "second" || strings.Join(c.Repos(), " ") != "app docs lib" {
		t.Errorf("%+v, %v", c, err)
	}
	if got := strings.Join(rd.WorksIn(c.Caller), " "); got != "lib docs" {
		t.Errorf("works in %q", got)
	}
	if got := names(rd.Standing()); got != "conv:otter/first" {
		t.Errorf("standing: %s", got)
	}
	list, err := rd.Runs(t.Context(), record.Filter{Max: 3})
	if want := "conv:otter/first run:otter/second run:otter-2/first"; err != nil || names(list) != want {
		t.Errorf("newest first: %s, %v; want %s", names(list), err, want)
	}
}

// TestWithKey finds the run of a request by its key. Only the person who made it gets it, and only if its caller was drawn.
func TestWithKey(t *testing.T) {
	ada, bo := gitd.Person{Name: "Ada", Email: "ada@example.org", ID: "1"}, gitd.Person{Name: "Ada", Email: "ada@example.org", ID: "2"}
	by := func(drawn bool) func(*record.Run) {
		return func(r *record.Run) { r.Asker, r.Drawn = ada, drawn }
	}
	rd, _, _ := newReader(t, run(t, "run:otter", "key", 1, by(true)), run(t, "run:heron", "named", 2, by(false)))
	old := ada
	old.ID = ""
	for _, x := range []struct {
		repo, key string
		by        gitd.Person
		known     bool
	}{
		{"app", "key", ada, true},
		{"app", "key", old, true},
		{"app", "key", bo, false},
		{"lib", "key", ada, false},
		{"app", "named", ada, false},
	} {
		if _, known := rd.WithKey(x.repo, x.key, x.by); known != x.known {
			t.Errorf("%+v: known %t", x, known)
		}
	}
}
