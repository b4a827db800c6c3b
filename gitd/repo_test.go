package gitd

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/gittest"
	"golang.org/x/sys/unix"
)

var alice = Person{Name: "Alice Example", Email: "alice@example.com"}

// newServer opens a server on an empty folder. It closes the server at the end of the
// test, and fails the test if a repository is damaged. The check runs when the server
// no longer packs in the background, because stock git takes a removed pack for a
// fault.
func newServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{Root: t.TempDir()}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		repos, err := s.Repos(context.Background())
		if err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for _, r := range repos {
			if out, err := exec.Command("git", "-C", r.Dir(), "fsck", "--strict", "--no-dangling").CombinedOutput(); err != nil {
				t.Errorf("fsck of %s: %v\n%s", r.Name(), err, out)
			}
		}
	})
	return s
}

func newRepo(t testing.TB) *Repo {
	t.Helper()
	r, err := newServer(t).Create(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOpenFails checks that a server that could not be opened holds none of its
// locks.
func TestOpenFails(t *testing.T) {
	root := t.TempDir()
	// Nothing can be written at an offset of a pipe.
	if err := unix.Mkfifo(filepath.Join(root, lockName), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{Root: root}
	if err := s.Open(t.Context()); !errors.Is(err, unix.ESPIPE) {
		t.Fatal(err)
	}
	for _, name := range []string{lockName, serverLockName} {
		f, err := os.OpenFile(filepath.Join(root, name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// git runs stock git like a person, without any configuration.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	return gittest.Run(t, dir, args...)
}

// commit writes files as the next commit of a branch.
func commit(t testing.TB, r *Repo, branch, message string, files ...string) Hash {
	t.Helper()
	c := NewCommit{Author: alice, When: time.Unix(1700000000, 0).UTC(), Message: message}
	old := Hash("")
	if tip, err := r.Resolve(t.Context(), "refs/heads/"+branch); err == nil {
		c.From, c.Parents, old = tip, []Hash{tip}, tip
	} else if !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	for i := 0; i < len(files); i += 2 {
		c.Put = append(c.Put, File{Path: files[i], Content: []byte(files[i+1])})
	}
	h, err := r.WriteCommit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/" + branch, New: h, Old: &old}); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestRepository(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	if base, err := r.Base(ctx); base != "main" || err != nil {
		t.Fatal(base, err)
	}
	if _, err := r.Resolve(ctx, "main"); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	first := commit(t, r, "main", "First\n\nText.\n\nRamus-Run: one\nRamus-Step: 1\n", "a", "1\n", "dir/b", "2\n")
	second := commit(t, r, "main", "Second", "dir", "a file now\n", "a/x/y", "deep\n")
	for _, rev := range []string{"main", "HEAD", "refs/heads/main", string(second), string(second[:9])} {
		if h, err := r.Resolve(ctx, rev); h != second || err != nil {
			t.Errorf("Resolve(%q) = %s, %v", rev, h, err)
		}
	}
	if b, err := r.ReadFile(ctx, "main", "a/x/y", 0); string(b) != "deep\n" || err != nil {
		t.Error(string(b), err)
	}
	if _, err := r.ReadFile(ctx, "main", "a/x/y", 2); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, err := r.ReadFile(ctx, "main", "a/x", 0); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if _, err := r.ReadFile(ctx, "main", "nothing", 0); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	log, err := r.Log(ctx, "main", LogOptions{})
	if err != nil || len(log) != 2 || log[0].Hash != second || log[1].Hash != first {
		t.Fatal(log, err)
	}
	if log[1].Trailer("Ramus-Run") != "one" || log[1].Subject != "First" || log[1].Author != alice || len(log[1].Trailers) != 2 {
		t.Errorf("%+v", log[1])
	}
	changes, err := r.Changed(ctx, string(first), "main", false)
	if err != nil || len(changes) != 4 {
		t.Error(changes, err)
	}
	var diff bytes.Buffer
	if err := r.Diff(ctx, string(first), "main", DiffOptions{}, &diff); err != nil || !strings.Contains(diff.String(), "+deep") {
		t.Error(diff.String(), err)
	}
	tree, err := r.Tree(ctx, "main", "", true)
	if err != nil || len(tree) != 2 || tree[0].Path != "a/x/y" || tree[0].Size != 5 {
		t.Error(tree, err)
	}
	if err := r.Maintain(ctx); err != nil {
		t.Fatal(err)
	}
	if b, err := r.ReadFile(ctx, string(first), "dir/b", 0); string(b) != "2\n" || err != nil {
		t.Error(string(b), err)
	}
}

func TestMergeStrategies(t *testing.T) {
	ctx := t.Context()
	for _, strategy := range []Strategy{StrategyMerge, StrategyRebase, StrategySquash, StrategyFF} {
		t.Run(string(strategy), func(t *testing.T) {
			r := newRepo(t)
			base := commit(t, r, "main", "Base", "a", "1\n2\n3\n4\n5\n")
			if err := r.Update(ctx, RefUpdate{Name: "refs/heads/work", New: base}); err != nil {
				t.Fatal(err)
			}
			commit(t, r, "work", "Work one", "b", "b\n")
			work := commit(t, r, "work", "Work two", "a", "1\n2\n3\n4\nfive\n")
			if strategy != StrategyFF {
				commit(t, r, "main", "Main", "a", "one\n2\n3\n4\n5\n")
			}
			m := MergeRequest{From: "work", Into: "main", Strategy: strategy, Committer: alice}
			res, err := r.Merge(ctx, m)
			if err != nil || !res.Merged {
				t.Fatal(res, err)
			}
			want := "one\n2\n3\n4\nfive\n"
			parents := map[Strategy]int{StrategyMerge: 2, StrategyRebase: 1, StrategySquash: 1, StrategyFF: 1}[strategy]
			if strategy == StrategyFF {
				want = "1\n2\n3\n4\nfive\n"
				if res.Commit != work {
					t.Error("not a fast-forward")
				}
			}
			if b, err := r.ReadFile(ctx, "main", "a", 0); string(b) != want || err != nil {
				t.Errorf("%q %v", b, err)
			}
			c, err := r.Commit(ctx, "main")
			if err != nil || len(c.Parents) != parents || c.Hash != res.Commit {
				t.Errorf("%+v %v", c, err)
			}
			if again, err := r.Merge(ctx, m); strategy != StrategySquash && (err != nil || !again.UpToDate || again.Commit != res.Commit) {
				t.Error(again, err)
			}
			commit(t, r, "work", "Clash", "a", "X\n2\n3\n4\nfive\n", "c", "c\n")
			before := commit(t, r, "main", "Clash too", "a", "Y\n2\n3\n4\nfive\n")
			res, err = r.Merge(ctx, m)
			if strategy == StrategyFF {
				if !errors.Is(err, ErrConflict) {
					t.Error(err)
				}
			} else if err != nil || res.Merged || len(res.Conflicts) != 1 || res.Conflicts[0] != "a" {
				t.Error(res, err)
			}
			if tip, _ := r.Resolve(ctx, "main"); tip != before {
				t.Error("main was changed by a conflict")
			}
			if left, _ := filepath.Glob(filepath.Join(r.Dir(), "objects", scratchPrefix+"*")); len(left) > 0 {
				t.Error("still there:", left)
			}
		})
	}
}

func TestImport(t *testing.T) {
	ctx := t.Context()
	src := t.TempDir()
	git(t, src, "init", "-q", "-b", "trunk")
	git(t, src, "commit", "-q", "--allow-empty", "-m", "First")
	git(t, src, "tag", "-a", "-m", "Version", "v1")
	git(t, src, "branch", "side")
	s := newServer(t)
	var progress bytes.Buffer
	r, err := s.Import(ctx, "team/copy", src, &progress)
	if err != nil {
		t.Fatal(err)
	}
	if base, err := r.Base(ctx); base != "trunk" || err != nil {
		t.Error(base, err)
	}
	if up, err := r.Upstream(ctx); up != src || err != nil {
		t.Error(up, err)
	}
	if refs, err := r.Refs(ctx, ""); len(refs) != 3 || err != nil {
		t.Error(refs, err)
	}
	if h, err := r.Resolve(ctx, "v1"); string(h) != git(t, src, "rev-parse", "HEAD") || err != nil {
		t.Error(h, err)
	}
	git(t, src, "commit", "-q", "--allow-empty", "-m", "Second")
	res, err := s.Refresh(ctx, "team/copy", nil)
	if err != nil || res.Branch != "trunk" || string(res.New) != git(t, src, "rev-parse", "HEAD") || res.New == res.Old {
		t.Error(res, err)
	}
	git(t, src, "commit", "-q", "--amend", "--allow-empty", "-m", "Other")
	if _, err = s.Refresh(ctx, "team/copy", nil); !errors.Is(err, ErrConflict) {
		t.Error(err)
	}
	if refs, err := r.Refs(ctx, "refs/ramus"); len(refs) != 0 || err != nil {
		t.Error(refs, err)
	}
}
