package archive_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/archive"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/seal"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/internal/redact"
)

var ada = gitd.Person{Name: "Ada", Email: "ada@example.org"}

// world is an archive with one repository and one run that has worked in it.
type world struct {
	t    *testing.T
	a    *archive.Archive
	repo *gitd.Repo
	run  record.Run
	ref  gitd.Hash
	wg   sync.WaitGroup
}

func newWorld(t *testing.T) *world {
	t.Helper()
	git := &gitd.Server{Root: t.TempDir()}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	var err error
	if w.repo, err = git.Create(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	files, err := store.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.wg.Wait()
		if err := git.Close(); err != nil {
			t.Error(err)
		}
		gittest.Run(t, w.repo.Dir(), "fsck", "--strict", "--no-dangling")
	})
	secrets, _ := redact.New(map[string]string{"TOKEN": "hunter-2-hunter-2"})
	w.a = &archive.Archive{Context: t.Context(), Go: w.wg.Go, Git: git, Store: files, Engine: "none", Image: "usual",
		Folder: &live.Folder{Dir: t.TempDir(), Secrets: secrets, Now: time.Now}, Secrets: secrets,
		Bot: gitd.Person{Name: "ramus", Email: "ramus@example.org"}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Chain: &seal.Chain{Bot: ada, Now: time.Now},
		Find:  func(context.Context, string) (record.Run, error) { return w.run, nil },
		Manifest: func(context.Context, string) (record.Manifest, error) {
			return record.Manifest{}, record.ErrNotFound
		}}
	c, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	start := w.commit("", "a", "one\n")
	head := w.commit(start, "a", "two hunter-2-hunter-2\n")
	w.ref = w.commit("", "run.json", "{}")
	none := gitd.Hash("")
	for name, h := range map[string]gitd.Hash{"refs/heads/" + c.Branch(): head, record.RunRef(c, "1"): w.ref} {
		if err := w.repo.Update(t.Context(), gitd.RefUpdate{Name: name, New: h, Old: &none}); err != nil {
			t.Fatal(err)
		}
	}
	w.run = record.Run{ID: "1", Caller: c, Repo: "app", Branch: c.Branch(), Kind: record.KindExec, Asker: ada, Start: start,
		BaseCommit: start, Head: head, State: record.StateComplete}
	return w
}

// commit writes a file on top of a commit.
func (w *world) commit(on gitd.Hash, name, content string) gitd.Hash {
	w.t.Helper()
	n := gitd.NewCommit{From: on, Author: ada, Committer: ada, When: time.Now(), Message: name,
		Put: []gitd.File{{Path: name, Content: []byte(content)}}}
	if on != "" {
		n.Parents = []gitd.Hash{on}
	}
	h, err := w.repo.WriteCommit(w.t.Context(), n)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// open opens the run and its record.
func (w *world) open() (*live.Run, *archive.Entry) {
	w.t.Helper()
	l, err := w.a.Folder.Open(w.run)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(l.End)
	return l, w.a.Entry(l, w.repo, w.ref)
}

// keep puts a file into the run's outputs.
func (w *world) keep(name string, content []byte) {
	w.t.Helper()
	at := filepath.Join(w.a.Folder.Output(w.run), name)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(at, content, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// read returns a file of the record.
func (w *world) read(name string) string {
	w.t.Helper()
	text, err := w.repo.ReadFile(w.t.Context(), record.RunRef(w.run.Caller, w.run.ID), name, 64<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// TestSeal seals a run twice. The record has everything that is to be kept, and no secret.
func TestSeal(t *testing.T) {
	w := newWorld(t)
	l, e := w.open()
	if err := l.Emit(record.Event{Type: record.EventNote, Message: "hunter-2-hunter-2"}, false); err != nil {
		t.Fatal(err)
	}
	w.keep("0001-exec.stdout", []byte("printed\n"))
	w.keep("0001-exec.stderr", nil)
	w.keep("artifacts/report.txt", []byte("report\n"))
	w.keep("artifacts/large", make([]byte, 8<<20+1))
	w.keep("state/temporary", []byte("not kept\n"))
	e.Foresee(w.run.Head)
	if err := e.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	var m record.Manifest
	if err := json.Unmarshal([]byte(w.read(record.ManifestPath)), &m); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range m.Files {
		names = append(names, f.Name)
		if f.Stored != (f.Name == "artifacts/large") {
			t.Errorf("%s: stored is %v", f.Name, f.Stored)
		}
	}
	slices.Sort(names)
	want := "artifacts/large artifacts/report.txt evidence/changes.diff journal.jsonl output/0001-exec.stdout"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the record lists %s, want %s", got, want)
	}
	if m.Engine != "none" || m.Image != "usual" || len(m.Changed) != 1 || m.Changed[0].Path != "a" {
		t.Errorf("the manifest is %+v", m)
	}
	for _, name := range []string{"journal.jsonl", "evidence/changes.diff", "run.json", record.ManifestPath} {
		if strings.Contains(w.read(name), "hunter") {
			t.Errorf("%s has a secret", name)
		}
	}
	if got := w.read("evidence/changes.diff"); !strings.Contains(got, "+two") {
		t.Errorf("the changes are %q", got)
	}

	// It waited for a person, and its files are gone from the folder.
	l.End()
	if err := w.a.Folder.Remove(w.run); err != nil {
		t.Fatal(err)
	}
	before, err := w.repo.Resolve(t.Context(), record.RunRef(w.run.Caller, w.run.ID))
	if err != nil {
		t.Fatal(err)
	}
	w.ref = before
	_, e = w.open()
	if err := e.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.read("output/0001-exec.stdout"); got != "printed\n" {
		t.Errorf("the second record has the output %q", got)
	}
	if !strings.Contains(w.read(record.ManifestPath), "artifacts/report.txt") {
		t.Error("the second manifest does not list the artifacts of the first")
	}
	c, err := w.repo.Commit(t.Context(), record.RunRef(w.run.Caller, w.run.ID))
	if err != nil || !slices.Equal(c.Parents, []gitd.Hash{before, w.run.Head}) || !strings.HasPrefix(c.Subject, w.run.Name()+": ") {
		t.Errorf("the commit is %+v, %v", c, err)
	}
}

// TestMovedRef seals a run whose ref somebody else moved. Nothing is overwritten.
func TestMovedRef(t *testing.T) {
	w := newWorld(t)
	w.ref = w.run.Start
	_, e := w.open()
	if err := e.Seal(t.Context()); err == nil {
		t.Fatal("it was sealed")
	}
	if got := w.read("run.json"); got != "{}" {
		t.Errorf("the record is %q", got)
	}
}
