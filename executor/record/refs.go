package record

import (
	"strings"
)

// RunsPrefix begins the refs of all runs, refs/ramus/runs/CALLER/RUN.
const RunsPrefix = "refs/ramus/runs"

// RunRef returns the ref of a run of c.
func RunRef(c Caller, run string) string { return RunsPrefix + "/" + c.Slug() + "/" + run }

// ValidID reports whether id may be the id of a run. An id becomes a part of a ref and of file names.
func ValidID(id string) bool {
	if id == "" || len(id) > 100 || strings.HasPrefix(id, ".") || strings.HasPrefix(id, "-") ||
		strings.HasSuffix(id, ".lock") || strings.HasSuffix(id, ".") || strings.Contains(id, "..") {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	})
}
