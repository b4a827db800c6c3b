package share

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
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

// TestPacked takes links over to another server with their counts, twice, and revocations too.
func TestPacked(t *testing.T) {
	store := func() *Store {
		t.Helper()
		s := &Store{Options: people.Options{Git: repotest.NewServer(t), Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"}}}
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s, other := store(), store()
	caller, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	if packed, err := s.Pack("app", nil); err != nil || packed != nil {
		t.Fatalf("no links are %s, %v", packed, err)
	}
	for id, repo := range map[string]string{"mine": "app", "theirs": "tool"} {
		if err := s.Make(t.Context(), Record{ID: id, Kind: KindRun, Repo: repo, Caller: caller, Run: "x", By: gitd.Person{Name: "Ada", Email: "ada@example.org"},
			Made: time.Now().UTC(), Expires: time.Now().Add(time.Hour).UTC()}); err != nil {
			t.Fatal(err)
		}
		s.countOpening(id)
	}
	carry := func() {
		t.Helper()
		packed, err := s.Pack("app", nil)
		if err == nil {
			err = other.Unpack(t.Context(), packed)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	carry()
	carry()
	if list := other.List(); len(list) != 1 || list[0].ID != "mine" || !list[0].Open(time.Now()) || other.Count("mine").Opened != 1 {
		t.Errorf("the links are %+v, opened %d times", list, other.Count("mine").Opened)
	}
	if _, err := s.Revoke(t.Context(), "mine", gitd.Person{Name: "Ada", Email: "ada@example.org"}); err != nil {
		t.Fatal(err)
	}
	carry()
	if r, _ := other.Get("mine"); r.Open(time.Now()) {
		t.Error("a link that was revoked opens after a move")
	}
	if err := other.Unpack(t.Context(), json.RawMessage(`[{"id":"a/b"}]`)); err == nil {
		t.Error("a record that cannot be one was kept")
	}
}
