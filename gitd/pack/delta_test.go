package pack

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack/packtest"
)

// TestApplyDelta applies deltas to a base of ten bytes.
func TestApplyDelta(t *testing.T) {
	const base = "0123456789"
	long := strings.Repeat("x", 0x10000)
	for _, c := range []struct {
		name, base, delta string
		want              string // "!" if the delta is damaged
	}{
		{"nothing", base, "\x0a\x00", ""},
		{"copy all", base, "\x0a\x0a\x90\x0a", base},
		{"copy from an offset", base, "\x0a\x03\x91\x07\x03", "789"},
		{"insert", base, "\x0a\x02\x02ab", "ab"},
		{"copy and insert", base, "\x0a\x04\x91\x01\x02\x02ab", "12ab"},
		{"copy 64 KiB by a size of 0", long, "\x80\x80\x04\x80\x80\x04\x80", long},
		{"an instruction is cut", long + "yz", "\x82\x80\x04\x02\xb5\x00\x01\x02", "!"},
		{"third byte of an offset", long + "yz", "\x82\x80\x04\x02\x94\x01\x02", "yz"},
		{"second byte of a size", long, "\x80\x80\x04\x80\x02\xa0\x01", long[:256]},
		{"another base", base, "\x09\x00", "!"},
		{"no size", base, "\x0a", "!"},
		{"no delta", base, "", "!"},
		{"copy beyond the base", base, "\x0a\x03\x91\x08\x03", "!"},
		{"copy beyond the result", base, "\x0a\x02\x90\x03", "!"},
		{"insert beyond the result", base, "\x0a\x01\x02ab", "!"},
		{"insert beyond the delta", base, "\x0a\x02\x02a", "!"},
		{"result is too short", base, "\x0a\x03\x02ab", "!"},
		{"an instruction of zero", base, "\x0a\x01\x00", "!"},
		{"a copy is cut", base, "\x0a\x03\x91\x07", "!"},
		{"result is too large", base, "\x0a\x81\x80\x80\x04", "!"},
	} {
		got, err := applyDelta([]byte(c.base), []byte(c.delta))
		if (err != nil) != (c.want == "!") || err == nil && string(got) != c.want {
			t.Errorf("%s: %.20q, %v; want %.20q", c.name, got, err, c.want)
		}
	}
}

