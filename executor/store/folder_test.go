package store_test

import (
	"io"
	"os"
	"path/filepath"
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
	for name, want := range map[string]os.FileMode{"": os.ModeDir | 0o700, "sha256": os.ModeDir | 0o700, "sha256/ab": os.ModeDir | 0o700, "sha256/ab/abc": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%q: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "sha256", "ab")); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v: want the file alone", entries, err)
	}
}

// TestFolderUnfinished opens a folder with files of a dead process, and with one that is being written.
func TestFolderUnfinished(t *testing.T) {
	b, dir := openFolder(t)
	if err := b.Put(t.Context(), "a/whole", strings.NewReader("whole")); err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(dir, "a", "dead.123.tmp")
	if err := os.WriteFile(dead, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	in, out := io.Pipe()
	done := make(chan error)
	go func() { done <- b.Put(t.Context(), "a/slow", in) }()
	if _, err := io.WriteString(out, "one "); err != nil {
		t.Fatal(err)
	}

	again, err := store.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if left := unfinished(t, dir); len(left) != 1 || left[0] == dead {
		t.Errorf("unfinished files: %q, want that of the Put at work", left)
	}
	for o, err := range again.List(t.Context(), "") {
		if err != nil || o.Key != "a/whole" {
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
	if text, err := os.ReadFile(filepath.Join(dir, "a", "slow")); err != nil || string(text) != "one two" {
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
