// Package historytest prints changes of package history for tests.
package historytest

import (
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gitd/history"
	"github.com/ramus-dev/ramus/gitd/object"
)

// FormatChanges returns changes as git diff-tree -r -z prints them.
func FormatChanges(list []history.Change) string {
	var b strings.Builder
	hash := func(h object.Hash) string {
		if h == "" {
			return strings.Repeat("0", 40)
		}
		return string(h)
	}
	for _, c := range list {
		status := "M"
		switch {
		case c.OldMode == 0:
			status = "A"
		case c.NewMode == 0:
			status = "D"
		case c.OldMode>>12 != c.NewMode>>12:
			status = "T"
		}
		fmt.Fprintf(&b, ":%06o %06o %s %s %s\x00%s\x00", c.OldMode, c.NewMode, hash(c.Old), hash(c.New), status, c.Path)
	}
	return strings.TrimSpace(b.String())
}
