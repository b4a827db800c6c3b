package worktree

import (
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestGrowth checks that the time to read the output of scripts grows with
// its size.
func TestGrowth(t *testing.T) {
	id := strings.Repeat("0", 40)
	growth.Check(t, "raw diff", func(text []byte) { parseRaw(string(text)) }, growth.Tokens("a", "\x00", ":",
		":100644 100755 "+id+" "+id+" M\x00a\x00", ":1 1 a a M\x00\x00", " ", "1 ", "é", "\n")...)
	growth.Check(t, "commit output", func(text []byte) { parseCommitOutput(string(text)) }, growth.Tokens("a", "\x00",
		" ", "tip "+id+"\x00", "left a\x00", "left ", "index a\x00", "artifacts\x00", "loose\x00", "\n")...)
}
