package sealed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/internal/durable"
)

// MaxRecords is the number of records that a box may have.
const MaxRecords = 10_000

// Box is a folder of records. Its exported fields are its options and may be changed until Open. Methods are safe for
// concurrent use.
type Box struct {
	// Dir is the folder of the records. It is made if it is missing.
	Dir string
	// KeyFile has the key, in 32 bytes. It is made if it is missing and Dir has no record. While keys are rotated,
	// the next key is in KeyFile + ".next".
	KeyFile string
	// Key is a key of the configuration, in place of the one in KeyFile. Nil means that there is none.
	Key *Key
	// Earlier are further keys of the configuration. Open seals their records again with the present key.
	Earlier []Key
	// Now is the clock, of which the numbers of a new ledger are made. Nil means time.Now.
	Now func() time.Time

	// step is called after each step of a change of keys, for tests.
	step func(string)

	mu     sync.Mutex // held while files and keys are read or changed
	keys   []Key      // the first one seals
	ledger ledger
}

// Damage is a file that cannot be opened.
type Damage struct {
	// Head is that of the file, which is not authenticated. Only its ID is sure.
	Head Head
	Err  error
}

// Open reads the keys, and finishes a change of keys that did not end.
func (b *Box) Open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(); err != nil {
		return fmt.Errorf("cannot open %s: %w", b.Dir, err)
	}
	return nil
}

func (b *Box) open() error {
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		return err
	}
	ids, err := b.sweep()
	if err == nil {
		err = removeHalves(filepath.Dir(b.KeyFile))
	}
	if err != nil {
		return err
	}
	if len(ids) > MaxRecords {
		return fmt.Errorf("it has more than %d records", MaxRecords)
	}
	own, found, err := readKey(b.KeyFile)
	if err != nil {
		return err
	}
	next, rotating, err := readKey(b.nextFile())
	if err != nil {
		return err
	}
	switch {
	case b.Key != nil:
		b.keys = append([]Key{*b.Key}, b.Earlier...)
	case found:
	case len(ids) > 0 && !rotating && len(b.Earlier) == 0:
		return fmt.Errorf("it has %d records, but their key %s is missing; restore it from a backup, or remove the folder and store the credentials again", len(ids), b.KeyFile)
	case !rotating:
		own, found = NewKey(), true
		if err := writeKey(b.KeyFile, own); err != nil {
			return err
		}
	}
	if b.Key == nil && rotating {
		b.keys = append(b.keys, next)
	}
	if found {
		b.keys = append(b.keys, own)
	}
	if b.Key != nil && rotating {
		b.keys = append(b.keys, next)
	}
	b.keys = append(b.keys, b.Earlier...)
	if err := b.openLedger(ids); err != nil {
		return err
	}
	if err := b.sealAgain(ids); err != nil {
		return err
	}
	if b.Key == nil && rotating {
		return b.dropEarlier()
	}
	return nil
}

func (b *Box) nextFile() string { return b.KeyFile + ".next" }

func (b *Box) did(step string) {
	if b.step != nil {
		b.step(step)
	}
}

