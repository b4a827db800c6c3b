package pack

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
)

// TestEachCost reads all objects of chains of deltas. The cost is that of a few reads of each object, or Each ends
// early.
func TestEachCost(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name    string
		size, n int
		reverse bool // each delta is before its base
		free    int64
		read    int   // objects that Each reads before it ends
		most    int64 // the bound of the cost
	}{
		{"cached bases", mib / 8, 200, false, mib, 201, 201 * mib / 8 * 5 / 4},
		{"bases behind deltas", mib / 16, 40, true, mib, 0, mib + stepBytes},
		{"bases that are too large for the cache", 4*mib + 1, 7, false, 8 * mib, 6, 8*mib + 6*eachRatio*(4*mib+2*stepBytes)},
	} {
		t.Run(c.name, func(t *testing.T) {
			packs, names := chainPack(t, c.size, c.n, c.reverse)
			n := 0
			err := packs.each(c.free, func(object.Hash, object.Object) error { n++; return nil })
			if n != c.read || errors.Is(err, errCostly) != (n < len(names)) || n == len(names) && err != nil {
				t.Errorf("%d of %d objects, want %d, %v", n, len(names), c.read, err)
			}
			if cost := packs.Rebuilt(); cost <= 0 || cost > c.most {
				t.Errorf("Each costs %d MiB, more than %d", cost/mib, c.most/mib)
			}
		})
	}
}

// TestRebuilt counts the cost of reads of the end of a chain. A read that would cost more than it may applies no delta.
func TestRebuilt(t *testing.T) {
	const size, n = 10000, 20
	packs, names := chainPack(t, size, n, false)
	last := names[n]
	name, err := hex.DecodeString(last)
	if err != nil {
		t.Fatal(err)
	}
	set, err := packs.load()
	if err != nil || len(set.packs) != 1 {
		t.Fatal(set, err)
	}
	at, ok, err := set.packs[0].Find(name)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	for _, left := range []int64{0, 5 * stepBytes, n * size} {
		before, was := packs.Rebuilt(), left
		if _, _, err := packs.rebuild(set.packs[0], at, MaxInMemory, &left); !errors.Is(err, errCostly) {
			t.Errorf("a read of the last object for %d bytes: %v", was, err)
		}
		if spent := packs.Rebuilt() - before; spent != was-left || spent > was+stepBytes {
			t.Errorf("the read costs %d of %d bytes, and %d are left", spent, was, left)
		}
	}
	packs.cache.empty()
	for _, c := range []struct {
		what        string
		max         int64
		least, most int64
	}{
		{"the size", 0, (n + 1) * stepBytes, (n+1)*stepBytes + 100},
		{"the object", MaxInMemory, (n + 1) * (stepBytes + size), (n+1)*(stepBytes+size) + 100*n},
		{"the object again", MaxInMemory, stepBytes + size, stepBytes + size + 100},
	} {
		before := packs.Rebuilt()
		if _, got, err := packs.read(object.Hash(last), c.max); err != nil || got != size {
			t.Errorf("%s: %d bytes, %v", c.what, got, err)
		}
		if cost := packs.Rebuilt() - before; cost < c.least || cost > c.most {
			t.Errorf("%s costs %d bytes, want %d to %d", c.what, cost, c.least, c.most)
		}
	}
}

// chainPack returns a pack of a blob and a chain of n deltas by name, all of the same size. The names are in the order
// of the chain.
func chainPack(t *testing.T, size, n int, reverse bool) (*Files, []string) {
	t.Helper()
	data := make([]byte, size)
	name := func() []byte {
		sum := sha1.New()
		fmt.Fprintf(sum, "blob %d\x00", size)
		sum.Write(data)
		return sum.Sum(nil)
	}
	base := name()
	names := []string{hex.EncodeToString(base)}
	entries := [][]byte{append(EntryHeader(typeBlob, int64(size)), deflated(t, data)...)}
	for i := range n {
		binary.BigEndian.PutUint32(data, uint32(i+1))
		delta := append(appendSize(appendSize(nil, size), size), 4)
		delta = append(delta, data[:4]...)
		for at := 4; at < size; {
			m := min(size-at, 1<<24-1)
			delta = append(delta, 0xff, byte(at), byte(at>>8), byte(at>>16), byte(at>>24), byte(m), byte(m>>8), byte(m>>16))
			at += m
		}
		entry := append(EntryHeader(TypeRefDelta, int64(len(delta))), base...)
		entries = append(entries, append(entry, deflated(t, delta)...))
		base = name()
		names = append(names, hex.EncodeToString(base))
	}
	if reverse {
		slices.Reverse(entries)
	}
	pack := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(n+1))
	for _, e := range entries {
		pack = append(pack, e...)
	}
	sum := sha1.Sum(pack)
	dir := t.TempDir()
	file := filepath.Join(dir, "pack-"+hex.EncodeToString(sum[:])+".pack")
	if err := os.WriteFile(file, append(pack, sum[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, dir, "index-pack", file)
	packs := &Files{Dir: dir}
	t.Cleanup(packs.Close)
	return packs, names
}
