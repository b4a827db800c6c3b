package gitindex

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/object"
)

// indexOf returns an index with the given entries and extensions.
func indexOf(count int, parts ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte("DIRC\x00\x00\x00\x02"), uint32(count))
	b = append(b, strings.Join(parts, "")...)
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

// entryOf returns an entry of a name, as git writes it.
func entryOf(name string) string { return rawEntry(name, min(len(name), flagName)) }

// rawEntry returns an entry with flags of its own.
func rawEntry(name string, flags int) string {
	b := binary.BigEndian.AppendUint16(bytes.Repeat([]byte("."), fixedLength-2), uint16(flags))
	return string(b) + name + strings.Repeat("\x00", 8-(fixedLength+len(name))%8)
}

// extensionOf returns an extension.
func extensionOf(name, data string) string {
	return name + string(binary.BigEndian.AppendUint32(nil, uint32(len(data)))) + data
}

// namesOf returns the paths in an index.
func namesOf(t *testing.T, index []byte) string {
	t.Helper()
	p, err := parse(index)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for at := 0; at < len(p.entries); {
		name, next, _, ok := entryAt(p.entries, at)
		if !ok {
			t.Fatalf("no entry at %d", at)
		}
		names, at = append(names, string(name)), next
	}
	if len(names) != p.count {
		t.Errorf("%d entries, and a count of %d", len(names), p.count)
	}
	return strings.Join(names, " ")
}

