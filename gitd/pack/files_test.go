package pack

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
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
)

// TestPackFiles reads every object from packs that git made, with long chains of deltas of both kinds. Each
// object must have the name that it was requested by.
func TestPackFiles(t *testing.T) {
	dir, shared := newPacks(t)
	rnd := rand.New(rand.NewPCG(7, 8))
	var lines []string
	for i := range 400 {
		lines = append(lines, fmt.Sprint(i, rnd.Uint64()))
	}
	var last object.Hash
	files := map[string]string{}
	for i := range 40 {
		lines[rnd.IntN(len(lines))] = fmt.Sprint(rnd.Uint64())
		files["a/"+strconv.Itoa(i)], files["long"] = "x", strings.Join(lines, "\n")
		last = writeCommit(t, shared, fmt.Sprint(i), last, files)
	}
	gittest.Run(t, dir, "update-ref", "refs/heads/main", string(last))
	all := strings.Fields(gittest.Run(t, dir, "rev-list", "--objects", "--no-object-names", "main"))
	for _, by := range []string{"", "true", "false"} {
		t.Run("offsets "+by, func(t *testing.T) {
			if by != "" {
				gittest.Run(t, dir, "-c", "repack.useDeltaBaseOffset="+by, "repack", "-adfq", "--depth=50")
			}
			packs := &Files{Dir: filepath.Join(dir, Folder)}
			defer packs.Close()
			var wait sync.WaitGroup
			for i := range 4 {
				wait.Go(func() {
					for j := range all {
						h := object.Hash(all[(j*7+i*11)%len(all)])
						obj, size, err := packs.read(h, MaxInMemory)
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
			err := packs.Each(func(h object.Hash, obj object.Object) error {
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
			if _, _, err := packs.read(object.Hash(strings.Repeat("0", 40)), 0); err == nil {
				t.Error("an object that nobody has")
			}
		})
	}
}

// TestPackFilesComeAndGo reads while packs are replaced.
func TestPackFilesComeAndGo(t *testing.T) {
	dir, own := newPacks(t)
	packs := &Files{Dir: own.Dir}
	defer packs.Close()
	w := NewWriter(t.Context(), own)
	h, err := w.Add("blob", []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	if packs.has(h) {
		t.Error("it is not there yet")
	}
	p, err := w.Place()
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	// Only own was notified. The time of a folder can stay the same for some milliseconds.
	later := time.Now().Add(time.Second)
	if err := os.Chtimes(own.Dir, later, later); err != nil {
		t.Fatal(err)
	}
	if !packs.has(h) {
		t.Error("it is not seen")
	}
	if err := os.Remove(filepath.Join(dir, Folder, "pack-"+p.Name+".idx")); err != nil {
		t.Fatal(err)
	}
	packs.Changed()
	if packs.has(h) {
		t.Error("it is seen although it is gone")
	}
	if _, _, err := packs.read(h, 100); err == nil {
		t.Error("it is read although it is gone")
	}
}

// TestPackFilesStayOpen adds packs. Open packs are not opened again.
func TestPackFilesStayOpen(t *testing.T) {
	_, packs := newPacks(t)
	var first *File
	for i := range 3 {
		h := writeCommit(t, packs, fmt.Sprint(i), "", nil)
		if !packs.has(h) {
			t.Fatal("a commit is in no pack")
		}
		set := packs.packs.Load()
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

// TestClosedPack drops a pack after a reader has found an object in it. The reader opens no file that would
// never be closed, and the cache keeps nothing of the pack.
func TestClosedPack(t *testing.T) {
	dir, own := newPacks(t)
	tip := writeCommit(t, own, "one", "", map[string]string{"f": "1"})
	gittest.Run(t, dir, "update-ref", "refs/heads/main", string(tip))
	gittest.Run(t, dir, "repack", "-adq")
	packs := &Files{Dir: filepath.Join(dir, Folder)}
	defer packs.Close()
	set, err := packs.load()
	if err != nil || len(set.packs) != 1 {
		t.Fatalf("%d packs, %v", len(set.packs), err)
	}
	dropped := set.packs[0]
	packs.cache.put(dropped, 12, object.Object{Kind: "blob", Data: []byte("x")})

	two := writeCommit(t, own, "two", tip, map[string]string{"f": "2", "g": "3"})
	gittest.Run(t, dir, "update-ref", "refs/heads/two", string(two))
	gittest.Run(t, dir, "repack", "-adq")
	packs.Changed()
	if _, err := packs.load(); err != nil {
		t.Fatal(err)
	}
	if f, err := dropped.open(); err == nil {
		t.Errorf("a dropped pack was opened: %s", f.Name())
	}
	if _, ok := packs.cache.get(dropped, 12); ok || packs.cache.bytes != 0 {
		t.Errorf("the cache keeps %d bytes of a dropped pack", packs.cache.bytes)
	}
	if _, _, err := packs.read(tip, MaxInMemory); err != nil {
		t.Errorf("what the new pack has cannot be read: %v", err)
	}
}
