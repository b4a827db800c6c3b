package prune

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/lfs"
	"github.com/ramus-dev/ramus/executor/prepare"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/executor/tournament"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	gitlfs "github.com/ramus-dev/ramus/gitd/lfs"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// world is a data folder with a repository, and the runs that an executor would have.
type world struct {
	t         *testing.T
	p         *Pruner
	app       *gitd.Repo
	runs      []record.Run
	works     map[string]bool // by the name of the run
	hosts     []string
	forgotten []string
	log       bytes.Buffer
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, works: make(map[string]bool)}
	git := repotest.NewServer(t)
	artifacts, err := store.Open(filepath.Join(t.TempDir(), "artifacts"), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.p = &Pruner{
		Git:       git,
		Trees:     new(worktree.Store),
		Artifacts: artifacts,
		Runs:      func() []record.Run { return w.runs },
		Works:     func(r record.Run) bool { return w.works[r.Name()] },
		Forget: func(runs ...record.Run) error {
			for _, r := range runs {
				w.forgotten = append(w.forgotten, r.Name())
			}
			return nil
		},
		Hosts: func() []string { return w.hosts },
		Sweep: func(context.Context, string, record.Caller, bool) ([]string, error) { return nil, nil },
		Log:   slog.New(slog.NewTextHandler(&w.log, nil)),
		At:    time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC),
	}
	w.app = w.create("app")
	return w
}

