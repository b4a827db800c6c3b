package export_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/export"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
)

// otter makes a repository with two commits, of which the second is the head of a caller, and returns a run of it.
func (w *world) otter() (*gitd.Repo, record.Run) {
	t := w.t
	t.Helper()
	repo, err := w.git.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	c, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	r := record.Run{ID: "r", Caller: c, Kind: record.KindExec, Repo: "app", Base: "main", Branch: c.Branch(),
		Command: "make", Asker: gitd.Person{Name: "Eve", ID: "github:1"}, State: record.StateComplete,
		CreatedAt: time.Unix(1000, 0).UTC(), StartedAt: time.Unix(1001, 0).UTC(), EndedAt: time.Unix(1002, 0).UTC()}
	commit := func(ref, content string, parents ...gitd.Hash) gitd.Hash {
		h, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Parents: parents, Author: ada, Message: content,
			Put: []gitd.File{{Path: "a", Content: []byte(content)}}})
		none := gitd.Hash("")
		if err == nil {
			err = repo.Update(t.Context(), gitd.RefUpdate{Name: ref, New: h, Old: &none})
		}
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	r.BaseCommit = commit("refs/heads/main", "one")
	r.Start, r.Head = r.BaseCommit, commit("refs/heads/"+r.Branch, "two", r.BaseCommit)
	return repo, r
}

// keep writes the record of a run with files.
func (w *world) keep(repo *gitd.Repo, r record.Run, files ...record.ManifestFile) {
	w.t.Helper()
	w.keepJournal(repo, r, nil, files...)
}

