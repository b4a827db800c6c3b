// Package redact removes the values of secrets from text and streams.
//
// A server has secrets, such as tokens, keys and passwords. They never enter a container, but a person may paste one, a
// tool may print one, and an error of a library may quote one. [Secrets] knows the exact values and removes them
// wherever text is journalled, stored or shown. It removes a value unchanged, in its base64 (both alphabets, at each of
// the three offsets), hexadecimal (both cases) and URL-encoded forms, and in the quotes of JSON, a shell, Go and HTML.
// It also finds a value that is split over several writes, or an encoding over several lines. Each longer line of a
// value with several lines, such as a private key, is a secret by itself.
//
// The removal is exact. Text without a value is copied byte for byte. It does not protect against a person who has a
// value and hides it in another form. If base64 text begins or ends within a value's first or last three bytes, the
// characters that also have bits of a neighbour are kept. They reveal at most four bits of the value at either end.
package redact

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// MinLength is the length of the shortest value that is removed, in bytes. Shorter ones would be found everywhere.
const MinLength = 8

// Secrets is a set of values to remove. A nil *Secrets removes nothing. Values may be added, and never leave it. It is
// safe for concurrent use.
type Secrets struct {
	now atomic.Pointer[table]
	mu  sync.Mutex // held by Add
}

// table has the values of a set. It is immutable.
type table struct {
	// patterns are by their first eight bytes, the longest first.
	patterns map[uint64][]*pattern
	// heads are the first one to seven bytes of all patterns. The value is true for patterns that line breaks may
	// split.
	heads map[uint64]bool
	// first has the first four bytes of all patterns, and blocks any four of their first eight.
	first, blocks filter
}

// New returns a set of values by name. It leaves out values shorter than MinLength and returns their names. A value in
// a text is replaced by "[secret NAME]". White space around a value is not a part of it.
func New(list map[string]string) (s *Secrets, short []string) {
	v := newTable()
	known := make(map[string]*pattern)
	// In the order of names, so that a value with two names always shows the same one.
	for _, name := range slices.Sorted(maps.Keys(list)) {
		value := strings.TrimSpace(list[name])
		if len(value) < MinLength {
			short = append(short, name)
			continue
		}
		for _, f := range formsOf(value) {
			if known[f.text] == nil {
				known[f.text] = &pattern{text: []byte(f.text), wraps: f.wraps, name: name}
			}
		}
	}
	for _, p := range known {
		v.add(p)
	}
	v.sort()
	v.label(known)
	return v.set(), short
}

func newTable() *table {
	return &table{patterns: make(map[uint64][]*pattern), heads: make(map[uint64]bool)}
}

// set returns a set of the values.
func (v *table) set() *Secrets {
	s := new(Secrets)
	s.now.Store(v)
	return s
}

// sort brings the longest patterns to the front.
func (v *table) sort() {
	for _, list := range v.patterns {
		slices.SortFunc(list, func(a, b *pattern) int { return len(b.text) - len(a.text) })
	}
}

// Add adds values by name, and returns the names of those that are too short, as New does. A stream that is being
// copied keeps the part of a new value that has gone through before.
func (s *Secrets) Add(list map[string]string) (short []string) {
	more, short := New(list)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Store(s.now.Load().with(more.now.Load()))
	return short
}

// label sets the replacement of each pattern. It has no meaning in JSON, HTML or a shell's quotes, so that it can
// replace the value there. A name that contains a secret, its own or another, must not show it.
func (v *table) label(known map[string]*pattern) {
	plain := func(r rune) rune {
		if r < ' ' || strings.ContainsRune("\"\\'`<>&$%", r) || r == utf8.RuneError {
			return '_'
		}
		return r
	}
	for _, p := range known {
		p.name = strings.Map(plain, p.name)
		p.label = []byte("[secret " + p.name + "]")
	}
	for _, p := range known {
		if found := v.set().find(p.label); len(found) > 0 {
			p.label, p.name = []byte("[…]"), "…" // shorter than any value
		}
	}
}

// With returns a set of these values and further ones. A value that is in both keeps its name. Values that are added to
// s later are not in it.
func (s *Secrets) With(list map[string]string) *Secrets {
	more, _ := New(list)
	if s.Empty() {
		return more
	}
	return s.now.Load().with(more.now.Load()).set()
}

// with returns the values of both. v may be nil.
func (v *table) with(more *table) *table {
	all := newTable()
	known := make(map[string]bool)
	for _, one := range []*table{v, more} {
		if one == nil {
			continue
		}
		for _, list := range one.patterns {
			for _, p := range list {
				if !known[string(p.text)] {
					known[string(p.text)] = true
					all.add(p)
				}
			}
		}
	}
	all.sort()
	return all
}

// Empty reports whether there is nothing to remove.
func (s *Secrets) Empty() bool {
	if s == nil {
		return true
	}
	v := s.now.Load()
	return v == nil || len(v.patterns) == 0
}

// String returns text without secrets. It returns the same text if there is none.
func (s *Secrets) String(text string) string {
	if s.Empty() || len(text) < MinLength {
		return text
	}
	b := []byte(text)
	if out := s.Bytes(b); len(out) != len(b) || &out[0] != &b[0] {
		return string(out)
	}
	return text
}

