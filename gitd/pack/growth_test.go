package pack

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"io"
	"testing"

	curve "github.com/ramus-dev/ramus/internal/growth"
)

// TestPackGrowth checks that the time to scan a pack grows with it.
func TestPackGrowth(t *testing.T) {
	object := func(kind byte, size int, parts ...[]byte) string {
		head := []byte{kind<<4 | byte(size&15)}
		for size >>= 4; size > 0; size >>= 7 {
			head[len(head)-1] |= 0x80
			head = append(head, byte(size&127))
		}
		return string(head) + string(bytes.Join(parts, nil))
	}
	empty, a := deflated(t, nil), deflated(t, []byte("a"))
	delta := []byte{1, 1, 1, 'b'}
	packed := deflated(t, delta)
	base := bytes.Repeat([]byte{'x'}, 20)
	small := object(3, 1, a)
	cases := []curve.Case{{Name: "empty blobs", Token: object(3, 0, empty)}, {Name: "blobs", Token: small},
		{Name: "commits", Token: object(1, 1, a)},
		{Name: "ref deltas", Token: object(7, len(delta), base, packed)},
		{Name: "deltas of nothing", Token: object(6, len(delta), []byte{5}, packed)},
		{Name: "chain", Prefix: small,
			Token: object(6, len(delta), []byte{byte(len(object(6, len(delta), []byte{1}, packed)))}, packed)},
		{Name: "bytes of a size", Token: "\xff"}, {Name: "nothing", Token: "\x00"}, {Name: "sizes", Token: "\xb0\x80"},
		{Name: "no deflate", Token: "\x30a"},
		{Name: "deltas of one", Prefix: small, Each: func(n int) string {
			one := len(object(6, len(delta), []byte{0x80, 0}, packed))
			back := len(small) + n*one
			var offset []byte
			for offset = []byte{byte(back & 127)}; back > 127; offset = append([]byte{byte(back&127) | 0x80}, offset...) {
				back = back>>7 - 1
			}
			return object(6, len(delta), offset, packed)
		}}}
	lim := Limits{1 << 30, 1 << 30, 1 << 30}
	curve.Check(t, "pack", func(text []byte) {
		// The pack's header counts more objects than it has, so that the scan ends with
		// the text.
		pack := append([]byte("PACK\x00\x00\x00\x02\x00\x0f\xff\xff"), text...)
		_, _ = Scan(NewTap(bytes.NewReader(pack), io.Discard, 1<<30), sha1.Size, lim)
	}, cases...)
}

// TestDeltaGrowth checks that the time to apply a delta grows with it.
func TestDeltaGrowth(t *testing.T) {
	delta := []curve.Case{{Name: "inserts", Token: "\x01a"}, {Name: "copies", Token: "\x90\x01"},
		{Name: "nothing", Token: "\x00"}, {Name: "long", Token: "\xff"}}
	base := bytes.Repeat([]byte("a"), 1000)
	curve.Check(t, "delta", func(text []byte) {
		size := 0
		for i := 0; i < len(text); i += 2 {
			size++
		}
		b := appendSize(appendSize(nil, len(base)), size)
		_, _ = applyDelta(base, append(b, text...))
	}, delta...)
}

// deflated returns data compressed by zlib.
func deflated(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// appendSize appends a size in the encoding of deltas.
func appendSize(b []byte, n int) []byte {
	for ; n > 127; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}
