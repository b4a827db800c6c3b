package comment

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// TestDrafts keeps drafts of people apart, over a restart, and not for longer than they last.
func TestDrafts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.db")
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	open := func() *Drafts {
		db, err := bolt.Open(file, 0o600, &bolt.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		return &Drafts{DB: db, Now: func() time.Time { return now }}
	}
	d := open()
	add := func(person, place string, n int) error {
		return d.Change(person, place, func(list []Draft) ([]Draft, error) {
			for range n {
				list = append(list, Draft{ID: fmt.Sprint(len(list)), Text: "x"})
			}
			return list, nil
		})
	}
	for _, person := range []string{"ada", "bo"} {
		if err := add(person, "app run-a", 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := add("ada", "app run-a", MaxDrafts); !errors.Is(err, errDrafts) {
		t.Error(err)
	}
	failed := errors.New("failed")
	if err := d.Change("ada", "app run-a", func([]Draft) ([]Draft, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if err := d.Change("bo", "app run-a", func([]Draft) ([]Draft, error) { return nil, nil }); err != nil {
		t.Error(err)
	}
	if err := d.DB.Close(); err != nil {
		t.Fatal(err)
	}
	d = open()
	defer func() { d.DB.Close() }()
	count := func(person, place string) int {
		t.Helper()
		list, err := d.Of(person, place)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if count("ada", "app run-a") != 2 || count("bo", "app run-a") != 0 || count("ada", "app run-b") != 0 {
		t.Error("other drafts came back")
	}
	now = now.Add(draftsFor + time.Hour)
	if err := add("bo", "app run-b", 1); err != nil || count("ada", "app run-a") != 0 {
		t.Error("old drafts stay", err)
	}
}
