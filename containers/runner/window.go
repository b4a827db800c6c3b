package runner

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxWindow bounds [Request.Window], in bytes.
const MaxWindow = 64 << 20

// errOverwritten is the error of a read before the beginning of a window.
var errOverwritten = errors.New("the output is no longer kept")

// firstOffset returns the offset of the first byte that can be read.
func (s *spool) firstOffset() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base
}

// writeWindow is Write for a spool with a window. The file is a ring, in which a byte is at its offset modulo the window.
func (s *spool) writeWindow(p []byte) (int, error) {
	n := len(p)
	s.mu.Lock()
	at, file := s.kept, s.file
	// The bytes that are about to be overwritten can no longer be read.
	s.base = max(s.base, at+int64(n)-s.window)
	s.mu.Unlock()

	if at+int64(n) <= inMemory && file == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mem = append(s.mem, p...)
		s.advance(at + int64(n))
		return n, nil
	}
	var err error
	if file == nil {
		if file, err = s.folder.create(); err == nil {
			// Without room on the disk it fails now, and not in the middle.
			if err = unix.Fallocate(int(file.Fd()), 0, 0, s.window); errors.Is(err, unix.EOPNOTSUPP) {
				err = nil
			}
			if err == nil {
				_, err = file.WriteAt(s.mem, 0)
			}
			if err != nil {
				file.Close()
				file = nil
			}
		}
	}
	from, rest := at, p
	if skip := int64(n) - s.window; skip > 0 {
		from, rest = at+skip, p[skip:]
	}
	for err == nil && len(rest) > 0 {
		place := from % s.window
		part := rest[:min(int64(len(rest)), s.window-place)]
		_, err = file.WriteAt(part, place)
		from, rest = from+int64(len(part)), rest[len(part):]
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if file != nil && s.file == nil {
		s.file, s.mem = file, nil
	}
	if err != nil {
		s.base = at + int64(n) // nothing before it can be read
		if s.file == nil {
			s.mem = s.mem[:0]
		}
	}
	s.advance(at + int64(n))
	return n, nil
}

// advance publishes the bytes up to a new end. mu is held.
func (s *spool) advance(end int64) {
	s.kept, s.total = end, end
	s.wake()
}

// readWindow reads bytes of a window that are there. The caller holds mu, and readWindow releases it.
func (s *spool) readWindow(p []byte, off int64) (int, error) {
	if off < s.base {
		s.mu.Unlock()
		return 0, errOverwritten
	}
	p = p[:min(int64(len(p)), s.kept-off)]
	file := s.file
	if file == nil {
		n := s.copyMemory(p, off)
		s.mu.Unlock()
		if n == 0 {
			return 0, errOverwritten
		}
		return n, nil
	}
	s.mu.Unlock()
	place := off % s.window
	n, err := file.ReadAt(p[:min(int64(len(p)), s.window-place)], place)
	s.mu.Lock()
	lost := off < s.base
	s.mu.Unlock()
	if lost {
		return 0, errOverwritten // it was overwritten meanwhile
	}
	if n > 0 {
		err = nil
	}
	return n, err
}

// brake holds a command's output back while its attachments have not acknowledged enough of it. Its zero value holds
// nothing back.
type brake struct {
	mu      sync.Mutex // guards all below
	limits  map[*visit]int64
	open    bool          // nothing is held back any more
	changed chan struct{} // closed at the next change; nil if no goroutine waits
}

// raise lets an attachment have output up to a later limit. An attachment that has ended has none.
func (b *brake) raise(v *visit, limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now, ok := b.limits[v]; ok && limit > now {
		b.limits[v] = limit
		b.wake()
	}
}

// set lets an attachment have output up to a limit.
func (b *brake) set(v *visit, limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limits == nil {
		b.limits = map[*visit]int64{}
	}
	b.limits[v] = limit
	b.wake()
}

// remove ends the limit of an attachment.
func (b *brake) remove(v *visit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.limits, v)
	b.wake()
}

// release ends all limits. Later ones have no effect.
func (b *brake) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = true
	b.wake()
}

func (b *brake) wake() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// wait waits until all attachments may have the byte at off.
func (b *brake) wait(off int64) {
	for {
		b.mu.Lock()
		held := false
		for _, limit := range b.limits {
			held = held || off >= limit
		}
		if !held || b.open {
			b.mu.Unlock()
			return
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		<-changed
	}
}
