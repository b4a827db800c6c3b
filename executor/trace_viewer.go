package executor

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
)

// What the viewer's files may be at most; those of 2026 are 30, with 2 MiB.
const (
	viewerFiles = 2000
	viewerBytes = 64 << 20
)

// viewerAgain is how long it takes until somebody else's request may try again what
// failed: whoever can reach the server can ask for the viewer.
const viewerAgain = time.Minute

// viewerTimeout bounds the wait for a turn and the sidecar itself, which needs a second.
const viewerTimeout = 2 * time.Minute

// traceViewer is the viewer of one server's life. Its zero value is ready.
type traceViewer struct {
	mu     sync.Mutex // guards all below; held while the files are fetched
	files  fs.FS
	err    error
	failed time.Time
}

// TraceViewer is Playwright's trace viewer, static files that come with the driver,
// taken from the browser's sidecar once and kept in Data, below trace-viewer/. Without a
// browser it is ErrUnavailable.
func (x *Executor) TraceViewer(ctx context.Context) (fs.FS, error) {
	if x.Browser == nil {
		return nil, fmt.Errorf("%w: there is no browser, and so no trace viewer", ErrUnavailable)
	}
	v := &x.viewer
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.files != nil {
		return v.files, nil
	}
	if v.err != nil && x.Now().Sub(v.failed) < viewerAgain {
		return nil, v.err
	}
	// Who asked may go away: the next one needs it as well.
	fetch, cancel := context.WithTimeout(x.ctx, viewerTimeout)
	defer cancel()
	dir, err := x.fetchViewer(fetch)
	if err != nil {
		// What an earlier server kept reads the traces that it kept.
		if dir = x.keptViewer(); dir == "" {
			v.err = fmt.Errorf("%w: cannot get the trace viewer: %w", ErrUnavailable, err)
			v.failed = x.Now()
			return nil, v.err
		}
		x.Log.WarnContext(ctx, "the trace viewer is an earlier one", "error", err)
	}
	v.files, v.err = os.DirFS(dir), nil
	return v.files, nil
}

// keptViewer is the folder of a viewer that was fetched before; "" for none.
func (x *Executor) keptViewer() string {
	list, _ := filepath.Glob(filepath.Join(x.Data, "trace-viewer", "*", "index.html"))
	for _, name := range list {
		if dir := filepath.Dir(name); len(filepath.Base(dir)) == sha256.Size*2 {
			return dir
		}
	}
	return ""
}

// fetchViewer runs the browser's sidecar for the viewer's files, and returns their folder.
func (x *Executor) fetchViewer(ctx context.Context) (dir string, err error) {
	var files, words cutBuffer
	files.left, words.left = viewerBytes, 4<<10
	exit, err := x.Fleet.RunSidecar(ctx, "", containers.Sidecar{Key: "browser:viewer", Image: x.Browser.Image, Limits: x.Browser.Limits,
		Args: []string{containers.BrowserDir + "/ramus-browser", "viewer"}, Stdout: &files, Stderr: &words})
	switch {
	case err != nil:
		return "", err
	case files.cut:
		return "", fmt.Errorf("its files are larger than %d MiB", viewerBytes>>20)
	case exit.Code != 0:
		return "", fmt.Errorf("the browser's container ended with %d: %s", exit.Code, strings.TrimSpace(words.String()))
	}
	sum := sha256.Sum256(files.Bytes())
	home := filepath.Join(x.Data, "trace-viewer")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", err
	}
	dir = filepath.Join(home, hex.EncodeToString(sum[:]))
	if _, err := os.Stat(filepath.Join(dir, "index.html")); err == nil {
		return dir, nil
	}
	next, err := os.MkdirTemp(home, "next-*")
	if err != nil {
		return "", err
	}
	if err = unpackViewer(next, &files.Buffer); err == nil {
		err = os.Rename(next, dir)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(next))
	}
	// The only one: whatever else is there is of another driver, or of a server that was killed.
	list, err := os.ReadDir(home)
	for _, e := range list {
		if e.Name() != filepath.Base(dir) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(home, e.Name())))
		}
	}
	return dir, err
}

// unpackViewer writes the files of a tar into a folder. It comes from a container,
// which keeps nothing out of the folder and makes nothing but files.
func unpackViewer(dir string, r io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t := tar.NewReader(r)
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		switch {
		case err != nil:
			return fmt.Errorf("cannot unpack the trace viewer: %w", err)
		case n >= viewerFiles:
			return fmt.Errorf("the trace viewer has more than %d files", viewerFiles)
		case h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name):
			return fmt.Errorf("the trace viewer has %.100q in it, which is no file", h.Name)
		}
		if err := unpackFile(root, h.Name, t); err != nil {
			return fmt.Errorf("cannot unpack the trace viewer: %w", err)
		}
	}
	if _, err := root.Stat("index.html"); err != nil {
		return fmt.Errorf("the trace viewer is not whole: %w", err)
	}
	return nil
}

// cutBuffer keeps the first left bytes and swallows the rest.
type cutBuffer struct {
	bytes.Buffer
	left int
	cut  bool
}

func (b *cutBuffer) Write(p []byte) (int, error) {
	n := min(len(p), b.left-b.Len())
	b.cut = b.cut || n < len(p)
	_, _ = b.Buffer.Write(p[:n]) // never fails
	return len(p), nil
}
