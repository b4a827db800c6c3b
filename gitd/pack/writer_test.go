package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
)

// TestPackWriter has git itself list packs of random objects.
func TestPackWriter(t *testing.T) {
	ctx := t.Context()
	dir, packs := newPacks(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	all := map[object.Hash][]byte{}
	for round := range 5 {
		w := NewWriter(ctx, packs)
		objects := 0
		for range 1 + rnd.IntN(40)*round {
			data := make([]byte, rnd.IntN(2000))
			if rnd.IntN(10) == 0 {
				data = make([]byte, 300_000)
			}
			for i := range data {
				data[i] = byte(rnd.IntN(1 + rnd.IntN(256)))
			}
			var h object.Hash
			var err error
			if rnd.IntN(2) == 0 {
				h, err = w.Add("blob", data)
			} else {
				h, err = w.Stream("blob", int64(len(data)), io.MultiReader(bytes.NewReader(data), strings.NewReader("more")))
			}
			if err != nil {
				t.Fatal(err)
			}
			if again, err := w.Stream("blob", int64(len(data)), bytes.NewReader(data)); again != h || err != nil {
				t.Fatalf("the same again is %s instead of %s, %v", again, h, err)
			}
			// A failed write leaves no trace.
			if _, err := w.Stream("blob", int64(len(data))+1, bytes.NewReader(data)); !errors.Is(err, object.ErrConflict) {
				t.Fatalf("a file that shrank: %v", err)
			}
			if _, ok := all[h]; !ok {
				objects++
			}
			all[h] = data
		}
		p, err := w.Place()
		if err != nil {
			t.Fatal(err)
		}
		w.Drop() // does nothing
		gittest.Run(t, dir, "verify-pack", "objects/pack/pack-"+p.Name+".idx")
		// Git makes the same index of it.
		mine, err := io.ReadAll(p.Index)
		if err != nil {
			t.Fatal(err)
		}
		his := filepath.Join(t.TempDir(), "idx")
		gittest.Run(t, dir, "index-pack", "-o", his, "--strict", filepath.Join(dir, Folder, "pack-"+p.Name+".pack"))
		if want, err := os.ReadFile(his); err != nil || !bytes.Equal(mine, want) {
			t.Errorf("git's index of it is another one: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	reader := &Reader{Dir: dir, Git: new(gitcmd.Runner)}
	reader.Packs.Dir = packs.Dir
	defer reader.Close()
	for h, data := range all {
		if obj, _, err := reader.Small(ctx, h); err != nil || !bytes.Equal(obj.Data, data) {
			t.Fatalf("object %s is not what was written: %v", h, err)
		}
	}
	gittest.Run(t, dir, "fsck", "--strict")
}

// TestPackWriterLeavesNothing ends packs without finishing them.
func TestPackWriterLeavesNothing(t *testing.T) {
	dir, packs := newPacks(t)
	w := NewWriter(t.Context(), packs)
	if p, err := w.Place(); p != nil || err != nil {
		t.Errorf("an empty pack: %v, %v", p, err)
	}
	for i := range 3 {
		if _, err := w.Add("blob", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Add("house", nil); !errors.Is(err, object.ErrInvalid) {
		t.Errorf("an object of no kind: %v", err)
	}
	w.Drop()
	if left, err := os.ReadDir(filepath.Join(dir, Folder)); err != nil || len(left) > 0 {
		t.Errorf("still there: %v, %v", left, err)
	}
}

// newPacks returns a new bare repository and its packs.
func newPacks(t *testing.T) (dir string, packs *Files) {
	t.Helper()
	dir = t.TempDir()
	gittest.Run(t, dir, "init", "-q", "--bare")
	packs = &Files{Dir: filepath.Join(dir, Folder)}
	t.Cleanup(packs.Close)
	return dir, packs
}

// writeCommit writes a commit with files and folders of one level in a pack of its own.
func writeCommit(t *testing.T, packs *Files, message string, parent object.Hash, files map[string]string) object.Hash {
	t.Helper()
	w := NewWriter(t.Context(), packs)
	defer w.Drop()
	add := func(kind string, data []byte) object.Hash {
		h, err := w.AddNew(kind, data)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	tree := func(entries []object.Entry) object.Hash {
		data, err := object.EncodeTree(entries)
		if err != nil {
			t.Fatal(err)
		}
		return add("tree", data)
	}
	folders := map[string][]object.Entry{}
	for path, content := range files {
		dir, name := filepath.Split(path)
		folders[dir] = append(folders[dir],
			object.Entry{Name: name, Mode: object.ModeFile, Hash: add("blob", []byte(content))})
	}
	root := folders[""]
	for dir, entries := range folders {
		if dir != "" {
			root = append(root, object.Entry{Name: strings.TrimSuffix(dir, "/"), Mode: object.ModeFolder,
				Hash: tree(entries)})
		}
	}
	text := "tree " + string(tree(root)) + "\n"
	if parent != "" {
		text += "parent " + string(parent) + "\n"
	}
	const who = "A <a@example.org> 1700000000 +0000\n"
	commit := add("commit", []byte(text+"author "+who+"committer "+who+"\n"+message+"\n"))
	p, err := w.Place()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return commit
}
