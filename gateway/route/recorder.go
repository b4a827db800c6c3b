package route

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/ramus-dev/ramus/internal/redact"
)

// recorder records whether and how an answer began, so that a later error is not written into its middle.
type recorder struct {
	http.ResponseWriter
	status int   // 0: the answer has not begun
	bytes  int64 // of the body
	// clean removes secrets from the answer. If it is nil, the answer is sent as it is.
	clean *redact.Writer
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.setStatus(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Hijack gives the connection away. Bytes that are written to it are not part of an answer.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status, w.clean = http.StatusSwitchingProtocols, nil
	}
	return conn, buffered, err
}

// setStatus records the status. An answer of a given length is not searched for secrets: it is a stored file, which was
// cleaned when it was stored, or a file of a repository, which git also sends as it is.
func (w *recorder) setStatus(status int) {
	w.status = status
	if w.Header().Get("Content-Length") != "" {
		w.clean = nil
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.setStatus(http.StatusOK)
	}
	if w.clean != nil {
		return w.clean.Write(b)
	}
	return w.send(b)
}

func (w *recorder) send(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom lets the system send a file that is not searched for secrets, such as the Git server's answer to a clone.
func (w *recorder) ReadFrom(src io.Reader) (int64, error) {
	if w.status == 0 {
		w.setStatus(http.StatusOK)
	}
	if w.clean != nil {
		return io.Copy(w.clean, src)
	}
	n, err := io.Copy(w.ResponseWriter, src)
	w.bytes += n
	return n, err
}

// sender writes to a recorder text that its clean has searched.
type sender struct{ to *recorder }

func (w sender) Write(b []byte) (int, error) { return w.to.send(b) }

// finish writes the end of the answer, which clean has held back because it could be the beginning of a secret.
func (w *recorder) finish() error {
	if w.clean == nil {
		return nil
	}
	return w.clean.Flush()
}

// Flush sends written bytes at once. The Git server calls it when it streams packs.
func (w *recorder) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
