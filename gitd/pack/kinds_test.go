package pack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack/packtest"
)

// TestKinds describes a few objects, which are read in process, and many, for which git is asked.
func TestKinds(t *testing.T) {
	dir, packs := newPacks(t)
	commit := writeCommit(t, packs, "m", "", map[string]string{"a": "a", "b/c": "c"})
	name := func(what string) object.Hash {
		return object.Hash(gittest.Run(t, dir, "rev-parse", what))
	}
	tag := func(name string, of object.Hash) object.Hash {
		gittest.Run(t, dir, "tag", "-m", "m", name, string(of))
		return object.Hash(gittest.Run(t, dir, "rev-parse", "refs/tags/"+name))
	}
	none := object.Hash(strings.Repeat("1", 40))
	first := tag("first", commit)
	gittest.Run(t, dir, "update-ref", "refs/heads/main", string(commit))
	text := "object " + string(none) + "\ntype commit\ntag lost\ntagger A <a@example.org> 1700000000 +0000\n\nm\n"
	if err := os.WriteFile(filepath.Join(dir, "lost"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	lost := object.Hash(gittest.Run(t, dir, "hash-object", "-t", "tag", "--literally", "-w", "lost"))
	want := map[object.Hash]Kind{
		commit:                      {Kind: "commit"},
		name("main^{tree}"):         {Kind: "tree"},
		name("main:b"):              {Kind: "tree"},
		name("main:a"):              {Kind: "blob"},
		first:                       {Kind: "tag", Peeled: commit},
		tag("second", first):        {Kind: "tag", Peeled: commit},
		tag("text", name("main:a")): {Kind: "tag", Peeled: name("main:a")},
		lost:                        {Kind: "tag", Peeled: Missing},
		none:                        {Peeled: Missing},
	}
	var all []object.Hash
	for h := range want {
		all = append(all, h)
	}
	if len(all) <= kindsInProcess {
		t.Fatalf("%d objects are too few", len(all))
	}
	reader := &Reader{Dir: dir, Git: new(gitcmd.Runner), Packs: Files{Dir: filepath.Join(dir, Folder)}}
	defer reader.Close()
	for _, hashes := range [][]object.Hash{all, all[:4], all[4:], nil} {
		got, err := reader.Kinds(t.Context(), hashes)
		if err != nil || len(got) != len(hashes) {
			t.Fatalf("%d of %d, %v", len(got), len(hashes), err)
		}
		for _, h := range hashes {
			if got[h] != want[h] {
				t.Errorf("%s of %d: %+v, want %+v", h, len(hashes), got[h], want[h])
			}
		}
	}
}

// TestReadTree reads a folder, and refuses an object that is none.
func TestReadTree(t *testing.T) {
	dir, packs := newPacks(t)
	commit := writeCommit(t, packs, "m", "", map[string]string{"a": "a", "b/c": "c"})
	reader := &Reader{Dir: dir, Git: new(gitcmd.Runner), Packs: Files{Dir: filepath.Join(dir, Folder)}}
	defer reader.Close()
	tree, err := reader.TreeOf(t.Context(), commit)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := reader.ReadTree(t.Context(), tree)
	if err != nil || len(entries) != 2 || entries[0].Name != "a" || entries[1].Name != "b" {
		t.Errorf("%+v, %v", entries, err)
	}
	for _, e := range entries {
		if want := gittest.Run(t, dir, "rev-parse", string(commit)+":"+e.Name); string(e.Hash) != want {
			t.Errorf("%s is %s, want %s", e.Name, e.Hash, want)
		}
	}
	if _, err := reader.ReadTree(t.Context(), commit); !errors.Is(err, object.ErrInvalid) {
		t.Errorf("a commit is read as a folder: %v", err)
	}
}

// TestEntryHead reads the headers of deltas, whose bases are inside of the pack.
func TestEntryHead(t *testing.T) {
	const at = 200
	for back, good := range map[int]bool{0: false, 1: true, 127: true, at - HeaderLength: true, at - HeaderLength + 1: false,
		at: false} {
		b := &packtest.Builder{}
		b.Delta(back, []byte("\x05\x05"))
		in := readersAt.get(bytes.NewReader(b.Body.Bytes()), 0)
		kind, size, base, err := entryHead(in, nil, at)
		readersAt.put(in)
		if good && (err != nil || kind != typeOfsDelta || size != 2 || base != int64(at-back)) || !good && err == nil {
			t.Errorf("a base %d bytes before the delta: %d bytes of type %d with base %d, %v", back, size, kind, base, err)
		}
	}
	for kind, good := range map[byte]bool{0: false, TypeCommit: true, 2: true, 3: true, TypeTag: true, 5: false} {
		in := readersAt.get(bytes.NewReader(EntryHeader(kind, 300)), 0)
		got, size, _, err := entryHead(in, nil, at)
		readersAt.put(in)
		if (err == nil) != good || got != kind || size != 300 {
			t.Errorf("type %d: %d bytes of type %d, %v", kind, size, got, err)
		}
	}
}

// TestDeclaredSizes bounds the sum of the sizes that the objects of a pack declare, and estimates git's memory for it.
func TestDeclaredSizes(t *testing.T) {
	b := &packtest.Builder{}
	at := b.At()
	b.Object(3, 5, []byte("hello"))
	sizes := binary.AppendUvarint(binary.AppendUvarint(nil, 1<<29), 1<<29)
	b.Delta(b.At()-at, append(sizes, 0))
	huge := Limits{Bytes: 1 << 20, Objects: 10, Object: 1 << 40}
	if st, _, err := scan(b.Pack(), huge); err != nil || st.Declared != 1<<29+int64(len(sizes))+1+5 {
		t.Errorf("512 MiB: %+v, %v", st, err)
	}
	b.Delta(b.At()-at, append(sizes, 0))
	b.Delta(b.At()-at, append(sizes, 0))
	if st, _, err := scan(b.Pack(), huge); !errors.Is(err, object.ErrTooLarge) || !strings.Contains(err.Error(), "declare 1.5 GiB and more") {
		t.Errorf("1.5 GiB: %+v, %v", st, err)
	}
	for declared, more := range map[int64]int64{0: 0, 5: 5, 16 << 20: 16 << 20, 1 << 30: 16 << 20} {
		if got := (Stats{Declared: declared}).Memory() - (Stats{}).Memory(); got != more {
			t.Errorf("%d declared bytes need %d bytes more, want %d", declared, got, more)
		}
	}
}

// TestTapLimit reads up to a limit beyond the first buffer.
func TestTapLimit(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 5*tapBuffer/2/16)
	for _, limit := range []int{1, tapBuffer, tapBuffer + 1, 2 * tapBuffer, len(text) - 1, len(text), len(text) + 1} {
		var sink strings.Builder
		tap := NewTap(strings.NewReader(text), &sink, int64(limit))
		got, err := io.ReadAll(tap)
		want := text[:min(limit, len(text))]
		if string(got) != want || tap.Consumed() != int64(len(want)) {
			t.Errorf("limit %d: %d bytes, %d consumed, want %d", limit, len(got), tap.Consumed(), len(want))
		}
		if refused := errors.Is(err, object.ErrTooLarge); refused != (limit <= len(text)) || !refused && err != nil {
			t.Errorf("limit %d of %d: %v", limit, len(text), err)
		}
		if err := tap.Flush(); err != nil || sink.String() != want {
			t.Errorf("limit %d: %d bytes are stored, %v", limit, sink.Len(), err)
		}
	}
}
