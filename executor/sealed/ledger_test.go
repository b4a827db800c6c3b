package sealed

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// content returns the bytes of a file.
func content(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// place writes a file in the way of somebody with access to the folder.
func place(t testing.TB, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// refuses checks that a record is refused with a text, by the box that is open and by one that is opened later.
func refuses(t *testing.T, dir string, b *Box, id, says string) {
	t.Helper()
	for _, b := range []*Box{b, box(t, dir)} {
		r, err := b.Read(id)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), says) || r.Content != nil {
			t.Errorf("%q, %v, want %q", r.Content, err, says)
		}
		if _, bad, err := b.All(); err != nil || len(bad) != 1 || bad[0].Head.ID != id {
			t.Errorf("%+v, %v", bad, err)
		}
	}
}

// TestEarlierFile puts an earlier file of a record back, and the file of a record that was removed.
func TestEarlierFile(t *testing.T) {
	dir := t.TempDir()
	b := box(t, dir)
	one, other := put(t, b, record("ONE", "the revoked value")), put(t, b, record("TWO", "the value of two"))
	file := filepath.Join(b.Dir, one.ID)
	earlier := content(t, file)
	one.Content = []byte("the present value")
	one = put(t, b, one)

	place(t, file, earlier)
	refuses(t, dir, b, one.ID, "an earlier file")
	// A change of keys does not make it the last one.
	if _, err := b.Rotate(); err != nil {
		t.Fatal(err)
	}
	refuses(t, dir, b, one.ID, "an earlier file")
	if r, err := b.Read(other.ID); err != nil || string(r.Content) != "the value of two" {
		t.Errorf("%+v, %v", r, err)
	}
	put(t, b, one)
	if r, err := box(t, dir).Read(one.ID); err != nil || string(r.Content) != "the present value" {
		t.Errorf("stored again: %+v, %v", r, err)
	}

	last := content(t, file)
	if err := b.Remove(one.ID); err != nil {
		t.Fatal(err)
	}
	place(t, file, last)
	refuses(t, dir, b, one.ID, "it was removed")
	if err := b.Remove(one.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(one.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed again: %v", err)
	}
}

// TestLedgerOfBackup opens a folder whose ledger was copied first, while records were written, and one that was
// restored as a whole.
func TestLedgerOfBackup(t *testing.T) {
	dir := t.TempDir()
	b := box(t, dir)
	one := put(t, b, record("ONE", "the first value"))
	ledger, file := content(t, b.ledgerFile()), content(t, filepath.Join(b.Dir, one.ID))
	one.Content = []byte("the second value")
	one = put(t, b, one)
	two := put(t, b, record("TWO", "the value of two"))
	place(t, b.ledgerFile(), ledger)
	b = box(t, dir)
	for id, want := range map[string]string{one.ID: "the second value", two.ID: "the value of two"} {
		if r, err := b.Read(id); err != nil || string(r.Content) != want {
			t.Errorf("newer than the ledger: %+v, %v", r, err)
		}
	}
	// It enters them, so that they are not taken for earlier files after the next write.
	three := put(t, b, record("THREE", "the value of three"))
	for _, b := range []*Box{b, box(t, dir)} {
		if list, bad, err := b.All(); err != nil || len(list) != 3 || len(bad) != 0 {
			t.Errorf("after a write: %v, %v, %v", list, bad, err)
		}
	}
	place(t, filepath.Join(b.Dir, one.ID), file)
	refuses(t, dir, b, one.ID, "an earlier file")
	if err := b.Remove(three.ID); err != nil {
		t.Fatal(err)
	}
	place(t, b.ledgerFile(), ledger)
	if err := os.Remove(filepath.Join(b.Dir, two.ID)); err != nil {
		t.Fatal(err)
	}
	if r, err := box(t, dir).Read(one.ID); err != nil || string(r.Content) != "the first value" {
		t.Errorf("restored as a whole: %+v, %v", r, err)
	}
}

// TestLostLedger refuses all records without their ledger, until they are stored again.
func TestLostLedger(t *testing.T) {
	for name, harm := range map[string]func(file string) error{
		"missing": os.Remove,
		"cut":     func(file string) error { return os.Truncate(file, 40) },
		"empty":   func(file string) error { return os.Truncate(file, 0) },
		"forged": func(file string) error {
			forged, err := encrypt(NewKey(), Record{Head: Head{ID: ledgerID, Kind: ledgerID},
				Content: []byte(`{"high":0,"records":{}}`)})
			return errors.Join(err, os.WriteFile(file, forged, 0o600))
		},
		"a record": func(file string) error {
			records, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(file)), "sealed", "*"))
			if err != nil || len(records) == 0 {
				return errors.Join(err, fs.ErrNotExist)
			}
			text, err := os.ReadFile(records[0])
			return errors.Join(err, os.WriteFile(file, text, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := box(t, dir)
			one, two := put(t, b, record("ONE", "the value of one")), put(t, b, record("TWO", "the value of two"))
			if err := harm(b.ledgerFile()); err != nil {
				t.Fatal(err)
			}
			b = box(t, dir)
			for _, r := range []Record{one, two} {
				if _, err := b.Read(r.ID); !errors.Is(err, ErrDamaged) ||
					!strings.Contains(err.Error(), "which would confirm it, ") {
					t.Errorf("%v", err)
				}
			}
			one = put(t, b, one)
			if r, err := box(t, dir).Read(one.ID); err != nil || !bytes.Equal(r.Content, one.Content) {
				t.Errorf("stored again: %+v, %v", r, err)
			}
			refuses(t, dir, b, two.ID, "it was removed")
			if err := b.Remove(two.ID); err != nil {
				t.Fatal(err)
			}
			if list, bad, err := box(t, dir).All(); err != nil || len(list) != 1 || len(bad) != 0 {
				t.Errorf("%v, %v, %v", list, bad, err)
			}
		})
	}
}

