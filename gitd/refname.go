package gitd

import (
	"fmt"
	"strings"
)

// refMax bounds a ref's name: it becomes a path on disk, below the repository's.
const refMax = 1024

// CheckRef says whether name is a full ref name that git accepts (the rules of
// git check-ref-format), below refs/.
func CheckRef(name string) error {
	reason := badRef(name)
	if reason == "" && !strings.HasPrefix(name, "refs/") {
		reason = "does not begin with refs/"
	}
	// Git's plumbing would take it, every command line of git would misread it.
	if branch, ok := strings.CutPrefix(name, "refs/heads/"); reason == "" && ok && (branch[0] == '-' || branch == "HEAD") {
		reason = "is no name for a branch"
	}
	if reason != "" {
		return fmt.Errorf("ref name %.200q %s: %w", name, reason, ErrInvalid)
	}
	return nil
}

func badRef(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > refMax:
		return "is too long"
	case strings.Contains(name, ".."):
		return "contains '..'"
	case strings.Contains(name, "@{"):
		return "contains '@{'"
	case strings.HasSuffix(name, "."):
		return "ends in '.'"
	case !strings.Contains(name, "/"):
		return "has only one part"
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c == 0x7f || strings.IndexByte(`~^:?*[\`, c) >= 0 {
			return fmt.Sprintf("contains %q", c)
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "":
			return "has an empty part"
		case part[0] == '.':
			return "has a part that begins with '.'"
		case strings.HasSuffix(part, ".lock"):
			return "has a part that ends in '.lock'"
		case len(part) > 250: // with git's ".lock" a file name's 255 bytes
			return "has a part that is too long"
		}
	}
	return ""
}
