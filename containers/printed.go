package containers

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/runner"
)

// printed is one stream of a command's output. The runner sends its beginning by the channel, and passes the file with
// the rest if the stream is long.
type printed struct {
	mu      sync.Mutex // guards the fields below
	changed sync.Cond
	file    *os.File
	before  int64 // bytes that come by the channel
	from    int64 // where the rest begins in the file
	upto    int64 // how much of the file is written so far
	ended   bool  // the runner reports no more
	came    int64 // bytes that came by the channel
	dry     bool  // no more comes by the channel
}

func newPrinted() *printed {
	p := &printed{}
	p.changed.L = &p.mu
	return p
}

// announce takes a message of the runner about the file. The first one has the file, which take returns.
func (p *printed) announce(m runner.Output, take func(uint64) (*os.File, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.changed.Broadcast()
	if p.file == nil {
		f, err := take(m.File)
		if err != nil {
			return err
		}
		if err := requireRegular(f); err != nil {
			f.Close()
			return err
		}
		p.file, p.before, p.from = f, int64(m.Before), int64(m.From)
		if p.before < 0 || p.from < 0 {
			return fmt.Errorf("the runner counts %d and %d bytes", m.Before, m.From)
		}
		p.upto = p.from
	}
	p.upto = max(p.upto, int64(m.Upto))
	return nil
}

// requireRegular refuses a file that is not on a disk or in memory, because reading another could take forever.
func requireRegular(f *os.File) error {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || fs.Type == unix.FUSE_SUPER_MAGIC {
		return fmt.Errorf("the runner does not pass a regular file")
	}
	return nil
}

// finish notes that the runner reports no more.
func (p *printed) finish() {
	p.mu.Lock()
	p.ended = true
	p.changed.Broadcast()
	p.mu.Unlock()
}

// close closes the file.
func (p *printed) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
}

// noteChannel notes that n bytes came by the channel, and whether it is dry.
func (p *printed) noteChannel(n int, dry bool) {
	p.mu.Lock()
	p.came += int64(n)
	p.dry = p.dry || dry
	p.changed.Broadcast()
	p.mu.Unlock()
}

// copyTo copies the file to w, after everything that comes by the channel, until the runner reports no more. It returns
// errors of w and of the file apart.
func (p *printed) copyTo(w io.Writer) (werr, rerr error) {
	var buf []byte
	at := int64(-1)
	for {
		p.mu.Lock()
		for {
			ready := p.file != nil && p.came >= p.before
			if ready && at < 0 {
				at = p.from
			}
			if ready && at < p.upto {
				break
			}
			if p.ended && (p.file == nil || ready || p.dry) {
				p.mu.Unlock()
				return nil, nil
			}
			p.changed.Wait()
		}
		file, upto := p.file, p.upto
		p.mu.Unlock()
		if buf == nil {
			buf = make([]byte, 256<<10)
		}
		for at < upto {
			n, err := file.ReadAt(buf[:min(int64(len(buf)), upto-at)], at)
			if n > 0 {
				if _, err := w.Write(buf[:n]); err != nil {
					return err, nil
				}
				at += int64(n)
			}
			if err != nil && n == 0 {
				return nil, err
			}
		}
	}
}
