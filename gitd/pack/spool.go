package pack

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// Spool stores the body of a request. A small body stays in memory, a larger one goes to a file
// without a name, which cannot outlive the process. Git starts only after the whole body has arrived
// and was accepted. A slow client therefore costs a file and not a process, and git never sees
// half of a pack.
type Spool struct {
	Dir  string // the folder of the file, on the file system that receives the pack
	mem  bytes.Buffer
	file *os.File
}

func (s *Spool) Write(p []byte) (int, error) {
	if s.file == nil {
		if s.mem.Len()+len(p) <= SpoolMemory {
			return s.mem.Write(p)
		}
		// git prune removes files with such a name, if the process dies between the two
		// calls.
		f, err := os.CreateTemp(s.Dir, "tmp_push_*")
		if err != nil {
			return 0, err
		}
		s.file = f
		if err := os.Remove(f.Name()); err != nil {
			return 0, err
		}
		if _, err := f.Write(s.mem.Bytes()); err != nil {
			return 0, err
		}
		s.mem = bytes.Buffer{}
	}
	return s.file.Write(p)
}

// Bytes returns the body if it is in memory.
func (s *Spool) Bytes() (_ []byte, ok bool) {
	if s.file != nil {
		return nil, false
	}
	return s.mem.Bytes(), true
}

// Reader returns the stored body from its start.
func (s *Spool) Reader() (io.Reader, error) {
	if s.file == nil {
		return bytes.NewReader(s.mem.Bytes()), nil
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("cannot read a stored request: %w", err)
	}
	return s.file, nil
}

// Close removes the body.
func (s *Spool) Close() {
	if s.file != nil {
		s.file.Close()
	}
}
