package gitd

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
)

// decodeBody returns the body of a request without its content encoding.
func decodeBody(r *http.Request, body io.Reader) (io.Reader, error) {
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		// The reader of the body bounds its inflated size, and nothing is inflated ahead of it.
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, object.Refuse(ErrInvalid, "the request is not gzip, as it says it is")
		}
		return &gzipBody{z}, nil
	}
	return nil, &httpError{http.StatusUnsupportedMediaType, "the content encoding is not known here; gzip is"}
}

// gzipBody distinguishes damaged data from a damaged connection.
type gzipBody struct{ z *gzip.Reader }

func (g *gzipBody) Read(p []byte) (int, error) {
	n, err := g.z.Read(p)
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) {
		err = object.Refuse(ErrInvalid, "the request's gzip data are damaged")
	}
	return n, err
}

// prefixWriter writes prefix before the first byte. It writes nothing if there is none.
type prefixWriter struct {
	w      io.Writer
	prefix []byte
}

func (p *prefixWriter) Write(b []byte) (int, error) {
	if p.prefix != nil {
		if _, err := p.w.Write(p.prefix); err != nil {
			return 0, err
		}
		p.prefix = nil
	}
	return p.w.Write(b)
}

// httpBody reads the body of a request. Each Read may take no longer than idle.
type httpBody struct {
	body io.Reader
	ctl  *http.ResponseController
	idle time.Duration
	eof  bool
}

func (b *httpBody) Read(p []byte) (int, error) {
	// Connections that do not support deadlines, such as that of a container, are bounded by the time of the whole
	// request.
	_ = b.ctl.SetReadDeadline(time.Now().Add(b.idle))
	n, err := b.body.Read(p)
	b.eof = b.eof || err == io.EOF
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = fmt.Errorf("cannot read the request: %w", errIdle)
	}
	return n, err
}

// clearDeadline removes the deadline at the end of the body. net/http continues to read in the background to
// notice a client that hangs up, and would mistake the deadline for that. If there is more to read, the deadline
// stays, because net/http reads the rest before it answers.
func (b *httpBody) clearDeadline() {
	if b.eof {
		_ = b.ctl.SetReadDeadline(time.Time{})
	}
}
