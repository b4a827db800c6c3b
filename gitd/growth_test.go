package gitd

import (
	"testing"

	curve "github.com/ramus-dev/ramus/internal/growth"
)

// TestTextGrowth checks that the time to read texts of git grows with them.
func TestTextGrowth(t *testing.T) {
	curve.Check(t, "message", func(text []byte) { cleanMessage(string(text)) },
		curve.Tokens("a", "\n", " ", " \n", "a\n\n\n", "a \n", "\t", "\r\n", "#\n", "\x00", "é")...)
	curve.Check(t, "raw diff", func(text []byte) { _, _ = parseChanges(string(text)) }, curve.Tokens("a", "\x00", ":",
		":100644 100644 a b M\x00a\x00", "1\t1\ta\x00", "-\t-\ta\x00", "1\t1\t\x00a\x00b\x00")...)
}
