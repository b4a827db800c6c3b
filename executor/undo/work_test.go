package undo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

var ada = gitd.Person{Name: "Ada", Email: "ada@example.com"}

// newRepo returns a repository and a function that writes a file on a branch.
func newRepo(t *testing.T) (*gitd.Repo, func(branch, message, path, content string) gitd.Hash) {
	t.Helper()
	repo := repotest.NewRepo(t)
	clock := time.Unix(1700000000, 0).UTC()
	return repo, func(branch, message, path, content string) gitd.Hash {
		t.Helper()
		clock = clock.Add(time.Minute)
		c := gitd.NewCommit{Author: ada, When: clock, Message: message,
			Put: []gitd.File{{Path: path, Content: []byte(content)}}}
		old, err := repo.Resolve(t.Context(), "refs/heads/"+branch)
		if err == nil {
			c.From, c.Parents = old, []gitd.Hash{old}
		} else if !errors.Is(err, gitd.ErrNotFound) {
			t.Fatal(err)
		}
		h, err := repo.WriteCommit(t.Context(), c)
		if err == nil {
			err = repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/" + branch, New: h, Old: &old})
		}
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
}

// forge is a squash that a forge makes.
const forge gitd.Strategy = "forge"

// squashAsForge merges a branch as a forge does, without a trace of it in the commit.
func squashAsForge(t *testing.T, repo *gitd.Repo, branch string) {
	t.Helper()
	onto, err := repo.Resolve(t.Context(), "main")
	var res gitd.MergeResult
	if err == nil {
		res, err = repo.MergeOnto(t.Context(), gitd.MergeRequest{From: branch, Strategy: gitd.StrategySquash,
			Committer: ada}, onto)
	}
	var made gitd.Hash
	if err == nil {
		made, err = repo.WriteCommit(t.Context(), gitd.NewCommit{From: res.Commit, Parents: []gitd.Hash{onto},
			Author: ada, Message: "All of it (#7)"})
	}
	if err == nil {
		err = repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: made, Old: &onto})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMerged finds the work of a run after each kind of merge, and takes it out. The files are then as if the run had
// never been.
func TestMerged(t *testing.T) {
	for strategy, how := range map[gitd.Strategy]How{gitd.StrategyMerge: Contained, gitd.StrategyFF: Contained,
		gitd.StrategyRebase: Copied, gitd.StrategySquash: Squashed, forge: Squashed} {
		t.Run(string(strategy), func(t *testing.T) {
			repo, commit := newRepo(t)
			start := commit("main", "begin", "f", "1\n2\n3\n4\n5\n")
			caller, err := record.RunCaller("a")
			if err != nil {
				t.Fatal(err)
			}
			if err := repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/" + caller.Branch(), New: start,
				Old: new(gitd.Hash)}); err != nil {
				t.Fatal(err)
			}
			commit(caller.Branch(), "one", "f", "one\n2\n3\n4\n5\n")
			head := commit(caller.Branch(), "two", "g", "x\n")
			r := record.Run{ID: "r", Caller: caller, Repo: "app", Base: "main", Branch: caller.Branch(),
				BaseCommit: start, Start: start, Head: head}
			runs := []record.Run{r}
			if _, err := Merged(t.Context(), repo, r, runs, "main"); !errors.Is(err, record.ErrConflict) {
				t.Fatal("before the merge:", err)
			}
			if strategy != gitd.StrategyFF {
				commit("main", "other", "h", "y\n")
			}
			if strategy == forge {
				squashAsForge(t, repo, caller.Branch())
			} else if res, err := repo.Merge(t.Context(), gitd.MergeRequest{From: caller.Branch(), Into: "main",
				Strategy:  strategy,
				Committer: ada}); err != nil || !res.Merged {
				t.Fatal(res, err)
			}
			as, err := repo.Resolve(t.Context(), "main")
			if err != nil {
				t.Fatal(err)
			}
			commit("main", "later\n\nRamus-Step: of-another-run", "f", "one\n2\n3\n4\nfive\n")

			w, err := Merged(t.Context(), repo, r, runs, "main")
			if err != nil || w.How != how || len(w.Commits) != 2 || w.Undone != "" || (w.As == as) != (how == Squashed) {
				t.Fatalf("%+v, %v", w, err)
			}
			done, err := repo.Pick(t.Context(), gitd.PickRequest{Into: "main", Commits: w.Commits, Reverse: true,
				Committer: ada, Message: fmt.Sprintf("Undo\n\n%s: %s", record.TrailerUndoes, r.Name())})
			if err != nil || !done.Merged {
				t.Fatalf("%+v, %v", done, err)
			}
			if got, err := repo.ReadFile(t.Context(), "main", "f", 100); err != nil ||
				string(got) != "1\n2\n3\n4\nfive\n" {
				t.Errorf("%q, %v", got, err)
			}
			if _, err := repo.Entry(t.Context(), "main", "g"); !errors.Is(err, gitd.ErrNotFound) {
				t.Error("g is there", err)
			}
			if w, err := Merged(t.Context(), repo, r, runs, "main"); err != nil || w.Undone != done.Commit {
				t.Errorf("afterwards: %+v, %v", w, err)
			}
		})
	}
}

