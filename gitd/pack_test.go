package gitd

import (
	"bytes"
	"compress/zlib"
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
)

// packBuilder writes packs that git would never write.
type packBuilder struct {
	body  bytes.Buffer
	count uint32
	z     *zlib.Writer
}

func (b *packBuilder) header(typ byte, size uint64) {
	c := typ<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		b.body.WriteByte(c | 0x80)
		c = byte(size & 0x7f)
	}
	b.body.WriteByte(c)
}

// object adds an object that declares size and holds data.
func (b *packBuilder) object(typ byte, size uint64, data []byte) {
	b.count++
	b.header(typ, size)
	b.deflate(data)
}

func (b *packBuilder) deflate(data []byte) {
	if b.z == nil {
		b.z = zlib.NewWriter(&b.body)
	}
	b.z.Reset(&b.body)
	b.z.Write(data)
	b.z.Close()
}

// delta adds a delta on the object that began back bytes before.
func (b *packBuilder) delta(back int, data []byte) {
	b.count++
	b.header(packOfsDelta, uint64(len(data)))
	enc := []byte{byte(back & 0x7f)}
	for back >>= 7; back > 0; back >>= 7 {
		back--
		enc = append([]byte{byte(back&0x7f) | 0x80}, enc...)
	}
	b.body.Write(enc)
	b.deflate(data)
}

// at is where the next object begins.
func (b *packBuilder) at() int { return 12 + b.body.Len() }

func (b *packBuilder) pack() []byte { return b.declaring(b.count) }

