package sealed

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamagedRecordsFirst changes the key of all records after those that cannot be opened.
func TestDamagedRecordsFirst(t *testing.T) {
	b := box(t, t.TempDir())
	want := map[string]bool{} // whether the record is whole
	for i, letter := range "abcdef" {
		r := record("NAME", "the value")
		r.ID = strings.Repeat(string(letter), 26)
		put(t, b, r)
		want[r.ID] = i%3 == 2
		file := filepath.Join(b.Dir, r.ID)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		switch i % 3 {
		case 0:
			text[len(text)-1] ^= 1
		case 1:
			text[0] ^= 1
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := b.Rotate(); err != nil || n != len(want) {
		t.Fatalf("%d, %v", n, err)
	}
	for id, whole := range want {
		r, err := b.Read(id)
		if whole && (err != nil || r.Key != b.Keys()[0].ID()) || !whole && !errors.Is(err, ErrDamaged) {
			t.Errorf("%.1s: %+v, %v", id, r, err)
		}
	}
	if len(b.Keys()) != 1 {
		t.Errorf("%d keys are left", len(b.Keys()))
	}
}

// TestLargestRecord keeps a record of the largest head and content, and refuses one byte more of each.
func TestLargestRecord(t *testing.T) {
	b := box(t, t.TempDir())
	r := record("", "")
	// The next number has as many digits.
	r.ID, r.Version, r.Key, r.Serial = newID(), version, b.Keys()[0].ID(), put(t, b, record("ONE", "")).Serial
	head, err := json.Marshal(r.Head)
	if err != nil {
		t.Fatal(err)
	}
	r.Name, r.Content = strings.Repeat("N", maxHead-len(head)), bytes.Repeat([]byte("x"), MaxContent)
	put(t, b, r)
	if got, err := b.Read(r.ID); err != nil || got.Name != r.Name || !bytes.Equal(got.Content, r.Content) {
		t.Errorf("%d bytes, %v", len(got.Content), err)
	}
	if info, err := os.Stat(filepath.Join(b.Dir, r.ID)); err != nil || info.Size() != maxRecord {
		t.Errorf("%v, %v", info, err)
	}
	more := r
	more.Content = append(bytes.Clone(r.Content), 'x')
	if _, err := b.Put(more); err == nil {
		t.Error("a content of one byte more is sealed")
	}
	more = r
	more.Name += "N"
	if _, err := b.Put(more); err == nil {
		t.Error("a head of one byte more is sealed")
	}
	if got, err := b.Read(r.ID); err != nil || !bytes.Equal(got.Content, r.Content) {
		t.Errorf("after refusals: %d bytes, %v", len(got.Content), err)
	}
	for _, id := range []string{"", "..", strings.Repeat("a", 25), strings.Repeat("1", 26)} {
		if err := b.Remove(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
		if r := (Record{Head: Head{ID: id}}); id != "" {
			if _, err := b.Put(r); err == nil {
				t.Errorf("a record with the id %q is stored", id)
			}
		}
	}
}

// TestKeyFiles refuses keys of another length.
func TestKeyFiles(t *testing.T) {
	for n, good := range map[int]bool{0: false, KeyBytes - 1: false, KeyBytes: true, KeyBytes + 1: false} {
		for _, name := range []string{"seal.key", "seal.key.next"} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), make([]byte, n), 0o600); err != nil {
				t.Fatal(err)
			}
			b := &Box{Dir: filepath.Join(dir, "sealed"), KeyFile: filepath.Join(dir, "seal.key")}
			if err := b.Open(); (err == nil) != good || !good && !strings.Contains(err.Error(), "restore it from a backup") {
				t.Errorf("%s of %d bytes: %v", name, n, err)
			}
		}
	}
}
