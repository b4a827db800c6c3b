package session

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// TestNoFile keeps its hands off a path that cannot be opened, which is not a damaged file.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none", "web.db")} {
		if db, lost, err := OpenFile(path); db != nil || lost != nil || err == nil || !strings.Contains(err.Error(), "cannot open the file") {
			t.Errorf("%s: lost %v, %v", path, lost, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestDamagedEntries leaves out entries that no session has written.
func TestDamagedEntries(t *testing.T) {
	k := open(t)
	s, cookie := k.begin("a")
	good := *k.byID[s.ID]
	err := k.DB.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(sessionsBucket)
		for key, change := range map[string]func(*kept){
			"family-1": func(s *kept) { s.Family = []byte("family-1"); s.ID = "" },
			"family-2": func(s *kept) { s.ID = "another family" },
		} {
			bad := good
			change(&bad)
			text, err := json.Marshal(bad)
			if err != nil {
				return err
			}
			if err := b.Put([]byte(key), text); err != nil {
				return err
			}
		}
		return b.Put([]byte("family-3"), []byte("{"))
	})
	if err != nil {
		t.Fatal(err)
	}
	k.restart()
	if list := k.List(""); len(list) != 1 || list[0].ID != s.ID || len(k.all) != 1 || len(k.byID) != 1 {
		t.Errorf("%+v of %d", list, len(k.all))
	}
	if f, _ := k.find(cookie); f.ID != s.ID {
		t.Errorf("%+v", f)
	}
}

// TestSweep ends all sessions that have ended by themselves, at a start and at a new session.
func TestSweep(t *testing.T) {
	k := open(t)
	for range 5 {
		k.begin("a")
	}
	s, _ := k.begin("b")
	if _, ok := k.Get("nothing"); ok {
		t.Error("there is a session that never began")
	}
	k.now = k.now.Add(DefaultIdle - time.Second)
	if got, ok := k.Get(s.ID); !ok || got.ID != s.ID {
		t.Error("a session ends too early")
	}
	k.now = k.now.Add(time.Second)
	if _, ok := k.Get(s.ID); ok || len(k.List("")) > 0 {
		t.Error("there is a session that has ended")
	}
	k.begin("c")
	if len(k.all) != 1 || len(k.byID) != 1 {
		t.Errorf("%d sessions are kept", len(k.all))
	}
	k.begin("d")
	k.now = k.now.Add(DefaultIdle)
	k.restart()
	if len(k.all) != 0 {
		t.Errorf("%d sessions are kept after a restart", len(k.all))
	}
}

// TestWatches has a session with open sockets stay, and end when the last socket has been closed for long enough.
func TestWatches(t *testing.T) {
	k := open(t)
	s, cookie := k.begin("a")
	_, stop1 := k.Watch(s.ID)
	_, stop2 := k.Watch(s.ID)
	k.now = k.now.Add(2 * DefaultIdle)
	stop1()
	if _, ok := k.Get(s.ID); !ok {
		t.Error("a session with a socket has ended")
	}
	if n := len(k.watches[s.ID]); n != 1 {
		t.Errorf("%d watches are left", n)
	}
	stop2()
	if len(k.watches) != 0 {
		t.Errorf("%d sessions are watched", len(k.watches))
	}
	k.find(cookie)
	k.now = k.now.Add(DefaultIdle)
	k.refused("a session without sockets", cookie, ErrExpired)
}
