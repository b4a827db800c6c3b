package sealed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ramus-dev/ramus/internal/durable"
)

// ledgerID is the id in the head of the ledger. No record can have it.
const ledgerID = "ledger"

// maxLedger bounds the file of the ledger, in bytes. A record takes less than 64.
const maxLedger = maxHead + 64*MaxRecords

// ledger has the serial numbers of the last writes. It is sealed, too, and is in another folder than the records.
// Without it, an earlier file of a record would be as authentic as the last one.
type ledger struct {
	// High is the highest serial number that was given.
	High uint64 `json:"high"`
	// Records are the serial numbers by the ids of records.
	Records map[string]uint64 `json:"records"`

	// lost describes, after the name of the file, why it cannot be used. Empty means that it can.
	lost string
	// key is the id of the key that sealed the file.
	key string
}

// ledgerFile returns the name of the ledger's file. It sorts before the records, so that a copy of the data folder
// which is made during writes has no record older than its ledger.
func (b *Box) ledgerFile() string {
	return filepath.Join(filepath.Dir(b.Dir), "ledger", filepath.Base(b.Dir))
}

// openLedger reads the ledger. The keys are known.
func (b *Box) openLedger(ids []string) error {
	if err := removeHalves(filepath.Dir(b.ledgerFile())); err != nil {
		return err
	}
	b.ledger = ledger{Records: map[string]uint64{}}
	file, err := readBounded(b.ledgerFile(), maxLedger)
	switch {
	case err == nil:
		if err = b.parseLedger(file); err == nil {
			return b.takeNewer(ids)
		}
		b.ledger.lost = "cannot be used: " + err.Error()
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cannot read the ledger of sealed records: %w", err)
	}
	numbered, err := b.highest(ids)
	b.ledger.High = max(b.ledger.High, b.floor())
	switch {
	case err != nil:
		return err
	case len(ids) == 0:
		b.ledger.lost = "" // there is nothing to confirm
		return b.writeLedger()
	case b.ledger.lost == "" && !numbered:
		return b.beginLedger(ids)
	case b.ledger.lost == "":
		b.ledger.lost = "is missing"
	}
	return nil
}

// parseLedger takes over the content of the ledger's file.
func (b *Box) parseLedger(file []byte) error {
	r, err := unseal(b.keys, ledgerID, file)
	if err != nil {
		return err
	}
	l := ledger{Records: map[string]uint64{}, key: r.Key}
	if err := json.Unmarshal(r.Content, &l); err != nil || l.Records == nil {
		return fmt.Errorf("%w: its content is not that of a ledger", ErrDamaged)
	}
	b.ledger = l
	return nil
}

// takeNewer enters the records that are newer than the ledger. A process that was killed between the two writes leaves
// such records, and a backup that was made during writes has them. It goes on where a process was killed in
// beginLedger.
func (b *Box) takeNewer(ids []string) error {
	had := b.ledger.High
	var without []string
	for _, id := range ids {
		file, err := b.readFile(id)
		if err != nil {
			return err
		}
		r, err := unseal(b.keys, id, file)
		last, known := b.ledger.Records[id]
		switch {
		case errors.Is(err, ErrDamaged):
		case err != nil:
			return err
		case r.Serial > had:
			b.ledger.Records[id], b.ledger.High = r.Serial, max(b.ledger.High, r.Serial)
		case known && last == 0:
			without = append(without, id)
		}
	}
	if err := b.number(without); err != nil {
		return err
	}
	if b.ledger.High == had {
		return nil
	}
	return b.writeLedger()
}

// floor returns the number after which those of a new ledger begin. It is the time in nanoseconds, and therefore higher
// than the numbers of earlier ledgers, whose records may have been removed.
func (b *Box) floor() uint64 {
	now := b.Now
	if now == nil {
		now = time.Now
	}
	return uint64(max(0, now().UnixNano()))
}

// highest raises the highest serial number to that of the records, and reports whether any has one.
func (b *Box) highest(ids []string) (numbered bool, err error) {
	for _, id := range ids {
		file, err := b.readFile(id)
		if err != nil {
			return numbered, err
		}
		if r, err := unseal(b.keys, id, file); err == nil {
			b.ledger.High = max(b.ledger.High, r.Serial)
			numbered = numbered || r.Serial > 0
		}
	}
	return numbered, nil
}

// beginLedger gives serial numbers to the records of a box that had no ledger. The next Open goes on after a process
// that is killed meanwhile.
func (b *Box) beginLedger(ids []string) error {
	for _, id := range ids {
		b.ledger.Records[id] = 0
	}
	if err := b.writeLedger(); err != nil {
		return err
	}
	if err := b.number(ids); err != nil {
		return err
	}
	return b.writeLedger()
}

// number gives serial numbers to records. Damaged ones stay as they are.
func (b *Box) number(ids []string) error {
	for _, id := range ids {
		file, err := b.readFile(id)
		if err != nil {
			return err
		}
		r, err := unseal(b.keys, id, file)
		if errors.Is(err, ErrDamaged) {
			continue
		}
		if err == nil {
			err = b.writeNext(&r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeNext writes a record with the next serial number. The ledger on disk does not have it yet, and the next Open
// enters it because it is newer. A number is given once, even if the write fails.
func (b *Box) writeNext(r *Record) error {
	if _, known := b.ledger.Records[r.ID]; !known && len(b.ledger.Records) >= MaxRecords {
		return fmt.Errorf("there are %d records already", MaxRecords)
	}
	b.ledger.High++
	r.Serial = b.ledger.High
	if err := b.write(*r); err != nil {
		return err
	}
	b.ledger.Records[r.ID] = r.Serial
	return nil
}

// writeLedger writes the ledger with the first key, durably.
func (b *Box) writeLedger() error {
	text, err := json.Marshal(b.ledger)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(b.ledgerFile()), 0o700)
	}
	if err != nil {
		return err
	}
	file, err := encrypt(b.keys[0], Record{Head: Head{ID: ledgerID, Kind: ledgerID}, Content: text})
	if err == nil {
		err = durable.Replace(b.ledgerFile(), file, true)
	}
	if err != nil {
		return fmt.Errorf("cannot write the ledger of sealed records: %w", err)
	}
	b.ledger.lost, b.ledger.key = "", b.keys[0].ID()
	return nil
}

// sealLedgerAgain seals the ledger with the first key, if an earlier one sealed it.
func (b *Box) sealLedgerAgain() error {
	if b.ledger.lost != "" || b.ledger.key == b.keys[0].ID() {
		return nil
	}
	return b.writeLedger()
}

// check returns the error of a record that is not the last one written under its id.
func (b *Box) check(r Record) error {
	last, known := b.ledger.Records[r.ID]
	switch {
	case known && r.Serial >= last:
		return nil
	case known:
		return fmt.Errorf("%w: it is an earlier file of the record, such as one of a backup", ErrDamaged)
	case b.ledger.lost != "":
		return fmt.Errorf("%w: DATA/ledger/%s, which would confirm it, %s", ErrDamaged, filepath.Base(b.Dir),
			b.ledger.lost)
	}
	return fmt.Errorf("%w: it was removed, or stored before its ledger was lost", ErrDamaged)
}

// readBounded reads a file of most bytes.
func readBounded(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
