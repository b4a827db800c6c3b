package replay

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFirstDifference(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for _, x := range []struct {
		was, now string
		line     int
		a, b     string
	}{
		{"", "", 0, "", ""},
		{"1\n2\n", "1\n2\n", 0, "", ""},
		{"1\n2\n", "1\n3\n", 2, "2", "3"},
		{"1\n", "1\n2\n", 2, "", "2\n"},
		{"1", "1\n", 1, "1", "1\n"},
		{long + "a\n", long + "b\n", 1, "…" + strings.Repeat("x", 100) + "a", "…" + strings.Repeat("x", 100) + "b"},
		{long, long + "\n2", 1, "…" + strings.Repeat("x", 100), "…" + strings.Repeat("x", 100) + "\n"},
		{"\xff\n", "a\n", 1, "\uFFFD", "a"},
	} {
		d, err := FirstDifference(strings.NewReader(x.was), strings.NewReader(x.now))
		if err != nil {
			t.Fatal(err)
		}
		if d == nil {
			d = &Difference{}
		}
		if d.Line != x.line || d.Was != x.a || d.Now != x.b {
			t.Errorf("%.20q, %.20q: %+v", x.was, x.now, d)
		}
	}
	if _, err := FirstDifference(strings.NewReader("1"), iotest.ErrReader(io.ErrUnexpectedEOF)); err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
}

// FuzzFirstDifference finds the line of the first byte that differs, in whichever parts the texts are read.
func FuzzFirstDifference(f *testing.F) {
	f.Add([]byte("1\n2\n"), []byte("1\n3\n"), false)
	f.Add(bytes.Repeat([]byte("x"), 64<<10), bytes.Repeat([]byte("x"), 64<<10+1), true)
	f.Add([]byte("1\n"), []byte("1\n2"), true)
	f.Fuzz(func(t *testing.T, was, now []byte, slow bool) {
		var a, b io.Reader = bytes.NewReader(was), bytes.NewReader(now)
		if slow {
			a = iotest.DataErrReader(a)
		}
		d, err := FirstDifference(a, b)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(was, now) {
			if d != nil {
				t.Errorf("equal texts: %+v", d)
			}
			return
		}
		at := 0
		for at < min(len(was), len(now)) && was[at] == now[at] {
			at++
		}
		if want := 1 + bytes.Count(was[:at], []byte("\n")); d == nil || d.Line != want {
			t.Errorf("%+v, want line %d", d, want)
		}
	})
}
