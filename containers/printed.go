package containers

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/runner"
)

// printed is one stream of a command's output as the runner hands it over: the
// beginning by the channel; where it is long, the rest in the runner's own file of it.
type printed struct {
	mu      sync.Mutex // guards the below
	changed sync.Cond
	file    *os.File
	before  int64 // bytes that come by the channel
	from    int64 // where in the file the rest begins
	upto    int64 // how much of it is there so far
	ended   bool  // nothing more is told
	came    int64 // by the channel
	dry     bool  // nothing more comes by it
}

func newPrinted() *printed {
	p := &printed{}
	p.changed.L = &p.mu
	return p
}

// tell takes what the runner says of the file.
func (p *printed) tell(m runner.Output, take func(uint64) (*os.File, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.changed.Broadcast()
	if p.file == nil {
		f, err := take(m.File)
		if err != nil {
			return err
		}
		if err := plain(f); err != nil {
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

// plain refuses all but files on a disk or in memory: reading another could take
// for ever.
func plain(f *os.File) error {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || fs.Type == unix.FUSE_SUPER_MAGIC {
		return fmt.Errorf("the runner hands over no plain file")
	}
	return nil
}

// end says that nothing more is told.
func (p *printed) end() {
	p.mu.Lock()
	p.ended = true
	p.changed.Broadcast()
	p.mu.Unlock()
}

// close lets go of the file.
func (p *printed) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
}

// channel notes what came by the channel, and whether more may.
func (p *printed) channel(n int, dry bool) {
	p.mu.Lock()
	p.came += int64(n)
	p.dry = p.dry || dry
	p.changed.Broadcast()
	p.mu.Unlock()
}

// copyTo copies what the file holds, after what comes by the channel, until
// nothing more is told. Errors of the file are told from the writer's.
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