// TestKilledWrites opens a box after a process was killed between the writes of a record and its ledger, or between
// those of a ledger and the end of a removal.
func TestKilledWrites(t *testing.T) {
	dir := t.TempDir()
	b := box(t, dir)
	one := put(t, b, record("ONE", "the first value"))
	earlier, ledger := content(t, filepath.Join(b.Dir, one.ID)), content(t, b.ledgerFile())
	one.Content = []byte("the second value")
	put(t, b, one)
	place(t, b.ledgerFile(), ledger)
	b = box(t, dir)
	if r, err := b.Read(one.ID); err != nil || string(r.Content) != "the second value" {
		t.Errorf("%+v, %v", r, err)
	}
	last := content(t, filepath.Join(b.Dir, one.ID))
	place(t, filepath.Join(b.Dir, one.ID), earlier)
	refuses(t, dir, b, one.ID, "an earlier file")

	if err := b.Remove(one.ID); err != nil {
		t.Fatal(err)
	}
	place(t, filepath.Join(b.Dir, one.ID), last)
	refuses(t, dir, b, one.ID, "it was removed")
}

// TestFailedLedger checks that a number of a failed write is not given again, and that a record is removed although its
// ledger cannot be written.
func TestFailedLedger(t *testing.T) {
	dir := t.TempDir()
	b := box(t, dir)
	one := put(t, b, record("ONE", "the first value"))
	folder := filepath.Dir(b.ledgerFile())
	if err := os.Rename(folder, folder+".kept"); err != nil {
		t.Fatal(err)
	}
	place(t, folder, nil) // not a folder
	one.Content = []byte("the second value")
	if _, err := b.Put(one); err == nil || !strings.Contains(err.Error(), "ledger") {
		t.Errorf("stored without its ledger: %v", err)
	}
	if r, err := b.Read(one.ID); err != nil || string(r.Content) != "the second value" || r.Serial != one.Serial+1 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := b.Remove(one.ID); err == nil || !strings.Contains(err.Error(), "ledger") {
		t.Errorf("removed without its ledger: %v", err)
	}
	if _, err := b.Read(one.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a failed removal: %v", err)
	}
	if err := errors.Join(os.Remove(folder), os.Rename(folder+".kept", folder)); err != nil {
		t.Fatal(err)
	}
	first := one.Serial
	one.Content = []byte("the third value")
	if one = put(t, b, one); one.Serial != first+2 {
		t.Errorf("the number %d is given after %d", one.Serial, first)
	}
	if r, err := box(t, dir).Read(one.ID); err != nil || string(r.Content) != "the third value" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestFirstLedger opens a box from before there were ledgers.
func TestFirstLedger(t *testing.T) {
	dir := t.TempDir()
	b := box(t, dir)
	one := record("ONE", "the value of one")
	one.ID = newID()
	if err := b.write(one); err != nil { // without a serial number
		t.Fatal(err)
	}
	earlier := content(t, filepath.Join(b.Dir, one.ID))
	if err := os.Remove(b.ledgerFile()); err != nil {
		t.Fatal(err)
	}
	b = box(t, dir)
	if r, err := b.Read(one.ID); err != nil || string(r.Content) != "the value of one" || r.Serial == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	place(t, filepath.Join(b.Dir, one.ID), earlier)
	refuses(t, dir, b, one.ID, "an earlier file")
}

// TestRemovedWithoutLedger puts the file of a removed record back after the ledger was lost.
func TestRemovedWithoutLedger(t *testing.T) {
	dir := t.TempDir()
	b := box(t, dir)
	one, gone := put(t, b, record("ONE", "the value of one")), put(t, b, record("TWO", "the revoked value"))
	file := filepath.Join(b.Dir, gone.ID)
	earlier := content(t, file)
	lose := func() {
		t.Helper()
		if err := errors.Join(b.Remove(gone.ID), os.Remove(b.ledgerFile())); err != nil {
			t.Fatal(err)
		}
		b = box(t, dir)
		place(t, file, earlier)
	}
	lose()
	if r, err := b.Read(gone.ID); !errors.Is(err, ErrDamaged) ||
		!strings.Contains(err.Error(), "which would confirm it, is missing") {
		t.Errorf("%+v, %v", r, err)
	}
	// The next ledger does not take its number for a newer one.
	put(t, b, one)
	refuses(t, dir, b, gone.ID, "it was removed")

	// Nor does the ledger of a box that has nothing.
	if err := b.Remove(one.ID); err != nil {
		t.Fatal(err)
	}
	lose()
	refuses(t, dir, b, gone.ID, "it was removed")
}

// TestClockOfLedgers begins a ledger after a lost one at the time of the clock.
func TestClockOfLedgers(t *testing.T) {
	dir := t.TempDir()
	for i, now := range []time.Time{time.Unix(1, 5), time.Unix(2, 0), time.Unix(-1, 0)} {
		b := &Box{Dir: filepath.Join(dir, "sealed"), KeyFile: filepath.Join(dir, "keys", "seal.key"),
			Now: func() time.Time { return now }}
		if err := b.Open(); err != nil {
			t.Fatal(err)
		}
		r := put(t, b, record("ONE", "the value of one"))
		if want := []uint64{1_000_000_006, 2_000_000_001, 1}[i]; r.Serial != want {
			t.Errorf("at %v: the number %d, want %d", now, r.Serial, want)
		}
		if err := errors.Join(b.Remove(r.ID), os.Remove(b.ledgerFile())); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKilledFirstLedger opens a box after a process was killed before it gave numbers to all records.
func TestKilledFirstLedger(t *testing.T) {
	dir := t.TempDir()
	b := box(t, dir)
	one, two := record("ONE", "the value of one"), record("TWO", "the value of two")
	one.ID, two.ID = newID(), newID()
	b.ledger.Records = map[string]uint64{one.ID: 0, two.ID: 0}
	if err := errors.Join(b.write(one), b.write(two), b.writeLedger()); err != nil {
		t.Fatal(err)
	}
	earlier := content(t, filepath.Join(b.Dir, two.ID))
	if err := b.writeNext(&one); err != nil {
		t.Fatal(err)
	}
	b = box(t, dir)
	seen := map[uint64]bool{0: true}
	for _, want := range []Record{one, two} {
		r, err := b.Read(want.ID)
		if err != nil || !bytes.Equal(r.Content, want.Content) || seen[r.Serial] {
			t.Errorf("%+v, %v", r, err)
		}
		seen[r.Serial] = true
	}
	place(t, filepath.Join(b.Dir, two.ID), earlier)
	refuses(t, dir, b, two.ID, "an earlier file")
}

// TestContentOfLedger refuses ledgers that are sealed by a key of the box and have another content.
func TestContentOfLedger(t *testing.T) {
	b := box(t, t.TempDir())
	put(t, b, record("ONE", "a value"))
	for content, good := range map[string]bool{
		`{"records":{"A":1},"high":1}`: true,
		`{"records":null}`:             false,
		`{"records":{"A":"one"}}`:      false,
		`no JSON`:                      false,
	} {
		file, err := encrypt(b.keys[0], Record{Head: Head{ID: ledgerID, Kind: ledgerID}, Content: []byte(content)})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.parseLedger(file); (err == nil) != good || !good && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", content, err)
		}
	}
}

// TestShortFile refuses a file that ends in its nonce or after it.
func TestShortFile(t *testing.T) {
	b := box(t, t.TempDir())
	one := put(t, b, record("ONE", "a value"))
	file := content(t, filepath.Join(b.Dir, one.ID))
	_, _, rest, err := parseHead(one.ID, file)
	if err != nil {
		t.Fatal(err)
	}
	nonce := len(file) - len(rest) + b.keys[0].aead().NonceSize()
	for n, says := range map[int]string{nonce - 1: "not whole", nonce: "changed", len(file) - 1: "changed"} {
		if _, err := unseal(b.keys, one.ID, file[:n]); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), says) {
			t.Errorf("%d of %d bytes: %v, want %q", n, len(file), err, says)
		}
	}
}
