package executor_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gitd"
)

// indexRepo is a repository whose index git writes, with what ramus keeps of it.
type indexRepo struct {
	t   testing.TB
	dir string
}

func newIndexRepo(t testing.TB) *indexRepo {
	r := &indexRepo{t, t.TempDir()}
	r.git("init", "-q", "-b", "main")
	r.git("config", "user.name", "T")
	r.git("config", "user.email", "t@example.com")
	r.git("config", "index.version", "2")
	r.git("config", "core.untrackedCache", "true")
	return r
}

func (r *indexRepo) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || errs.Len() > 0 {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	return string(out)
}

func (r *indexRepo) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *indexRepo) index() []byte {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, ".git", "index"))
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// TestRewriteIndex changes random entries of indexes of git's, and git finds in them what
// it would have put there itself: files, trees, and what differs from a commit.
func TestRewriteIndex(t *testing.T) {
	r := newIndexRepo(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	name := func() string {
		parts := make([]string, 1+rnd.IntN(3))
		for i := range parts {
			parts[i] = []string{"a", "a-", "a.b", "b", "sub", "z", "é", strings.Repeat("n", 200)}[rnd.IntN(8)] + fmt.Sprint(rnd.IntN(4))
		}
		return strings.Join(parts, "/")
	}
	for i := range 12 {
		r.git("rm", "-rfq", "--cached", "--ignore-unmatch", ".")
		r.git("clean", "-fdq")
		have := map[string]bool{}
		fits := func(p string) bool { // no file where a folder is
			for q := range have {
				if strings.HasPrefix(q, p+"/") || strings.HasPrefix(p, q+"/") {
					return false
				}
			}
			return true
		}
		for range 30 {
			if p := name(); fits(p) {
				have[p] = true
				r.write(p, p)
			}
		}
		r.git("add", "-A")
		r.git("commit", "-qm", "x", "--allow-empty")
		r.git("status")
		r.git("status")
		old := r.index()
		var differ []executor.IndexEntry
		var info strings.Builder
		for _, p := range slices.Sorted(maps.Keys(have)) { // the same in each run
			if rnd.IntN(3) == 0 {
				delete(have, p)
				differ = append(differ, executor.IndexEntry{Path: p})
				fmt.Fprintf(&info, "0 %040d\t%s\n", 0, p)
			}
		}
		for range 10 {
			p := name()
			if !have[p] && !fits(p) || slices.ContainsFunc(differ, func(d executor.IndexEntry) bool { return d.Path == p }) {
				continue
			}
			have[p] = true
			r.write("content", fmt.Sprint(p, rnd.Int()))
			h := strings.TrimSpace(r.git("hash-object", "-w", "content"))
			if err := os.Remove(filepath.Join(r.dir, "content")); err != nil {
				t.Fatal(err)
			}
			differ = append(differ, executor.IndexEntry{Path: p, Mode: 0o100644, Hash: gitd.Hash(h)})
			fmt.Fprintf(&info, "100644 %s\t%s\n", h, p)
		}
		made, err := executor.RewriteIndex(old, differ, "")
		if err != nil {
			t.Fatal(err)
		}
		look := func() string {
			return r.git("ls-files", "--stage", "-z") + r.git("diff", "--cached", "--name-status", "-z") + r.git("write-tree") + r.git("fsck", "--no-dangling")
		}
		file := filepath.Join(r.dir, ".git", "index")
		cmd := exec.Command("git", "update-index", "--index-info")
		cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(info.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		want := look()
		if err := os.WriteFile(file, made, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := look(); got != want {
			t.Fatalf("round %d: got\n%q\nwant\n%q", i, got, want)
		}
	}
}

// TestIndexRefused: what only git understands is left to it.
func TestIndexRefused(t *testing.T) {
	r := newIndexRepo(t)
	r.write("a", "a")
	r.write("b", "b")
	r.git("add", "-A")
	r.git("commit", "-qm", "x")
	plain := r.index()
	for name, args := range map[string][]string{
		"assumed unchanged": {"update-index", "--assume-unchanged", "a"},
		"skipped":           {"update-index", "--skip-worktree", "a"},
		"intended":          {"add", "-N", "c"},
		"version 4":         {"update-index", "--index-version", "4"},
		"split":             {"update-index", "--split-index"},
	} {
		r.write("c", "c")
		r.git(args...)
		if _, err := executor.RewriteIndex(r.index(), nil, ""); err == nil {
			t.Errorf("%s: taken", name)
		}
		if err := os.WriteFile(filepath.Join(r.dir, ".git", "index"), plain, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := executor.RewriteIndex(plain, nil, ""); err != nil {
		t.Error(err)
	}
}

// FuzzIndex reads indexes that containers wrote: what is taken apart is put together again.
func FuzzIndex(f *testing.F) {
	r := newIndexRepo(f)
	f.Add(r.gitIndexOf(), "a")
	r.write("a", "a")
	r.write("d/b", "b")
	r.git("add", "-A")
	r.git("commit", "-qm", "x")
	r.git("status")
	f.Add(r.index(), "a")
	f.Add(r.index(), "d")
	f.Add(r.index()[:40], "")
	f.Fuzz(func(t *testing.T, old []byte, path string) {
		once, err := executor.RewriteIndex(old, []executor.IndexEntry{{Path: path, Mode: 0o100644, Hash: gitd.Hash(strings.Repeat("1", 40))}}, "token")
		if err != nil {
			return
		}
		again, err := executor.RewriteIndex(once, nil, "token")
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if !bytes.Equal(once, again) {
			t.Fatal("it changes with every writing")
		}
	})
}

// gitIndexOf is the index of an empty work tree.
func (r *indexRepo) gitIndexOf() []byte {
	r.git("read-tree", "--empty")
	return r.index()
}
