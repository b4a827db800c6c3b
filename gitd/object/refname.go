package object

import (
	"fmt"
	"strings"
)

// MaxRef bounds the name of a ref in bytes. It becomes a path on disk below that of the repository.
const MaxRef = 1024

// CheckRef returns [ErrInvalid] if name is not a full ref name below refs/ that git accepts (the rules of
// git check-ref-format).
func CheckRef(name string) error {
	reason := RefFault(name)
	if reason == "" && !strings.HasPrefix(name, "refs/") {
		reason = "does not begin with refs/"
	}
	// The plumbing of git accepts such a branch, but its command lines misread it.
	if branch, ok := strings.CutPrefix(name, "refs/heads/"); reason == "" && ok && (branch[0] == '-' || branch == "HEAD") {
		reason = "is no name for a branch"
	}
	if reason != "" {
		return fmt.Errorf("ref name %.200q %s: %w", name, reason, ErrInvalid)
	}
	return nil
}

// RefFault returns the fault of the name of a ref, also of one that is not below refs/. Returns "" if git
// accepts it.
func RefFault(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > MaxRef:
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
		case len(part) > 250: // with ".lock" of git, a file name has at most 255 bytes
			return "has a part that is too long"
		}
	}
	return ""
}
