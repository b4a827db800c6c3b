package gitd

import (
	"fmt"
	"io"
	"os"
)

// reply is a whole answer of protocol v2 as it goes over the wire, in pieces. Pieces of
// files are sent without being read into memory; a reply has its files for itself, because
// their positions move.
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

// sendAtOnce is how much of a file is given to the system in one call, which has to be
// over in the time that a client may be idle.
const sendAtOnce = 256 << 10

// writeReply sends a reply; w's ReadFrom is used for files where it has one.
func writeReply(w io.Writer, p *reply) error {
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