func (b *packBuilder) declaring(count uint32) []byte {
	out := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), count)
	out = append(out, b.body.Bytes()...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// growing is a delta that copies its whole base of size bytes n times.
func growing(size, n int) []byte {
	d := binary.AppendUvarint(nil, uint64(size))
	d = binary.AppendUvarint(d, uint64(size)*uint64(n))
	for range n {
		// copy offset 0, three bytes of size
		d = append(d, 0x80|0x70, byte(size), byte(size>>8), byte(size>>16))
	}
	return d
}

func scan(pack []byte, lim packLimits) (packStats, []byte, error) {
	var sink bytes.Buffer
	t := newTap(bytes.NewReader(pack), &sink, lim.bytes)
	st, err := scanPack(t, 20, lim)
	if err == nil {
		err = t.atEnd(true)
	}
	return st, sink.Bytes(), errors.Join(err, t.flush())
}

var wide = packLimits{bytes: 1 << 30, objects: 1 << 20, object: 64 << 20}

func TestScanPack(t *testing.T) {
	build := func(f func(b *packBuilder)) []byte {
		b := &packBuilder{}
		f(b)
		return b.pack()
	}
	blob := func(b *packBuilder) { b.object(3, 5, []byte("hello")) }
	good := build(blob)
	for _, tt := range []struct {
		name string
		pack []byte
		why  string // empty: accepted
	}{
		{"good", good, ""},
		{"empty", (&packBuilder{}).pack(), ""},
		{"delta", build(func(b *packBuilder) { blob(b); b.delta(b.at()-12, growing(5, 3)) }), ""},
		{"nothing", nil, "ends early"},
		{"no pack", []byte("POCK00000000"), "not a pack"},
		{"version 4", append([]byte("PACK\x00\x00\x00\x04"), good[8:]...), "not a pack"},
		{"more objects than declared", func() []byte {
			b := &packBuilder{}
			blob(b)
			blob(b)
			return b.declaring(1)
		}(), "behind the pack's end"},
		{"fewer objects than declared", func() []byte { b := &packBuilder{}; blob(b); return b.declaring(2) }(), ""},
		{"too many objects", func() []byte { b := &packBuilder{}; blob(b); return b.declaring(1 << 31) }(), "declares 2147483648 objects"},
		{"truncated", good[:len(good)-25], "ends early"},
		{"truncated in its checksum", good[:len(good)-3], "ends early"},
		{"trailing garbage", append(bytes.Clone(good), 'x'), "behind the pack's end"},
		{"declares 1 TiB", build(func(b *packBuilder) { b.object(3, 1<<40, []byte("x")) }), "declares 1 TiB"},
		{"declares 2^63", build(func(b *packBuilder) { b.object(3, 1<<63, []byte("x")) }), "beyond 2^60"},
		{"declares too little", build(func(b *packBuilder) { b.object(3, 4, []byte("hello")) }), "longer than it declares"},
		{"declares too much", build(func(b *packBuilder) { b.object(3, 6, []byte("hello")) }), "shorter than it declares"},
		{"zlib bomb", build(func(b *packBuilder) { b.object(3, 10, make([]byte, 4<<20)) }), "longer than it declares"},
		{"delta declares 1 GiB", build(func(b *packBuilder) {
			blob(b)
			b.delta(b.at()-12, append(binary.AppendUvarint(binary.AppendUvarint(nil, 5), 1<<30), 0))
		}), "makes an object of 1 GiB"},
		{"delta declares 2^64", build(func(b *packBuilder) {
			blob(b)
			b.delta(b.at()-12, append(binary.AppendUvarint(binary.AppendUvarint(nil, 5), 1<<63), 0))
		}), "corrupt"},
		{"delta bomb", build(func(b *packBuilder) {
			// 1 MiB of zeros is 1 KiB of pack; each further delta makes 60 MiB of them for some bytes.
			first := b.at()
			b.object(3, 1<<20, make([]byte, 1<<20))
			for range 50 {
				b.delta(b.at()-first, growing(1<<20, 60))
			}
		}), "and more in"},
		{"delta on itself", build(func(b *packBuilder) { b.delta(0, growing(5, 1)) }), "base outside"},
		{"delta before the pack", build(func(b *packBuilder) { b.delta(5000, growing(5, 1)) }), "base outside"},
		{"delta without sizes", build(func(b *packBuilder) { blob(b); b.delta(b.at()-12, nil) }), "corrupt"},
		{"type 0", build(func(b *packBuilder) { b.object(0, 1, []byte("x")) }), "unknown type 0"},
		{"type 5", build(func(b *packBuilder) { b.object(5, 1, []byte("x")) }), "unknown type 5"},
		{"damaged", func() []byte { p := bytes.Clone(good); p[15] ^= 0x55; return p }(), "corrupt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, seen, err := scan(tt.pack, wide)
			switch {
			case tt.name == "fewer objects than declared":
				// The checksum is taken for an object, and fails as one.
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

// TestScanPackRoom: the scan's memory does not grow with the pack, and a limit
// is met to the byte.
func TestScanPackRoom(t *testing.T) {
	b := &packBuilder{}
	for i := range 500 {
		b.object(3, 4096, bytes.Repeat([]byte{byte(i)}, 4096))
	}
	pack := b.pack()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := scanPack(newTap(bytes.NewReader(pack), io.Discard, int64(len(pack))), 20, wide); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 512<<10 {
		t.Errorf("a scan of 2 MiB of objects takes %d bytes of memory", n)
	}
	lim := wide
	lim.bytes = int64(len(pack))
	if _, _, err := scan(pack, lim); err != nil {
		t.Errorf("a pack of exactly the limit: %v", err)
	}
	lim.bytes--
	if _, _, err := scan(pack, lim); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a pack of one byte more than the limit: %v", err)
	}
}

// FuzzScanPack: nothing crashes the scanner, it stores only what it consumed,
// and a pack that git can index is one that it accepts.
func FuzzScanPack(f *testing.F) {
	b := &packBuilder{}
	b.object(3, 5, []byte("hello"))
	b.delta(b.at()-12, growing(5, 2))
	f.Add(b.pack())
	f.Add((&packBuilder{}).pack())
	f.Add(b.declaring(99))
	f.Fuzz(func(t *testing.T, pack []byte) {
		st, seen, err := scan(pack, packLimits{bytes: 1 << 20, objects: 100, object: 1 << 20})
		if !bytes.HasPrefix(pack, seen) {
			t.Fatal("stored what was not sent")
		}
		if err == nil && (len(seen) != len(pack) || st.objects > 100) {
			t.Fatalf("%d of %d bytes, %d objects", len(seen), len(pack), st.objects)
		}
		if err == nil || len(pack) < 32 {
			return
		}
		// The oracle: only the limits may part the two.
		sum := sha1.Sum(pack[:len(pack)-20])
		if errors.Is(err, ErrTooLarge) || !bytes.Equal(sum[:], pack[len(pack)-20:]) {
			return
		}
		dir := t.TempDir()
		cmd := exec.Command("git", "index-pack", "--stdin")
		cmd.Dir, cmd.Stdin = dir, bytes.NewReader(pack)
		cmd.Env = append(stockEnv(), "GIT_DIR="+dir)
		if err := os.MkdirAll(dir+"/objects/pack", 0o755); err != nil {
			t.Fatal(err)
		}
		if out, gitErr := cmd.CombinedOutput(); gitErr == nil {
			t.Errorf("git takes a pack that is refused with %v\n%s", err, out)
		}
	})
}

func FuzzPktLine(f *testing.F) {
	f.Add([]byte("0009hello0000"))
	f.Add([]byte("00010002FFFF"))
	f.Add([]byte("0003"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := pktReader{r: bytes.NewReader(text)}
		var again []byte
		for {
			raw, kind, err := r.nextRaw()
			if err != nil {
				break
			}
			if kind == pktData && len(raw) < 4 || kind != pktData && len(raw) != 4 {
				t.Fatalf("%q is of kind %d", raw, kind)
			}
			again = append(again, raw...)
		}
		if !bytes.HasPrefix(text, again) {
			t.Errorf("%q became %q", text, again)
		}
	})
}

func FuzzParsePush(f *testing.F) {
	zero, one := strings.Repeat("0", 40), strings.Repeat("1", 40)
	f.Add(append(appendPkt(nil, zero, " ", one, " refs/heads/a\x00report-status side-band-64k"), flushPkt...))
	f.Add(append(appendPkt(appendPkt(nil, "shallow ", one), one, " ", zero, " refs/heads/a\n\x00 push-options"), "0000000aoption0000"...))
	f.Add([]byte("0000"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parsePush(bytes.NewReader(text))
		if err != nil {
			return
		}
		a := access{grant: Grant{Write: []string{"refs/heads/ok/*"}}}
		for _, c := range p.commands {
			if a.judge(c) == "" && (!strings.HasPrefix(c.ref, "refs/heads/ok/") || c.deletes() || CheckRef(c.ref) != nil) {
				t.Errorf("allowed: %+v", c)
			}
		}
	})
}
