package gitd

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestByName reads objects by the names in a comparison of trees.
func TestByName(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	c := commit(t, r, "main", "One", "a", "text", "d/e/f", "deep")
	for path, want := range map[string]string{"": "tree", "a": "blob", "d": "tree", "d/e/f": "blob"} {
		e, err := r.Entry(ctx, string(c), path)
		if err != nil || e.Type != want || e.Path != path || e.Size != 0 {
			t.Errorf("%q: %+v, %v", path, e, err)
		}
		b, err := r.Blob(ctx, e.Hash, 4)
		switch {
		case want == "tree" && !errors.Is(err, ErrInvalid):
			t.Errorf("%q: %q, %v", path, b, err)
		case want == "blob" && (err != nil || string(b) != map[string]string{"a": "text", "d/e/f": "deep"}[path]):
			t.Errorf("%q: %q, %v", path, b, err)
		}
		if _, err := r.Blob(ctx, e.Hash, 3); want == "blob" && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, path := range []string{"b", "a/x", "d/e/g"} {
		if e, err := r.Entry(ctx, string(c), path); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %+v, %v", path, e, err)
		}
	}
	if _, err := r.Blob(ctx, Hash(strings.Repeat("1", 40)), 10); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if when, err := r.CommitTime(ctx, c); err != nil || !when.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("%v, %v", when, err)
	}
	if when, err := r.CommitTime(ctx, Hash(strings.Repeat("1", 40))); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v, %v", when, err)
	}
}

// TestRepeatedFolders reads a tree of 41 small objects with 2^40 folders and no file.
func TestRepeatedFolders(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := newRepo(t)
	c := commit(t, r, "main", "One", "a", "text")
	file := filepath.Join(t.TempDir(), "tree")
	tree := ""
	for range 41 {
		var content []byte
		if tree != "" {
			name, err := hex.DecodeString(tree)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range []string{"a", "b"} {
				content = append(append(content, "40000 "+entry+"\x00"...), name...)
			}
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		tree = strings.TrimSpace(git(t, r.Dir(), "hash-object", "-w", "-t", "tree", file))
	}
	bomb := Hash(strings.TrimSpace(git(t, r.Dir(), "-c", "user.name=a", "-c", "user.email=a@example.org", "commit-tree", "-m", "x", tree)))

	git(t, r.Dir(), "update-ref", "refs/heads/bomb", string(bomb))
	git(t, r.Dir(), "repack", "-q", "-a", "-d")

	if list, err := r.Tree(ctx, string(bomb), "", true); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a list of %d entries, %v", len(list), err)
	}
	if n, err := r.CountFiles(ctx, bomb, 10); n != 10 || err != nil {
		t.Errorf("%d files, %v", n, err)
	}
	if list, err := r.Compare(ctx, c, bomb, 10); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d changes, %v", len(list), err)
	}
	if files, err := r.Lockfiles(ctx, bomb); !errors.Is(err, ErrTooLarge) {
		t.Errorf("lock files %v, %v", files, err)
	}
}
