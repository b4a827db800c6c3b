package history

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/object"
)

// FuzzTreeCursor compares the reading of trees in place with the reading of
// whole trees.
func FuzzTreeCursor(f *testing.F) {
	hash := strings.Repeat("h", 20)
	f.Add([]byte("100644 a\x00"+hash+"40000 b\x00"+hash), []byte("100644 b\x00"+hash))
	f.Add([]byte("40000 a\x00"+hash+"100644 a.b\x00"+hash), []byte("100644 a\x00"+hash+"40000 a\x00"+hash))
	f.Add([]byte("100644 a\x00short"), []byte("100644"))
	f.Add([]byte("x a\x00"+hash), []byte{})
	f.Fuzz(func(t *testing.T, data, parallel []byte) {
		entries, bad := object.ParseTree(data, 20)
		at, other := &treeCursor{rest: data}, &treeCursor{rest: parallel}
		for n := 0; ; n++ {
			ok, err := at.next()
			if (err != nil) && bad == nil {
				t.Fatal(err)
			}
			if !ok {
				if bad == nil && n != len(entries) {
					t.Fatalf("%d entries, not %d", n, len(entries))
				}
				return
			}
			if e := (object.Entry{Name: string(at.name), Mode: at.mode,
				Hash: object.Hash(at.hash.String())}); bad == nil && e != entries[n] {
				t.Fatalf("%v, not %v", e, entries[n])
			}
			if other.seek(at) && (!bytes.Equal(other.name, at.name) ||
				(other.mode == object.ModeFolder) != (at.mode == object.ModeFolder)) {
				t.Fatalf("found %s for %s", other.name, at.name)
			}
		}
	})
}
