package pathspec

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestLFReader reads content that arrives in pieces of every size.
func TestLFReader(t *testing.T) {
	for _, text := range []string{"", "\r", "\r\n", "a\r\nb", "\r\r\n\r", "a\rb\n\r\n", strings.Repeat("0123456789\r\n", 50) + "\r"} {
		for _, in := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)),
			iotest.DataErrReader(strings.NewReader(text))} {
			got, err := io.ReadAll(iotest.HalfReader(lfReader{bufio.NewReaderSize(in, 16)}))
			if want := ToLF([]byte(text)); string(got) != string(want) || err != nil {
				t.Errorf("%q became %q, %v", text, got, err)
			}
		}
	}
	broken := errors.New("broken")
	if _, err := io.ReadAll(lfReader{bufio.NewReader(io.MultiReader(strings.NewReader("a\r"),
		iotest.ErrReader(broken)))}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// TestBinary checks the bounds at which git takes content for binary.
func TestBinary(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                    false,
		"a\tb\f\b\x1b\n":                      false,
		"a\r\nb\r\n":                          false,
		"a\rb":                                true,
		"a\r":                                 true,
		"a\x00":                               true,
		"a\x01":                               true,
		"a\x7f":                               true,
		"\xffé":                               false,
		"a\x1a":                               false, // the end-of-file character of DOS
		"a\x1ab":                              true,
		strings.Repeat("a", 127) + "\x01":     true,
		strings.Repeat("a", 128) + "\x01":     false,
		strings.Repeat("a", 255) + "\x01\x02": true,
		strings.Repeat("a", 256) + "\x01\x02": false,
	} {
		for _, size := range []int{1, len(text) + 1} { // bytes written at once
			var s TextStats
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				s.Write(rest[:min(size, len(rest))]) // never fails
			}
			if s.Finish(); s.Binary() != want {
				t.Errorf("%.20q with %d bytes at once: binary %v, want %v: %+v", text, size, s.Binary(), want, s)
			}
		}
	}
}

// TestConversionOf checks how the attributes of a path decide together.
func TestConversionOf(t *testing.T) {
	set, unset := Value{state: stateSet}, Value{state: stateUnset}
	text := func(s string) Value { return Value{stateText, s} }
	for name, c := range map[string]struct {
		values map[string]Value
		want   Conversion
	}{
		"none":                {nil, Conversion{}},
		"text":                {map[string]Value{"text": set}, Conversion{Lines: LinesText}},
		"no text":             {map[string]Value{"text": unset, "eol": text("crlf")}, Conversion{Lines: LinesKept}},
		"its former name":     {map[string]Value{"crlf": set}, Conversion{Lines: LinesText}},
		"both names":          {map[string]Value{"text": set, "crlf": unset}, Conversion{Lines: LinesText}},
		"both names, reverse": {map[string]Value{"text": unset, "crlf": set}, Conversion{Lines: LinesKept}},
		"line ends":           {map[string]Value{"eol": text("crlf")}, Conversion{Lines: LinesText, CRLF: true}},
		"ident":               {map[string]Value{"ident": set, "text": set}, Conversion{GitOnly: "ident"}},
		"large":               {map[string]Value{"filter": text("lfs"), "text": unset}, Conversion{Large: true}},
	} {
		if got := ConversionOf(c.values); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestOpenQuotes checks lines whose quoted pattern does not end or has a wrong escape. The quote is then a character of the pattern.
func TestOpenQuotes(t *testing.T) {
	for _, pattern := range []string{`"`, `"a`, `"\`, `"\1`, `"\14`, `"\141`, `"\418"`, `"\181"`, `"\118"`} {
		for line, rules := range map[string]int{pattern: 0, pattern + " text": 1} {
			if a, err := ParseAttributes([]byte(line), true); err != nil || len(a.rules) != rules {
				t.Errorf("%s: %+v, %v", line, a, err)
			}
		}
	}
}
