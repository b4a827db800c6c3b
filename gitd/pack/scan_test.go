package pack

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack/packtest"
)

func scan(pack []byte, lim Limits) (Stats, []byte, error) {
	var sink bytes.Buffer
	t := NewTap(bytes.NewReader(pack), &sink, lim.Bytes)
	st, err := Scan(t, 20, lim)
	if err == nil {
		err = t.AtEnd(true)
	}
	return st, sink.Bytes(), errors.Join(err, t.Flush())
}

var wide = Limits{Bytes: 1 << 30, Objects: 1 << 20, Object: 64 << 20}

func TestScanPack(t *testing.T) {
	build := func(f func(b *packtest.Builder)) []byte {
		b := &packtest.Builder{}
		f(b)
		return b.Pack()
	}
	blob := func(b *packtest.Builder) { b.Object(3, 5, []byte("hello")) }
	good := build(blob)
	for _, tt := range []struct {
		name string
		pack []byte
		why  string // empty if accepted
	}{
		{"good", good, ""},
		{"empty", (&packtest.Builder{}).Pack(), ""},
		{"delta", build(func(b *packtest.Builder) { blob(b); b.Delta(b.At()-12, packtest.Growing(5, 3)) }), ""},
		{"nothing", nil, "ends early"},
		{"no pack", []byte("POCK00000000"), "not a pack"},
		{"version 4", append([]byte("PACK\x00\x00\x00\x04"), good[8:]...), "not a pack"},
		{"more objects than declared", func() []byte {
			b := &packtest.Builder{}
			blob(b)
			blob(b)
			return b.Declaring(1)
		}(), "after the end of the pack"},
		{"fewer objects than declared", func() []byte { b := &packtest.Builder{}; blob(b); return b.Declaring(2) }(), ""},
		{"too many objects", func() []byte { b := &packtest.Builder{}; blob(b); return b.Declaring(1 << 31) }(),
			"declares 2147483648 objects"},
		{"truncated", good[:len(good)-25], "ends early"},
		{"truncated in its checksum", good[:len(good)-3], "ends early"},
		{"trailing garbage", append(bytes.Clone(good), 'x'), "after the end of the pack"},
		{"declares 1 TiB", build(func(b *packtest.Builder) { b.Object(3, 1<<40, []byte("x")) }), "declares 1 TiB"},
		{"declares 2^63", build(func(b *packtest.Builder) { b.Object(3, 1<<63, []byte("x")) }), "beyond 2^60"},
		{"declares too little", build(func(b *packtest.Builder) { b.Object(3, 4, []byte("hello")) }),
			"longer than it declares"},
		{"declares too much", build(func(b *packtest.Builder) { b.Object(3, 6, []byte("hello")) }),
			"shorter than it declares"},
		{"zlib bomb", build(func(b *packtest.Builder) { b.Object(3, 10, make([]byte, 4<<20)) }), "longer than it declares"},
		{"delta declares 1 GiB", build(func(b *packtest.Builder) {
			blob(b)
			b.Delta(b.At()-12, append(binary.AppendUvarint(binary.AppendUvarint(nil, 5), 1<<30), 0))
		}), "makes an object of 1 GiB"},
		{"delta declares 2^64", build(func(b *packtest.Builder) {
			blob(b)
			b.Delta(b.At()-12, append(binary.AppendUvarint(binary.AppendUvarint(nil, 5), 1<<63), 0))
		}), "corrupt"},
		{"delta bomb", build(func(b *packtest.Builder) {
			// 1 MiB of zeros is 1 KiB of pack. Each further delta makes 60 MiB of zeros from a few bytes.
			first := b.At()
			b.Object(3, 1<<20, make([]byte, 1<<20))
			for range 50 {
				b.Delta(b.At()-first, packtest.Growing(1<<20, 60))
			}
		}), "and more in"},
		{"delta on itself", build(func(b *packtest.Builder) { b.Delta(0, packtest.Growing(5, 1)) }), "base outside"},
		{"delta before the pack", build(func(b *packtest.Builder) { b.Delta(5000, packtest.Growing(5, 1)) }),
			"base outside"},
		{"delta without sizes", build(func(b *packtest.Builder) { blob(b); b.Delta(b.At()-12, nil) }), "corrupt"},
		{"type 0", build(func(b *packtest.Builder) { b.Object(0, 1, []byte("x")) }), "unknown type 0"},
		{"type 5", build(func(b *packtest.Builder) { b.Object(5, 1, []byte("x")) }), "unknown type 5"},
		{"damaged", func() []byte { p := bytes.Clone(good); p[15] ^= 0x55; return p }(), "corrupt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, seen, err := scan(tt.pack, wide)
			switch {
			case tt.name == "fewer objects than declared":
				// The scanner takes the checksum for an object, and fails.
				if err == nil {
					t.Fatal("accepted")
				}
			case tt.why == "" && err != nil:
				t.Fatal(err)
			case tt.why == "" && !bytes.Equal(seen, tt.pack):
				t.Fatal("what was stored is not the pack")
			case tt.why != "" && (err == nil || !strings.Contains(err.Error(), tt.why)):
				t.Fatalf("got %v, want %q", err, tt.why)
			}
			var r *object.Refusal
			if err != nil && !errors.As(err, &r) {
				t.Fatalf("the client would not be told: %v", err)
			}
		})
	}
}

