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

// What a file may be at most to be cleaned. One that is more is an error of [Redact].
const (
	MaxRedactEntries = 20_000    // files in a trace
	MaxRedactEntry   = 64 << 20  // bytes of one of them, or of a file that is no trace
	MaxRedactTotal   = 512 << 20 // bytes of all of them, and of the trace itself
	// A file in a trace of more than 8 MiB that was packed to less than a 250th of
	// it is no page's: it is there to fill memory.
	maxRatio, ratioFrom = 250, 8 << 20
	// A JSON text is held as a tree, which needs up to a hundred bytes a value.
	maxLine, maxValues = 32 << 20, 2_000_000
)

// Redacted is what takes the place of a credential that was found by where it stood; a
// secret that was known becomes "[secret NAME]", wherever it stands.
const Redacted = "[redacted]"

// Redact copies one file of a check and takes out of it cookies, Authorization and other
// credential headers, and the values of secrets: name says what kind of file it is
// (trace.zip, network.har, console.jsonl, aria.yml; pictures and films go as they are). The
// copy of a trace opens in Playwright's viewer like the original. What cannot be
// parsed is an error: it is not kept then, nor what was written to w until then. Input is hostile and
// bounded: see the constants.
//
// found names those of secrets that the file held, in alphabetical order. Beyond the
// names of headers and fields that docs/browser.md lists, a credential that was found in
// one place of a trace or HAR is taken out of all of it: a cookie that a page
// prints, a password that it sends. [Learn] does so for the other files of a check.
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

// Learn finds the values of cookies, credential headers and passwords in a trace.zip
// or network.har, by a name for people, fit for [redact.Secrets.With]: what one file of a check gives
// away shall not stand in another, nor in the check itself. Other files teach nothing. Values
// that may be words of the page as well ("theme=dark" is a cookie, too) are not among them.
func Learn(name string, r io.Reader, secrets *redact.Secrets) (values map[string]string, err error) {
	l := &lesson{secrets: secrets}
	if err := (&scrub{secrets: secrets, lesson: l}).file(name, io.Discard, r); err != nil {
		return nil, fmt.Errorf("cannot look for credentials in %s: %w", path.Base(name), err)
	}
	return l.named(), nil
}

// kind is what a file is, which decides how it is cleaned.
type kind int

const (
	kindText   kind = iota // anything else: the rules for text
	kindMedia              // pictures and films, which cannot be cleaned
	kindTrace              // a zip of Playwright's
	kindHAR                // one JSON text
	kindLines              // one JSON text a line
	kindOpaque             // PDF: its text is packed and cannot be cleaned
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

// lines cleans a file of one JSON text a line. Lines are held one at a time.
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

// readLine reads up to a line's end; with the last line comes io.EOF.
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

// readAll reads no more than limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("it is larger than %d MiB", limit>>20)
	}
	return b, err
}
