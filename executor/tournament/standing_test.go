package tournament

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// evidence has runs with their manifests, by the name of the run.
type evidence struct {
	runs      []record.Run
	manifests map[string]record.Manifest
	err       error
}

func (e *evidence) OfCaller(c record.Caller) (list []record.Run) {
	for _, r := range e.runs {
		if r.Caller == c {
			list = append(list, r)
		}
	}
	return list
}

func (e *evidence) Manifest(_ context.Context, run string) (record.Manifest, error) {
	m, ok := e.manifests[run]
	if !ok {
		return m, record.ErrNotFound
	}
	return m, e.err
}

// TestLook follows an entry from its beginning to its end, to a later push and to the removal of its branch.
func TestLook(t *testing.T) {
	repo := repotest.NewRepo(t)
	put := func(ref string, parents []gitd.Hash, files ...gitd.File) gitd.Hash {
		h, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Put: files, Parents: parents,
			Author: gitd.Person{Name: "Ada", Email: "ada@example.org"}, When: time.Unix(1700000000, 0), Message: "x"})
		if err == nil {
			err = repo.Update(t.Context(), gitd.RefUpdate{Name: ref, New: h})
		}
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	p := Plan{Name: "cup", Repo: repo.Name(), Task: "x"}
	if err := p.SetEntries([]string{"a"}, 2); err != nil {
		t.Fatal(err)
	}
	p.At = put("refs/heads/main", nil, gitd.File{Path: "list", Content: []byte("1\n2\n")})
	p.Entries[1].Refused = "no room"
	e := p.Entries[0].Caller
	runs := &evidence{manifests: map[string]record.Manifest{}}
	look := func() Result {
		t.Helper()
		s, err := Look(t.Context(), repo, runs, Record{Plan: p})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range s.Places {
			if one.Caller == e {
				if s.Ended != one.Ended {
					t.Errorf("%+v", s)
				}
				return one.Result
			}
			if !one.Ended || one.Error != "no room" {
				t.Errorf("%+v", one)
			}
		}
		return Result{}
	}
	if r := look(); r.Ended || r.Run != "" {
		t.Errorf("before it begins: %+v", r)
	}

	// A run aside and one of another repository say nothing about the entry.
	begun := time.Unix(1700000000, 0)
	head := put("refs/heads/"+e.Branch(), []gitd.Hash{p.At}, gitd.File{Path: "list", Content: []byte("1\n")},
		gitd.File{Path: "image", Content: []byte("\x00\x01")})
	run := record.Run{ID: RunID, Caller: e, Repo: repo.Name(), State: record.StateRunning, StartedAt: begun, Head: head,
		Usage: &record.Usage{CostMicros: 70, InputTokens: 5, OutputTokens: 6}}
	runs.runs = []record.Run{run, {ID: "sub", Caller: e, Repo: repo.Name(), Sub: true}, {ID: "other", Caller: e, Repo: "other"}}
	if r := look(); r.Ended || r.Run != run.Name() || r.State != record.StateRunning || r.DurationMS != 0 {
		t.Errorf("while it works: %+v", r)
	}
	run.State, run.EndedAt, run.Error = record.StateComplete, begun.Add(3*time.Second), "odd"
	runs.runs[0] = run
	if r := look(); r.Ended {
		t.Errorf("before it is sealed: %+v", r)
	}
	m := record.Manifest{State: record.StateRunning, Verdict: record.VerdictVerified, Checks: []record.ManifestCheck{
		{Check: "tests", Task: "lib_run_tests", Result: record.CheckFailed, Current: true},
		{Check: "lint", Task: "lib_run_lint", Result: record.CheckPassed},
		{Check: "lint", Task: "lib_run_lint", Command: "more", Result: record.CheckFailed, Current: true},
		{Check: "build", Task: "lib_run_build", Result: record.CheckNotRun, Why: strings.Repeat("x", 400)},
		{Check: "tests", Task: "lib_run_tests", Result: record.CheckPassed, Current: true},
	}}
	runs.manifests[run.Name()] = m
	if r := look(); r.Ended {
		t.Errorf("with the evidence of an earlier state: %+v", r)
	}
	m.State = record.StateComplete
	runs.manifests[run.Name()] = m
	r := look()
	if !r.Ended || r.Verdict != record.VerdictVerified || r.Passed != 1 || r.Failed != 1 || len(r.Checks) != 3 ||
		r.Checks[0].Check != "lint" || r.Checks[1].Check != "build" || len(r.Checks[1].Why) > 310 || r.Checks[2].Result != record.CheckPassed ||
		r.Files != 2 || r.Added != 1 || r.Deleted != 2 || r.CostMicros != 70 || r.DurationMS != 3000 || r.Head != head || r.Dropped ||
		r.Error != "odd" {
		t.Errorf("at the end: %+v", r)
	}

	// Time and cost are of all runs. The opinion counts for the last commits that it is about.
	next := run
	next.ID, next.StartedAt, next.EndedAt = "next", begun.Add(time.Minute), begun.Add(time.Minute+2*time.Second)
	runs.runs = append(runs.runs, next)
	runs.manifests[next.Name()] = m
	if r := look(); r.DurationMS != 5000 || r.CostMicros != 140 || r.Tokens != 22 || r.Run != next.Name() {
		t.Errorf("after another run: %+v", r)
	}
	o := &Opinion{Of: e.ID() + "@" + string(head) + " " + p.Entries[1].Caller.ID() + "@ ", Words: "x"}
	opinion := func() *Opinion {
		s, err := Look(t.Context(), repo, runs, Record{Plan: p, Opinion: o})
		if err != nil {
			t.Fatal(err)
		}
		return s.Opinion
	}
	if opinion() != o {
		t.Error("the opinion does not count")
	}
	pushed := put("refs/heads/"+e.Branch(), []gitd.Hash{head}, gitd.File{Path: "more", Content: []byte("x\n")})
	if r := look(); !r.Ended || r.Verdict != record.VerdictUnverified || len(r.Checks) != 0 || r.Passed != 0 || r.Head != pushed || opinion() != nil {
		t.Errorf("after a push: %+v", r)
	}
	if err := repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/" + e.Branch(), Old: &pushed}); err != nil {
		t.Fatal(err)
	}
	if r := look(); !r.Dropped || r.Head != head || r.Verdict != record.VerdictVerified || r.Files != 2 {
		t.Errorf("after its branch was removed: %+v", r)
	}
	runs.err = errors.New("the disk is gone")
	if _, err := Look(t.Context(), repo, runs, Record{Plan: p}); !errors.Is(err, runs.err) {
		t.Error(err)
	}
}
