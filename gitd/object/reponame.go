package object

import (
	"fmt"
	"strings"
)

// MaxName bounds the name of a repository in bytes, so that it fits into URLs, ref names and file names
// with room for prefixes and suffixes.
const MaxName = 100

// CheckName returns [ErrInvalid] if name cannot be the name of a repository. The error says which names
// can.
func CheckName(name string) error {
	if reason := NameFault(name); reason != "" {
		return fmt.Errorf("repository name %.120q %s; allowed are up to %d letters, digits, '.', '_', '-', in parts separated by '/': %w", name, reason, MaxName, ErrInvalid)
	}
	return nil
}

// NameFault returns the fault of the name of a repository, or "" if it has none.
func NameFault(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > MaxName:
		return "is too long"
	case strings.HasPrefix(name, "refs/"):
		return "is that of a ref"
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "":
			return "has an empty part"
		case part[0] == '-' || part[0] == '.':
			return "has a part that begins with '" + part[:1] + "'"
		case strings.Contains(part, ".."):
			return "contains '..'"
		case strings.HasSuffix(part, ".git"):
			return "has a part that ends in '.git'"
		case strings.HasSuffix(part, ".lock"):
			return "has a part that ends in '.lock'"
		case strings.HasSuffix(part, "."):
			return "has a part that ends in '.'"
		}
		for i := range len(part) {
			switch c := part[i]; {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
			default:
				return "contains a character that is not allowed"
			}
		}
	}
	return ""
}
