package browser

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/internal/redact"
)

// Bounds on a file for [Redact]. A larger file is an error.
const (
	MaxRedactEntries = 20_000    // files in a trace
	MaxRedactEntry   = 64 << 20  // bytes of one file in a trace, or of a file that is not a trace
	MaxRedactTotal   = 512 << 20 // bytes of all files in a trace, and of the trace itself
	// A file in a trace that has more than ratioFrom bytes and was compressed by more than maxRatio is not from a page,
	// but made to fill memory.
	maxRatio, ratioFrom = 250, 8 << 20
	// A JSON text is kept as a tree, which needs up to a hundred bytes for each value.
	maxLine, maxValues = 32 << 20, 2_000_000
)

// Redacted replaces a credential that was found by its position. A known secret is replaced by "[secret NAME]"
// everywhere.
const Redacted = "[redacted]"

// Redact copies one file of a check, and removes cookies, Authorization and other credential headers, and the values of
// secrets. name determines the kind of the file (trace.zip, network.har, console.jsonl, aria.yml). Pictures and films
// are copied unchanged. The copy of a trace opens in Playwright's viewer like the original. Returns an error if the
// file cannot be parsed. The data written to w is not to be kept then. The input is hostile, and bounded by the
// constants.
//
// found has the names of the secrets in the file, in alphabetical order. Redact covers the names of headers and fields
// that docs/browser.md lists. A credential that was found in one part of a trace or HAR is removed from all of it, as
// for a cookie that a page prints or a password that it sends. [Learn] does so for the other files of a check.
func Redact(name string, w io.Writer, r io.Reader, secrets *redact.Secrets) (found []string, err error) {
	defer func() {
		if err != nil {
			found, err = nil, fmt.Errorf("cannot clean %s: %w", path.Base(name), err)
		}
	}()
	s := &scrub{secrets: secrets, known: secrets, found: make(map[string]bool)}
	if kindOf(name).teaches() {
		in, done, err := spool(r)
		if err != nil {
			return nil, err
		}
		defer done()
		l := &lesson{secrets: secrets}
		if err := (&scrub{secrets: secrets, lesson: l}).file(name, io.Discard, in); err != nil {
			return nil, err
		}
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		s.known, s.typed, s.bodies = secrets.With(l.named()), l.typed, l.bodies
		r = in
	}
	out := bufio.NewWriter(w)
	if err := errors.Join(s.file(name, out, r), out.Flush()); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(s.found)), nil
}

// Learn returns the values of cookies, credential headers and passwords in a trace.zip or network.har, by a name for
// people. They suit [redact.Secrets.With], because a credential of one file must not appear in another, or in the check
// itself. It returns nothing for other files. It leaves out values that may be words of the page as well, such as
// "dark" in the cookie "theme=dark".
func Learn(name string, r io.Reader, secrets *redact.Secrets) (values map[string]string, err error) {
	l := &lesson{secrets: secrets}
	if err := (&scrub{secrets: secrets, lesson: l}).file(name, io.Discard, r); err != nil {
		return nil, fmt.Errorf("cannot search %s for credentials: %w", path.Base(name), err)
	}
	return l.named(), nil
}

// kind is the kind of a file, which determines the way of cleaning it.
type kind int

const (
	kindText   kind = iota // any other file, by the rules for text
	kindMedia              // pictures and films, which cannot be cleaned
	kindTrace              // a zip of Playwright
	kindHAR                // one JSON text
	kindLines              // one JSON text per line
	kindOpaque             // PDF, whose text is compressed and cannot be cleaned
)

func kindOf(name string) kind {
	base := path.Base(name)
	switch strings.ToLower(path.Ext(base)) {
	case ".zip":
		return kindTrace
	case ".har":
		return kindHAR
	case ".jsonl":
		return kindLines
	case ".png", ".jpeg", ".jpg", ".gif", ".webp", ".webm", ".mp4":
		return kindMedia
	case ".pdf":
		return kindOpaque
	}
	return kindText
}

func (k kind) teaches() bool { return k == kindTrace || k == kindHAR }

// file cleans a file of any kind.
func (s *scrub) file(name string, w io.Writer, r io.Reader) error {
	k := kindOf(name)
	if s.lesson != nil && !k.teaches() {
		return nil
	}
	switch k {
	case kindMedia, kindOpaque:
		_, err := io.Copy(w, r)
		return err
	case kindTrace:
		return s.archive(w, r)
	case kindLines:
		return s.lines(w, r)
	}
	b, err := readAll(r, MaxRedactEntry)
	if err != nil {
		return err
	}
	if k == kindText {
		_, err := io.WriteString(w, s.text(string(b)))
		return err
	}
	v, err := parseJSON(b)
	if err != nil {
		return err
	}
	return writeJSON(w, s.value("", v))
}

// lines cleans a file of one JSON text per line. It has one line in memory at a time.
func (s *scrub) lines(w io.Writer, r io.Reader) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		line, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("line %d: %w", n, err)
		}
		last := err != nil
		if line = bytes.TrimSpace(line); len(line) > 0 {
			v, err := parseJSON(line)
			if err == nil {
				err = writeJSON(w, s.event(v))
			}
			if err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
		if last {
			return nil
		}
	}
}

// readLine reads to the end of a line. It returns io.EOF together with the last line.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, fmt.Errorf("it is longer than %d MiB", maxLine>>20)
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

// readAll reads at most limit bytes. Returns an error if there are more.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("it is larger than %d MiB", limit>>20)
	}
	return b, err
}