// keepJournal writes the record of a run with a journal, or without one if it is nil.
func (w *world) keepJournal(repo *gitd.Repo, r record.Run, journal []byte, files ...record.ManifestFile) {
	t := w.t
	t.Helper()
	m := record.Manifest{Run: r.Name(), Verdict: record.VerdictVerified, State: r.State, Files: files}
	put := []gitd.File{{Path: "run.json", Content: encode(t, r)}, {Path: record.ManifestPath, Content: encode(t, m)}}
	if journal != nil {
		put = append(put, gitd.File{Path: "journal.jsonl", Content: journal})
	}
	h, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Parents: []gitd.Hash{r.Head}, Author: ada, Message: r.Name(), Put: put})
	none := gitd.Hash("")
	if err == nil {
		err = repo.Update(t.Context(), gitd.RefUpdate{Name: record.RunRef(r.Caller, r.ID), New: h, Old: &none})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestJournals imports runs with a journal that is broken in the middle, and with one that ends in the middle of a line.
func TestJournals(t *testing.T) {
	for journal, valid := range map[string]bool{"{}\n{}\n{": true, "{}\n{\n{}\n": false} {
		here := newWorld(t)
		repo, r := here.otter()
		here.keepJournal(repo, r, []byte(journal))
		file, _ := here.pack(repo, export.Request{Runs: []record.Run{r}})
		_, err := newWorld(t).importer().Import(t.Context(), bytes.NewReader(file), export.Wish{Repo: "app", New: true, By: ada})
		if valid && err != nil || !valid && !errors.Is(err, record.ErrInvalid) {
			t.Errorf("the journal %q: %v", journal, err)
		}
	}
}

// TestKinds exports and imports one run of each kind. The server that takes them in signs its commits, but not the
// records of another server.
func TestKinds(t *testing.T) {
	here, there := newWorld(t), newWorld(t)
	key, err := gitd.NewSignerKey("test")
	if err != nil {
		t.Fatal(err)
	}
	if there.git.Signer, err = gitd.NewCommitSigner(key); err != nil {
		t.Fatal(err)
	}
	repo, one := here.otter()
	failed := 3
	type change func(r *record.Run)
	var runs []record.Run
	for _, x := range []struct {
		id     string
		change change
	}{
		{"exec", func(*record.Run) {}},
		{"task", func(r *record.Run) {
			r.Kind, r.Task = record.KindTask, &record.TaskCall{Name: "test"}
		}},
		{"task-unnamed", func(r *record.Run) { r.Kind = record.KindTask }},
		{"agent", func(r *record.Run) {
			r.Kind, r.Agent = record.KindAgent,
				&record.AgentCall{Name: "coder", Prompt: "go on", Title: "Go", Session: "docs"}
		}},
		{"terminal", func(r *record.Run) { r.Kind, r.Terminal = record.KindTerminal, &record.TerminalCall{Name: "1"} }},
		{"conversation", func(r *record.Run) { r.Kind = record.KindConversation }},
		{"failed", func(r *record.Run) { r.State, r.Exit, r.Error = record.StateFailed, &failed, "it is broken" }},
		{"running", func(r *record.Run) { r.State, r.EndedAt = record.StateRunning, time.Time{} }},
		{"lost", func(r *record.Run) { r.State, r.EndedAt = record.StateRunning, time.Time{} }},
	} {
		r := one
		r.ID = x.id
		x.change(&r)
		if x.id != "lost" {
			here.keep(repo, r)
		}
		runs = append(runs, r)
	}
	file, m := here.pack(repo, export.Request{Runs: runs})
	const soFar = "has not ended (running): its commits so far are here, "
	want := []string{"run running " + soFar + "and its record is that of the time when it waited",
		"run lost " + soFar + "its record is not"}
	if !slices.Equal(m.LeftOut, want) {
		t.Errorf("got the sentences %q, want %q", m.LeftOut, want)
	}
	done, err := there.importer().Import(t.Context(), bytes.NewReader(file), export.Wish{Repo: "app", New: true, By: ada})
	if err != nil {
		t.Fatal(err)
	}
	second, err := there.git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	type call struct {
		kind  record.Kind
		call  string // of the run, as JSON
		state record.State
	}
	for id, want := range map[string]call{
		"exec":         {record.KindExec, `{"shell":"make"}`, record.StateComplete},
		"task":         {record.KindTask, `{"name":"test"}`, record.StateComplete},
		"task-unnamed": {record.KindTask, `{"name":"make"}`, record.StateComplete},
		"agent":        {record.KindAgent, `{"name":"coder","prompt":"go on","title":"Go"}`, record.StateComplete},
		"terminal":     {record.KindTerminal, string(encode(t, record.TerminalCall{})), record.StateComplete},
		"conversation": {record.KindExec, `{"shell":"make"}`, record.StateComplete},
		"failed":       {record.KindExec, `{"shell":"make"}`, record.StateFailed},
		"running":      {record.KindExec, `{"shell":"make"}`, record.StateFailed},
		"lost":         {record.KindExec, string(encode(t, record.Command{})), record.StateFailed},
	} {
		ref := record.RunRef(done.Caller, id)
		var got record.Run
		if err := json.Unmarshal([]byte(gittest.Run(t, second.Dir(), "show", ref+":run.json")), &got); err != nil {
			t.Fatal(err)
		}
		var calls []string
		for _, v := range []any{got.Exec, got.Task, got.Agent, got.Terminal} {
			if text := string(encode(t, v)); text != "null" {
				calls = append(calls, text)
			}
		}
		if got.Kind != want.kind || got.State != want.state || !slices.Equal(calls, []string{want.call}) {
			t.Errorf("%s: got %s, %s, %q, want %+v", id, got.Kind, got.State, calls, want)
		}
		if interrupted := got.Reason == record.ReasonInterrupted; interrupted != (id == "running" || id == "lost") {
			t.Errorf("%s: got the reason %q", id, got.Reason)
		}
		if got.Head != one.Head || got.Imported == nil || got.Imported.Run != "run:otter/"+id {
			t.Errorf("%s: got the head %s and %+v", id, got.Head, got.Imported)
		}
		if commit := gittest.Run(t, second.Dir(), "cat-file", "commit", ref); strings.Contains(commit, "gpgsig") {
			t.Errorf("%s: got a record that this server signed: %s", id, commit)
		}
	}
}

// TestPrepareRefuses exports callers that have nothing to export. No file stays.
func TestPrepareRefuses(t *testing.T) {
	w := newWorld(t)
	repo, r := w.otter()
	other, err := record.RunCaller("badger")
	if err != nil {
		t.Fatal(err)
	}
	begins := record.Run{ID: "r", Caller: other, Kind: record.KindExec, Base: "main", State: record.StateSubmitted}
	gone := begins
	gone.Head, gone.State = r.Head, record.StateComplete
	e := &export.Exporter{Runs: w, Repo: repo, Dir: filepath.Join(w.dir, "exports"), Bot: ada, Now: time.Now}
	for name, x := range map[string]struct {
		runs []record.Run
		want error
	}{
		"no run":                     {nil, record.ErrNotFound},
		"a caller without a commit":  {[]record.Run{begins}, record.ErrConflict},
		"a branch that is not there": {[]record.Run{gone}, nil},
		"a branch":                   {[]record.Run{r}, nil},
	} {
		p, err := e.Prepare(t.Context(), export.Request{Runs: x.runs})
		if !errors.Is(err, x.want) {
			t.Errorf("%s: got %v, want %v", name, err, x.want)
		}
		if p != nil {
			deleted := slices.ContainsFunc(p.Manifest.LeftOut, func(s string) bool { return strings.Contains(s, "deleted") })
			if p.Manifest.Head != r.Head || deleted != (x.runs[0].Caller == other) {
				t.Errorf("%s: got the manifest %+v", name, p.Manifest)
			}
			err = p.Close()
		} else {
			err = nil
		}
		if left, globErr := filepath.Glob(filepath.Join(e.Dir, "*")); err != nil || globErr != nil || len(left) > 0 {
			t.Errorf("%s: %v is left, %v, %v", name, left, err, globErr)
		}
	}
}

// TestArtifacts exports two runs that have the same artifact. The export has it once, or says that it is left out, and
// then the evidence of the import says so, too.
func TestArtifacts(t *testing.T) {
	here := newWorld(t)
	repo, one := here.otter()
	content := []byte("large")
	f := describe("artifacts/large", content)
	f.Stored = true
	place := filepath.Join(here.dir, "large")
	if err := os.WriteFile(place, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := here.store.Put(t.Context(), place, f.SHA256, f.Size); err != nil {
		t.Fatal(err)
	}
	two := one
	two.ID = "s"
	empty := describe("output/empty", nil)
	here.keep(repo, one, f, empty)
	here.keep(repo, two, f, empty)
	for _, without := range []bool{false, true} {
		there := newWorld(t)
		e := &export.Exporter{Runs: here, Repo: repo, Dir: filepath.Join(here.dir, "exports"), Bot: ada, Now: time.Now,
			Most: f.Size} // it counts once
		p, err := e.Prepare(t.Context(), export.Request{Runs: []record.Run{one, two}, WithoutArtifacts: without})
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := errors.Join(p.Write(t.Context(), &file), p.Close()); err != nil {
			t.Fatal(err)
		}
		artifacts, out := []export.Artifact{{SHA256: f.SHA256, Size: f.Size}}, []string(nil)
		if without {
			artifacts, out = nil, []string{"large artifacts (1)"}
		}
		if !slices.Equal(p.Manifest.Artifacts, artifacts) || !slices.Equal(p.Manifest.LeftOut, out) {
			t.Errorf("without %t: got %v and %q, want %v and %q", without, p.Manifest.Artifacts, p.Manifest.LeftOut,
				artifacts, out)
		}
		done, err := there.importer().Import(t.Context(), &file, export.Wish{Repo: "app", New: true, By: ada})
		if err != nil {
			t.Fatal(err)
		}
		second, err := there.git.Repo("app")
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"r", "s"} {
			text := gittest.Run(t, second.Dir(), "show", record.RunRef(done.Caller, id)+":"+record.ManifestPath)
			var m record.Manifest
			if err := json.Unmarshal([]byte(text), &m); err != nil {
				t.Fatal(err)
			}
			reasons, files := 1, []record.ManifestFile{f, empty} // another server made the evidence
			if without {
				reasons, files = 2, []record.ManifestFile{empty}
			}
			if !slices.Equal(m.Files, files) || len(m.Unverified) != reasons {
				t.Errorf("without %t: %s: got the files %v and %q, want %v and %d reasons", without, id, m.Files,
					m.Unverified, files, reasons)
			}
		}
	}
}

// TestOne exports a caller, which has the comments on its lines and all conflicts, and one run of it, which has only
// its own conflicts.
func TestOne(t *testing.T) {
	w := newWorld(t)
	repo, r := w.otter()
	w.keep(repo, r)
	none := gitd.Hash("")
	comments, conflicts := record.ReviewRef(r.Caller), record.ConflictRefs(r.Caller)
	own, other := conflicts+"/r-1", conflicts+"/s-1"
	for _, name := range []string{comments, own, other} {
		if err := repo.Update(t.Context(), gitd.RefUpdate{Name: name, New: r.Start, Old: &none}); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		one  bool
		want []string
	}{{false, []string{comments, own, other}}, {true, []string{own}}} {
		file, _ := w.pack(repo, export.Request{Runs: []record.Run{r}, One: x.one})
		header, _, _ := bytes.Cut(file, []byte("\n\n"))
		var got []string
		for _, name := range []string{comments, own, other} {
			if strings.Contains(string(header)+"\n", " "+name+"\n") {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("one run %t: got the refs %q, want %q", x.one, got, x.want)
		}
	}
}
