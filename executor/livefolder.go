package executor

import (
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/redact"
)

// liveFolder is DATA/live, which has the journals and the outputs of runs while they work.
type liveFolder struct {
	dir     string
	secrets *redact.Secrets // removed from journals
	// mu is held while a caller's folder is made with its first file, or removed after its last.
	mu sync.Mutex
}

// caller returns the folder of a caller's runs.
func (f *liveFolder) caller(c record.Caller) string { return filepath.Join(f.dir, c.Slug()) }

// journal returns the file of a run's journal.
func (f *liveFolder) journal(r record.Run) string {
	return filepath.Join(f.caller(r.Caller), r.ID+".jsonl")
}

// output returns the folder of a run's outputs.
func (f *liveFolder) output(r record.Run) string {
	return filepath.Join(f.caller(r.Caller), r.ID+".output")
}

// diff returns the file of a run's changes.
func (f *liveFolder) diff(r record.Run) string { return filepath.Join(f.output(r), "changes.diff") }

// openJournal opens a run's journal, or makes it.
func (f *liveFolder) openJournal(r record.Run) (*record.Journal, []record.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return record.OpenJournal(f.journal(r), f.secrets)
}

// remove removes a run's files.
func (f *liveFolder) remove(r record.Run) error {
	err := errors.Join(os.RemoveAll(f.output(r)), os.Remove(f.journal(r)))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = os.Remove(f.caller(r.Caller)) // only if it was the caller's last
	return err
}