// create makes a repository with a base.
func (w *world) create(name string) *gitd.Repo {
	w.t.Helper()
	repo, err := w.p.Git.Create(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	w.commit(repo, "refs/heads/main", "readme", "")
	return repo
}

// commit puts a commit with one file on a ref, on top of the base.
func (w *world) commit(repo *gitd.Repo, ref, file, content string) gitd.Hash {
	w.t.Helper()
	c := gitd.NewCommit{Put: []gitd.File{{Path: file, Content: []byte(content)}},
		Author: gitd.Person{Name: "Ada", Email: "ada@example.org"}, When: w.p.At.Add(-time.Hour), Message: ref}
	if tip, err := repo.Resolve(w.t.Context(), "refs/heads/main"); err == nil {
		c.Parents = []gitd.Hash{tip}
	}
	h, err := repo.WriteCommit(w.t.Context(), c)
	if err == nil {
		err = repo.Update(w.t.Context(), gitd.RefUpdate{Name: ref, New: h})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// run adds a sealed run that ended some time ago, with its ref. change may change the run.
func (w *world) run(caller string, ago time.Duration, change func(*record.Run)) record.Run {
	w.t.Helper()
	c, err := record.RunCaller(caller)
	if err != nil {
		w.t.Fatal(err)
	}
	r := record.Run{ID: "x", Caller: c, Repo: "app", Base: "main", State: record.StateComplete,
		CreatedAt: w.p.At.Add(-ago - time.Minute), EndedAt: w.p.At.Add(-ago)}
	if change != nil {
		change(&r)
	}
	w.commit(w.app, record.RunRef(r.Caller, r.ID), record.ManifestPath, "{}")
	w.runs = append(w.runs, r)
	return r
}

// branch makes a commit on the branch of a caller.
func (w *world) branch(repo *gitd.Repo, caller string) gitd.Hash {
	w.t.Helper()
	return w.commit(repo, "refs/heads/ramus/run-"+caller, "work", caller)
}

// prune returns the names of the removed things, without what their refs have in common, and checks that the refs are
// gone.
func (w *world) prune(p Pruning) []string {
	w.t.Helper()
	list, err := w.p.Prune(w.t.Context(), p)
	if err != nil {
		w.t.Fatal(err)
	}
	names := []string{}
	for _, one := range list {
		names = append(names, strings.TrimPrefix(one.Name, "refs/"))
		if repo, err := w.p.Git.Repo(one.Repo); err == nil && strings.HasPrefix(one.Name, "refs/") {
			_, err := repo.Resolve(w.t.Context(), one.Name)
			if gone := errors.Is(err, gitd.ErrNotFound); gone == p.DryRun {
				w.t.Errorf("%s is gone: %v", one.Name, gone)
			}
		}
	}
	slices.Sort(names)
	return names
}

// expect prunes, first dry, and compares the names of the removed things.
func (w *world) expect(p Pruning, want ...string) {
	w.t.Helper()
	p.DryRun = true
	dry := w.prune(p)
	p.DryRun = false
	if done := w.prune(p); !slices.Equal(done, want) || !slices.Equal(dry, want) {
		w.t.Errorf("pruned %q, dry %q, want %q", done, dry, want)
	}
}

func TestCheck(t *testing.T) {
	if err := (Pruning{Kinds: Kinds()}).Check(); err != nil {
		t.Error(err)
	}
	err := Pruning{Kinds: []string{Runs, "house"}}.Check()
	if !errors.Is(err, record.ErrInvalid) || !strings.Contains(err.Error(), `"house"`) {
		t.Errorf("a kind that is none: %v", err)
	}
	w := newWorld(t)
	if _, err := w.p.Prune(t.Context(), Pruning{Kinds: []string{"brnches"}}); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("Prune takes a kind that is none: %v", err)
	}
	if _, err := w.p.Prune(t.Context(), Pruning{Repo: "none"}); !errors.Is(err, gitd.ErrNotFound) {
		t.Errorf("a repository that is none: %v", err)
	}
}

func TestOver(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	n := &pass{p: &Pruner{At: now}}
	for _, test := range []struct {
		keep Keep
		want string
	}{
		{Keep{}, "b a c d"}, // of the same age, the names decide
		{Keep{Age: time.Hour}, "a c d"},
		{Keep{Age: 2 * time.Hour}, "a c d"}, // they are not younger
		{Keep{Age: 2*time.Hour + 1}, "d"},
		{Keep{Count: 1}, "a c d"},
		{Keep{Count: 2, Age: time.Minute}, "c d"},
		{Keep{Count: 3, Age: 2*time.Hour + 1}, "d"},
		{Keep{Count: 4}, ""},
		{Keep{Count: 5}, ""},
		{Keep{Count: -1}, "b a c d"},
	} {
		var all []candidate
		for name, ago := range map[string]time.Duration{"a": 2 * time.Hour, "b": time.Minute, "c": 2 * time.Hour,
			"d": 3 * time.Hour} {
			all = append(all, candidate{Pruned: Pruned{Name: name, Time: now.Add(-ago)}})
		}
		var names []string
		for _, c := range n.over(test.keep, all) {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%+v: over are %q, want %q", test.keep, got, test.want)
		}
	}
}

func TestBranches(t *testing.T) {
	w := newWorld(t)
	w.p.Keep.Branches.Age = time.Hour
	only := Pruning{Kinds: []string{Branches}}
	for _, name := range []string{"young", "old", "open", "sealing", "host", "parent", "child", "mine"} {
		w.branch(w.app, name)
	}
	w.run("young", time.Minute, nil)
	w.run("old", 2*time.Hour, nil)
	w.commit(w.app, record.WIPPrefix+"/run-old", "saved", "")
	w.commit(w.app, record.ConflictPrefix+"/run-old/x-1", "saved", "")
	w.commit(w.app, gitd.StageRefs+"/run-old/token", "saved", "")
	w.run("open", 2*time.Hour, func(r *record.Run) { r.State = record.StateAwaitingReview })
	w.works[w.run("sealing", 2*time.Hour, nil).Name()] = true
	w.hosts = []string{w.run("host", 2*time.Hour, nil).Caller.String()}
	parent := w.run("parent", 2*time.Hour, func(r *record.Run) { r.State = record.StateRunning })
	w.run("child", 2*time.Hour, func(r *record.Run) { r.Parent = parent.Name() })
	// A branch whose commits are all in the base goes at any age.
	main, err := w.app.Resolve(t.Context(), "refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.app.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/ramus/run-merged", New: main}); err != nil {
		t.Fatal(err)
	}
	w.run("merged", time.Second, func(r *record.Run) { r.Base = "" })
	w.expect(only, "heads/ramus/run-merged", "heads/ramus/run-old", "ramus/conflicts/run-old/x-1",
		"ramus/stage/run-old/token", "ramus/wip/run-old")
	w.expect(only)
}

// TestBranchesUpstream removes branches of upstream first, and keeps those here whose upstream does not answer.
func TestBranchesUpstream(t *testing.T) {
	w := newWorld(t)
	w.branch(w.app, "away")
	w.branch(w.app, "there")
	w.run("away", time.Hour, nil)
	w.run("there", time.Hour, nil)
	w.p.Sweep = func(_ context.Context, repo string, c record.Caller, dry bool) ([]string, error) {
		if c.Slug() == "run-away" {
			return nil, errors.New("no answer")
		}
		return []string{"origin/" + c.Branch()}, nil
	}
	w.expect(Pruning{Kinds: []string{Branches}}, "heads/ramus/run-there", "upstream origin/ramus/run-there")
	if !strings.Contains(w.log.String(), "no answer") {
		t.Errorf("the log is %q", w.log.String())
	}
}

// TestBranchesMoved leaves a branch that somebody moved after Prune looked, and removes the others of the batch.
func TestBranchesMoved(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		w.branch(w.app, name)
		w.run(name, time.Hour, nil)
	}
	var moved gitd.Hash
	w.p.Sweep = func(_ context.Context, _ string, c record.Caller, _ bool) ([]string, error) {
		if c.Slug() == "run-b" {
			moved = w.commit(w.app, "refs/heads/"+c.Branch(), "more", "")
		}
		return nil, nil
	}
	got := w.prune(Pruning{Kinds: []string{Branches}})
	if !slices.Equal(got, []string{"heads/ramus/run-a", "heads/ramus/run-c"}) {
		t.Errorf("pruned %q", got)
	}
	if tip, err := w.app.Resolve(t.Context(), "refs/heads/ramus/run-b"); err != nil || tip != moved {
		t.Errorf("the branch is at %s, %v", tip, err)
	}
}

