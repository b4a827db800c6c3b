package store_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/store"
)

func TestFolderLayout(t *testing.T) {
	b, dir := openFolder(t)
	if err := b.Put(t.Context(), "sha256/ab/abc", strings.NewReader("content")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "sha256", "ab", "abc"))
	if err != nil || string(text) != "content" {
		t.Errorf("%q, %v", text, err)
	}
	for name, want := range map[string]os.FileMode{"": os.ModeDir | 0o700, "sha256": os.ModeDir | 0o700,
		"sha256/ab": os.ModeDir | 0o700, "sha256/ab/abc": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%q: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "sha256", "ab")); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v: want the file alone", entries, err)
	}
}

// TestFolderUnfinished opens a folder with the files of a dead process, and with a file that is being
// written.
func TestFolderUnfinished(t *testing.T) {
	b, dir := openFolder(t)
	if err := b.Put(t.Context(), "sha256/ab/whole", strings.NewReader("whole")); err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(dir, "sha256", "ab", "dead.123.tmp")
	if err := os.WriteFile(dead, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Files of others stay.
	for _, name := range []string{"notes.tmp", "mine/notes.123.tmp", "sha256/ab/notes.tmp"} {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := os.Stat(name); err != nil {
				t.Errorf("a file of others: %v", err)
			}
		}()
	}
	in, out := io.Pipe()
	done := make(chan error)
	go func() { done <- b.Put(t.Context(), "sha256/ab/slow", in) }()
	if _, err := io.WriteString(out, "one "); err != nil {
		t.Fatal(err)
	}

	again, err := store.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(unfinished(t, dir), func(name string) bool { return strings.Contains(name, "notes") })
	if len(left) != 1 || left[0] == dead {
		t.Errorf("unfinished files: %q, want that of the Put at work", left)
	}
	for o, err := range again.List(t.Context(), "") {
		if err != nil || o.Key != "sha256/ab/whole" {
			t.Errorf("%+v, %v", o, err)
		}
	}
	if _, err := io.WriteString(out, "two"); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if err := <-done; err != nil {
		t.Errorf("the Put at work: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "sha256", "ab", "slow")); err != nil || string(text) != "one two" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestOpenFolderRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if _, err := store.OpenFolder(dir); err == nil {
			t.Errorf("%s opens", dir)
		}
	}
}
