package history

import (
	"testing"

	"github.com/ramus-dev/ramus/gitd/object"
)

const (
	hashA = "aaaaaaaaaaaaaaaaaaaa"
	hashB = "bbbbbbbbbbbbbbbbbbbb"
)

// TestTreeCursorNext reads entries one by one, and stops at the first that is damaged.
func TestTreeCursorNext(t *testing.T) {
	at := &treeCursor{rest: []byte("100644 a\x00" + hashA + "40000 b c\x00" + hashB)}
	for _, want := range []struct {
		mode       uint32
		name, hash string
	}{{object.ModeFile, "a", hashA}, {object.ModeFolder, "b c", hashB}} {
		ok, err := at.next()
		if !ok || err != nil || at.mode != want.mode || string(at.name) != want.name || string(at.hash[:]) != want.hash || at.end {
			t.Fatalf("%t, %v: %+v, want %+v", ok, err, at, want)
		}
	}
	for range 2 {
		if ok, err := at.next(); ok || err != nil || !at.end {
			t.Errorf("after the last entry: %t, %v, %+v", ok, err, at)
		}
	}
	for name, text := range map[string]string{
		"no space":         "100644",
		"no end of a name": "100644 a" + hashA,
		"no name":          "100644 \x00" + hashA,
		"no mode":          " a\x00" + hashA,
		"mode in decimals": "100648 a\x00" + hashA,
		"large mode":       "100000000000000 a\x00" + hashA,
		"short hash":       "100644 a\x00" + hashA[:19],
		"no hash":          "100644 a\x00",
	} {
		at := &treeCursor{rest: []byte(text)}
		if ok, err := at.next(); ok || err == nil || !at.end {
			t.Errorf("%s: %t, %v, %+v", name, ok, err, at)
		}
	}
}

// TestTreeCursorSeek advances to entries in the order of git.
func TestTreeCursorSeek(t *testing.T) {
	in := &treeCursor{rest: []byte("100644 a\x00" + hashA + "100644 b.c\x00" + hashA + "40000 b\x00" + hashB + "100644 d\x00" + hashA)}
	for _, c := range []struct {
		mode uint32
		name string
		want bool
		hash string
	}{
		{object.ModeFile, "A", false, ""},
		{object.ModeFile, "a", true, hashA},
		{object.ModeFile, "a", true, hashA}, // the cursor stays
		{object.ModeFile, "b", false, ""},   // b is a folder
		{object.ModeFolder, "b", true, hashB},
		{object.ModeFile, "c", false, ""},
		{object.ModeExecutable, "d", true, hashA},
		{object.ModeFile, "e", false, ""},
		{object.ModeFile, "f", false, ""}, // after the end
	} {
		got := in.seek(&treeCursor{mode: c.mode, name: []byte(c.name)})
		if got != c.want || got && (string(in.name) != c.name || string(in.hash[:]) != c.hash) {
			t.Errorf("%o %s: %t, at %o %s", c.mode, c.name, got, in.mode, in.name)
		}
	}
	damaged := &treeCursor{rest: []byte("100644 a\x00" + hashA + "x")}
	if damaged.seek(&treeCursor{mode: object.ModeFile, name: []byte("b")}) || !damaged.end {
		t.Error("an entry is found after damage")
	}
}

// TestCompareEntries orders entries as git does.
func TestCompareEntries(t *testing.T) {
	const file, folder = object.ModeFile, object.ModeFolder
	for _, c := range []struct {
		mode  uint32
		name  string
		other uint32
		than  string
		want  int
	}{
		{file, "a", file, "a", 0}, {folder, "a", folder, "a", 0}, {file, "a", object.ModeSymlink, "a", 0},
		{file, "a", file, "b", -1}, {file, "a", file, "ab", -1}, {file, "abc", file, "abd", -1}, {file, "a", folder, "a", -1},
		{file, "a.b", folder, "a", -1}, {folder, "a", file, "a0", -1}, {file, "a", folder, "b", -1},
		{folder, "ab", file, "ac", -1}, {folder, "a", folder, "ab", -1},
	} {
		x, y := &treeCursor{mode: c.mode, name: []byte(c.name)}, &treeCursor{mode: c.other, name: []byte(c.than)}
		for range 2 {
			if got := compareEntries(x, y); (got < 0) != (c.want < 0) || (got > 0) != (c.want > 0) {
				t.Errorf("%o %s and %o %s: %d, want %d", x.mode, x.name, y.mode, y.name, got, c.want)
			}
			x, y, c.want = y, x, -c.want
		}
	}
}

// TestSortByte returns the bytes that follow a name.
func TestSortByte(t *testing.T) {
	for _, c := range []struct {
		mode uint32
		n    int
		want byte
	}{{object.ModeFile, 0, 'a'}, {object.ModeFile, 1, 'b'}, {object.ModeFile, 2, 0}, {object.ModeFolder, 1, 'b'},
		{object.ModeFolder, 2, '/'}, {object.ModeCommit, 2, 0}} {
		if got := (&treeCursor{mode: c.mode, name: []byte("ab")}).sortByte(c.n); got != c.want {
			t.Errorf("mode %o: %q at %d, want %q", c.mode, got, c.n, c.want)
		}
	}
}
