package gitd

import (
	"bytes"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/gitd/protocol"
)

// reportMax bounds the report of git in bytes.
const reportMax = 32 << 20

// gitReport passes the progress of receive-pack on at once and keeps its report until send. The report is not
// true before the push is on disk.
type gitReport struct {
	band int
	held []byte
}

// read reads the whole answer of git from r.
func (h *gitReport) read(r io.Reader, out io.Writer) error {
	lines := protocol.NewReader(r)
	for {
		raw, kind, err := lines.NextRaw()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read git's report: %w", err)
		}
		// An empty data packet keeps the connection alive while git works.
		if h.band > 0 && kind == protocol.Data && len(raw) > 4 && (raw[4] != protocol.BandData || len(raw) == 5) {
			if _, err := out.Write(raw); err != nil {
				return fmt.Errorf("cannot send git's progress: %w", err)
			}
			continue
		}
		if len(h.held)+len(raw) > reportMax {
			return fmt.Errorf("git's report is longer than %d bytes: %w", reportMax, ErrTooLarge)
		}
		h.held = append(h.held, raw...)
	}
}

// accepted reports whether git changed any ref. It returns true, too, if the client wanted no report, so that
// nothing is known.
func (h *gitReport) accepted() bool {
	return len(h.held) == 0 || len(h.changed()) > 0
}

// changed returns the refs that git changed, as a set. It is empty if the client wanted no report.
func (h *gitReport) changed() map[string]bool {
	refs := map[string]bool{}
	var inner bytes.Buffer
	outer := protocol.NewReader(bytes.NewReader(h.held))
	for {
		raw, kind, err := outer.NextRaw()
		if err != nil {
			break
		}
		switch {
		case h.band == 0:
			inner.Write(raw)
		case kind == protocol.Data && len(raw) > 5:
			inner.Write(raw[5:])
		}
	}

	lines := protocol.NewReader(&inner)
	for {
		line, kind, err := lines.Next()
		if err != nil {
			return refs
		}
		if name, ok := bytes.CutPrefix(line, []byte("ok ")); ok && kind == protocol.Data {
			refs[string(bytes.TrimSuffix(name, []byte("\n")))] = true
		}
	}
}

// send sends the report.
func (h *gitReport) send(out io.Writer) error {
	_, err := out.Write(h.held)
	return err
}
