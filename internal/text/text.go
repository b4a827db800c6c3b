// Package text shortens texts. All results are valid UTF-8, for any input. Limits are in bytes.
//
//   - [Clip] keeps the beginning, [ClipEnd] the end, [ClipMiddle] both.
//   - [OneLine] makes one line of a text.
//   - [Visible] also removes the characters that show nothing.
//   - [Tail] is a writer that keeps the end of a stream.
package text

import (
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Ellipsis marks the place of a cut.
const Ellipsis = "…"

// Clip returns s if it has at most limit bytes. Otherwise it returns the runes that fit into the first limit bytes, and an
// [Ellipsis]. Bytes of s that are not UTF-8 become U+FFFD.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return valid(s)
	}
	return valid(Head(s, limit)) + Ellipsis
}

// ClipEnd returns s if it has at most limit bytes. Otherwise it returns an [Ellipsis] and the runes that fit into the last
// limit bytes. Bytes of s that are not UTF-8 become U+FFFD.
func ClipEnd(s string, limit int) string {
	if len(s) <= limit {
		return valid(s)
	}
	return Ellipsis + valid(End(s, limit))
}

// ClipMiddle returns s if it has at most limit bytes. Otherwise it returns the first and the last half of limit, with a line between
// them that has the number of bytes left out. It suits the output of programs, which matters most at its beginning and its end.
func ClipMiddle(s string, limit int) string {
	if len(s) <= limit {
		return valid(s)
	}
	head, end := Head(s, limit/2), End(s, limit-limit/2)
	return fmt.Sprintf("%s\n… %d bytes left out …\n%s", valid(head), len(s)-len(head)-len(end), valid(end))
}

// Head returns the longest beginning of s of at most limit bytes that does not end within a rune. It returns nothing if limit is negative.
func Head(s string, limit int) string {
	if limit = max(limit, 0); len(s) <= limit {
		return s
	}
	for n := limit; n > limit-utf8.UTFMax && n > 0; n-- {
		if utf8.RuneStart(s[n]) {
			return s[:n]
		}
	}
	return s[:limit] // not UTF-8
}

// End returns the longest end of s of at most limit bytes that does not begin within a rune. It returns nothing if limit is negative.
func End(s string, limit int) string {
	if limit = max(limit, 0); len(s) <= limit {
		return s
	}
	s = s[len(s)-limit:]
	for n := 0; n < min(utf8.UTFMax, len(s)); n++ {
		if utf8.RuneStart(s[n]) {
			return s[n:]
		}
	}
	return s // not UTF-8
}

// OneLine returns s with each run of space and of control characters as one space, without space at its ends, clipped as by [Clip].
// Bytes of s that are not UTF-8 become U+FFFD before.
func OneLine(s string, limit int) string {
	return Clip(joined(valid(Head(s, 64*max(limit, 1)))), limit)
}

// FirstLine returns the first line of s that is not empty, without the white space around it.
func FirstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(line)
}

func joined(s string) string {
	words := strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
	return strings.Join(words, " ")
}

// Visible returns s as one line, like [OneLine] but without a limit, and without the characters that are [Invisible].
// It returns "" if nothing of s can be seen.
func Visible(s string) string {
	s = joined(strings.Map(func(r rune) rune {
		if Invisible(r) && !unicode.IsControl(r) {
			return -1
		}
		return r
	}, valid(s)))
	if strings.IndexFunc(s, func(r rune) bool { return r != ' ' && !isFiller(r) }) < 0 {
		return ""
	}
	return s
}

// isFiller reports whether a rune that is not [Invisible] shows nothing if it is alone: the joiners, the fillers of
// Hangul, the blank pattern of Braille and the selectors of variants.
func isFiller(r rune) bool {
	switch r {
	case '\u034f', '\u115f', '\u1160', '\u17b4', '\u17b5', '\u200c', '\u200d', '\u2800', '\u3164', '\uffa0':
		return true
	}
	return '\ufe00' <= r && r <= '\ufe0f' || 0xe0100 <= r && r <= 0xe01ef
}

// Invisible reports whether a rune shows nothing or changes the direction of the text after it. It is false for line
// feeds, for tabs and for the joiners of emoji and of some scripts (U+200C, U+200D).
func Invisible(r rune) bool {
	switch {
	case r == '\u00ad', r == '\u061c', r == '\u180e', r == '\u200b', r == '\u200e', r == '\u200f', r == '\ufeff',
		'\u202a' <= r && r <= '\u202e', '\u2060' <= r && r <= '\u206f', '\ufff9' <= r && r <= '\ufffb',
		0xe0000 <= r && r <= 0xe007f:
		return true
	}
	return unicode.IsControl(r) && r != '\n' && r != '\t'
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Tail keeps the last Limit bytes written to it. Its methods may be called concurrently. The zero value keeps nothing.
type Tail struct {
	Limit int // bytes

	mu    sync.Mutex // guards the fields below
	kept  []byte
	total int64
}

// Write appends b. It never fails.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(b))
	t.kept = append(t.kept, b[max(0, len(b)-t.Limit):]...)
	// Twice the limit is kept so that most writes move nothing.
	if len(t.kept) > 2*t.Limit {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-t.Limit:]...)
	}
	return len(b), nil
}

// String returns the bytes kept as valid UTF-8, from the first whole rune on.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return valid(End(string(t.kept), t.Limit))
}

// Bytes returns the bytes kept as they were written, from the first whole rune on, and how many bytes were written before
// them.
func (t *Tail) Bytes() (kept []byte, before int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept = t.kept[max(0, len(t.kept)-t.Limit):]
	if int64(len(kept)) < t.total {
		for n := 0; n < utf8.UTFMax && len(kept) > 0 && !utf8.RuneStart(kept[0]); n++ {
			kept = kept[1:]
		}
	}
	return append([]byte(nil), kept...), t.total - int64(len(kept))
}

// WholeRunes returns how many bytes of b are before a rune whose end is missing at its end.
func WholeRunes(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-n:]) {
				return len(b) - n
			}
			break
		}
	}
	return len(b)
}

// Total returns how many bytes were written.
func (t *Tail) Total() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}
