package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// spoolFolder makes the unlinked files of spools.
type spoolFolder struct {
	dir   *os.File // opened once, because a process of the runner's user could redirect a path later
	limit int64
}

func openSpoolFolder(path string, limit int64) (*spoolFolder, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open the spool folder: %w", err)
	}
	return &spoolFolder{dir: dir, limit: limit}, nil
}

// create returns a file that has no name and never gets one.
func (f *spoolFolder) create() (*os.File, error) {
	fd, err := unix.Openat(int(f.dir.Fd()), ".", unix.O_TMPFILE|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "spool"), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("cannot make a spool file: %w", err)
	}
	// Some file systems have no O_TMPFILE.
	for range 100 {
		name := ".spool-" + randomName()
		fd, err = unix.Openat(int(f.dir.Fd()), name,
			unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot make a spool file: %w", err)
		}
		if err := unix.Unlinkat(int(f.dir.Fd()), name, 0); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("cannot unlink a spool file: %w", err)
		}
		return os.NewFile(uintptr(fd), "spool"), nil
	}
	return nil, fmt.Errorf("cannot make a spool file: %w", err)
}

// inMemory is the number of bytes of a stream that are kept without a file. Most commands print little, and ten
// thousand remembered commands must not need as many descriptors.
const inMemory = 4 << 10

// spool keeps the beginning of one stream and counts the rest. It has one writer and any number of readers.
type spool struct {
	folder *spoolFolder
	// window, if it is not 0, is the number of bytes that are kept. The spool then keeps the end of the stream, not its
	// beginning.
	window int64

	mu      sync.Mutex // guards the fields below
	mem     []byte
	file    *os.File
	base    int64 // the first readable byte; 0 without a window
	kept    int64 // the end of the readable bytes
	total   int64 // written bytes
	full    bool  // nothing more is kept
	ended   bool
	changed chan struct{} // closed at the next change; nil if no goroutine waits
}

// Write never fails and never waits for a reader, because a command must not notice whether its output is read.
func (s *spool) Write(p []byte) (int, error) {
	if s.window > 0 {
		return s.writeWindow(p)
	}
	s.mu.Lock()
	file, kept, full := s.file, s.kept, s.full
	s.mu.Unlock()
	keep := p
	if room := s.folder.limit - kept; int64(len(keep)) > room {
		keep = keep[:room]
	}
	if full {
		keep = nil
	}
	fits := file == nil && len(s.mem)+len(keep) <= inMemory
	var broken bool
	if len(keep) > 0 && !fits {
		if file == nil {
			// Only this goroutine changes mem, so it may be read without the lock.
			var err error
			if file, err = s.folder.create(); err == nil {
				_, err = file.WriteAt(s.mem, 0)
			}
			broken = err != nil
		}
		if !broken {
			n, err := file.WriteAt(keep, kept)
			keep, broken = keep[:n], err != nil
		} else {
			if file != nil {
				file.Close()
				file = nil
			}
			keep = nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if fits {
		s.mem = append(s.mem, keep...)
	} else if file != nil && s.file == nil {
		s.file, s.mem = file, nil
	}
	s.kept += int64(len(keep))
	s.total += int64(len(p))
	s.full = s.full || broken || s.kept >= s.folder.limit
	s.wake()
	return len(p), nil
}

func (s *spool) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// finish tells readers that nothing follows.
func (s *spool) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.wake()
}

func (s *spool) count() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// share returns a new descriptor of the file. Returns -1 if there is none.
func (s *spool) share() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil || s.window > 0 {
		return -1, nil
	}
	return unix.FcntlInt(s.file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
}

// more waits until more than seen bytes are kept or the stream has ended. It returns the number of bytes, and whether
// the stream has ended.
func (s *spool) more(ctx context.Context, seen int64) (int64, bool, error) {
	for {
		s.mu.Lock()
		kept, ended := s.kept, s.ended
		if kept > seen || ended {
			s.mu.Unlock()
			return kept, ended, nil
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return kept, false, ctx.Err()
		}
	}
}

// drop frees the disk space. Later reads fail.
func (s *spool) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		s.file.Close()
	}
	s.mem = nil
}

// copyMemory copies bytes of the memory at off, and returns their number. mu is held.
func (s *spool) copyMemory(p []byte, off int64) int {
	if off >= int64(len(s.mem)) {
		return 0
	}
	return copy(p, s.mem[off:])
}

// readAt reads at off. It waits for the first byte, and returns io.EOF after the last.
func (s *spool) readAt(ctx context.Context, p []byte, off int64) (int, error) {
	for {
		s.mu.Lock()
		if off < s.kept && s.window > 0 {
			return s.readWindow(p, off)
		}
		if off < s.kept {
			p = p[:min(int64(len(p)), s.kept-off)]
			file := s.file
			if file == nil {
				n := s.copyMemory(p, off)
				s.mu.Unlock()
				if n == 0 {
					return 0, os.ErrClosed
				}
				return n, nil
			}
			s.mu.Unlock()
			return file.ReadAt(p, off)
		}
		if s.ended {
			s.mu.Unlock()
			return 0, io.EOF
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
