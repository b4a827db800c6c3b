package text_test

import (
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/text"
)

func TestLimit(t *testing.T) {
	for _, test := range []struct {
		limit int64
		parts []string
		want  string
		cut   bool
	}{
		{5, nil, "", false},
		{5, []string{"abc", "de"}, "abcde", false},
		{5, []string{"abc", "def", "ghi"}, "abcde", true},
		{0, []string{""}, "", false},
		{0, []string{"a"}, "", true},
	} {
		var out strings.Builder
		l := &text.Limit{W: &out, Left: test.limit}
		for _, p := range test.parts {
			if n, err := l.Write([]byte(p)); n != len(p) || err != nil {
				t.Errorf("Write(%q) = %d, %v", p, n, err)
			}
		}
		if out.String() != test.want || l.Cut != test.cut || l.Left != test.limit-int64(len(test.want)) {
			t.Errorf("%q of %d: %q, cut %t, left %d", test.parts, test.limit, &out, l.Cut, l.Left)
		}
	}
}
