package live

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Folder is DATA/live, which has the journals and the outputs of runs while they work. Its methods are safe for
// concurrent use.
type Folder struct {
	Dir string
	// Secrets are removed from journals and outputs. Nil means that there are none.
	Secrets *redact.Secrets
	Now     func() time.Time

	watchers watchers
	// mu is held while a caller's folder is made with its first file, or removed after its last.
	mu sync.Mutex
}

// caller returns the folder of a caller's runs.
func (f *Folder) caller(c record.Caller) string { return filepath.Join(f.Dir, c.Slug()) }

// Journal returns the file of a run's journal.
func (f *Folder) Journal(r record.Run) string {
	return filepath.Join(f.caller(r.Caller), r.ID+".jsonl")
}

// Output returns the folder of a run's outputs.
func (f *Folder) Output(r record.Run) string {
	return filepath.Join(f.caller(r.Caller), r.ID+".output")
}

// Diff returns the file of a run's changes.
func (f *Folder) Diff(r record.Run) string { return filepath.Join(f.Output(r), "changes.diff") }

// OpenJournal opens a run's journal, or makes it.
func (f *Folder) OpenJournal(r record.Run) (*record.Journal, []record.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return record.OpenJournal(f.Journal(r), f.Secrets)
}

// Remove removes a run's files.
func (f *Folder) Remove(r record.Run) error {
	err := errors.Join(os.RemoveAll(f.Output(r)), os.Remove(f.Journal(r)))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = os.Remove(f.caller(r.Caller)) // only if it was the caller's last
	return err
}
