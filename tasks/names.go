package tasks

import (
	"strings"
)

// IsRemoteName reports whether s is the name of a remote. It excludes URLs and paths, because git would execute a
// command in `ext::sh -c …`.
func IsRemoteName(s string) bool {
	for i, r := range s {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		case i > 0 && (r == '-' || r == '_' || r == '.'):
		default:
			return false
		}
	}
	return s != "" && len(s) <= 200
}

// IsBranchName follows git check-ref-format --branch. It excludes expressions that git expands (@{-1}) and a leading +,
// which means force elsewhere in git.
func IsBranchName(s string) bool {
	if s == "" || len(s) > 200 || s == "@" || s == "HEAD" || s[0] == '-' || s[0] == '+' || strings.HasSuffix(s, ".") ||
		strings.Contains(s, "..") || strings.Contains(s, "@{") || strings.ContainsAny(s, " ~^:?*[\\") {
		return false
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] == 0x7f {
			return false
		}
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}
