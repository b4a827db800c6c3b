package slack

import (
	"strings"
	"testing"
)

// TestCheckClips checks that an error shows the beginning of a foreign value, and does not cut it within a rune.
func TestCheckClips(t *testing.T) {
	err := check(field{"channel", strings.Repeat("c", 79) + "éé", func(string) bool { return false }})
	if err == nil || err.Error() != `channel is "`+strings.Repeat("c", 79)+`…"` {
		t.Errorf("%v", err)
	}
}