// sweep returns the ids of all records, and removes unfinished files of a killed process.
func (b *Box) sweep() (ids []string, err error) {
	entries, err := os.ReadDir(b.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if validID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, removeHalves(b.Dir)
}

// removeHalves removes the files that [durable.Replace] had not finished when the process was killed.
func removeHalves(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".new-") {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// sealAgain seals the records of earlier keys and the ledger with the first key. Damaged records stay as they are, and
// earlier files of records stay earlier.
func (b *Box) sealAgain(ids []string) error {
	first := b.keys[0].ID()
	for _, id := range ids {
		file, err := b.readFile(id)
		if err != nil {
			return err
		}
		h, _, _, err := parseHead(id, file)
		if err != nil || h.Key == first {
			continue
		}
		r, err := unseal(b.keys, id, file)
		if errors.Is(err, ErrDamaged) {
			continue
		}
		if err == nil {
			err = b.write(r)
		}
		if err != nil {
			return err
		}
		b.did("record")
	}
	return b.sealLedgerAgain()
}

// Rotate replaces the key of the box by a new one: it writes the next key, seals all records again, and then drops the
// earlier key. It returns the number of records. A process that is killed meanwhile leaves keys that open all records,
// and the next Open goes on. A record that is damaged stays damaged.
func (b *Box) Rotate() (int, error) {
	if b.Key != nil {
		return 0, errors.New("cannot replace the key: the configuration has it; set the new one as seal_key, the present one as seal_key_earlier, and start the server again")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.rotate()
	if err != nil {
		return n, fmt.Errorf("cannot replace the key of sealed records: %w", err)
	}
	return n, nil
}

func (b *Box) rotate() (int, error) {
	ids, err := b.sweep()
	if err != nil {
		return 0, err
	}
	next, going, err := readKey(b.nextFile()) // of a rotation that failed
	if err != nil {
		return 0, err
	}
	if !going {
		next = NewKey()
		b.did("begin")
		if err := writeKey(b.nextFile(), next); err != nil {
			return 0, err
		}
	}
	b.did("next key")
	b.keys = append([]Key{next}, slices.DeleteFunc(slices.Clone(b.keys), func(k Key) bool { return k == next })...)
	if err := b.sealAgain(ids); err != nil {
		return 0, err
	}
	return len(ids), b.dropEarlier()
}

// dropEarlier makes the next key the only one. All records that can be opened are sealed with it.
func (b *Box) dropEarlier() error {
	b.did("all records")
	if err := os.Rename(b.nextFile(), b.KeyFile); err != nil {
		return err
	}
	b.did("renamed")
	b.keys = append([]Key{b.keys[0]}, b.Earlier...)
	return durable.Folder(filepath.Dir(b.KeyFile))
}

// Keys returns the present keys, so that they can be removed from what a server keeps.
func (b *Box) Keys() []Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.keys)
}

func (b *Box) readFile(id string) ([]byte, error) {
	return readBounded(filepath.Join(b.Dir, id), maxRecord+1)
}

func (b *Box) write(r Record) error {
	file, err := seal(b.keys[0], r)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(b.Dir, r.ID), file, true)
}

// All returns the records that can be opened, and the damaged files, in the order of ids.
func (b *Box) All() (list []Record, bad []Damage, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids, err := b.sweep()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read %s: %w", b.Dir, err)
	}
	for _, id := range ids {
		r, err := b.read(id)
		if err != nil {
			bad = append(bad, Damage{b.claimed(id), err})
			continue
		}
		list = append(list, r)
	}
	return list, bad, nil
}

// Read returns a record as its file has it now. The error is [ErrDamaged] if the file is not the one that was written
// last, and [fs.ErrNotExist] if there is none.
func (b *Box) Read(id string) (Record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, err := b.read(id)
	if err != nil {
		return Record{}, fmt.Errorf("sealed record %.40s: %w", id, err)
	}
	return r, nil
}

func (b *Box) read(id string) (Record, error) {
	if !validID(id) {
		return Record{}, fs.ErrNotExist
	}
	file, err := b.readFile(id)
	if err == nil && len(file) > maxRecord {
		err = fmt.Errorf("%w: it is too large", ErrDamaged)
	}
	if err != nil {
		return Record{}, err
	}
	r, err := unseal(b.keys, id, file)
	if err == nil {
		err = b.check(r)
	}
	if err != nil {
		return Record{}, err
	}
	return r, nil
}

// Put writes a record, in place of the one with its id. An empty id makes a new one. The result has the id.
func (b *Box) Put(r Record) (Record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.ID == "" {
		r.ID = newID()
	}
	if !validID(r.ID) {
		return r, fmt.Errorf("cannot seal a record with the id %.40q", r.ID)
	}
	err := b.writeNext(&r)
	if err == nil {
		err = b.writeLedger()
	}
	if err != nil {
		return r, fmt.Errorf("cannot store a sealed record: %w", err)
	}
	r.Version, r.Key = version, b.keys[0].ID()
	return r, nil
}

// Remove removes a record, damaged or not. A missing one is no error.
func (b *Box) Remove(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !validID(id) {
		return nil
	}
	// The ledger is first, so that a file that a killed process leaves is refused.
	var err error
	if _, known := b.ledger.Records[id]; known {
		delete(b.ledger.Records, id)
		err = b.writeLedger()
	}
	gone := os.Remove(filepath.Join(b.Dir, id))
	if gone == nil {
		gone = durable.Folder(b.Dir)
	}
	if errors.Is(gone, fs.ErrNotExist) {
		gone = nil
	}
	if err := errors.Join(err, gone); err != nil {
		return fmt.Errorf("cannot remove a sealed record: %w", err)
	}
	return nil
}

// claimed returns the head of a damaged file, as far as it can be read.
func (b *Box) claimed(id string) Head {
	file, err := b.readFile(id)
	if err == nil {
		var h Head
		if h, _, _, err = parseHead(id, file); err == nil {
			return h
		}
	}
	return Head{ID: id}
}
