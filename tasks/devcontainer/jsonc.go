package devcontainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds on the text of a file.
const (
	MaxBytes  = 64 << 10
	maxDepth  = 16
	maxValues = 2_000
)

// mistake is an error at a byte of a text.
type mistake struct {
	offset int64
	text   string
}

func (m *mistake) Error() string { return m.text }

// plain returns JSON with comments and trailing commas as JSON of the same length, so that offsets stay. The text must be UTF-8.
func plain(text []byte) ([]byte, error) {
	out := bytes.Clone(text)
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			if out[i] != '\n' && out[i] != '\r' {
				out[i] = ' '
			}
		}
	}
	comma := -1 // the offset of a comma with only space and comments after it
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case c == '"':
			comma = -1
			end := endOfString(out, i)
			if end < 0 {
				return nil, &mistake{int64(i), "this text does not end"}
			}
			i = end
		case c == '/' && i+1 < len(out) && out[i+1] == '/':
			end := bytes.IndexByte(out[i:], '\n')
			if end < 0 {
				end = len(out) - i
			}
			blank(i, i+end)
			i += end - 1
		case c == '/' && i+1 < len(out) && out[i+1] == '*':
			end := bytes.Index(out[i+2:], []byte("*/"))
			if end < 0 {
				return nil, &mistake{int64(i), "this comment does not end"}
			}
			blank(i, i+2+end+2)
			i += 2 + end + 1
		case c == ',':
			comma = i
		case c == '}' || c == ']':
			if comma >= 0 {
				out[comma] = ' '
			}
			comma = -1
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		default:
			comma = -1
		}
	}
	return out, nil
}

// endOfString returns the offset of the quote that ends the string that begins at i, or -1.
func endOfString(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		case '\n':
			return -1
		}
	}
	return -1
}

// standardize checks JSON with comments, and returns it as JSON. Only the mistakes of [File] are left to find.
func standardize(text []byte) ([]byte, error) {
	if len(text) > MaxBytes {
		return nil, &mistake{0, fmt.Sprintf("the file has %d bytes; it may have %d", len(text), MaxBytes)}
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !utf8.Valid(text) {
		return nil, &mistake{0, "this is not UTF-8"}
	}
	out, err := plain(text)
	if err != nil {
		return nil, err
	}
	return out, check(out)
}

// check checks and bounds JSON, and reports repeated keys.
func check(text []byte) error {
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		return syntax(text, err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	values := 0
	var walk func(depth int) error
	walk = func(depth int) error {
		t, err := d.Token()
		if err != nil {
			return syntax(text, err)
		}
		if values++; values > maxValues {
			return &mistake{d.InputOffset(), fmt.Sprintf("the file has more than %d values", maxValues)}
		}
		open, ok := t.(json.Delim)
		if !ok {
			return nil
		}
		if depth >= maxDepth {
			return &mistake{d.InputOffset(), fmt.Sprintf("nested more than %d deep", maxDepth)}
		}
		keys := map[string]bool{}
		for d.More() {
			if open == '{' {
				t, err := d.Token()
				if err != nil {
					return syntax(text, err)
				}
				key, _ := t.(string) // the decoder accepts nothing else
				if keys[key] {
					return &mistake{d.InputOffset(), fmt.Sprintf("the key %q is there twice", key)}
				}
				keys[key] = true
			}
			if err := walk(depth + 1); err != nil {
				return err
			}
		}
		if _, err := d.Token(); err != nil {
			return syntax(text, err)
		}
		return nil
	}
	return walk(0)
}

// syntax returns an error of the decoder with its place.
func syntax(text []byte, err error) error {
	var s *json.SyntaxError
	if !errors.As(err, &s) {
		return &mistake{0, "this is not JSON: " + err.Error()}
	}
	if s.Offset >= int64(len(text)) && strings.HasPrefix(s.Error(), "unexpected end") {
		return &mistake{s.Offset, "the file ends too early"}
	}
	return &mistake{s.Offset - 1, "this is not JSON: " + s.Error()}
}

// positionOf returns the line and the column, in characters, of an offset.
func positionOf(text []byte, offset int64) (line, column int) {
	before := text[:min(max(offset, 0), int64(len(text)))]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
}
