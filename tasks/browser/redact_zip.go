package browser

import (
	"archive/zip"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A trace is a zip. It has files *.trace (the actions, with snapshots of the DOM), *.network (one entry of a HAR per
// line) and *.stacks, and bodies resources/SHA1.EXT, to which the others refer by SHA-1. The viewer finds bodies by
// these names and never computes the hash, so a cleaned body keeps its name.

// archive cleans a trace. The copy has the same files in the order of their names, without times, so it depends only on
// the content.
func (s *scrub) archive(w io.Writer, r io.Reader) error {
	in, done, err := spool(r)
	if err != nil {
		return err
	}
	defer done()
	z, err := openZip(in)
	if err != nil {
		return err
	}
	files := slices.Clone(z.File)
	slices.SortFunc(files, func(a, b *zip.File) int {
		// Files that refer to bodies come first, because they have the types of the bodies.
		return cmp.Or(cmp.Compare(entryRank(a.Name), entryRank(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	out := zip.NewWriter(w)
	written := make(map[string]bool, len(files))
	for _, f := range files {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		name := s.secrets.Name(f.Name)
		if written[name] {
			return fmt.Errorf("it has two files called %.100q", name)
		}
		written[name] = true
		if s.lesson != nil && entryRank(f.Name) == rankRest && !s.teaches(f.Name) {
			continue
		}
		to := io.Discard
		if s.lesson == nil {
			if to, err = out.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate}); err != nil {
				return err
			}
		}
		if err := s.entry(to, f); err != nil {
			return fmt.Errorf("%.100q in it: %w", f.Name, err)
		}
	}
	if s.lesson != nil {
		return nil
	}
	return out.Close()
}

// The order in which the files of a trace are cleaned.
const (
	rankNetwork = iota
	rankTrace
	rankRest
)

func entryRank(name string) int {
	switch path.Ext(name) {
	case ".network":
		return rankNetwork
	case ".trace", ".stacks":
		return rankTrace
	}
	return rankRest
}

// teaches reports whether a body was sent or received with a type that has named fields.
func (s *scrub) teaches(name string) bool {
	return s.lesson.bodies[path.Base(name)] != ""
}

// entry cleans one file of a trace.
func (s *scrub) entry(w io.Writer, f *zip.File) error {
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	bounded := &boundedReader{r: in, left: MaxRedactEntry}
	if entryRank(f.Name) != rankRest {
		return s.lines(w, bounded)
	}
	b, err := io.ReadAll(bounded)
	if err != nil {
		return err
	}
	if !isMedia(b) {
		b = s.body(b, s.bodyType(path.Base(f.Name)))
	}
	_, err = w.Write(b)
	return err
}

// isMedia reports whether the first bytes are those of a picture, film or font, which contain no text.
func isMedia(b []byte) bool {
	media := http.DetectContentType(b)
	for _, prefix := range []string{"image/", "video/", "audio/", "font/"} {
		if strings.HasPrefix(media, prefix) {
			return true
		}
	}
	return false
}

// openZip opens a zip whose declared sizes are within bounds. [boundedReader] enforces them for false declarations.
func openZip(in *os.File) (*zip.Reader, error) {
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	if !info.Mode().IsRegular() || size > MaxRedactTotal {
		return nil, fmt.Errorf("it is not a file, or larger than %d MiB", MaxRedactTotal>>20)
	}
	// The zip reader makes a header of every entry before it returns their number.
	n, err := countEntries(io.NewSectionReader(in, 0, size))
	if err != nil {
		return nil, err
	}
	if n > MaxRedactEntries {
		return nil, fmt.Errorf("it has more than %d files", MaxRedactEntries)
	}
	z, err := zip.NewReader(in, size)
	if err != nil {
		return nil, err
	}
	var total uint64
	for _, f := range z.File {
		unpacked := f.UncompressedSize64
		switch total += min(unpacked, MaxRedactTotal+1); {
		case !filepath.IsLocal(f.Name) || strings.ContainsAny(f.Name, "\\\x00"):
			return nil, fmt.Errorf("it has a file with the name %.100q", f.Name)
		case unpacked > MaxRedactEntry:
			return nil, fmt.Errorf("%.100q in it is larger than %d MiB", f.Name, MaxRedactEntry>>20)
		case total > MaxRedactTotal:
			return nil, fmt.Errorf("it is larger than %d MiB", MaxRedactTotal>>20)
		case unpacked > ratioFrom && unpacked/maxRatio > f.CompressedSize64:
			return nil, fmt.Errorf("%.100q in it was packed more than %d times smaller", f.Name, maxRatio)
		}
	}
	return z, nil
}

// countEntries counts the marks of entries in a zip's directory. There may be a few more marks than entries.
func countEntries(r io.Reader) (n int, err error) {
	mark := []byte("PK\x01\x02")
	b := make([]byte, 64<<10)
	kept := 0
	for {
		m, err := r.Read(b[kept:])
		n += bytes.Count(b[:kept+m], mark)
		// The last bytes may be the start of a mark, and are kept. They are too few for a whole mark, so none is
		// counted twice.
		end := kept + m
		kept = min(len(mark)-1, end)
		copy(b, b[end-kept:end])
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// boundedReader returns an error after left bytes.
type boundedReader struct {
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("it is larger than %d MiB", MaxRedactEntry>>20)
	}
	return n, err
}

// spool returns r as a file, and a function that frees it. If r is a file, it is r itself.
func spool(r io.Reader) (f *os.File, done func() error, err error) {
	if f, ok := r.(*os.File); ok {
		return f, func() error { return nil }, nil
	}
	if f, err = os.CreateTemp("", "ramus-redact-*"); err != nil {
		return nil, nil, err
	}
	// The file needs no name, so it never remains.
	err = os.Remove(f.Name())
	if err == nil {
		var n int64
		n, err = io.Copy(f, io.LimitReader(r, MaxRedactTotal+1))
		if err == nil && n > MaxRedactTotal {
			err = fmt.Errorf("it is larger than %d MiB", MaxRedactTotal>>20)
		}
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, f.Close, nil
}