func TestAdditions(t *testing.T) {
	w := newWorld(t)
	w.p.Keep.Branches.Age = time.Hour
	lib := w.create("lib")
	with := func(r *record.Run) { r.With = []record.Addition{{Repo: "lib", Base: "main"}} }
	for _, name := range []string{"young", "old"} {
		w.branch(lib, name)
		w.branch(w.app, name)
	}
	w.run("young", time.Minute, with)
	w.run("old", 2*time.Hour, with)
	w.branch(lib, "lone") // its branch in its own repository was removed by hand
	w.run("lone", time.Minute, with)
	// Its own branch is merged, and that in the additional repository is not.
	main, err := w.app.Resolve(t.Context(), "refs/heads/main")
	if err == nil {
		err = w.app.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/ramus/run-half", New: main})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.branch(lib, "half")
	w.run("half", time.Minute, func(r *record.Run) {
		for _, name := range []string{"none", "gone", "away", "lib"} { // the others are gone
			r.With = append(r.With, record.Addition{Repo: name, Base: "main"})
		}
	})
	w.expect(Pruning{Kinds: []string{Branches}}, "heads/ramus/run-lone", "heads/ramus/run-old", "heads/ramus/run-old")
	if _, err := lib.Resolve(t.Context(), "refs/heads/ramus/run-half"); err != nil {
		t.Error(err)
	}
}

func TestRuns(t *testing.T) {
	w := newWorld(t)
	w.p.Keep.Runs.Age = time.Hour
	only := Pruning{Kinds: []string{Runs}}
	day := 25 * time.Hour
	told := func(r *record.Run) { r.Origin, r.Told = new(record.Origin), new(record.Told) }
	w.run("young", time.Minute, nil)
	w.run("old", 2*time.Hour, nil)
	w.run("told", day, told)
	w.run("told-today", 23*time.Hour, told)
	w.run("untold", day, func(r *record.Run) { r.Origin = new(record.Origin) })
	w.run("waits", day, func(r *record.Run) { r.State = record.StateAwaitingReview })
	w.branch(w.app, "branch")
	w.run("branch", day, nil)
	lib := w.create("lib")
	w.branch(lib, "with")
	w.run("with", day, func(r *record.Run) { r.With = []record.Addition{{Repo: "lib", Base: "main"}} })
	w.expect(only, "ramus/runs/run-old/x", "ramus/runs/run-told/x")
	slices.Sort(w.forgotten)
	if want := []string{"run:old/x", "run:told/x"}; !slices.Equal(w.forgotten, want) {
		t.Errorf("forgotten are %q", w.forgotten)
	}
	// With its branch a run goes too, also if both are asked for at once.
	w.expect(Pruning{Kinds: []string{Branches, Runs}}, "heads/ramus/run-branch", "heads/ramus/run-with",
		"ramus/runs/run-branch/x", "ramus/runs/run-with/x")
}

// TestTournaments keeps a tournament as long as a branch or a run of an entry is there, and one whose entries come yet.
func TestTournaments(t *testing.T) {
	w := newWorld(t)
	book := &tournament.Book{Bot: gitd.Person{Name: "ramus", Email: "ramus@example.org"}, Now: func() time.Time { return w.p.At }}
	for _, name := range []string{"cup", "cups", "early"} {
		p := tournament.Plan{Name: name, Repo: "app", Task: "x"}
		if err := p.SetEntries([]string{"a", "b"}, 1); err != nil {
			t.Fatal(err)
		}
		if err := book.Make(t.Context(), w.app, p); err != nil {
			t.Fatal(err)
		}
		if _, err := book.Change(t.Context(), w.app, name, func(r *tournament.Record) error { r.Begun = name != "early"; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	w.p.Keep.Runs.Age = time.Hour
	w.run("cup-1", 2*time.Hour, nil)
	w.run("cup-2", time.Minute, nil)
	w.run("cups-1", time.Minute, nil)
	w.branch(w.app, "cups-2")
	w.expect(Pruning{Kinds: []string{Runs}}, "ramus/runs/run-cup-1/x")
	w.p.Keep.Runs.Age = time.Second
	w.expect(Pruning{Kinds: []string{Runs}}, "ramus/runs/run-cup-2/x", "ramus/runs/run-cups-1/x", "ramus/tournaments/cup")
}

func TestBaselines(t *testing.T) {
	w := newWorld(t)
	w.commit(w.app, browse.BaselineRefs+"/a", "look", "")
	w.p.Keep.Runs.Age = 2 * time.Hour
	w.expect(Pruning{Kinds: []string{Browser}})
	w.p.Keep.Runs.Age = time.Hour
	w.expect(Pruning{Kinds: []string{Browser}, Repo: "app"}, "ramus/browser/a")
}

// put stores a content, and returns its SHA-256.
func (w *world) put(content string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "content")
	err := os.WriteFile(path, []byte(content), 0o600)
	var m record.ManifestFile
	if err == nil {
		m, err = store.Describe("content", path)
	}
	if err == nil {
		err = w.p.Artifacts.Put(w.t.Context(), path, m.SHA256, m.Size)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return m.SHA256
}

func TestArtifacts(t *testing.T) {
	w := newWorld(t)
	only := Pruning{Kinds: []string{Artifacts}}
	c, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	w.p.At = time.Now() // the files of the store have it
	w.p.Artifacts.Now = func() time.Time { return w.p.At }
	named, lone := w.put("named"), w.put("lone")
	w.p.At = w.p.At.Add(48 * time.Hour)
	w.commit(w.app, record.RunRef(c, "x"), record.ManifestPath, `{"files":[{"name":"a","sha256":"`+named+
		`","stored":true}]}`)
	w.commit(w.app, record.RunRef(c, "y"), "journal.jsonl", "") // at work
	// Files that are kept for the next container go with the caller's branch.
	w.branch(w.app, "here")
	for _, slug := range []string{"run-here", "run-gone"} {
		if err := w.p.Artifacts.Bucket.Put(t.Context(), prepare.KeptPrefix+"app/"+slug+".tar.gz",
			strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	w.p.Keep.Artifacts.Age = 49 * time.Hour
	w.expect(only)
	w.p.Keep.Artifacts.Age = time.Hour
	want := []string{lone, prepare.KeptPrefix + "app/run-gone.tar.gz"}
	slices.Sort(want)
	w.expect(only, want...)
	w.expect(only)

	// Nobody knows the artifacts that an unreadable manifest names.
	w.put("more")
	w.commit(w.app, record.RunRef(c, "z"), record.ManifestPath, "{")
	if list, err := w.p.Prune(t.Context(), only); err == nil || len(list) != 0 {
		t.Errorf("pruned %v, %v", list, err)
	}
}

func TestLargeFiles(t *testing.T) {
	w := newWorld(t)
	only := Pruning{Kinds: []string{LFS}}
	w.expect(only) // there are none
	w.p.LFS = &lfs.Objects{Bucket: w.p.Artifacts.Bucket, Now: func() time.Time { return w.p.At }}
	sum := sha256.Sum256([]byte("large"))
	o := gitlfs.Object{OID: hex.EncodeToString(sum[:]), Size: 5}
	if err := w.p.LFS.Put(t.Context(), w.app, o, gitlfs.NewContent(o, strings.NewReader("large"))); err != nil {
		t.Fatal(err)
	}
	w.p.At = time.Now().Add(15 * 24 * time.Hour)
	w.expect(Pruning{Kinds: []string{Objects}})
	w.expect(only, o.OID)
}
