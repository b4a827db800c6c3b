package pack

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// openIndex opens an index that is the file of a pack.
func openIndex(t *testing.T, index []byte) (*File, error) {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string][]byte{"pack-x.idx": index, "pack-x.pack": Header(0)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := OpenFile(dir, "pack-x")
	if err == nil {
		t.Cleanup(p.Close)
	}
	return p, err
}

// TestFind looks up objects of small and large indexes, and names that are next to them.
func TestFind(t *testing.T) {
	for _, c := range []struct {
		name   string
		n      int
		firsts []byte // first bytes of the names
	}{
		{"empty", 0, []byte{0}},
		{"one", 1, []byte{9}},
		{"as many as are read together", findNames, []byte{9}},
		{"one more", findNames + 1, []byte{9}},
		{"many in one part of the fan", 500, []byte{9}},
		{"many in a few parts", 500, []byte{0, 1, 7, 0xff}},
		{"too many for memory", 4000, []byte{0, 3, 0xfe}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var objs []IndexEntry
			for i := range c.n {
				o := IndexEntry{Name: ObjectName(sha1.Sum([]byte{byte(i), byte(i >> 8)})), At: int64(12 + i)}
				o.Name[0] = c.firsts[i%len(c.firsts)]
				if i%5 == 0 {
					o.At += 1 << 33
				}
				objs = append(objs, o)
			}
			index := EncodeIndex(objs, make([]byte, 20))
			p, err := openIndex(t, index)
			if err != nil {
				t.Fatal(err)
			}
			if (p.closer == nil) != (len(index) <= indexMemory) {
				t.Errorf("an index of %d bytes is in memory: %t", len(index), p.closer == nil)
			}
			for _, o := range objs {
				if at, ok, err := p.Find(o.Name[:]); at != o.At || !ok || err != nil {
					t.Fatalf("%x: at %d, %t, %v; want %d", o.Name, at, ok, err, o.At)
				}
				for _, step := range []byte{1, 0xff} {
					near := o.Name
					near[19] += step
					if at, ok, err := p.Find(near[:]); at != 0 || ok || err != nil {
						t.Fatalf("%x is next to an object: at %d, %t, %v", near, at, ok, err)
					}
				}
			}
			for _, first := range []byte{0, 1, 8, 9, 10, 0xff} {
				for _, name := range []ObjectName{{first}, ObjectName(append([]byte{first}, bytes.Repeat([]byte{0xff}, 19)...))} {
					if _, ok, err := p.Find(name[:]); ok || err != nil {
						t.Errorf("%x: %t, %v", name, ok, err)
					}
				}
			}
		})
	}
}

// TestDamagedIndex refuses indexes with a wrong head, fan or length.
func TestDamagedIndex(t *testing.T) {
	objs := []IndexEntry{{Name: ObjectName{1}, At: 12}, {Name: ObjectName{2}, At: 1 << 32}, {Name: ObjectName{3}, At: 99}}
	good := EncodeIndex(objs, make([]byte, 20))
	change := func(f func(b []byte) []byte) []byte { return f(slices.Clone(good)) }
	for _, c := range []struct {
		name  string
		index []byte
		good  bool
	}{
		{"good", good, true},
		{"empty", nil, false},
		{"half a head", good[:idxHead/2], false},
		{"another version", change(func(b []byte) []byte { b[7] = 3; return b }), false},
		{"a fan that falls", change(func(b []byte) []byte { binary.BigEndian.PutUint32(b[8+4*1:], 3); return b }), false},
		{"too short", good[:len(good)-16], false},
		{"a table of offsets is cut", change(func(b []byte) []byte { return b[:len(b)-4] }), false},
		{"most far offsets", append(slices.Clone(good), make([]byte, 16)...), true},
		{"more far offsets than objects", append(slices.Clone(good), make([]byte, 24)...), false},
	} {
		if _, err := openIndex(t, c.index); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestFileClose closes the file of a pack for good.
func TestFileClose(t *testing.T) {
	p, err := openIndex(t, EncodeIndex(nil, make([]byte, 20)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.open(); again != f || err != nil {
		t.Errorf("the pack is opened twice: %v", err)
	}
	p.Close()
	if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file is still open: %v", err)
	}
	if _, err := p.open(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestFreshen marks a pack as in use, but not a pack that git intends to remove.
func TestFreshen(t *testing.T) {
	p, err := openIndex(t, EncodeIndex(nil, make([]byte, 20)))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.freshen(); err != nil || p.fresh.IsZero() {
		t.Errorf("marked at %v, %v", p.fresh, err)
	}
	at := p.fresh
	if err := p.freshen(); err != nil || !p.fresh.Equal(at) {
		t.Errorf("marked again at %v, %v", p.fresh, err)
	}
	p.fresh = at.Add(-freshEvery)
	if err := p.freshen(); err != nil || p.fresh.Before(at) {
		t.Errorf("marked late at %v, %v", p.fresh, err)
	}
	p.cruft = true
	if err := p.freshen(); !errors.Is(err, errNoObject) {
		t.Error(err)
	}
}

// TestOpenNative opens the pack of a folder that git pack-objects made.
func TestOpenNative(t *testing.T) {
	const two = "PACK\x00\x00\x00\x02\x00\x00\x00\x07"
	for _, c := range []struct {
		name  string
		files map[string]string
		good  bool
	}{
		{"a pack", map[string]string{"made-1.pack": two, "made-1.idx": ""}, true},
		{"no pack", nil, false},
		{"two packs", map[string]string{"made-1.pack": two, "made-1.idx": "", "made-2.pack": two, "made-2.idx": ""}, false},
		{"no index", map[string]string{"made-1.pack": two}, false},
		{"another version", map[string]string{"made-1.pack": "PACK\x00\x00\x00\x03\x00\x00\x00\x07", "made-1.idx": ""}, false},
		{"half a header", map[string]string{"made-1.pack": two[:9], "made-1.idx": ""}, false},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, err := OpenNative(dir)
		if (err == nil) != c.good || c.good && (p.Objects != 7 || p.Name != "1") {
			t.Errorf("%s: %+v, %v", c.name, p, err)
		}
		p.Close()
	}
	var none *Pack
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnnamedFile writes parts one after another to a file without a name.
func TestUnnamedFile(t *testing.T) {
	dir := t.TempDir()
	f, err := UnnamedFile(dir, []byte("ab"), nil, []byte("cde"), []byte("f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 6)
	if n, err := f.ReadAt(b, 0); n != 6 || err != nil || string(b) != "abcdef" {
		t.Errorf("%q, %v", b[:n], err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := UnnamedFile(filepath.Join(dir, "none")); err == nil {
		t.Error("a file is made in no folder")
	}
}
