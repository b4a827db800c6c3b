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
