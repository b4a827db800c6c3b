package evidence

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/gateway/render"
)

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[31;1mb\x1b[0m\r\nc\rd\x00\u202e\u2066e\xff\x1b]0;title\x07f\x1b")
	f.Add("\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\")
	f.Fuzz(func(t *testing.T, s string) {
		got := render.Clean(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		for _, r := range got {
			if r != '\n' && r != '\t' && r != '\u200d' && unicode.In(r, unicode.Cc, unicode.Cf) {
				t.Fatalf("%U in %q", r, got)
			}
		}
		if again := render.Clean(got); again != got {
			t.Errorf("%q becomes %q", got, again)
		}
	})
}
