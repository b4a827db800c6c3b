package evidence

import (
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestDiffGrowth checks that the time to read a diff grows with it.
func TestDiffGrowth(t *testing.T) {
	cases := growth.Tokens("a", " ", "\n", "a\n", "+a\n", "-a\n", " a\n", "@@", "diff --git a/a b/a\n", "@@ -1 +1 @@\n",
		"index a\n", "GIT binary patch\n", "\x80", "\x00", "\r\n", "é", "\xff", "\t", "diff --git a/a b/a\n+a\n")
	growth.Check(t, "diff", func(text []byte) { _, _, _ = readDiff(strings.NewReader(string(text))) }, cases...)
}
