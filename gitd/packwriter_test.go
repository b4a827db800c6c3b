package gitd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackWriter lets git itself say what is in packs of random objects.
func TestPackWriter(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	all := map[Hash][]byte{}
	for round := range 5 {
		w, err := r.newPack(ctx)
		if err != nil {
			t.Fatal(err)
		}
		objects := 0
		for range 1 + rnd.IntN(40)*round {
			data := make([]byte, rnd.IntN(2000))
			if rnd.IntN(10) == 0 {
				data = make([]byte, 300_000)
			}
			for i := range data {
				data[i] = byte(rnd.IntN(1 + rnd.IntN(256)))
			}
			var h Hash
			if rnd.IntN(2) == 0 {
				h, err = w.add("blob", data)
			} else {
				h, err = w.stream("blob", int64(len(data)), io.MultiReader(bytes.NewReader(data), strings.NewReader("more")))
			}
			if err != nil {
				t.Fatal(err)
			}
			if again, err := w.stream("blob", int64(len(data)), bytes.NewReader(data)); again != h || err != nil {
				t.Fatalf("the same again is %s instead of %s, %v", again, h, err)
			}
			// What fails leaves no trace.
			if _, err := w.stream("blob", int64(len(data))+1, bytes.NewReader(data)); !errors.Is(err, ErrConflict) {
				t.Fatalf("a file that shrank: %v", err)
			}
			if _, ok := all[h]; !ok {
				objects++
			}
			all[h] = data
		}
		p, err := w.place()
		if err != nil {
			t.Fatal(err)
		}
		w.drop() // does nothing
		git(t, r.dir, "verify-pack", "objects/pack/pack-"+p.Name+".idx")
		// Git makes the same index of it.
		mine, err := io.ReadAll(p.Index)
		if err != nil {
			t.Fatal(err)
		}
		his := filepath.Join(t.TempDir(), "idx")
		git(t, r.dir, "index-pack", "-o", his, "--strict", filepath.Join(r.dir, packFolder, "pack-"+p.Name+".pack"))
		if want, err := os.ReadFile(his); err != nil || !bytes.Equal(mine, want) {
			t.Errorf("git's index of it is another one: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	for h, data := range all {
		// The packs are seen at once, also when they came in one tick of the clock.
		if obj, _, err := r.objects.small(ctx, h); err != nil || !bytes.Equal(obj.Data, data) {
			t.Fatalf("object %s is not what was written: %v", h, err)
		}
	}
	git(t, r.dir, "fsck", "--strict")
}

// TestPackWriterLeavesNothing ends packs that nobody wants.
func TestPackWriterLeavesNothing(t *testing.T) {
	r := newRepo(t)
	w, err := r.newPack(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p, err := w.place(); p != nil || err != nil {
		t.Errorf("an empty pack: %v, %v", p, err)
	}
	for i := range 3 {
		if _, err := w.add("blob", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.add("house", nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("an object of no kind: %v", err)
	}
	w.drop()
	if left, err := os.ReadDir(filepath.Join(r.dir, packFolder)); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestPackIndexFar has objects beyond what 31 bits can say.
func TestPackIndexFar(t *testing.T) {
	objs := []packEntry{
		{name: objectName{3}, at: 1<<31 - 1}, {name: objectName{1}, at: 1 << 31}, {name: objectName{2}, at: 5 << 31},
	}
	b := packIndex(objs, make([]byte, 20))
	table := b[8+256*4+3*(20+4):]
	want := "\x80\x00\x00\x00" + "\x80\x00\x00\x01" + "\x7f\xff\xff\xff" +
		"\x00\x00\x00\x00\x80\x00\x00\x00" + "\x00\x00\x00\x02\x80\x00\x00\x00"
	if got := string(table[:len(want)]); got != want {
		t.Errorf("places %q instead of %q", got, want)
	}
}
