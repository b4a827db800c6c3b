package people

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

type note struct{ Text string }

// TestRecords writes records and reads them again. A change that does not follow the last one, and a record that is too
// large, are refused.
func TestRecords(t *testing.T) {
	git := repotest.NewServer(t)
	damaged := errors.New("no note")
	r := Records[note]{Options: Options{Git: git, Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"}},
		Refs: "refs/ramus/notes", File: "note.json", Max: 100, Check: func(n note, ref string) error {
			if n.Text == "" || !strings.HasPrefix(ref, "refs/ramus/notes/") {
				return damaged
			}
			return nil
		}}
	if list, err := r.Read(t.Context()); len(list) != 0 || err != nil {
		t.Errorf("%v %v", list, err)
	}
	c := Change{By: gitd.Person{Name: "Ada", Email: "ada@example.org"}, When: time.Unix(1_700_000_000, 0),
		Message: "Note it"}
	write := func(ref, words string, tip gitd.Hash) (gitd.Hash, error) {
		return r.Write(t.Context(), r.Refs+"/"+ref, note{words}, tip, c)
	}
	first, err := write("a", "one", "")
	if err != nil {
		t.Fatal(err)
	}
	second, err := write("a", "two", first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := write("a", "three", first); !errors.Is(err, gitd.ErrConflict) {
		t.Errorf("a change that does not follow: %v", err)
	}
	if _, err := write("b", "", ""); err != nil {
		t.Fatal(err)
	}
	var problem *route.Problem
	if _, err := write("c", strings.Repeat("x", 84), ""); !errors.As(err, &problem) ||
		problem.Kind != route.KindTooLarge {
		t.Errorf("a record that is too large: %v", err)
	}
	if _, err := write("c", strings.Repeat("x", 83), ""); err != nil {
		t.Errorf("a record that is as large as can be: %v", err)
	}
	list, err := r.Read(t.Context())
	if err != nil || len(list) != 3 {
		t.Fatalf("%v %v", list, err)
	}
	if k := list[0]; k.Record.Text != "two" || k.Tip != second || k.Err != nil || k.Ref != "refs/ramus/notes/a" {
		t.Errorf("%+v", k)
	}
	if k := list[1]; !errors.Is(k.Err, damaged) || k.Ref != "refs/ramus/notes/b" || k.Tip == "" {
		t.Errorf("%+v", k)
	}
	if k := list[2]; len(k.Record.Text) != 83 || k.Err != nil {
		t.Errorf("%+v", k)
	}
	r.NoHistory = true
	alone, err := write("a", "four", second)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Remove(t.Context(), r.Refs+"/c", second); !errors.Is(err, gitd.ErrConflict) {
		t.Errorf("a removal that does not follow: %v", err)
	}
	if err := r.Remove(t.Context(), r.Refs+"/c", list[2].Tip); err != nil {
		t.Fatal(err)
	}
	r.Check = func(note, string) error { return damaged }
	if list, err = r.Read(t.Context()); err != nil || len(list) != 2 || list[0].Record != (note{}) {
		t.Errorf("%+v %v", list, err)
	}
	repo, err := git.Repo(gitd.PeopleRepo)
	if err != nil {
		t.Fatal(err)
	}
	commit, err := repo.Commit(t.Context(), "refs/ramus/notes/a")
	if err != nil || commit.Hash != alone || len(commit.Parents) != 0 {
		t.Errorf("%+v %v", commit, err)
	}
	commit, err = repo.Commit(t.Context(), string(second))
	if err != nil || commit.Author.Name != "Ada" || commit.Subject != "Note it" || len(commit.Parents) != 1 ||
		commit.Parents[0] != first {
		t.Errorf("%+v %v", commit, err)
	}
}

// TestOpenRepo makes the repository once. The error tells if it cannot be made.
func TestOpenRepo(t *testing.T) {
	git := repotest.NewServer(t)
	for range 2 {
		if repo, err := OpenRepo(t.Context(), git); err != nil || repo.Name() != gitd.PeopleRepo {
			t.Fatalf("%v, %v", repo, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := OpenRepo(ended, repotest.NewServer(t)); err == nil || !strings.Contains(err.Error(), "cannot make the repository") {
		t.Errorf("after the end of the context: %v", err)
	}
}

func TestSetDefaults(t *testing.T) {
	var o Options
	o.SetDefaults()
	if o.Now == nil || o.Log == nil {
		t.Fatalf("%+v", o)
	}
	log, at := slog.Default(), time.Unix(7, 0)
	o = Options{Now: func() time.Time { return at }, Log: log}
	if o.SetDefaults(); o.Log != log || !o.Now().Equal(at) {
		t.Error("options that are set are replaced")
	}
}
