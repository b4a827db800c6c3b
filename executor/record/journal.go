package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/internal/redact"
)

// MaxEvent bounds one line of a journal, in bytes. The texts of commands in it (command lines, ends of output) have far smaller bounds.
const MaxEvent = 4 << 20

// Journal is the append-only file of a run's events while the run works. It is not safe for concurrent use.
type Journal struct {
	file *os.File
	seq  int64
	// secrets are removed from events before they are written.
	secrets *redact.Secrets
}

// OpenJournal opens the journal at path, or makes it, and returns the events in it. It removes a last line that was cut off
// when the machine stopped, since that line was never acknowledged. Append removes the values of secrets, which may be nil,
// from events.
func OpenJournal(path string, secrets *redact.Secrets) (*Journal, []Event, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("cannot open journal: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open journal: %w", err)
	}
	events, good, err := readEvents(f)
	if err == nil {
		err = f.Truncate(good)
	}
	if err == nil {
		_, err = f.Seek(good, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("cannot read journal %s: %w", path, err)
	}
	j := &Journal{file: f, secrets: secrets}
	if n := len(events); n > 0 {
		j.seq = events[n-1].Seq
	}
	return j, events, nil
}

// ParseJournal returns the events in the text of a journal file.
func ParseJournal(text []byte) ([]Event, error) {
	events, _, err := readEvents(bytes.NewReader(text))
	return events, err
}

// CheckJournal returns an error if the text of a journal file has a broken event, or more than most events. It keeps no
// event.
func CheckJournal(text []byte, most int) error {
	n := 0
	_, err := eachEvent(bytes.NewReader(text), func(Event) error {
		if n++; n > most {
			return fmt.Errorf("the journal has more than %d events", most)
		}
		return nil
	})
	return err
}

// readEvents returns the whole events of r and the offset after the last one.
func readEvents(r io.Reader) (events []Event, good int64, err error) {
	good, err = eachEvent(r, func(e Event) error {
		events = append(events, e)
		return nil
	})
	return events, good, err
}

// eachEvent calls do with the whole events of r, until it fails. It returns the offset after the last one. A broken line is an
// error in the middle and ignored at the end.
func eachEvent(r io.Reader, do func(Event) error) (good int64, err error) {
	br := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		line, err := readLine(br)
		if errors.Is(err, io.EOF) {
			return good, nil
		}
		if err != nil {
			return good, err
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			if _, next := readLine(br); errors.Is(next, io.EOF) {
				return good, nil
			}
			return good, fmt.Errorf("event %d: %w", n, err)
		}
		if err := do(e); err != nil {
			return good, err
		}
		good += int64(len(line))
	}
}

// readLine returns a line with its newline, and io.EOF if no whole line is left.
func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if len(line) > MaxEvent {
			return nil, fmt.Errorf("a line is longer than %d bytes", MaxEvent)
		}
	}
}

// Append numbers the event, removes secrets from it and writes it. With sync the event is on disk when Append returns. Events that
// decide about repeating work after a crash need that.
func (j *Journal) Append(e *Event, sync bool) error {
	e.Seq = j.seq + 1
	kind := e.Type // of a closed list
	*e = redact.Clean(j.secrets, *e)
	e.Type = kind
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("cannot journal %s: %w", e.Type, err)
	}
	if len(line) >= MaxEvent { // no later event could be read
		return fmt.Errorf("cannot journal %s: it has %d bytes, at most %d can be read again", e.Type, len(line), MaxEvent)
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("cannot journal %s: %w", e.Type, err)
	}
	j.seq++
	if sync {
		if err := j.file.Sync(); err != nil {
			return fmt.Errorf("cannot journal %s: %w", e.Type, err)
		}
	}
	return nil
}

// Close closes the file.
func (j *Journal) Close() error { return j.file.Close() }
