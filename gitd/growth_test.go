package gitd

import (
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/object"
	curve "github.com/ramus-dev/ramus/internal/growth"
)

// TestObjectGrowth checks that the time to read objects of git grows with them.
func TestObjectGrowth(t *testing.T) {
	head := "tree " + strings.Repeat("0", 40) + "\n"
	curve.Check(t, "commit", func(text []byte) { _, _ = object.ParseCommit(text) },
		append(curve.Tokens("a", "\n", "a\n", " a\n", "parent "+strings.Repeat("1", 40)+"\n"),
			curve.Case{Prefix: head, Token: "parent " + strings.Repeat("1", 40) + "\n"}, curve.Case{Prefix: head, Token: "a b\n"}, curve.Case{Prefix: head, Token: " a\n"},
			curve.Case{Prefix: head + "gpgsig a\n", Token: " a\n"}, curve.Case{Prefix: head, Token: "\n"})...)
	curve.Check(t, "message", func(text []byte) { cleanMessage(string(text)) }, curve.Tokens("a", "\n", " ", " \n", "a\n\n\n", "a \n", "\t", "\r\n", "#\n", "\x00", "é")...)
	curve.Check(t, "raw diff", func(text []byte) { _, _ = parseChanges(string(text)) }, curve.Tokens("a", "\x00", ":", ":100644 100644 a b M\x00a\x00", "1\t1\ta\x00", "-\t-\ta\x00", "1\t1\t\x00a\x00b\x00")...)
}
