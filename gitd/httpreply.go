package gitd

import (
	"cmp"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/pack"
)

// httpReply writes an answer. It sends the status with the first byte, so that an earlier failure can still be
// reported as one.
type httpReply struct {
	w     http.ResponseWriter
	ctl   *http.ResponseController
	idle  time.Duration
	until time.Time // the end of the request, however slowly the client reads
	begun bool
	json  bool // errors are JSON, for Git LFS
	sized bool // the client knows the length of the answer
	// status is that of a success. Zero means 200.
	status int
}

// SetLength announces the length of the answer. An answer with a length need not be flushed.
func (r *httpReply) SetLength(n int64) {
	if !r.begun {
		r.w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		r.sized = true
	}
}

func (r *httpReply) beginReply() {
	end := time.Now().Add(r.idle)
	if end.After(r.until) {
		end = r.until
	}
	_ = r.ctl.SetWriteDeadline(end)
	if !r.begun {
		r.begun = true
		r.w.WriteHeader(cmp.Or(r.status, http.StatusOK))
	}
}

func (r *httpReply) Write(p []byte) (int, error) {
	r.beginReply()
	n, err := r.w.Write(p)
	if err == nil && !r.sized {
		err = r.ctl.Flush()
	}
	return n, err
}

// copyBuffer is the number of bytes that are copied at once if the system cannot send a file.
const copyBuffer = 32 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// ReadFrom lets the system send a file if the connection supports it. A client must be able to read all of src
// within idle.
func (r *httpReply) ReadFrom(src io.Reader) (int64, error) {
	r.beginReply()
	in, ok := r.w.(io.ReaderFrom)
	if !ok {
		buf := copyBuffers.Get().(*[copyBuffer]byte)
		defer copyBuffers.Put(buf)
		return io.CopyBuffer(pack.WriterOnly{Writer: r}, src, buf[:])
	}
	n, err := in.ReadFrom(src)
	if err == nil && !r.sized {
		err = r.ctl.Flush()
	}
	return n, err
}
