package seen_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ramus-dev/ramus/gateway/seen"
)

func TestStore(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "web.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	now := time.Unix(1_700_000_000, 0).UTC()
	s := &seen.Store{DB: db, Now: func() time.Time { return now }}
	of := func(person, place string) seen.Marks {
		t.Helper()
		m, err := s.Of(person, place)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := of("ada", "run-a"); m.Looked != "" || len(m.Keys) > 0 {
		t.Errorf("an empty store has %+v", m)
	}
	for _, k := range []string{"one", "two", "one"} {
		if err := s.View("ada", "run-a", k, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Look("ada", "run-a", "c0ffee"); err != nil {
		t.Fatal(err)
	}
	if err := s.View("ada", "run-a", "two", false); err != nil {
		t.Fatal(err)
	}
	if m := of("ada", "run-a"); !slices.Equal(m.Keys, []string{"one"}) || m.Looked != "c0ffee" || !m.When.Equal(now) {
		t.Errorf("%+v", m)
	}
	if m := of("bo", "run-a"); len(m.Keys) > 0 || m.Looked != "" {
		t.Errorf("another person has %+v", m)
	}
	for _, x := range [][3]string{{"ada", "", "k"}, {"ada", "run-a", ""}, {strings.Repeat("a", 501), "run-a", "k"}} {
		if err := s.View(x[0], x[1], x[2], true); !errors.Is(err, seen.ErrTooLong) {
			t.Errorf("%q: %v", x, err)
		}
	}
	now = now.Add(seen.Kept + time.Hour)
	if err := s.View("bo", "run-b", "k", true); err != nil {
		t.Fatal(err)
	}
	if m := of("ada", "run-a"); m.Looked != "" {
		t.Errorf("old marks stay: %+v", m)
	}
}

// TestKeys marks more files than one place may have. The oldest are forgotten.
func TestKeys(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "web.db"), 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := &seen.Store{DB: db}
	for i := range 3 {
		if err := s.View("ada", "run-a", fmt.Sprint(i), true); err != nil {
			t.Fatal(err)
		}
	}
	m, err := s.Of("ada", "run-a")
	if err != nil || !m.Viewed()["2"] || m.Viewed()["3"] {
		t.Errorf("%+v, %v", m, err)
	}
}
