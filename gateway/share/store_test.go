package share

import (
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gitd"
)

// TestCounts keeps how often links were opened over a restart, and forgets the counts of links that are gone.
func TestCounts(t *testing.T) {
	git := &gitd.Server{Root: t.TempDir(), KeyFile: filepath.Join(t.TempDir(), "key.pem")}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = git.Close() })
	db, err := bolt.Open(filepath.Join(t.TempDir(), "web.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	open := func() *Store {
		t.Helper()
		s := &Store{Options: people.Options{Git: git, Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"}}}
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.CountIn(db); err != nil {
			t.Fatal(err)
		}
		return s
	}
	caller, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	s := open()
	for _, id := range []string{"kept", "gone"} {
		if err := s.Make(t.Context(), Record{ID: id, Kind: KindRun, Repo: "app", Caller: caller, Run: "x", By: gitd.Person{Name: "Ada", Email: "ada@example.org"},
			Made: time.Now(), Expires: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		s.countOpening(id)
		s.countOpening(id)
	}
	s.countOpening("never made")
	if n := s.Count("kept"); n.Opened != 2 || n.Last.IsZero() {
		t.Errorf("%+v", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	if n := s.Count("kept"); n.Opened != 2 {
		t.Errorf("after a restart: %+v", n)
	}
	if err := s.records().Remove(t.Context(), refOf("gone"), s.tips["gone"]); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer s.Close()
	if err := db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucket)
		if b.Stats().KeyN != 1 || b.Get([]byte("kept")) == nil {
			t.Errorf("%d counts", b.Stats().KeyN)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