// TestCheck checks indexes that are cut or damaged.
func TestCheck(t *testing.T) {
	long := strings.Repeat("n", flagName)
	for _, tt := range []struct {
		name  string
		index []byte
		want  string // in the error; empty if the index is good
	}{
		{"empty", indexOf(0), ""},
		{"one entry", indexOf(1, entryOf("a")), ""},
		{"two entries", indexOf(2, entryOf("a"), entryOf("b")), ""},
		{"names of all paddings", indexOf(8, entryOf("1"), entryOf("12"), entryOf("123"), entryOf("1234"),
			entryOf("12345"), entryOf("123456"), entryOf("1234567"), entryOf("12345678")), ""},
		{"long names", indexOf(3, entryOf(long[1:]), entryOf(long), entryOf(long+"nn")), ""},
		{"extensions", indexOf(1, entryOf("a"), extensionOf("AAAA", ""), extensionOf("ZZZZ", "data")), ""},
		{"nothing", nil, "no index"},
		{"a header", indexOf(0)[:headerLength+trailerLength-1], "no index"},
		{"the largest", append([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00AAAA\x03\xff\xff\xd8"),
			make([]byte, MaxSize-20)...), ""},
		{"another file", append([]byte("DIRX"), indexOf(0)[4:]...), "no index"},
		{"too large", append(indexOf(0), make([]byte, MaxSize)...), "no index"},
		{"version 3", append([]byte("DIRC\x00\x00\x00\x03"), indexOf(0)[8:]...), "version 3"},
		{"too few entries", indexOf(2, entryOf("a")), "it is cut"},
		{"half an entry", indexOf(1, entryOf("a")[:63]), "it is cut"},
		{"no padding", indexOf(1, entryOf("abcdefgh")[:fixedLength+8]), "it is cut"},
		{"half the padding", indexOf(1, entryOf("abc")[:fixedLength+4]), "it is cut"},
		{"no name", indexOf(1, rawEntry("", 0)), "it is cut"},
		{"a NUL in a name", indexOf(1, rawEntry("a\x00b", 3)), "it is cut"},
		{"a name that goes on", indexOf(1, rawEntry("abc", 2)), "it is cut"},
		{"a name that ends early", indexOf(1, rawEntry("abc", 4)), "it is cut"},
		{"a length beyond the end", indexOf(1, rawEntry("abc", 4000)), "it is cut"},
		{"no name after another", indexOf(2, entryOf(long), rawEntry("", 0)), "it is cut"},
		{"a name without end after another", indexOf(2, entryOf(long), rawEntry("nnn", 2)), "it is cut"},
		{"assumed unchanged", indexOf(1, rawEntry("a", flagAssumeValid|1)), "special kind"},
		{"extended", indexOf(1, rawEntry("a", flagExtended|1)), "special kind"},
		{"in conflict", indexOf(1, rawEntry("a", 0x1000|1)), "special kind"},
		{"twice", indexOf(2, entryOf("a"), entryOf("a")), "out of order"},
		{"backwards", indexOf(2, entryOf("b"), entryOf("a")), "out of order"},
		{"half an extension", indexOf(0, "TREE\x00\x00\x00"), "it is cut"},
		{"a cut extension", indexOf(0, extensionOf("TREE", "ab")[:9]), "it is cut"},
		{"a part that git must know", indexOf(0, extensionOf("link", "")), `it needs "link"`},
		{"another one", indexOf(0, extensionOf("@EXT", "")), `it needs "@EXT"`},
		{"another one after the letters", indexOf(0, extensionOf("[EXT", "")), `it needs "[EXT"`},
	} {
		err := Check(tt.index)
		if (err == nil) != (tt.want == "") || err != nil && (!errors.Is(err, errIndex) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	last := entryOf("z")
	for n := range last {
		if err := Check(indexOf(2, entryOf(long), last[:n])); err == nil || !strings.Contains(err.Error(), "it is cut") {
			t.Errorf("%d bytes of the last entry: %v", n, err)
		}
	}
}

// TestRewriteEntries checks the places of new, changed and removed paths.
func TestRewriteEntries(t *testing.T) {
	hash := object.Hash(strings.Repeat("1", 40))
	long := strings.Repeat("n", flagName+1)
	old := indexOf(3, entryOf("b"), entryOf("d/e"), entryOf("f"))
	for _, tt := range []struct {
		differ string // removed with a hyphen in front
		want   string
	}{
		{"", "b d/e f"},
		{"a", "a b d/e f"},
		{"g", "b d/e f g"},
		{"c", "b c d/e f"},
		{"b", "b d/e f"},
		{"f", "b d/e f"},
		{"-b", "d/e f"},
		{"-f", "b d/e"},
		{"-b -d/e -f", ""},
		{"-a -c -x", "b d/e f"},
		{"x -f d/a a", "a b d/a d/e x"},
		{"h g", "b d/e f g h"},
		{long, "b d/e f " + long},
		{"1 2 3 4 5 6 7 8 9", "1 2 3 4 5 6 7 8 9 b d/e f"},
	} {
		var differ []Entry
		for path := range strings.FieldsSeq(tt.differ) {
			if name, removed := strings.CutPrefix(path, "-"); removed {
				differ = append(differ, Entry{Path: name})
			} else {
				differ = append(differ, Entry{Path: path, Mode: object.ModeFile, Hash: hash})
			}
		}
		made, err := Rewrite(old, differ, 0, "")
		if err != nil {
			t.Errorf("%s: %v", tt.differ, err)
			continue
		}
		if got := namesOf(t, made); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.differ, got, tt.want)
		}
		if sum := sha1.Sum(made[:len(made)-trailerLength]); !bytes.Equal(sum[:], made[len(made)-trailerLength:]) {
			t.Errorf("%s: another checksum", tt.differ)
		}
	}
	for name, d := range map[string]Entry{
		"no path":     {Mode: object.ModeFile, Hash: hash},
		"no hash":     {Path: "a", Mode: object.ModeFile},
		"a long hash": {Path: "a", Mode: object.ModeFile, Hash: hash + "11"},
		"no hex":      {Path: "a", Mode: object.ModeFile, Hash: object.Hash(strings.Repeat("x", 40))},
	} {
		if _, err := Rewrite(old, []Entry{d}, 0, ""); !errors.Is(err, errIndex) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRewriteTrees checks which trees of the cache are left, and that a damaged cache is left out.
func TestRewriteTrees(t *testing.T) {
	const hash = "12345678901234567890"
	tree := func(name, counts string) string {
		text := name + "\x00" + counts + "\n"
		if !strings.HasPrefix(counts, "-1") {
			text += hash
		}
		return text
	}
	whole := tree("", "4 2") + tree("a", "2 1") + tree("b", "1 0") + tree("c", "1 0")
	deep := ""
	for range 1001 {
		deep += tree("d", "1 1")
	}
	for _, tt := range []struct{ name, cache, changed, want string }{
		{"nothing changed", whole, "", whole},
		{"at the top", whole, "x", tree("", "-1 2") + tree("a", "2 1") + tree("b", "1 0") + tree("c", "1 0")},
		{"in a folder", whole, "c/x", tree("", "-1 2") + tree("a", "2 1") + tree("b", "1 0") + tree("c", "-1 0")},
		{"in a folder of a folder", whole, "a/b/x",
			tree("", "-1 2") + tree("a", "-1 1") + tree("b", "-1 0") + tree("c", "1 0")},
		{"in a folder of that name elsewhere", whole, "b/x",
			tree("", "-1 2") + tree("a", "2 1") + tree("b", "1 0") + tree("c", "1 0")},
		{"without entries", tree("", "0 0"), "", tree("", "0 0")},
		{"stale before", tree("", "-1 1") + tree("a", "1 0"), "", tree("", "-1 1") + tree("a", "1 0")},
		{"deep", tree("", "1 1") + deep[:999*len(tree("d", "1 1"))] + tree("d", "1 0"), "",
			tree("", "1 1") + deep[:999*len(tree("d", "1 1"))] + tree("d", "1 0")},
		{"too deep", tree("", "1 1") + deep + tree("d", "1 0"), "", ""},
		{"empty", "", "", ""},
		{"a name at the top", tree("a", "1 0"), "", ""},
		{"no name below the top", tree("", "1 1") + tree("", "1 0"), "", ""},
		{"one more", whole + tree("d", "1 0"), "", ""},
		{"one less", tree("", "2 2") + tree("a", "1 0"), "", ""},
		{"half a hash", whole[:len(whole)-1], "", ""},
		{"no number", tree("", "x 0"), "", ""},
		{"no number of trees", tree("", "1 x"), "", ""},
		{"fewer than none", tree("", "1 -1"), "", ""},
		{"more than fit", tree("", "1 21"), "", ""},
		{"no space", "\x001\n" + hash, "", ""},
		{"no end of line", "\x00-1 0", "", ""},
		{"no NUL", "-1 0\n", "", ""},
	} {
		var differ []Entry
		if tt.changed != "" {
			differ = []Entry{{Path: tt.changed}}
		}
		made, err := Rewrite(indexOf(0, extensionOf("TREE", tt.cache)), differ, 0, "")
		want := indexOf(0)
		if tt.want != "" {
			want = indexOf(0, extensionOf("TREE", tt.want))
		}
		if err != nil || !bytes.Equal(made, want) {
			t.Errorf("%s: %q, %v, want %q", tt.name, made, err, want)
		}
	}
}

// TestRewriteToken checks the extensions that depend on the file system monitor.
func TestRewriteToken(t *testing.T) {
	untracked, other := extensionOf("UNTR", "files"), extensionOf("EOIE", "x")
	old := indexOf(0, untracked, other, extensionOf("FSMN", "old"))
	made, err := Rewrite(old, nil, 0, "")
	if want := indexOf(0); err != nil || !bytes.Equal(made, want) {
		t.Errorf("without a token: %q, %v, want %q", made, err, want)
	}
	made, err = Rewrite(old, nil, 0, "t:1")
	bitmap := strings.Repeat("\x00", 7) + "\x01" + strings.Repeat("\x00", 12)
	if want := indexOf(0, untracked,
		extensionOf("FSMN", "\x00\x00\x00\x02t:1\x00\x00\x00\x00\x14"+bitmap)); err != nil || !bytes.Equal(made, want) {
		t.Errorf("with a token: %q, %v, want %q", made, err, want)
	}
}

// TestRewriteStat checks that git reads the metadata that an entry was given.
func TestRewriteStat(t *testing.T) {
	r := newIndexRepo(t)
	r.git("config", "core.untrackedCache", "false")
	made, err := Rewrite(indexOf(0),
		[]Entry{{Path: "a", Mode: object.ModeExecutable, Hash: object.Hash(strings.Repeat("1", 40)),
			Stat: Stat{CTime: 1_700_000_001_000_000_002, MTime: 1_700_000_003_000_000_004, Inode: 5, Size: 6}}}, 7, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, ".git", "index"), made, 0o600); err != nil {
		t.Fatal(err)
	}
	want := "a ctime: 1700000001:2 mtime: 1700000003:4 dev: 0 ino: 5 uid: 7 gid: 7 size: 6 flags: 0"
	if got := strings.Join(strings.Fields(r.git("ls-files", "--debug")), " "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := r.git("ls-files", "--stage"); got != "100755 "+strings.Repeat("1", 40)+" 0\ta\n" {
		t.Errorf("%q", got)
	}
}
