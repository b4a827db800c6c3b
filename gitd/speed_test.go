package gitd

import (
	"fmt"
	"testing"

	"github.com/ramus-dev/ramus/internal/durable"
)

// largeRepo returns a repository with a branch main of n files, a hundred in each
// folder.
func largeRepo(b *testing.B, n int) (*Repo, Hash) {
	r := newRepo(b)
	c := NewCommit{Author: alice, Message: "all"}
	for i := range n {
		c.Put = append(c.Put, File{Path: fmt.Sprintf("d%d/d%d/f%d", i/10000, i/100%100, i),
			Content: fmt.Appendf(nil, "content of %d\n", i)})
	}
	h, err := r.WriteCommit(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Update(b.Context(), RefUpdate{Name: "refs/heads/main", New: h}); err != nil {
		b.Fatal(err)
	}
	git(b, r.dir, "repack", "-adq")
	return r, h
}

// BenchmarkCommit commits three files in a tree of 27,000 and moves a branch there.
func BenchmarkCommit(b *testing.B) {
	r, last := largeRepo(b, 27_000)
	b.Run("write", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			last = commitThree(b, r, last, i)
		}
	})
	b.Run("write and update", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			last = commitThree(b, r, last, i)
			if err := r.Update(b.Context(), RefUpdate{Name: "refs/heads/main", New: last}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("update", func(b *testing.B) {
		was, err := r.objects.TreeOf(b.Context(), last)
		_ = was
		if err != nil {
			b.Fatal(err)
		}
		other := commitThree(b, r, last, -1)
		for i := 0; b.Loop(); i++ {
			if i%2 == 0 {
				other, last = last, other
			}
			if err := r.Update(b.Context(), RefUpdate{Name: "refs/heads/main", New: other}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("update unsynced", func(b *testing.B) {
		other := commitThree(b, r, last, -2)
		for i := 0; b.Loop(); i++ {
			other, last = last, other
			if err := r.update(b.Context(), []RefUpdate{{Name: "refs/heads/main", New: other}}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("syncfs", func(b *testing.B) {
		for b.Loop() {
			if err := syncfs(r.dir); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("syncFolder", func(b *testing.B) {
		for b.Loop() {
			if err := durable.Folder(r.dir); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func commitThree(b *testing.B, r *Repo, last Hash, i int) Hash {
	c := NewCommit{From: last, Parents: []Hash{last}, Author: alice, Message: fmt.Sprint(i)}
	for j := range 3 {
		c.Put = append(c.Put, File{Path: fmt.Sprintf("d%d/d%d/f%d", j%2, j, 100*j),
			Content: fmt.Appendf(nil, "%d %d", i, j)})
	}
	h, err := r.WriteCommit(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	return h
}
