package render

import (
	"testing"

	"github.com/ramus-dev/ramus/gitd"
)

// TestPlural counts things for people.
func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 files", 1: "1 file", 2: "2 files"} {
		if got := Plural(n, "file"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for hash, want := range map[gitd.Hash]string{"": "", "0123456789": "0123456789", "0123456789a": "0123456789", "01": "01"} {
		if got := ShortHash(hash); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if Showable("image/png") != "image/png" || Showable("image/svg+xml") != "" {
		t.Error("the wrong pictures are shown")
	}
}
