package naming

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// newStore returns a store without records.
func newStore(t *testing.T) *Store {
	t.Helper()
	dir := t.TempDir()
	git := &gitd.Server{Root: filepath.Join(dir, "repos"), KeyFile: filepath.Join(dir, "key.pem")}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := git.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &Store{Git: git, Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"},
		Now: func() time.Time { return time.Unix(1_700_000_000, 0) }}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNames sets names, takes one back, and finds them again after a restart.
func TestNames(t *testing.T) {
	s := newStore(t)
	a, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := record.RunCaller("b")
	if err != nil {
		t.Fatal(err)
	}
	ada := gitd.Person{Name: "Ada", Email: "ada@example.org", ID: "github:1"}
	set := func(c record.Caller, session, name string) {
		t.Helper()
		if err := s.SetName(t.Context(), c, session, name, ada); err != nil {
			t.Fatal(err)
		}
	}
	set(a, "coder", "  The\ninvoice\x1b ")
	set(a, "coder.01", "Docs")
	set(b, "coder", strings.Repeat("long ", 100))
	set(a, "coder.01", "")
	set(b, "other", "") // it has none
	check := func(s *Store) {
		t.Helper()
		for _, x := range []struct {
			caller        record.Caller
			session, want string
		}{{a, "coder", "The invoice"}, {a, "coder.01", ""}, {b, "other", ""}, {b, "none", ""}} {
			if got := s.Name(x.caller, x.session); got != x.want {
				t.Errorf("%s %s: %q", x.caller, x.session, got)
			}
		}
		if got := s.Name(b, "coder"); len(got) > MaxBytes || !strings.HasPrefix(got, "long long") {
			t.Errorf("%q", got)
		}
	}
	check(s)
	repo, err := s.Git.Repo(gitd.PeopleRepo)
	if err != nil {
		t.Fatal(err)
	}
	c, err := repo.Commit(t.Context(), refs+"/run-a")
	if err != nil || c.Author.Name != "Ada" || c.Subject != "Name the session coder.01 of run:a" || len(c.Parents) != 1 {
		t.Errorf("%+v %v", c, err)
	}
	before := c.Hash
	set(a, "coder", "The invoice") // nothing changes
	if c, err = repo.Commit(t.Context(), refs+"/run-a"); err != nil || c.Hash != before {
		t.Errorf("%s %v", c.Hash, err)
	}
	again := &Store{Git: s.Git}
	if err := again.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(again)
}

// TestNamesAtOnce names many sessions of one caller at once. None is lost, and there is a bound.
func TestNamesAtOnce(t *testing.T) {
	s := newStore(t)
	c, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	sessions := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, session := range sessions {
		all.Go(func() {
			if err := s.SetName(t.Context(), c, session, "of "+session, gitd.Person{Name: "Ada", Email: "ada@example.org"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, session := range sessions {
		if got := s.Name(c, session); got != "of "+session {
			t.Errorf("%s: %q", session, got)
		}
	}
	full := Record{Caller: c, Sessions: map[string]Name{}}
	for n := range maxNames {
		full.Sessions[strings.Repeat("x", n+1)] = Name{Text: "x"}
	}
	s.records[c] = full
	if err := s.SetName(t.Context(), c, "one more", "x", gitd.Person{Name: "Ada", Email: "ada@example.org"}); err == nil {
		t.Error("there is no bound")
	}
}

// FuzzRecord checks that a record that is read has only names that are kept as they are.
func FuzzRecord(f *testing.F) {
	f.Add(`{"caller":"run:a","sessions":{"coder":{"text":"x"}}}`)
	f.Add(`{"caller":"run:a","sessions":{"":{"text":"x"}}}`)
	f.Add(`{"caller":"run:a","sessions":{"coder":{"text":" a\nb"}}}`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, content string) {
		var r Record
		if json.Unmarshal([]byte(content), &r) != nil || r.check(refs+"/run-a") != nil {
			return
		}
		if r.Caller.Slug() != "run-a" {
			t.Errorf("the record is that of %s", r.Caller)
		}
		for _, n := range r.Sessions {
			if len(n.Text) > MaxBytes || strings.ContainsAny(n.Text, "\n\x1b") {
				t.Errorf("%q", n.Text)
			}
		}
	})
}