// Bytes returns b without secrets. It returns b itself if there is none, and never changes b.
func (s *Secrets) Bytes(b []byte) []byte {
	if s.Empty() || len(b) < MinLength {
		return b
	}
	if _, p, _, _ := s.next(b, 0, true); p == nil {
		return b
	}
	var c cut
	out, _ := c.takeText(s, nil, b, true)
	return out
}

// Name returns a file's path without secrets. A replacement has no slash. Two paths may become the same.
func (s *Secrets) Name(path string) string {
	if s.Empty() || len(path) < MinLength {
		return path
	}
	var out []byte
	b, start, covered := []byte(path), 0, 0
	for i := 0; ; {
		at, p, n, _ := s.next(b, i, true)
		if p == nil {
			break
		}
		if at >= covered {
			out = append(append(out, b[start:at]...), bytes.ReplaceAll(p.label, []byte("/"), []byte("_"))...)
		}
		covered = max(covered, at+n)
		start, i = covered, at+1
	}
	if start == 0 {
		return path
	}
	return string(append(out, b[start:]...))
}

// Find returns the names of the secrets in r, in alphabetical order. It reads r to its end. After an error it returns
// those found before.
func (s *Secrets) Find(r io.Reader) (names []string, err error) {
	if s.Empty() {
		_, err = io.Copy(io.Discard, r)
		return nil, err
	}
	f := s.Finder()
	_, err = io.Copy(f, r)
	return f.Names(), err
}

// find returns the names of the secrets in b.
func (s *Secrets) find(b []byte) []string {
	f := s.Finder()
	_, _ = f.Write(b) // Write never fails
	return f.Names()
}

// Finder finds the secrets in the text written to it. It keeps no text. It is not safe for concurrent use.
type Finder struct {
	s     *Secrets
	held  []byte
	names map[string]bool
}

// Finder returns a new Finder.
func (s *Secrets) Finder() *Finder { return &Finder{s: s} }

// Write never fails.
func (f *Finder) Write(p []byte) (int, error) {
	if !f.s.Empty() {
		b := p
		if len(f.held) > 0 {
			b = append(f.held, p...)
		}
		f.held = append(f.held[:0], b[f.scan(b, false):]...)
	}
	return len(p), nil
}

// Names returns the names of the secrets in the text written so far, in alphabetical order. Later writes start another
// text.
func (f *Finder) Names() []string {
	if !f.s.Empty() {
		f.scan(f.held, true)
	}
	names := slices.Sorted(maps.Keys(f.names))
	f.held, f.names = f.held[:0], nil
	return names
}

func (f *Finder) scan(b []byte, final bool) (done int) {
	for i := 0; ; {
		at, p, _, _ := f.s.next(b, i, final)
		if p == nil {
			return at
		}
		if f.names == nil {
			f.names = make(map[string]bool)
		}
		f.names[p.name] = true
		i = at + 1
	}
}

// Writer removes secrets from the text written through it, including values that are split over writes. It holds back
// text that may be the beginning of a value, until that is decided or until Flush, which must be called at the end. All
// other text is written immediately. It is not safe for concurrent use.
type Writer struct {
	s    *Secrets
	w    io.Writer
	cut  cut
	held []byte
	out  []byte
	err  error
}

// Writer returns a Writer that writes to w.
func (s *Secrets) Writer(w io.Writer) *Writer { return &Writer{s: s, w: w} }

// Write takes all of p. It returns the error of w, which stays.
func (w *Writer) Write(p []byte) (int, error) {
	if w.s.Empty() {
		return w.w.Write(p)
	}
	if w.err != nil {
		return 0, w.err
	}
	b := p
	if len(w.held) > 0 {
		w.held = append(w.held, p...)
		b = w.held
	}
	if err := w.pass(b, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes the text held back. Later writes start another text.
func (w *Writer) Flush() error {
	if w.s.Empty() || w.err != nil {
		return w.err
	}
	return w.pass(w.held, true)
}

// Held returns the number of bytes that may be the beginning of a secret.
func (w *Writer) Held() int { return len(w.held) }

// LetGo writes the text held back and continues the search. If a secret follows after all, that part of it has been
// shown, and the rest is removed.
func (w *Writer) LetGo() error {
	if w.err != nil || w.cut.covered >= len(w.held) {
		return w.err
	}
	_, w.err = w.w.Write(w.held[w.cut.covered:])
	w.cut.covered = len(w.held)
	return w.err
}

// Found returns the names of the removed secrets, in alphabetical order.
func (w *Writer) Found() []string { return slices.Sorted(maps.Keys(w.cut.found)) }

func (w *Writer) pass(b []byte, final bool) error {
	out, rest := w.cut.takeText(w.s, w.out[:0], b, final)
	if len(out) > 0 {
		n, err := w.w.Write(out)
		if err == nil && n < len(out) {
			err = io.ErrShortWrite
		}
		if w.err = err; err != nil {
			return err
		}
	}
	// Large writes are rare, so their memory is not kept.
	if w.out = out; cap(out) > 1<<20 {
		w.out = nil
	}
	w.held = append(w.held[:0], rest...)
	return nil
}

// Copy copies r without secrets to w, and returns the names of the removed ones.
func (s *Secrets) Copy(w io.Writer, r io.Reader) (found []string, err error) {
	out := s.Writer(w)
	_, err = io.Copy(out, r)
	return out.Found(), errors.Join(err, out.Flush())
}