// TestScanPackRoom checks that the scan's memory does not grow with the pack, and that a limit is exact to
// the byte.
func TestScanPackRoom(t *testing.T) {
	b := &packtest.Builder{}
	for i := range 500 {
		b.Object(3, 4096, bytes.Repeat([]byte{byte(i)}, 4096))
	}
	pack := b.Pack()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Scan(NewTap(bytes.NewReader(pack), io.Discard, int64(len(pack))), 20, wide); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 512<<10 {
		t.Errorf("a scan of 2 MiB of objects takes %d bytes of memory", n)
	}
	lim := wide
	lim.Bytes = int64(len(pack))
	if _, _, err := scan(pack, lim); err != nil {
		t.Errorf("a pack of exactly the limit: %v", err)
	}
	lim.Bytes--
	if _, _, err := scan(pack, lim); !errors.Is(err, object.ErrTooLarge) {
		t.Errorf("a pack of one byte more than the limit: %v", err)
	}
}

// FuzzScanPack checks that no input crashes the scanner, that it stores only consumed bytes, and that it
// accepts every pack that git can index.
func FuzzScanPack(f *testing.F) {
	b := &packtest.Builder{}
	b.Object(3, 5, []byte("hello"))
	b.Delta(b.At()-12, packtest.Growing(5, 2))
	f.Add(b.Pack())
	f.Add((&packtest.Builder{}).Pack())
	f.Add(b.Declaring(99))
	f.Fuzz(func(t *testing.T, pack []byte) {
		st, seen, err := scan(pack, Limits{Bytes: 1 << 20, Objects: 100, Object: 1 << 20})
		if !bytes.HasPrefix(pack, seen) {
			t.Fatal("stored what was not sent")
		}
		if err == nil && (len(seen) != len(pack) || st.Objects > 100) {
			t.Fatalf("%d of %d bytes, %d objects", len(seen), len(pack), st.Objects)
		}
		if err == nil || len(pack) < 32 {
			return
		}
		// git is the oracle. Only the limits may cause a difference.
		sum := sha1.Sum(pack[:len(pack)-20])
		if errors.Is(err, object.ErrTooLarge) || !bytes.Equal(sum[:], pack[len(pack)-20:]) {
			return
		}
		dir := t.TempDir()
		cmd := exec.Command("git", "index-pack", "--stdin")
		cmd.Dir, cmd.Stdin = dir, bytes.NewReader(pack)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C", "GIT_DIR="+dir)
		if err := os.MkdirAll(dir+"/objects/pack", 0o755); err != nil {
			t.Fatal(err)
		}
		if out, gitErr := cmd.CombinedOutput(); gitErr == nil {
			t.Errorf("git takes a pack that is refused with %v\n%s", err, out)
		}
	})
}

// TestScanDeltaWork checks that edits of a large file pass, and that endless chains and copies do not.
func TestScanDeltaWork(t *testing.T) {
	const size = 4 << 20
	chain := func(n int, step func(size int) []byte) []byte {
		b := &packtest.Builder{}
		at := b.At()
		b.Object(3, size, make([]byte, size))
		for range n {
			here := b.At()
			b.Delta(here-at, step(size))
			at = here
		}
		return b.Pack()
	}
	edit := func(size int) []byte { return packtest.Copying(size, size) }
	for _, c := range []struct {
		name string
		pack []byte
		want string
	}{
		{"edits", chain(40, edit), ""},
		{"a long chain of edits", chain(120, edit), "long chains"},
		{"copies", chain(20, func(size int) []byte { return packtest.Copying(size, 4*size) }), "copy their bases too often"},
		{"a chain that git never makes", func() []byte {
			b := &packtest.Builder{}
			at := b.At()
			b.Object(3, 5, []byte("hello"))
			for range depthMax + 1 {
				here := b.At()
				b.Delta(here-at, packtest.Copying(5, 5))
				at = here
			}
			return b.Pack()
		}(), "a chain of more than 4095 deltas"},
	} {
		st, _, err := scan(c.pack, wide)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if c.want == "" && st.Memory() < 2*size {
			t.Errorf("%s: %d bytes are too few", c.name, st.Memory())
		}
	}
}
