package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// TestWriteCommitLikeGit makes random changes in process and in a work tree,
// in which git makes the tree.
func TestWriteCommitLikeGit(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	tree := t.TempDir()
	git(t, tree, "init", "-q")
	rnd := rand.New(rand.NewPCG(3, 4))
	names := []string{"a", "b", "a.b", "a-b", "a0", "with space", "new\nline", "\xff\xfe", "ä", "-x", "d.git", "git"}
	somePath := func() string {
		p := names[rnd.IntN(len(names))]
		for rnd.IntN(2) == 0 {
			p += "/" + names[rnd.IntN(len(names))]
		}
		return p
	}
	var last Hash
	for round := range 60 {
		c := NewCommit{From: last, Author: alice, Message: fmt.Sprint(round), When: time.Unix(int64(1700000000+round), 0)}
		if last != "" {
			c.Parents = []Hash{last}
		}
		for range rnd.IntN(3) {
			p := somePath()
			c.Delete = append(c.Delete, p)
			os.RemoveAll(filepath.Join(tree, p))
		}
		var put []string
		for range rnd.IntN(6) {
			p := somePath()
			if slices.ContainsFunc(put, func(q string) bool {
				return q == p || strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/")
			}) {
				continue
			}
			put = append(put, p)
			f := File{Path: p, Content: fmt.Appendf(nil, "%d\n%s", rnd.IntN(5), strings.Repeat("x", rnd.IntN(3000)))}
			on := filepath.Join(tree, p)
			for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
				if info, err := os.Lstat(filepath.Join(tree, dir)); err == nil && !info.IsDir() {
					os.Remove(filepath.Join(tree, dir))
				}
			}
			if err := errors.Join(os.MkdirAll(filepath.Dir(on), 0o755), os.RemoveAll(on)); err != nil {
				t.Fatal(err)
			}
			var err error
			switch rnd.IntN(5) {
			case 0:
				f.Mode = object.ModeExecutable
				err = os.WriteFile(on, f.Content, 0o755)
			case 1:
				f.Mode, f.Content = object.ModeSymlink, []byte("target")
				err = os.Symlink("target", on)
			case 2:
				f.Source = filepath.Join(t.TempDir(), "source")
				err = errors.Join(os.WriteFile(f.Source, f.Content, 0o600), os.WriteFile(on, f.Content, 0o644))
				f.Content = []byte("not this")
			default:
				err = os.WriteFile(on, f.Content, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			c.Put = append(c.Put, f)
		}
		git(t, tree, "add", "-A")
		want := git(t, tree, "write-tree")
		h, err := r.WriteCommit(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.objects.TreeOf(ctx, h); string(got) != want || err != nil {
			t.Fatalf("round %d: tree %s, git's %s, %v\nput %q, delete %q", round, got, want, err, put, c.Delete)
		}
		last = h
		if round%20 == 10 { // half of the objects come from packs
			if err := r.Update(ctx, RefUpdate{Name: "refs/heads/main", New: last}); err != nil {
				t.Fatal(err)
			}
			if err := r.Maintain(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.Update(ctx, RefUpdate{Name: "refs/heads/main", New: last}); err != nil {
		t.Fatal(err)
	}
	// Tree lists the same files as git.
	list, err := r.Tree(ctx, "main", "", true)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, e := range list {
		fmt.Fprintf(&got, "%s %s %s %7d\t%s\x00", e.Mode, e.Type, e.Hash, e.Size, e.Path)
	}
	want := git(t, r.Dir(), "ls-tree", "-r", "-z", "-l", "main")
	if got.String() != want {
		t.Errorf("Tree\n%q\ngit\n%q", got.String(), want)
	}
}

func TestWriteCommitRefusals(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	first := commit(t, r, "main", "One", "a", "1")
	pipe := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc/passwd", pipe); err != nil {
		t.Fatal(err)
	}
	put := func(p ...string) []File {
		var files []File
		for _, p := range p {
			files = append(files, File{Path: p})
		}
		return files
	}
	for _, test := range []struct {
		c    NewCommit
		kind error
	}{
		{NewCommit{Put: put("")}, ErrInvalid},
		{NewCommit{Put: put("/a")}, ErrInvalid},
		{NewCommit{Put: put("a/../b")}, ErrInvalid},
		{NewCommit{Put: put("a//b")}, ErrInvalid},
		{NewCommit{Put: put("a\x00")}, ErrInvalid},
		{NewCommit{Put: put(".git/config")}, ErrInvalid},
		{NewCommit{Put: put("a/.GIT/hooks/x")}, ErrInvalid},
		{NewCommit{Put: put("a/.g\u200cit")}, ErrInvalid},
		{NewCommit{Put: put("GIT~1/x")}, ErrInvalid},
		{NewCommit{Put: put("a", "a")}, ErrInvalid},
		{NewCommit{Put: put("a/b", "a")}, ErrInvalid},
		{NewCommit{Delete: []string{"../a"}}, ErrInvalid},
		{NewCommit{Put: []File{{Path: "a", Mode: 0o40000}}}, ErrInvalid},
		{NewCommit{Put: []File{{Path: "a", Source: t.TempDir()}}}, ErrInvalid},
		{NewCommit{Parents: []Hash{"main"}}, ErrInvalid},
		{NewCommit{Parents: []Hash{Hash(strings.Repeat("1", 40))}}, ErrNotFound},
		{NewCommit{From: Hash(strings.Repeat("1", 40))}, ErrNotFound},
		{NewCommit{Put: []File{{Path: "a", Source: "/nonexistent/file"}}}, os.ErrNotExist},
	} {
		test.c.Author = alice
		if _, err := r.WriteCommit(ctx, test.c); !errors.Is(err, test.kind) {
			t.Errorf("%+v: %v", test.c, err)
		}
	}
	if _, err := r.WriteCommit(ctx, NewCommit{Author: alice, Put: []File{{Path: "a", Source: pipe}}}); err == nil {
		t.Error("a symbolic link was followed")
	}
	// Hostile names do not add header lines.
	h, err := r.WriteCommit(ctx, NewCommit{
		Parents: []Hash{first}, Author: Person{Name: "Eve\nparent " + string(first), Email: "<eve>\n"}, Committer: Person{},
		Message: "a\x00b\xff\n\n\n", When: time.Unix(-5, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Update(ctx, RefUpdate{Name: "refs/heads/eve", New: h}); err != nil {
		t.Fatal(err)
	}
	c, err := r.Commit(ctx, "eve")
	if err != nil || len(c.Parents) != 1 || c.Subject != "ab\ufffd" || strings.ContainsAny(c.Author.Name, "\n<>") {
		t.Errorf("%+v %v", c, err)
	}
}

// TestLargeFile streams a file in and out that is too large for memory.
func TestLargeFile(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	source := filepath.Join(t.TempDir(), "large")
	data := make([]byte, pack.MaxInMemory+12345)
	for i := range data {
		data[i] = byte(i * i >> 8)
	}
	if err := os.WriteFile(source, data, 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := r.WriteCommit(ctx, NewCommit{Author: alice, Message: "Large",
		Put: []File{{Path: "large", Source: source}, {Path: "small", Content: []byte("s")}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Update(ctx, RefUpdate{Name: "refs/heads/main", New: h}); err != nil {
		t.Fatal(err)
	}
	for _, packed := range []bool{false, true} {
		in, size, err := r.OpenFile(ctx, "main", "large")
		if err != nil || size != int64(len(data)) {
			t.Fatal(size, err)
		}
		got, err := io.ReadAll(in)
		if !bytes.Equal(got, data) || err != nil {
			t.Error("packed:", packed, len(got), err)
		}
		in.Close()
		// If a reader closes early, git is ended and nothing waits.
		if in, _, err = r.OpenFile(ctx, "main", "large"); err != nil {
			t.Fatal(err)
		}
		io.ReadFull(in, make([]byte, 10))
		in.Close()
		if tree, err := r.Tree(ctx, "main", "", false); err != nil || tree[0].Size != int64(len(data)) || tree[1].Size != 1 {
			t.Error(tree, err)
		}
		if err := r.Maintain(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBurst reads and writes from twenty goroutines.
func TestBurst(t *testing.T) {
	r := newRepo(t)
	commit(t, r, "main", "One", "a", "1", "d/b", "2")
	ctx := context.Background()
	var wg sync.WaitGroup
	for g := range 20 {
		wg.Go(func() {
			branch := fmt.Sprintf("b%d", g)
			for i := range 5 {
				want := fmt.Sprint(g, i)
				commit(t, r, branch, want, "f", want)
				if b, err := r.ReadFile(ctx, branch, "f", 0); string(b) != want || err != nil {
					t.Error(string(b), err)
				}
				if b, err := r.ReadFile(ctx, "main", "d/b", 0); string(b) != "2" || err != nil {
					t.Error(string(b), err)
				}
				if _, err := r.Changed(ctx, "main", branch, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
