package gitd

import (
	"context"
	"io"
	"os"
)

// fetchRequest is one "fetch" of protocol v2 (gitprotocol-v2), parsed and bounded.
type fetchRequest struct {
	Wants, Haves, Shallow []Hash
	WantRefs              []string
	Depth                 int // 0: whole history
	DepthRelative         bool
	DeepenSince           int64
	DeepenNot             []string
	Filter                string // as the client wrote it
	ThinPack, NoProgress  bool
	IncludeTag, OFSDelta  bool
	Done, WaitForDone     bool
	SidebandAll           bool
}

// reply is a whole answer of protocol v2 as it goes over the wire, in pieces. Pieces of
// files are sent without being read into memory.
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

// compose answers a clone-like fetch (one want that descends from a base whose pack is
// kept, no haves) from the base's pack and a small pack of the branch's own objects. nil: it
// cannot, and git answers. The wants were checked before: a may see them.
func (r *Repo) compose(ctx context.Context, f *fetchRequest) (*reply, error) {
	panic("not built")
}

// writeReply sends a reply; w's ReadFrom is used for files where it has one.
func writeReply(w io.Writer, p *reply) error { panic("not built") }
