package clone

import (
	"fmt"
	"io"
	"os"
)

// reply is a whole answer of protocol v2 in pieces. Pieces of files are sent without a copy in memory. A
// reply has its files for itself, because their positions change.
type reply struct {
	pieces []replyPiece
	close  func() // releases the files
}

// replyPiece is bytes, or a part of a file.
type replyPiece struct {
	data   []byte
	file   *os.File
	off, n int64
}

func (p *reply) size() int64 {
	var n int64
	for _, q := range p.pieces {
		n += int64(len(q.data)) + q.n
	}
	return n
}

// sendAtOnce is the part of a file that one system call sends. The call must end within the time that a
// client may be idle.
const sendAtOnce = 256 << 10

// writeTo sends the reply. It uses the ReadFrom of w for files if there is one.
func (p *reply) writeTo(w io.Writer) error {
	for _, q := range p.pieces {
		if len(q.data) > 0 {
			if _, err := w.Write(q.data); err != nil {
				return fmt.Errorf("cannot send an answer: %w", err)
			}
		}
		if q.file == nil {
			continue
		}
		if _, err := q.file.Seek(q.off, io.SeekStart); err != nil {
			return fmt.Errorf("cannot read an answer: %w", err)
		}
		for left := q.n; left > 0; {
			n := min(left, sendAtOnce)
			if _, err := io.CopyN(w, q.file, n); err != nil {
				return fmt.Errorf("cannot send an answer: %w", err)
			}
			left -= n
		}
	}
	return nil
}