// TestHeaders reads the numbers at the start of objects and deltas.
func TestHeaders(t *testing.T) {
	for _, size := range []int64{0, 1, 15, 16, 127, 128, 2047, 2048, 1 << 40, 1<<60 - 1} {
		typ, got, err := objectHeader(bytes.NewReader(EntryHeader(3, size)))
		if typ != 3 || got != size || err != nil {
			t.Errorf("a header of %d: %d of type %d, %v", size, got, typ, err)
		}
	}
	if _, _, err := objectHeader(bytes.NewReader(EntryHeader(3, 1<<62))); !errors.Is(err, object.ErrTooLarge) {
		t.Errorf("a header of 2^62: %v", err)
	}
	for text, want := range map[string]int64{"\x00": 0, "\x7f": 127, "\x80\x01": 128, "\xff\x7f": 16383,
		"\xff\xff\xff\xff\xff\xff\xff\xff\x7f": math.MaxInt64} {
		if got, err := deltaSize(strings.NewReader(text)); got != want || err != nil {
			t.Errorf("size %q: %d, %v; want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]int64{"\x00": 0, "\x7f": 127, "\x80\x00": 128, "\x80\x01": 129, "\x81\x00": 256, "\xff\x7f": 16511} {
		if got, err := deltaOffset(strings.NewReader(text)); got != want || err != nil {
			t.Errorf("offset %q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "\x80", strings.Repeat("\xff", 9) + "\x7f"} {
		if _, err := deltaSize(strings.NewReader(text)); err == nil {
			t.Errorf("size %q has no error", text)
		}
		if _, err := deltaOffset(strings.NewReader(text)); err == nil {
			t.Errorf("offset %q has no error", text)
		}
		if _, _, err := objectHeader(strings.NewReader(text)); err == nil {
			t.Errorf("header %q has no error", text)
		}
	}
}

// TestScanData reads exactly the declared bytes.
func TestScanData(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		in   io.Reader
		size int64
		want error
	}{
		{"nothing", strings.NewReader(""), 0, nil},
		{"as declared", strings.NewReader("abcdef"), 6, nil},
		{"short", strings.NewReader("abcde"), 6, errShort},
		{"long", strings.NewReader("abcdefg"), 6, errLong},
		{"the end comes with data", iotest.DataErrReader(strings.NewReader("abcdef")), 6, nil},
		{"an error", iotest.ErrReader(broken), 6, broken},
		{"an error at the end", io.MultiReader(strings.NewReader("abcdef"), iotest.ErrReader(broken)), 6, broken},
	} {
		if err := scanData(c.in, c.size, make([]byte, 4)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		in   io.Reader
		size int64
		want error
	}{
		"a delta":          {strings.NewReader("\x0a\x02\x02ab"), 5, nil},
		"nothing":          {strings.NewReader(""), 5, errShort},
		"a part":           {strings.NewReader("\x0a\x02"), 5, errShort},
		"an error instead": {iotest.ErrReader(broken), 5, broken},
	} {
		base, result, err := scanDelta(c.in, c.size, make([]byte, 64))
		if !errors.Is(err, c.want) || c.want == nil && (base != 10 || result != 2) {
			t.Errorf("%s: from %d to %d, %v; want %v", name, base, result, err, c.want)
		}
	}
}

// TestStatsMemory estimates the memory of git for a pack, and for none.
func TestStatsMemory(t *testing.T) {
	none := Stats{}.Memory()
	if none < 4<<20 {
		t.Errorf("git needs %d bytes for an empty pack", none)
	}
	for _, st := range []Stats{{Objects: 1000}, {Declared: 1 << 20}, {peak: 1 << 20}} {
		if got := st.Memory(); got < none+100_000 {
			t.Errorf("git needs %d bytes for %+v, %d for none", got, st, none)
		}
	}
	if most := (Stats{Declared: 1 << 50}).Memory(); most != none+DeltaCache {
		t.Errorf("git keeps %d bytes of bases", most-none)
	}
}

// TestScanStats counts objects and the memory that git needs for them.
func TestScanStats(t *testing.T) {
	b := &packtest.Builder{}
	b.Object(3, 0, nil)
	if st, _, err := scan(b.Pack(), wide); err != nil || st.Objects != 1 || st.Declared != 0 || st.peak != 0 {
		t.Errorf("an empty file: %+v, %v", st, err)
	}
	b.Object(3, 5, []byte("hello"))
	b.Object(2, 3, []byte("abc"))
	if st, _, err := scan(b.Pack(), wide); err != nil || st.Objects != 3 || st.Declared != 8 || st.peak != 5 {
		t.Errorf("three objects: %+v, %v", st, err)
	}
}

// TestBaseCache keeps the objects that were used last.
func TestBaseCache(t *testing.T) {
	var c baseCache
	one, two := &File{}, &File{}
	quarter := object.Object{Kind: "blob", Data: make([]byte, baseCacheBytes/4)}
	has := func(want string) {
		t.Helper()
		got := ""
		for at := range int64(6) {
			if _, ok := c.items[baseKey{one, at}]; ok {
				got += string(rune('0' + at))
			}
		}
		if got != want {
			t.Errorf("has %s, want %s", got, want)
		}
	}
	for at := range int64(4) {
		c.put(one, at, quarter)
	}
	has("0123")
	if obj, ok := c.get(one, 0); !ok || len(obj.Data) != len(quarter.Data) {
		t.Error("the first is missing")
	}
	c.put(one, 0, quarter) // again
	c.put(one, 4, quarter)
	has("0234")
	c.put(one, 5, object.Object{Data: make([]byte, baseCacheBytes/4+1)})
	c.put(two, 0, object.Object{Data: []byte("x")})
	if _, ok := c.get(one, 5); ok || c.order.Len() != 4 {
		t.Errorf("%d objects", c.order.Len())
	}
	c.drop(one)
	if _, ok := c.get(two, 0); !ok || c.bytes != 1 || c.order.Len() != 1 {
		t.Errorf("after drop: %d bytes of %d objects", c.bytes, c.order.Len())
	}
	c.empty()
	if _, ok := c.get(two, 0); ok || c.bytes != 0 || c.order.Len() != 0 {
		t.Errorf("after empty: %d bytes of %d objects", c.bytes, c.order.Len())
	}
}

// TestReadHeadsFirst reads kinds and sizes of deltas before it reads the objects.
func TestReadHeadsFirst(t *testing.T) {
	dir, shared := newPacks(t)
	var last object.Hash
	text := strings.Repeat("a line of text\n", 200)
	for i := range 6 {
		text += strings.Repeat(string(rune('a'+i)), 20) + "\n"
		last = writeCommit(t, shared, "m", last, map[string]string{"long": text})
	}
	gittest.Run(t, dir, "update-ref", "refs/heads/main", string(last))
	gittest.Run(t, dir, "repack", "-adfq", "--depth=50")
	packs := &Files{Dir: filepath.Join(dir, Folder)}
	defer packs.Close()
	all := strings.Fields(gittest.Run(t, dir, "rev-list", "--objects", "--no-object-names", "main"))
	sizes := map[string]int64{}
	for _, h := range all {
		obj, size, err := packs.read(object.Hash(h), 0)
		if err != nil || obj.Kind == "" || obj.Data != nil {
			t.Fatalf("%s: a %q of %d bytes, %v", h, obj.Kind, size, err)
		}
		sizes[h] = size
	}
	for _, h := range all {
		obj, size, err := packs.read(object.Hash(h), MaxInMemory)
		if err != nil || size != sizes[h] || int64(len(obj.Data)) != size {
			t.Errorf("%s: %d bytes of %d, want %d, %v", h, len(obj.Data), size, sizes[h], err)
		}
	}
}

// TestSyncNames waits for the names of packs in a folder that is there.
func TestSyncNames(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, good := range map[string]bool{".": true, "none": true, "file/none": false} {
		p := &Files{Dir: filepath.Join(dir, name)}
		for range 2 {
			if err := p.SyncNames(); (err == nil) != good {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	p := &Files{Dir: dir}
	if err := p.SyncNames(); err != nil || p.isNamed != 1 {
		t.Errorf("named up to %d, %v", p.isNamed, err)
	}
	end := p.Foreign()
	p.Dir = filepath.Join(dir, "file/none")
	if err := p.SyncNames(); err == nil {
		t.Error("the names of a git that is running are not awaited")
	}
	p.Dir = dir
	end()
	if err := p.SyncNames(); err != nil || p.isNamed != 2 {
		t.Errorf("named up to %d, %v", p.isNamed, err)
	}
}