// branch makes a caller with a branch at a commit, and returns a run of it that has not changed anything.
func branch(t *testing.T, repo *gitd.Repo, id string, start gitd.Hash) record.Run {
	t.Helper()
	caller, err := record.RunCaller(id)
	if err == nil {
		err = repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/" + caller.Branch(), New: start, Old: new(gitd.Hash)})
	}
	if err != nil {
		t.Fatal(err)
	}
	return record.Run{ID: "r", Caller: caller, Repo: "app", Base: "main", Branch: caller.Branch(), BaseCommit: start, Start: start,
		Head: start}
}

// TestNotMerged does not take the work of others for that of a run, although a part of it is the same.
func TestNotMerged(t *testing.T) {
	repo, commit := newRepo(t)
	start := commit("main", "begin", "f", "1\n")
	r := branch(t, repo, "a", start)
	if _, err := Merged(t.Context(), repo, r, nil, "main"); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("a run that changed nothing: %v", err)
	}
	first := r
	first.ID, first.Head = "first", commit(r.Branch, "one", "f", "one\n")
	squashAsForge(t, repo, r.Branch)
	r.Start = first.Head
	r.Head = commit(r.Branch, "two", "g", "two\n")

	// Another run made the same change in a step of its own.
	other := branch(t, repo, "b", start)
	commit(other.Branch, "also two\n\nRamus-Step: s1", "g", "two\n")
	if res, err := repo.Merge(t.Context(), gitd.MergeRequest{From: other.Branch, Into: "main", Strategy: gitd.StrategyRebase,
		Committer: ada}); err != nil || !res.Merged {
		t.Fatal(res, err)
	}
	alone := r
	alone.BaseCommit = r.Start
	if w, err := Merged(t.Context(), repo, alone, []record.Run{first, alone}, "main"); !errors.Is(err, record.ErrConflict) {
		t.Errorf("%+v, %v", w, err)
	}
}

// TestRemains finds the squash of a run among commits and runs of which nothing is left.
func TestRemains(t *testing.T) {
	repo, commit := newRepo(t)
	start := commit("main", "begin", "f", "1\n")
	r := branch(t, repo, "a", start)
	r.Head = commit(r.Branch, "one", "f", "one\n")
	commit("main", "other", "g", "x\n")
	squashAsForge(t, repo, r.Branch)
	as, err := repo.Resolve(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	gone := gitd.Hash(strings.Repeat("1", 40))
	commit("main", fmt.Sprintf("later\n\n%s: %s", gitd.TrailerSquashed, gone), "h", "x\n")
	tip, elsewhere := commit("main", "last", "h", "y\n"), commit("elsewhere", "a history of its own", "i", "x\n")
	merge, err := repo.WriteCommit(t.Context(), gitd.NewCommit{From: tip, Parents: []gitd.Hash{tip, elsewhere}, Author: ada, Message: "Merge it"})
	if err == nil {
		err = repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: merge, Old: &tip})
	}
	if err != nil {
		t.Fatal(err)
	}

	deleted, failed := r, r
	deleted.ID, deleted.Head = "deleted", gone
	failed.ID, failed.Head = "failed", ""
	w, err := Merged(t.Context(), repo, r, []record.Run{failed, deleted, r}, "main")
	if err != nil || w.How != Squashed || w.As != as {
		t.Errorf("%+v, %v", w, err)
	}
}

// TestBlockers names the last commit of each file in conflict.
func TestBlockers(t *testing.T) {
	repo, commit := newRepo(t)
	first := commit("main", "begin", "f", "1\n")
	commit("main", "x\n\nRamus-Caller: run:b\nRamus-Run: r", "f", "2\n")
	tip := commit("main", "other", "g", "1\n")
	list, err := Blockers(t.Context(), repo, tip, first, []string{"f", "g", "none"})
	if err != nil || len(list) != 2 || list[0].Run != "run:b/r" || list[1].Run != "" || list[1].Commit != tip {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestSteps finds the commits of steps by their names, by themselves and by their first digits.
func TestSteps(t *testing.T) {
	events := []record.Event{{Type: record.EventStepStarted, Step: "a"},
		{Type: record.EventStepFinished, Step: "a", Commit: "11111110"}, {Type: record.EventStepFinished, Step: "b"},
		{Type: record.EventStepFinished, Step: "c", Commit: "3333333a"},
		{Type: record.EventStepFinished, Step: "d", Commit: "3333333b"}}
	for _, steps := range [][]string{{"3333333a", "a"}, {"c", "1111111"}, {"a", "c", "11111110"}} {
		list, err := Steps(record.Run{}, events, steps)
		if err != nil || !slices.Equal(list, []gitd.Hash{"11111110", "3333333a"}) {
			t.Error(steps, list, err)
		}
	}
	for step, want := range map[string]error{"b": record.ErrNotFound, "e": record.ErrNotFound, "": record.ErrNotFound,
		"111111": record.ErrNotFound, "3333333": record.ErrInvalid} {
		if _, err := Steps(record.Run{}, events, []string{step}); !errors.Is(err, want) {
			t.Error(step, err)
		}
	}
}
