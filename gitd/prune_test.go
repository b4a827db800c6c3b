package gitd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/pack"
)

// TestPrune removes objects that no ref has reached for a long time, and
// nothing else.
func TestPrune(t *testing.T) {
	r := newRepo(t)
	write := func(what string) Hash {
		t.Helper()
		h, err := r.WriteCommit(t.Context(), NewCommit{Author: alice, Message: what, When: time.Unix(1_700_000_000, 0),
			Put: []File{{Path: what, Content: []byte(what)}, {Path: "shared", Content: []byte("shared")}}})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	old, gone, again := write("reached"), write("gone"), write("again")
	if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/main", New: old}); err != nil {
		t.Fatal(err)
	}
	packs, err := filepath.Glob(filepath.Join(r.dir, pack.Folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	long := time.Now().AddDate(0, -1, 0)
	for _, p := range packs {
		if err := os.Chtimes(p, long, long); err != nil {
			t.Fatal(err)
		}
	}
	r.objects.Packs.Close() // the packs remember which objects they have marked as in use
	recent := write("recent")
	// Written again just now, the object exists, and is in use from now on.
	if h := write("again"); h != again {
		t.Errorf("%s is %s now", again, h)
	}
	if err := r.Prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	for h, there := range map[Hash]bool{old: true, gone: false, again: true, recent: true} {
		_, err := r.Commit(t.Context(), string(h))
		if there && err != nil || !there && !errors.Is(err, ErrNotFound) {
			t.Errorf("commit %s, which %s stay: %v", h, map[bool]string{true: "must", false: "must not"}[there], err)
		}
	}
	git(t, r.dir, "fsck", "--strict")
	// An object of a removed pack is written again.
	if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/gone", New: write("gone")}); err != nil {
		t.Error(err)
	}
	git(t, r.dir, "fsck", "--strict", "--connectivity-only")
}

// TestPruneDuringCommits commits objects while they are being removed.
func TestPruneDuringCommits(t *testing.T) {
	r := newRepo(t)
	when := time.Unix(1_700_000_000, 0)
	write := func(i int) Hash {
		h, err := r.WriteCommit(t.Context(), NewCommit{Author: alice, Message: fmt.Sprint(i), When: when,
			Put: []File{{Path: "f", Content: fmt.Append(nil, i)}}})
		if err != nil {
			t.Error(err)
		}
		return h
	}
	const commits = 30
	for i := range commits {
		write(i)
	}
	packs, err := filepath.Glob(filepath.Join(r.dir, pack.Folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	long := time.Now().AddDate(0, -1, 0)
	for _, p := range packs {
		if err := os.Chtimes(p, long, long); err != nil {
			t.Fatal(err)
		}
	}
	r.objects.Packs.Close()
	pruned := make(chan error, 1)
	go func() { pruned <- r.Prune(t.Context()) }()
	for i := range commits {
		if err := r.Update(t.Context(), RefUpdate{Name: fmt.Sprintf("refs/heads/b%d", i), New: write(i)}); err != nil {
			t.Error(err)
		}
	}
	if err := <-pruned; err != nil {
		t.Error(err)
	}
	git(t, r.dir, "fsck", "--strict", "--connectivity-only")
}
