package gitd

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestRenameAndRemove(t *testing.T) {
	s := newServer(t)
	r, err := s.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	h := commit(t, r, "main", "One", "a", "1")
	mark, err := r.Mark()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "taken"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"taken": ErrExists, "../x": ErrInvalid, "x.lock": ErrInvalid} {
		if _, err := s.Rename(t.Context(), "app", name); !errors.Is(err, want) {
			t.Errorf("renamed to %s: %v, want %v", name, err, want)
		}
	}
	if _, err := s.Rename(t.Context(), "nothing", "other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("renamed nothing: %v", err)
	}

	moved, err := s.Rename(t.Context(), "app", "team/deep/app")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := moved.Resolve(t.Context(), "main"); err != nil || got != h {
		t.Errorf("main is at %s, %v", got, err)
	}
	if got, err := moved.Mark(); err != nil || got != mark {
		t.Errorf("the mark is %q, was %q, %v", got, mark, err)
	}
	if _, err := s.Repo("app"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the old name: %v", err)
	}
	git(t, moved.Dir(), "fsck", "--strict")

	if err := s.Remove(t.Context(), "team/deep/app"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Repo("team/deep/app"); !errors.Is(err, ErrNotFound) {
		t.Errorf("it is there: %v", err)
	}
	if err := s.Remove(t.Context(), "team/deep/app"); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed again: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(s.Root, newFolder))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	again, err := s.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	if other, err := again.Mark(); err != nil || other == mark {
		t.Errorf("a new repository has the old mark %q, %v", other, err)
	}
}

// TestMarkOnce asks for a mark from many sides at once.
func TestMarkOnce(t *testing.T) {
	r := newRepo(t)
	marks := make([]string, 16)
	var all sync.WaitGroup
	for i := range marks {
		all.Go(func() {
			mark, err := r.Mark()
			if err != nil {
				t.Error(err)
			}
			marks[i] = mark
		})
	}
	all.Wait()
	for _, mark := range marks {
		if mark == "" || mark != marks[0] {
			t.Errorf("marks %q", marks)
		}
	}
}
