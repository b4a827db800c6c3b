package record

import (
	"strings"
	"unicode/utf8"
)

// RunsPrefix begins the refs of all runs, refs/ramus/runs/CALLER/RUN.
const RunsPrefix = "refs/ramus/runs"

// RunRef returns the ref of a run of c.
func RunRef(c Caller, run string) string { return RunsPrefix + "/" + c.Slug() + "/" + run }

// WIPPrefix begins the refs that WIPRef returns.
const WIPPrefix = "refs/ramus/wip"

// WIPRef returns the ref that keeps the work tree of c if its container is lost in the middle of a command. It is not
// part of the branch, because the command may not have been done. No container's grant shows it.
func WIPRef(c Caller) string { return WIPPrefix + "/" + c.Slug() }

// ConflictPrefix begins the refs that keep a command's files if its branch cannot have them. Somebody then pushed
// other changes of the same lines, or deleted the branch. The caller, the run and a part of the commit's name follow.
// The caller's own container may read them.
const ConflictPrefix = "refs/ramus/conflicts"

// ReviewPrefix begins the refs with the comments on lines of callers' work.
const ReviewPrefix = "refs/ramus/review"

// ReviewRef is the ref with the comments on lines of the work of c.
func ReviewRef(c Caller) string { return ReviewPrefix + "/" + c.Slug() }

// ConflictRefs begins the refs below ConflictPrefix that keep work of c.
func ConflictRefs(c Caller) string { return ConflictPrefix + "/" + c.Slug() }

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

// GitCanHold reports whether name, which was chosen in a container, may be in a tree. git keeps names of its own to itself.
func GitCanHold(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(strings.ToLower(part), ".git") || strings.HasPrefix(strings.ToLower(part), "git~") || !utf8.ValidString(part) {
			return false
		}
	}
	return true
}
