package browse

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// maxSize bounds the checks of one run together. Each is bounded by itself, but a workflow may do them in a loop, and the run's manifest has to
// be read again.
var maxSize = size{checks: 1000, files: 20_000, evidence: 4 << 30, data: 64 << 20}

// size is the size of a run's checks together.
type size struct {
	checks, files  int
	evidence, data int64 // bytes of the files, and of the checks in the journal
}

func (b *size) add(c browser.Check) {
	b.checks++
	b.files += len(c.Files)
	for _, f := range c.Files {
		b.evidence += f.Size
	}
	b.data += int64(len(record.Marshal(c)))
}

// full reports whether there is no room for another check.
func (b size) full() bool {
	return b.checks >= maxSize.checks || b.files >= maxSize.files || b.evidence >= maxSize.evidence || b.data >= maxSize.data
}

// Run is the checks of one run, of which several may be at work at once.
type Run struct {
	// Output is the folder of the run's outputs.
	Output string
	// Journal returns the events of the run, and Emit journals one more.
	Journal func() []record.Event
	Emit    func(record.Event) error

	mu     sync.Mutex // guards all below, and the folder's index.json
	opened bool       // files that an earlier process left half way were removed
	last   int        // number of the newest check
	kept   size
}

// folder returns where the run's checks are kept.
func (r *Run) folder() string { return filepath.Join(r.Output, "artifacts", record.BrowserFolder) }

// place is where a check's files are.
type place struct {
	part  string // folder where they are gathered, removed at the end
	name  string // of the folder where they are kept, below BrowserFolder: "001-todo"
	final string // that folder
}

// open gives a check its number and its folders.
func (r *Run) open(spec browser.Spec) (number int, p place, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.opened {
		if err := r.resumeLocked(); err != nil {
			return 0, p, err
		}
		r.opened = true
	}
	if r.kept.full() {
		return 0, p, fmt.Errorf("%w: the run's checks by a browser have come to %d, with %d files of %d MiB, and no more are kept; do the others in another run",
			tasks.ErrParams, r.kept.checks, r.kept.files, r.kept.evidence>>20)
	}
	r.last++
	p.name = fmt.Sprintf("%03d-%s", r.last, spec.Slug())
	// Not below artifacts/, since everything there is sealed with the run.
	p.part, p.final = filepath.Join(r.Output, fmt.Sprintf("browser-%03d.part", r.last)), filepath.Join(r.folder(), p.name)
	return r.last, p, errors.Join(os.RemoveAll(p.part), os.MkdirAll(filepath.Join(p.part, keptFolder), 0o700),
		os.MkdirAll(r.folder(), 0o700))
}

// resumeLocked counts the checks of an earlier process, and removes files that it left half way. Their step begins again. mu is held.
func (r *Run) resumeLocked() error {
	known := make(map[string]bool)
	for _, c := range record.BrowserChecks(r.Journal()) {
		known[c.Dir] = true
		r.kept.add(c)
		digits, _, _ := strings.Cut(c.Dir, "-")
		n, _ := strconv.Atoi(digits) // a name of ours
		r.last = max(r.last, n)
	}
	left, err := os.ReadDir(r.folder())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range left {
		if e.IsDir() && !known[e.Name()] {
			if err := os.RemoveAll(filepath.Join(r.folder(), e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// add journals a check, and writes the run's index of checks again.
func (r *Run) add(step string, c browser.Check) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ok := c.Verdict == browser.Pass
	if err := r.Emit(record.Event{Type: record.EventBrowser, Step: step, Message: c.Name, OK: &ok,
		Reason: string(c.Verdict), Commit: gitd.Hash(c.Commit),
		DurationMS: c.DurationMS, Data: record.Marshal(c)}); err != nil {
		return err
	}
	r.kept.add(c)
	text, err := json.MarshalIndent(browser.Index{Schema: 1, Checks: record.BrowserChecks(r.Journal())}, "", "  ")
	if err != nil {
		return err
	}
	name := filepath.Join(r.folder(), "index.json")
	if err := os.WriteFile(name+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}
