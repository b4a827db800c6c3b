package gitindex

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/internal/growth"
)

// indexRepo is a repository whose index git writes.
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

// TestRewriteIndex changes random entries of indexes that git wrote. It checks that git finds in them
// the files, the trees and the changes that it would have written itself.
func TestRewriteIndex(t *testing.T) {
	r := newIndexRepo(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	name := func() string {
		parts := make([]string, 1+rnd.IntN(3))
		for i := range parts {
			parts[i] = []string{"a", "a-", "a.b", "b", "sub", "z", "é", strings.Repeat("n", 200)}[rnd.IntN(8)] +
				fmt.Sprint(rnd.IntN(4))
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
		var differ []Entry
		var info strings.Builder
		for _, p := range slices.Sorted(maps.Keys(have)) { // the same in each run
			if rnd.IntN(3) == 0 {
				delete(have, p)
				differ = append(differ, Entry{Path: p})
				fmt.Fprintf(&info, "0 %040d\t%s\n", 0, p)
			}
		}
		for range 10 {
			p := name()
			if !have[p] && !fits(p) || slices.ContainsFunc(differ, func(d Entry) bool { return d.Path == p }) {
				continue
			}
			have[p] = true
			r.write("content", fmt.Sprint(p, rnd.Int()))
			h := strings.TrimSpace(r.git("hash-object", "-w", "content"))
			if err := os.Remove(filepath.Join(r.dir, "content")); err != nil {
				t.Fatal(err)
			}
			differ = append(differ, Entry{Path: p, Mode: 0o100644, Hash: object.Hash(h)})
			fmt.Fprintf(&info, "100644 %s\t%s\n", h, p)
		}
		made, err := Rewrite(old, differ, 1000, "")
		if err != nil {
			t.Fatal(err)
		}
		look := func() string {
			return r.git("ls-files", "--stage", "-z") + r.git("diff", "--cached", "--name-status", "-z") +
				r.git("write-tree") + r.git("fsck", "--no-dangling")
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

// TestIndexRefused checks that indexes that only git understands are refused.
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
		if _, err := Rewrite(r.index(), nil, 1000, ""); err == nil {
			t.Errorf("%s: taken", name)
		}
		if err := os.WriteFile(filepath.Join(r.dir, ".git", "index"), plain, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Rewrite(plain, nil, 1000, ""); err != nil {
		t.Error(err)
	}
}

// FuzzIndex checks that a rewritten index can be rewritten again and does not change.
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
		once, err := Rewrite(old, []Entry{{Path: path, Mode: 0o100644, Hash: object.Hash(strings.Repeat("1", 40))}},
			1000, "token")
		if err != nil {
			return
		}
		again, err := Rewrite(once, nil, 1000, "token")
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if !bytes.Equal(once, again) {
			t.Fatal("it changes with every writing")
		}
	})
}

// gitIndexOf returns the index of an empty work tree.
func (r *indexRepo) gitIndexOf() []byte {
	r.git("read-tree", "--empty")
	return r.index()
}

// TestGrowth checks that the time to read an index grows with it.
func TestGrowth(t *testing.T) {
	entry := func(n int) string {
		var b bytes.Buffer
		b.Write(make([]byte, fixedLength-2))
		name := fmt.Sprintf("n%07d", n)
		_ = binary.Write(&b, binary.BigEndian, uint16(len(name))) // never fails
		b.WriteString(name)
		b.Write(make([]byte, 8-(fixedLength+len(name))%8))
		return b.String()
	}
	growth.Check(t, "index", func(text []byte) {
		head := append([]byte("DIRC\x00\x00\x00\x02"), binary.BigEndian.AppendUint32(nil, uint32(len(text)/72))...)
		_ = Check(append(append(head, text...), make([]byte, trailerLength)...))
	}, growth.Case{Name: "entries", Each: entry}, growth.Repeat("a"), growth.Repeat("\x00"),
		growth.Repeat("TREE\x00\x00\x00\x00"), growth.Repeat("\xff"))
}
