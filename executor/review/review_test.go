package review

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/anchor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

var ada = gitd.Person{Name: "Ada", Email: "ada@example.org"}

// newThread returns a thread on a line of a new file of a repository.
func newThread(t *testing.T, repo *gitd.Repo, id string) Thread {
	t.Helper()
	commit, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Put: []gitd.File{{Path: id, Content: []byte(id + "\nb\nc\n")}},
		Author: ada, When: time.Unix(1_700_000_000, 0), Message: id})
	if err != nil {
		t.Fatal(err)
	}
	a, lines, err := anchor.Make(t.Context(), repo, anchor.Ends{Base: commit, Commit: commit}, anchor.New, id, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	x := Thread{ID: id, Anchor: a, Remarks: []Remark{{ID: "r-" + id, Kind: ByPerson, By: ada, Time: time.Unix(1_700_000_000, 0).UTC(), Text: "why?"}}}
	x.SetExcerpt(lines)
	return x
}

// TestBook has several writers at once. Stock git reads the review, which has all changes and all files that the threads are about.
func TestBook(t *testing.T) {
	repo := repotest.NewRepo(t)
	c, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	var changed sync.Map
	b := &Book{Bot: gitd.Person{Name: "ramus", Email: "ramus@example.org"}, Now: func() time.Time { return time.Unix(1_700_000_000, 0) },
		Changed: func(_ string, c record.Caller) { changed.Store(c, true) }}
	if r, err := b.Read(t.Context(), repo, c); err != nil || len(r.Threads) > 0 {
		t.Fatal(r, err)
	}
	var writers sync.WaitGroup
	for i := range 4 {
		x := newThread(t, repo, fmt.Sprintf("thread-%d", i))
		writers.Go(func() {
			if _, err := b.Change(t.Context(), repo, c, ada, "Comment", func(r *Review) error {
				r.Threads = append(r.Threads, x)
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	r, err := new(Book).Read(t.Context(), repo, c)
	if err != nil || len(r.Threads) != 4 || !reflect.DeepEqual(r.Threads[1], newThread(t, repo, "thread-1")) {
		t.Fatalf("%+v %v", r, err)
	}
	if _, ok := changed.Load(c); !ok {
		t.Error("nobody was told")
	}
	if list, err := Callers(t.Context(), repo); err != nil || len(list) != 1 || list[0] != c {
		t.Error(list, err)
	}
	files := gittest.Run(t, repo.Dir(), "ls-tree", "-r", "--name-only", Ref(c))
	if strings.Count(files, "threads/") != 4 || strings.Count(files, "blobs/") != 4 {
		t.Error(files)
	}
	// The ref alone keeps all that the threads are about.
	gittest.Run(t, repo.Dir(), "reflog", "expire", "--expire=all", "--all")
	gittest.Run(t, repo.Dir(), "prune", "--expire=now")
	for _, x := range r.Threads {
		gittest.Run(t, repo.Dir(), "cat-file", "-e", string(x.Anchor.Commit)+":"+x.Anchor.Path)
	}
	gittest.Run(t, repo.Dir(), "fsck", "--strict")

	// A change without a difference makes no commit, one that fails changes nothing, and no id leaves the folder.
	tip := gittest.Run(t, repo.Dir(), "rev-parse", Ref(c))
	if _, err := b.Change(t.Context(), repo, c, ada, "x", func(*Review) error { return nil }); err != nil {
		t.Error(err)
	}
	failed := errors.New("failed")
	if _, err := b.Change(t.Context(), repo, c, ada, "x", func(r *Review) error { r.Threads[0].Resolved = &Resolution{}; return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	for _, id := range []string{"../x", "", "A", strings.Repeat("x", 200)} {
		if _, err := b.Change(t.Context(), repo, c, ada, "x", func(r *Review) error { r.Batches = append(r.Batches, Batch{ID: id}); return nil }); !errors.Is(err, record.ErrInvalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := b.Change(t.Context(), repo, c, ada, "x", func(r *Review) error { r.Threads[0].Remarks = make([]Remark, MaxRemarks+1); return nil }); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	if now := gittest.Run(t, repo.Dir(), "rev-parse", Ref(c)); now != tip {
		t.Error("the review was changed")
	}
	if r, err := b.Read(t.Context(), repo, c); err != nil || r.Threads[0].Resolved != nil {
		t.Error(r, err)
	}
}

// TestState checks the states of threads.
func TestState(t *testing.T) {
	person, agent := Remark{Kind: ByPerson}, Remark{Kind: ByAgent}
	for _, x := range []struct {
		t    Thread
		at   anchor.State
		want State
	}{
		{Thread{Remarks: []Remark{person}}, anchor.Same, Sent},
		{Thread{Remarks: []Remark{person}}, anchor.Moved, Sent},
		{Thread{Remarks: []Remark{person}}, anchor.Changed, Touched},
		{Thread{Remarks: []Remark{person}}, anchor.Gone, Outdated},
		{Thread{Remarks: []Remark{person, agent}}, anchor.Gone, Answered},
		{Thread{Remarks: []Remark{person, agent, person}}, anchor.Same, Sent},
		{Thread{Remarks: []Remark{agent}}, anchor.Same, Sent},
		{Thread{Remarks: []Remark{agent}, Resolved: &Resolution{}}, anchor.Gone, Resolved},
	} {
		if got := x.t.StateAt(anchor.Place{State: x.at}); got != x.want {
			t.Errorf("%+v at %s: %s, want %s", x.t, x.at, got, x.want)
		}
	}
}

// TestSuggestions checks the blocks of texts.
func TestSuggestions(t *testing.T) {
	for text, want := range map[string][][]string{
		"":                                     nil,
		"```suggestion\na\n```":                {{"a"}},
		"x\n```suggestion\r\na\r\n\r\n```\r\n": {{"a", ""}},
		"```suggestion\n```":                   {{}},
		"````suggestion\n```\n````":            {{"```"}},
		"```suggestion\na":                     nil,
		"```go\na\n```":                        nil,
		"```suggestion\na\n```\n```suggestion\nb\n```": {{"a"}, {"b"}},
	} {
		if got := Suggestions(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	lines := []string{"a", "b", "c"}
	got, err := Apply(lines, anchor.Place{State: anchor.Moved, From: 2, To: 2}, []string{"x", "y"})
	if err != nil || !reflect.DeepEqual(got, []string{"a", "x", "y", "c"}) {
		t.Error(got, err)
	}
	for _, p := range []anchor.Place{{State: anchor.Changed, From: 1, To: 1}, {State: anchor.Same, From: 3, To: 4}, {State: anchor.Same}} {
		if _, err := Apply(lines, p, nil); !errors.Is(err, anchor.ErrLines) {
			t.Error(p, err)
		}
	}
}

// FuzzSuggestions checks that no suggestion has lines that the text lacks.
func FuzzSuggestions(f *testing.F) {
	f.Add("x\n```suggestion\na\n```\ny")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range Suggestions(text) {
			for _, l := range s {
				if !strings.Contains(text, l) {
					t.Errorf("%q has no line %q", text, l)
				}
			}
		}
	})
}
