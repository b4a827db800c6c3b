package markup

import (
	"strings"
	"unicode"
)

// Visible returns a text as UTF-8 in which each character that is invisible, or that changes the order of others, is U+FFFD. Newlines
// and tabs stay, and so does the joiner of emoji.
func Visible(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\u200d':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r):
			return '\uFFFD'
		}
		return r
	}, s)
}
