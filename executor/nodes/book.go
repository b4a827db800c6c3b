package nodes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/durable"
)

const (
	maxEvents  = 200
	maxEntries = 1000     // nodes in the book
	maxBootLog = 64 << 10 // bytes that are kept of a boot log
	maxRecord  = 1 << 20  // bytes of a file of the book
	maxText    = 2000     // bytes of an event or an error
)

// entry is a node in the book.
type entry struct {
	Node
	History
	Bootstrap     string    `json:"bootstrap,omitempty"` // hash of the token; empty after its redemption
	BootstrapEnds time.Time `json:"bootstrap_ends,omitzero"`
	Callback      string    `json:"callback,omitempty"` // hash of the token of the machine
	// Invitation is the id of the machine's bootstrap token of the cluster, which is no secret.
	Invitation string `json:"invitation,omitempty"`
	// Noted is the health that the last event about it has.
	Noted Health `json:"noted,omitempty"`
	// Tries counts the attempts to remove the machine that failed. Again is the time of the next one.
	Tries int       `json:"tries,omitempty"`
	Again time.Time `json:"again,omitzero"`
}

// Pauses between attempts to remove a machine.
const (
	removeAgain    = 30 * time.Second // after the first one that failed, and doubled after each one
	removeAgainMax = 30 * time.Minute
)

// notRemoved notes that the machine could not be removed. The node counts until it is.
func (e *entry) notRemoved(now time.Time, err error) {
	if e.Tries == 0 {
		e.note(now, "leaked", "the cloud may still have the machine: "+err.Error())
	}
	e.Again = now.UTC().Add(min(removeAgain<<min(e.Tries, 10), removeAgainMax))
	e.Tries++
	e.State = StateStopping
}

// keepEnded is how long a node without a machine stays in the book.
const keepEnded = 30 * 24 * time.Hour

// ended returns the time since which a node has no machine. Returns false if it may have one.
func (e *entry) ended() (time.Time, bool) {
	if e.Live() {
		return time.Time{}, false
	}
	if len(e.Events) == 0 {
		return e.Created, true
	}
	return e.Events[len(e.Events)-1].At, true
}

// makeRoom takes the node out of the book that ended first, if the book is full. n.mu is held.
func (n *Nodes) makeRoom() error {
	if len(n.book) < maxEntries {
		return nil
	}
	oldest, since := "", time.Time{}
	for id, e := range n.book {
		if at, ok := e.ended(); ok && (oldest == "" || at.Before(since)) {
			oldest, since = id, at
		}
	}
	if oldest == "" {
		return fmt.Errorf("%w: the book has %d nodes; remove some", record.ErrConflict, len(n.book))
	}
	return n.strike(oldest)
}

// ageOut takes nodes out of the book that ended long ago.
func (n *Nodes) ageOut() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for id, e := range n.book {
		if at, ok := e.ended(); ok && n.Now().Sub(at) > keepEnded {
			errs = append(errs, n.strike(id))
		}
	}
	return errors.Join(errs...)
}

// strike takes a node out of the book. n.mu is held.
func (n *Nodes) strike(id string) error {
	if err := n.forget(id); err != nil {
		return fmt.Errorf("cannot remove node %s: %w", id, err)
	}
	delete(n.book, id)
	return nil
}

// note adds an event, and forgets the oldest one above the limit.
func (e *entry) note(at time.Time, kind, text string) {
	e.Events = append(e.Events, Event{At: at.UTC(), Kind: kind, Text: tail(text, maxText)})
	if more := len(e.Events) - maxEvents; more > 0 {
		e.Events = append([]Event(nil), e.Events[more:]...)
	}
}

// tail returns the last bytes of a text, in valid UTF-8.
func tail(s string, most int) string {
	if len(s) > most {
		s = s[len(s)-most:]
	}
	return strings.ToValidUTF8(s, "")
}

// readBook returns the entries of a folder, which is made if it is missing.
func readBook(dir string) (map[string]*entry, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	book := make(map[string]*entry)
	for _, name := range files {
		e, err := readEntry(name)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		book[e.ID] = e
	}
	return book, nil
}

func readEntry(name string) (*entry, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return nil, err
	}
	e := new(entry)
	if err := json.Unmarshal(b, e); err != nil {
		return nil, err
	}
	if e.ID == "" || filepath.Base(name) != e.ID+".json" {
		return nil, fmt.Errorf("%w: it is the file of another node", record.ErrDamaged)
	}
	e.Source = cmp.Or(e.Source, SourceCloud) // earlier versions had no other
	return e, nil
}

// keep writes an entry. It is on disk when keep returns.
func (n *Nodes) keep(e *entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(n.Dir, e.ID+".json"), b, true)
}

// forget removes an entry.
func (n *Nodes) forget(id string) error {
	err := os.Remove(filepath.Join(n.Dir, id+".json"))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, durable.Folder(n.Dir))
}
