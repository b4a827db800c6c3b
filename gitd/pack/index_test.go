package pack

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzApplyDelta must neither panic nor make more bytes than the delta
// declares.
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

// FuzzPackIndex opens arbitrary bytes as an index, and looks objects up in
// it.
func FuzzPackIndex(f *testing.F) {
	objs := []IndexEntry{{Name: ObjectName{3}, At: 12}, {Name: ObjectName{1, 5}, At: 1 << 31},
		{Name: ObjectName{1, 2}, At: 99}}
	f.Add(EncodeIndex(objs, make([]byte, 20)))
	f.Add([]byte(idxMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "pack-x.idx"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := OpenFile(dir, "pack-x")
		if err != nil {
			return
		}
		defer p.Close()
		for _, o := range objs {
			if at, ok, err := p.Find(o.Name[:]); ok && err != nil || at < 0 {
				t.Errorf("at %d, %v", at, err)
			}
		}
	})
}

// TestPackIndexFar has offsets that need more than 31 bits.
func TestPackIndexFar(t *testing.T) {
	objs := []IndexEntry{
		{Name: ObjectName{3}, At: 1<<31 - 1}, {Name: ObjectName{1}, At: 1 << 31}, {Name: ObjectName{2}, At: 5 << 31},
	}
	b := EncodeIndex(objs, make([]byte, 20))
	table := b[8+256*4+3*(20+4):]
	want := "\x80\x00\x00\x00" + "\x80\x00\x00\x01" + "\x7f\xff\xff\xff" +
		"\x00\x00\x00\x00\x80\x00\x00\x00" + "\x00\x00\x00\x02\x80\x00\x00\x00"
	if got := string(table[:len(want)]); got != want {
		t.Errorf("places %q instead of %q", got, want)
	}
}
