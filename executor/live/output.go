package live

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// Of a command's output the journal holds the last journalTail bytes, and a step's result, which templates and
// conditions see, the last ResultTail. A file has everything.
const (
	journalTail = 2 << 10
	// ResultTail is in bytes.
	ResultTail = 256 << 10
)

// Outputs are the two streams of a step, on their way to files, to the request that waits for them, and to followers of the run.
type Outputs struct {
	Stdout, Stderr *Capture
	saved          chan error // nil if save was not called
}

// Capture is one stream of a step.
type Capture struct {
	l    *Run
	step string
	// Stream is "stdout" or "stderr".
	Stream string
	seq    int64 // of the step's beginning
	file   *os.File
	copy   io.Writer // may be nil; an error ends the copying, not the command
	tail   text.Tail // for new followers; written below Run.mu; read below it, or after the last output
	part   []byte    // the end of tail that followers have not got, because the end of its rune is missing; below Run.mu

	mu    sync.Mutex     // guards all below while the command prints
	clean *redact.Writer // takes secrets out on the way to all of these
	idle  *time.Timer    // nil if nothing waits to be released
	got   int64          // bytes that were written, secrets and all
	known int64          // bytes without secrets that follow and are in the file already, see again
	total int64          // as the runner counted; if more than arrived here, the output is truncated
}

// OpenOutputs makes the files of a step's streams, named by the sequence number of its beginning.
func (l *Run) OpenOutputs(step string, seq int64, keep bool) (*Outputs, error) {
	dir := l.folder.Output(l.Initial)
	name := fmt.Sprintf("%04d-%s", seq, record.FileName(step))
	open := func(stream string, copy io.Writer) (*Capture, error) {
		mode := os.O_RDWR | os.O_CREATE | os.O_TRUNC
		if keep {
			mode = os.O_RDWR | os.O_CREATE
		}
		f, err := os.OpenFile(filepath.Join(dir, name+"."+stream), mode, 0o600)
		if err != nil {
			return nil, fmt.Errorf("cannot keep the output: %w", err)
		}
		c := &Capture{l: l, step: step, Stream: stream, seq: seq, file: f, copy: copy, tail: text.Tail{Limit: ResultTail}}
		c.clean = l.folder.Secrets.Writer(kept{c})
		if keep {
			if _, err := io.Copy(&c.tail, f); err != nil {
				f.Close()
				return nil, fmt.Errorf("cannot read the output: %w", err)
			}
			c.got = c.tail.Total()
		}
		return c, nil
	}
	stdout, err := open("stdout", l.Stdout)
	if err != nil {
		return nil, err
	}
	stderr, err := open("stderr", l.Stderr)
	if err != nil {
		stdout.file.Close()
		return nil, err
	}
	o := &Outputs{Stdout: stdout, Stderr: stderr}
	l.mu.Lock()
	l.printing[step] = o
	l.mu.Unlock()
	return o, nil
}

// Output that is held back because it may begin a secret is shown after idleHold if it is at most idleBytes long, since a prompt
// or the end of a line must not wait for the next one. So no more than idleBytes of a secret are ever shown.
const (
	idleHold  = time.Second
	idleBytes = 3
)

// Write takes the output of a command.
func (c *Capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got += int64(len(p))
	n, err := c.clean.Write(p)
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
	if held := c.clean.Held(); err == nil && held > 0 && held <= idleBytes {
		c.idle = time.AfterFunc(idleHold, c.letGo)
	}
	return n, err
}

// Tail returns the end of the output, at most ResultTail bytes. Nothing is printed any more.
func (c *Capture) Tail() string { return c.tail.String() }

// Kept returns the output that is kept, at most limit bytes of it. Nothing is printed any more.
func (c *Capture) Kept(limit int64) ([]byte, error) {
	p, err := io.ReadAll(io.NewSectionReader(c.file, 0, limit))
	if err != nil {
		return nil, fmt.Errorf("cannot read the output: %w", err)
	}
	return p, nil
}

// Found returns the names of the secrets that were taken out.
func (c *Capture) Found() []string { return c.clean.Found() }

