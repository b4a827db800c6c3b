package browse

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

// Bounds of the viewer's files. Those of 2026 are 30, with 2 MiB.
const (
	viewerFiles = 2000
	viewerBytes = 64 << 20
)

// viewerAgain is the wait between two attempts to fetch the viewer. Everybody with access to the server can request
// the viewer.
const viewerAgain = time.Minute

// viewerTimeout bounds the wait for a turn and the sidecar itself, which needs a second.
const viewerTimeout = 2 * time.Minute

// Viewer is Playwright's trace viewer, static files that come with the driver. Its exported fields are its options.
type Viewer struct {
	Inspector *Inspector
	// Dir is the folder where the files are kept.
	Dir string

	mu     sync.Mutex // guards all below; held during the fetch of the files
	files  fs.FS
	err    error
	failed time.Time
}

// Files returns the viewer's files. They are taken from the browser's sidecar once, until ctx ends, and kept in Dir. The error is
// [containers.ErrUnavailable] if there is no browser.
func (v *Viewer) Files(ctx context.Context) (fs.FS, error) {
	if v.Inspector.Browser == nil {
		return nil, fmt.Errorf("%w: there is no browser, and so no trace viewer", containers.ErrUnavailable)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.files != nil {
		return v.files, nil
	}
	if v.err != nil && v.Inspector.Now().Sub(v.failed) < viewerAgain {
		return nil, v.err
	}
	fetch, cancel := context.WithTimeout(ctx, viewerTimeout)
	defer cancel()
	dir, err := v.fetch(fetch)
	if err != nil {
		// The viewer of an earlier server reads the traces of that server.
		if dir = v.kept(); dir == "" {
			v.err = fmt.Errorf("%w: cannot get the trace viewer: %w", containers.ErrUnavailable, err)
			v.failed = v.Inspector.Now()
			return nil, v.err
		}
		v.Inspector.Log.WarnContext(ctx, "the trace viewer is an earlier one", "error", err)
	}
	v.files, v.err = os.DirFS(dir), nil
	return v.files, nil
}

// kept returns the folder of a viewer that was fetched before, or "" if there is none.
func (v *Viewer) kept() string {
	list, _ := filepath.Glob(filepath.Join(v.Dir, "*", "index.html"))
	for _, name := range list {
		if dir := filepath.Dir(name); len(filepath.Base(dir)) == sha256.Size*2 {
			return dir
		}
	}
	return ""
}

// fetch runs the browser's sidecar for the viewer's files, and returns their folder.
func (v *Viewer) fetch(ctx context.Context) (dir string, err error) {
	var files, words cutBuffer
	files.left, words.left = viewerBytes, 4<<10
	exit, err := v.Inspector.Fleet.RunSidecar(ctx, "", v.Inspector.sidecar("browser:viewer", &files, &words, "viewer"))
	switch {
	case err != nil:
		return "", err
	case files.cut:
		return "", fmt.Errorf("its files are larger than %d MiB", viewerBytes>>20)
	case exit.Code != 0:
		return "", fmt.Errorf("the browser's container ended with %d: %s", exit.Code, strings.TrimSpace(words.String()))
	}
	sum := sha256.Sum256(files.Bytes())
	if err := os.MkdirAll(v.Dir, 0o700); err != nil {
		return "", err
	}
	dir = filepath.Join(v.Dir, hex.EncodeToString(sum[:]))
	if _, err := os.Stat(filepath.Join(dir, "index.html")); err == nil {
		return dir, nil
	}
	next, err := os.MkdirTemp(v.Dir, "next-*")
	if err != nil {
		return "", err
	}
	if err = unpackViewer(next, &files.Buffer); err == nil {
		err = os.Rename(next, dir)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(next))
	}
	// All other folders are of another driver, or of a server that was killed.
	list, err := os.ReadDir(v.Dir)
	for _, e := range list {
		if e.Name() != filepath.Base(dir) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(v.Dir, e.Name())))
		}
	}
	return dir, err
}

// unpackViewer writes the files of a tar to a folder. The tar comes from a container. Nothing is written outside of the folder, and nothing but
// files.
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

// cutBuffer keeps the first left bytes and drops the rest.
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
