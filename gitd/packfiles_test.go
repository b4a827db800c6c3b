package gitd

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/ramus-dev/ramus/gitd/object"
)

// TestPackFiles reads every object from packs that git made, with long chains of deltas
// of both kinds: what is read must have the name that it was asked for by.
func TestPackFiles(t *testing.T) {
	r := newRepo(t)
	rnd := rand.New(rand.NewPCG(7, 8))
	var lines []string
	for i := range 400 {
		lines = append(lines, fmt.Sprint(i, rnd.Uint64()))
	}
	var last Hash
	for i := range 40 {
		lines[rnd.IntN(len(lines))] = fmt.Sprint(rnd.Uint64())
		c := NewCommit{From: last, Author: alice, Message: fmt.Sprint(i), Put: []File{
			{Path: "a/" + strconv.Itoa(i), Content: []byte("x")},
			{Path: "long", Content: []byte(strings.Join(lines, "\n"))},
		}}
		if last != "" {
			c.Parents = []Hash{last}
		}
		h, err := r.WriteCommit(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		last = h
	}
	if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/main", New: last}); err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(git(t, r.dir, "rev-list", "--objects", "--no-object-names", "main"))
	for _, by := range []string{"", "true", "false"} {
		t.Run("offsets "+by, func(t *testing.T) {
			if by != "" {
				git(t, r.dir, "-c", "repack.useDeltaBaseOffset="+by, "repack", "-adfq", "--depth=50")
			}
			packs := &packFiles{dir: filepath.Join(r.dir, packFolder)}
			defer packs.close()
			var wait sync.WaitGroup
			for i := range 4 {
				wait.Go(func() {
					for j := range all {
						h := Hash(all[(j*7+i*11)%len(all)])
						obj, size, err := packs.read(h, inMemoryMax)
						if err != nil || size != int64(len(obj.Data)) {
							t.Errorf("%s: %d bytes of %d, %v", h, len(obj.Data), size, err)
							return
						}
						head, size, err := packs.read(h, 0)
						if err != nil || head.Kind != obj.Kind || size != int64(len(obj.Data)) || len(head.Data) > 0 {
							t.Errorf("%s: a %s of %d bytes, %v", h, head.Kind, size, err)
						}
						kind, err := plumbing.ParseObjectType(obj.Kind)
						if is := plumbing.ComputeHash(kind, obj.Data); err != nil || is.String() != string(h) {
							t.Errorf("%s: what is read is %s, %v", h, is, err)
						}
					}
				})
			}
			wait.Wait()
			seen := map[string]bool{}
			err := packs.each(func(h Hash, obj object.Object) error {
				kind, err := plumbing.ParseObjectType(obj.Kind)
				seen[plumbing.ComputeHash(kind, obj.Data).String()] = true
				return err
			})
			for _, h := range all {
				if !seen[h] {
					t.Errorf("%s is left out", h)
				}
			}
			if err != nil {
				t.Error(err)
			}
			if _, _, err := packs.read(Hash(strings.Repeat("0", 40)), 0); err == nil {
				t.Error("an object that nobody has")
			}
		})
	}
}

// TestPackFilesComeAndGo reads while packs are replaced.
func TestPackFilesComeAndGo(t *testing.T) {
	r := newRepo(t)
	packs := &packFiles{dir: filepath.Join(r.dir, packFolder)}
	defer packs.close()
	w, err := r.newPack(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h, err := w.add("blob", []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	if packs.has(h) {
		t.Error("it is not there yet")
	}
	p, err := w.place()
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	packs.changed() // r's own was told
	if !packs.has(h) {
		t.Error("it is not seen")
	}
	if err := os.Remove(filepath.Join(r.dir, packFolder, "pack-"+p.Name+".idx")); err != nil {
		t.Fatal(err)
	}
	packs.changed()
	if packs.has(h) {
		t.Error("it is seen although it is gone")
	}
	if _, _, err := packs.read(h, 100); err == nil {
		t.Error("it is read although it is gone")
	}
}

// FuzzApplyDelta must neither panic nor make more than it says.
func FuzzApplyDelta(f *testing.F) {
	f.Add([]byte("0123456789"), []byte("\x0a\x05\x90\x05"))
	f.Add([]byte("0123456789"), []byte("\x0a\x07\x91\x02\x05\x02ab"))
	f.Add([]byte(""), []byte("\x00\x00"))
	f.Add([]byte("0"), []byte("\x01\xff\xff\xff\xff\x7f\x80"))
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		out, err := applyDelta(base, delta)
		if err != nil {
			return
		}
		if _, to, _, err := deltaHead(delta); err != nil || to != int64(len(out)) {
			t.Errorf("%d bytes instead of %d, %v", len(out), to, err)
		}
	})
}

// FuzzPackIndex opens what calls itself an index, and asks it.
func FuzzPackIndex(f *testing.F) {
	objs := []packEntry{{name: objectName{3}, at: 12}, {name: objectName{1, 5}, at: 1 << 31}, {name: objectName{1, 2}, at: 99}}
	f.Add(packIndex(objs, make([]byte, 20)))
	f.Add([]byte(idxMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "pack-x.idx"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := openIndex(dir, "pack-x")
		if err != nil {
			return
		}
		defer p.close()
		for _, o := range objs {
			if at, ok, err := p.find(o.name[:]); ok && err != nil || at < 0 {
				t.Errorf("at %d, %v", at, err)
			}
		}
	})
}

// TestPackFilesStayOpen adds packs: those that were open are not opened again.
func TestPackFilesStayOpen(t *testing.T) {
	r := newRepo(t)
	var first *packFile
	for i := range 3 {
		h, err := r.WriteCommit(t.Context(), NewCommit{Author: alice, Message: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if !r.objects.packs.has(h) {
			t.Fatal("a commit is in no pack")
		}
		set := r.objects.packs.packs.Load()
		if len(set.packs) != i+1 {
			t.Fatalf("%d packs instead of %d", len(set.packs), i+1)
		}
		if first == nil {
			first = set.packs[0]
		} else if !slices.Contains(set.packs, first) {
			t.Error("a pack was opened again")
		}
	}
}

// TestClosedPack checks that a reader that found an object before its pack was dropped opens no file that nobody
// would close, and that the cache keeps nothing of the pack.
func TestClosedPack(t *testing.T) {
	r := newRepo(t)
	tip := commit(t, r, "main", "one", "f", "1")
	git(t, r.dir, "repack", "-adq")
	packs := &packFiles{dir: filepath.Join(r.dir, packFolder)}
	defer packs.close()
	set, err := packs.load()
	if err != nil || len(set.packs) != 1 {
		t.Fatalf("%d packs, %v", len(set.packs), err)
	}
	dropped := set.packs[0]
	packs.cache.put(dropped, 12, object.Object{Kind: "blob", Data: []byte("x")})

	if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/two", New: commit(t, r, "main", "two", "f", "2", "g", "3")}); err != nil {
		t.Fatal(err)
	}
	git(t, r.dir, "repack", "-adq")
	packs.changed()
	if _, err := packs.load(); err != nil {
		t.Fatal(err)
	}
	if f, err := dropped.open(); err == nil {
		t.Errorf("a dropped pack was opened: %s", f.Name())
	}
	if _, ok := packs.cache.get(dropped, 12); ok || packs.cache.bytes != 0 {
		t.Errorf("the cache keeps %d bytes of a dropped pack", packs.cache.bytes)
	}
	if _, _, err := packs.read(tip, inMemoryMax); err != nil {
		t.Errorf("what the new pack has cannot be read: %v", err)
	}
}