// LetGo shows the output of a step at work that is held back, if it is short.
func (l *Run) LetGo(step string) {
	l.mu.Lock()
	o := l.printing[step]
	l.mu.Unlock()
	if o != nil {
		o.Stdout.letGo()
	}
}

// letGo shows the output that is held back, if it is short.
func (c *Capture) letGo() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clean.Held() <= idleBytes {
		_ = c.clean.LetGo() // the next write meets the same error
	}
}

// Again calls write, which writes the output from a byte on once more, and perhaps more of it. The bytes that are in the file
// are not kept twice. A secret that was shown in part just before the server stopped can move the bytes after it.
func (c *Capture) Again(from int64, write func() error) error {
	c.mu.Lock()
	c.known = max(c.tail.Total()-from, 0)
	c.got -= c.known
	c.mu.Unlock()
	err := errors.Join(write(), c.end())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got += c.known // these did not come again
	c.known = 0
	return err
}

// end writes the rest.
func (c *Capture) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
	err := c.clean.Flush()
	c.l.printRest(c)
	return err
}

// kept writes a capture's output without secrets.
type kept struct{ *Capture }

func (c kept) Write(p []byte) (int, error) {
	size := len(p)
	known := min(c.known, int64(size))
	c.known -= known
	if p = p[known:]; len(p) == 0 {
		return size, nil
	}
	if _, err := c.file.Write(p); err != nil {
		return 0, fmt.Errorf("cannot keep the output: %w", err)
	}
	if c.copy != nil {
		if _, err := c.copy.Write(p); err != nil {
			c.copy = nil
		}
	}
	c.l.print(c.Capture, p)
	return size, nil
}

func (c *Capture) describe() *record.Stream {
	s := &record.Stream{Bytes: max(c.total, c.got), Truncated: c.total > c.got}
	if c.tail.Total() > 0 {
		s.File = filepath.Base(c.file.Name())
		short := text.Tail{Limit: journalTail}
		_, _ = short.Write([]byte(c.tail.String()))
		s.Tail = short.String()
	}
	return s
}

// SetTotals sets how many bytes the runner has counted. If fewer of them arrived, the output is truncated.
func (o *Outputs) SetTotals(stdout, stderr int64) { o.Stdout.total, o.Stderr.total = stdout, stderr }

// Flush writes the ends of both streams, which might have been the beginning of a secret.
func (o *Outputs) Flush() error {
	return errors.Join(o.Stdout.end(), o.Stderr.end())
}

// Save begins to write both to the disk. Nothing more is printed, and the work tree is committed meanwhile.
func (o *Outputs) Save() {
	saved := make(chan error, 1)
	o.saved = saved
	go func() { saved <- o.sync() }()
}

// Saving waits for save, or does its work if it was not called.
func (o *Outputs) Saving() error {
	if o.saved == nil {
		return o.sync()
	}
	err := <-o.saved
	o.saved <- err // for a second call
	return err
}

func (o *Outputs) sync() error {
	if err := o.Flush(); err != nil {
		return err
	}
	for _, c := range []*Capture{o.Stdout, o.Stderr} {
		if c.tail.Total() > 0 {
			if err := c.file.Sync(); err != nil {
				return fmt.Errorf("cannot keep the output: %w", err)
			}
		}
	}
	return nil
}

// Streams describes both for the journal. The files are on disk then.
func (o *Outputs) Streams() (stdout, stderr *record.Stream, err error) {
	if err := o.Saving(); err != nil {
		return nil, nil, err
	}
	return o.Stdout.describe(), o.Stderr.describe(), nil
}

// Close closes the files. Nothing is printed any more.
func (o *Outputs) Close() {
	if o.saved != nil {
		_ = o.Saving()
	}
	_ = o.Flush() // nothing is left, or the step has failed already
	l := o.Stdout.l
	l.mu.Lock()
	if l.printing[o.Stdout.step] == o {
		delete(l.printing, o.Stdout.step)
	}
	l.mu.Unlock()
	o.Stdout.file.Close()
	o.Stderr.file.Close()
}
