package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/internal/text"
)

func TestClip(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(string, int) string
		in    string
		limit int
		want  string
	}{
		{name: "clip: short", do: text.Clip, in: "abc", limit: 3, want: "abc"},
		{name: "clip: long", do: text.Clip, in: "abcd", limit: 3, want: "abc…"},
		{name: "clip: within a rune", do: text.Clip, in: "aé", limit: 2, want: "a…"},
		{name: "clip: at a rune", do: text.Clip, in: "éa", limit: 2, want: "é…"},
		{name: "clip: not UTF-8", do: text.Clip, in: "a\xffb", limit: 9, want: "a\uFFFDb"},
		{name: "clip: nothing", do: text.Clip, in: "a", limit: 0, want: "…"},
		{name: "clip: negative", do: text.Clip, in: "a", limit: -1, want: "…"},
		{name: "clip: empty", do: text.Clip, in: "", limit: 0, want: ""},
		{name: "end: short", do: text.ClipEnd, in: "abc", limit: 3, want: "abc"},
		{name: "end: long", do: text.ClipEnd, in: "abcd", limit: 3, want: "…bcd"},
		{name: "end: within a rune", do: text.ClipEnd, in: "éa", limit: 2, want: "…a"},
		{name: "end: not UTF-8", do: text.ClipEnd, in: "\x80\x80\x80\x80\x80\x80", limit: 5, want: "…\uFFFD"},
		{name: "middle: short", do: text.ClipMiddle, in: "abc", limit: 3, want: "abc"},
		{name: "middle: long", do: text.ClipMiddle, in: "abcdefgh", limit: 5, want: "ab\n… 3 bytes left out …\nfgh"},
		{name: "line: spaces", do: text.OneLine, in: " a\n\tb\x00c ", limit: 9, want: "a b c"},
		{name: "line: not UTF-8", do: text.OneLine, in: strings.Repeat("a\xff", 50), limit: 8, want: "a\uFFFDa\uFFFD…"},
		{name: "line: long", do: text.OneLine, in: "a\nbcd", limit: 3, want: "a b…"},
		{name: "head: negative", do: text.Head, in: "a", limit: -1, want: ""},
		{name: "end of nothing", do: text.End, in: "a", limit: 0, want: ""},
	} {
		if got := c.do(c.in, c.limit); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestTail(t *testing.T) {
	tail := text.Tail{Limit: 4}
	for range 3 {
		if n, err := tail.Write([]byte("abé")); n != 4 || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := tail.String(); got != "abé" || tail.Total() != 12 {
		t.Errorf("%q of %d", got, tail.Total())
	}
	_, _ = tail.Write([]byte("c"))
	if got := tail.String(); got != "béc" {
		t.Errorf("%q", got)
	}
	_, _ = tail.Write([]byte("x"))
	if got := tail.String(); got != "écx" {
		t.Errorf("%q", got)
	}
	_, _ = tail.Write([]byte("y"))
	if got := tail.String(); got != "cxy" {
		t.Errorf("a rune that was cut stays: %q", got)
	}
	_, _ = tail.Write([]byte(strings.Repeat("z", 100)))
	if got := tail.String(); got != "zzzz" {
		t.Errorf("%q", got)
	}
	var none text.Tail
	_, _ = none.Write([]byte("a"))
	if got := none.String(); got != "" {
		t.Errorf("the zero value keeps %q", got)
	}
}

// FuzzClip checks that each result is valid UTF-8, within the limit and of the text.
// TestTailBytes checks which bytes are left of a text that was written in one piece and byte by byte.
func TestTailBytes(t *testing.T) {
	for _, tt := range []struct {
		in     string
		limit  int
		want   string
		before int64
	}{
		{"", 4, "", 0},
		{"ab", 4, "ab", 0},
		{"abcd", 4, "abcd", 0},
		{"abcdef", 4, "cdef", 2},
		{"aéb", 4, "aéb", 0},
		{"aéb", 3, "éb", 1},
		{"aéb", 2, "b", 3},
		{"a😀b", 4, "b", 5},
		{"\x80b", 4, "\x80b", 0},
		{"\x80\x80\x80\x80\x80\x80", 5, "\x80", 5},
		{"\x80\x80\x80\x80\x80\x80", 2, "", 6},
		{"abc", 0, "", 3},
	} {
		whole, parts := text.Tail{Limit: tt.limit}, text.Tail{Limit: tt.limit}
		_, _ = whole.Write([]byte(tt.in))
		for i := range len(tt.in) {
			_, _ = parts.Write([]byte{tt.in[i]})
		}
		for name, tail := range map[string]*text.Tail{"in one piece": &whole, "byte by byte": &parts} {
			if got, before := tail.Bytes(); string(got) != tt.want || before != tt.before || tail.Total() != int64(len(tt.in)) {
				t.Errorf("%q in %d, %s: %q after %d of %d", tt.in, tt.limit, name, got, before, tail.Total())
			}
		}
	}
}

// TestWholeRunes checks how much of a text can be shown before the rest of it arrives.
func TestWholeRunes(t *testing.T) {
	for in, want := range map[string]int{
		"": 0, "a": 1, "é": 2, "€": 3, "😀": 4, "aé": 3, "a\xc3": 1, "\xe2": 0, "a\xe2\x82": 1, "a\xf0\x9f\x98": 1,
		"\xf0\x9f": 0,
		"a\x80":    2, "\x80": 1, "\x80\x80\x80": 3, "\x80\x80\x80\x80": 4, "a\xff": 2, "é\x80": 3,
	} {
		if got := text.WholeRunes([]byte(in)); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}

func FuzzClip(f *testing.F) {
	f.Add("a", 0)
	f.Add("\xe4\xb8", 1)
	f.Add("a\xffé\U0001F600b", 5)
	f.Add("\x80\x80\x80\x80\x80", 3)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = min(limit, 1<<20)
		for name, do := range map[string]func(string, int) string{"Clip": text.Clip, "ClipEnd": text.ClipEnd,
			"ClipMiddle": text.ClipMiddle, "OneLine": text.OneLine} {
			got := do(s, limit)
			if !utf8.ValidString(got) {
				t.Errorf("%s(%q, %d) is %q", name, s, limit, got)
			}
			// A byte that is not UTF-8 becomes three.
			if most := 3*max(limit, 0) + 64; len(got) > most {
				t.Errorf("%s(%q, %d) has %d bytes", name, s, limit, len(got))
			}
			if len(s) <= limit && utf8.ValidString(s) && name != "OneLine" && got != s {
				t.Errorf("%s(%q, %d) is %q", name, s, limit, got)
			}
		}
		if head := text.Head(s, limit); len(head) > max(limit, 0) || !strings.HasPrefix(s, head) ||
			utf8.ValidString(s) && !utf8.ValidString(head) {
			t.Errorf("Head(%q, %d) is %q", s, limit, head)
		}
		if end := text.End(s, limit); len(end) > max(limit, 0) || !strings.HasSuffix(s, end) || utf8.ValidString(s) &&
			!utf8.ValidString(end) {
			t.Errorf("End(%q, %d) is %q", s, limit, end)
		}
		tail := text.Tail{Limit: max(limit, 0)}
		for _, b := range []byte(s) {
			_, _ = tail.Write([]byte{b})
		}
		if got := tail.String(); !utf8.ValidString(got) || utf8.ValidString(s) && got != text.End(s, limit) {
			t.Errorf("the tail of %q is %q", s, got)
		}
	})
}

// TestBounds cuts exactly at the limit, and text that is not UTF-8 at most a rune before it.
func TestBounds(t *testing.T) {
	for _, s := range []string{"", "a", "abc", "é"} {
		if got := text.Head(s, len(s)); got != s {
			t.Errorf("Head(%q, %d) is %q", s, len(s), got)
		}
		if got := text.End(s, len(s)); got != s {
			t.Errorf("End(%q, %d) is %q", s, len(s), got)
		}
	}
	broken := "ab\x80\x80\x80\x80\x80"
	if got := text.Head(broken, 5); got != broken[:5] {
		t.Errorf("Head(%q, 5) is %q", broken, got)
	}
	if got := text.Head("a\x80\x80\x80", 2); got != "a\x80" {
		t.Errorf("Head of a beginning that is not UTF-8 is %q", got)
	}
	if got := text.End("\x80a", 2); got != "\x80a" {
		t.Errorf("End of a whole text that is not UTF-8 is %q", got)
	}
	if got, want := text.OneLine(strings.Repeat("a ", 100), 199), strings.TrimSpace(strings.Repeat("a ", 100)); got != want {
		t.Errorf("OneLine leaves %q", got)
	}
}

// TestInvisible checks the borders of the ranges of characters that show nothing.
func TestInvisible(t *testing.T) {
	for _, r := range [][2]rune{{0, 0x08}, {0x0b, 0x1f}, {0x7f, 0x9f}, {0xad, 0xad}, {0x61c, 0x61c}, {0x180e, 0x180e},
		{0x200b, 0x200b}, {0x200e, 0x200f},
		{0x202a, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}} {
		for c := r[0]; c <= r[1]; c++ {
			if !text.Invisible(c) {
				t.Errorf("%U is visible", c)
			}
		}
		for _, c := range []rune{r[0] - 1, r[1] + 1} {
			if c >= 0 && text.Invisible(c) {
				t.Errorf("%U is invisible", c)
			}
		}
	}
}

// TestVisible removes characters that show nothing. The result is empty if no other is left.
func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"": "", " a\n\tb\x00c ": "a b c", "\u200b": "", "\u200b \u200d": "", "\u3164\u2800": "", "\ufe0f": "",
		"a\u200bb": "ab", "\u202eabc": "abc", "a \u2060 b": "a b", "a\xff\xffb": "a\uFFFDb", "é\U000e0041": "é",
		"\U0001F468\u200d\U0001F469": "\U0001F468\u200d\U0001F469", "می\u200cخواهم": "می\u200cخواهم",
		"❤\ufe0f": "❤\ufe0f",
	} {
		if got := text.Visible(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzVisible(f *testing.F) {
	for _, s := range []string{strings.Repeat("a\xff", 50), "a\u200b\u202eb", "\u3164", " a\nb "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := text.Visible(s)
		if again := text.Visible(got); again != got || !utf8.ValidString(got) {
			t.Errorf("%q: %q, and of that %q", s, got, again)
		}
		if strings.ContainsFunc(got, text.Invisible) || strings.Contains(got, "\n") {
			t.Errorf("%q: %q", s, got)
		}
	})
}
