package search

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/s2"
)

// TestDecodeChunk refuses entries that no chunk has.
func TestDecodeChunk(t *testing.T) {
	entry := func(plain string) []byte {
		packed := s2.Encode(nil, []byte(plain))
		return append(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(packed)), packed...)
	}
	for name, b := range map[string][]byte{
		"empty":             nil,
		"short":             {0, 0, 0},
		"wrong sum":         append([]byte{1, 2, 3, 4}, entry("[]\n")[4:]...),
		"no parts":          entry("[]\ntext\n"),
		"no line":           entry(`[{"at":0}]`),
		"no JSON":           entry("x\ntext\n"),
		"begins later":      entry(`[{"at":1}]` + "\ntext\n"),
		"negative":          entry(`[{"at":-1}]` + "\ntext\n"),
		"after the end":     entry(`[{"at":0},{"at":6}]` + "\ntext\n"),
		"at the same place": entry(`[{"at":0},{"at":2},{"at":2}]` + "\ntext\n"),
		"backwards":         entry(`[{"at":0},{"at":3},{"at":2}]` + "\ntext\n"),
	} {
		if _, err := decodeChunk(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := decodeChunk(entry(`[{"kind":"output","at":0,"line":1},{"kind":"path","at":3,"line":1}]` + "\nab\ncd\n"))
	if err != nil || len(c.parts) != 2 || string(c.text) != "ab\ncd\n" || c.parts[1].Kind != KindPath {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestLongSteps indexes a chunk of many short passages of steps with long names.
func TestLongSteps(t *testing.T) {
	var chunks [][]byte
	b := newBuilder(func(_, encoded []byte) error {
		chunks = append(chunks, encoded)
		return nil
	})
	p := Passage{Kind: KindCommand, Stream: "stdout", Seq: 1 << 60, Step: strings.Repeat("<", 1000)}
	for range chunkText/2 + 1 {
		if err := b.Add(p, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.flush(); err != nil {
		t.Fatal(err)
	}
	for i, encoded := range chunks {
		if _, err := decodeChunk(encoded); err != nil {
			t.Errorf("chunk %d of %d: %v", i, len(chunks), err)
		}
	}
}

// TestAround cuts long lines to the part around a place.
func TestAround(t *testing.T) {
	for at := range 3 * maxHitText {
		line := strings.Repeat("ł", at/2) + strings.Repeat("a", at%2) + "needle" + strings.Repeat("ø", maxHitText)
		got := around([]byte(line), at)
		if !strings.Contains(got, "needle") || !utf8.ValidString(got) || len(got) > maxHitText+len("…") || strings.Contains(got, "\uFFFD") {
			t.Fatalf("at %d: %q", at, got)
		}
		if cut := at > maxHitText; cut != strings.HasPrefix(got, "…") && cut {
			t.Fatalf("at %d: %q does not show that it is cut", at, got)
		}
	}
	if got := around([]byte("a\xffb"), 0); got != "a\uFFFDb" {
		t.Errorf("%q", got)
	}
}

// TestGrams lists the sequences of three bytes, which no line end divides.
func TestGrams(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "ab": nil, "abc": {"abc"}, "abcd": {"abc", "bcd"}, "ab\ncd": nil, "a\nbcd": {"bcd"}, "abc\n": {"abc"}, "\nabc": {"abc"},
	} {
		var got []string
		grams([]byte(text), func(g uint32) { got = append(got, string([]byte{byte(g >> 16), byte(g >> 8), byte(g)})) })
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestSign makes signatures as large as the texts are manifold, and finds what is in them.
func TestSign(t *testing.T) {
	seen := make([]uint64, 1<<24/64)
	all := make([]byte, 0, 3<<16)
	for i := range 1 << 16 {
		all = append(all, byte(i>>8)|1, byte(i), '.')
	}
	for _, x := range []struct {
		text string
		size int
	}{{"", minSignature}, {"abc", minSignature}, {strings.Repeat("a", 10000), minSignature}, {"abcdefghijklmnopqrstuvwxyz0123456789", 32},
		{string(all), maxSignature}} {
		s := sign([]byte(x.text), seen)
		if len(s) != x.size {
			t.Errorf("%.20q has %d bytes", x.text, len(s))
		}
		grams([]byte(x.text), func(g uint32) {
			if !mayHave(s, []uint32{g}) {
				t.Fatalf("%.20q lacks %x", x.text, g)
			}
		})
	}
	if slices.ContainsFunc(seen, func(w uint64) bool { return w != 0 }) {
		t.Error("the set is not empty")
	}
	if s := sign([]byte("abcdef"), seen); mayHave(s, []uint32{'x'<<16 | 'y'<<8 | 'z'}) || !mayHave([]byte{1, 2, 3}, []uint32{1}) {
		t.Errorf("%x", s)
	}
}
