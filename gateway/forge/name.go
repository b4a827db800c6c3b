package forge

import (
	"net/url"
	"strings"
)

// Name is the name of a repository at a forge. At GitLab, the owner is a path of groups ("acme/tools").
type Name struct{ Owner, Repo string }

// String returns "owner/repo".
func (n Name) String() string { return n.Owner + "/" + n.Repo }

// Is reports whether two names are of the same repository. Forges ignore case.
func (n Name) Is(o Name) bool {
	return strings.EqualFold(n.Owner, o.Owner) && strings.EqualFold(n.Repo, o.Repo)
}

// ParseName reads the name in an upstream's URL, https:// or ssh, or in "owner/repo". The owner has at most groups
// parts, which is 1 except at GitLab.
func ParseName(upstream string, groups int) (Name, bool) {
	path := upstream
	if strings.Contains(upstream, "://") {
		u, err := url.Parse(upstream)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh" {
			return Name{}, false
		}
		path = u.Path
	} else if host, rest, ok := strings.Cut(upstream, ":"); ok {
		// git@example.org:owner/repo.git, the notation of scp.
		if host == "" || strings.Contains(host, "/") {
			return Name{}, false
		}
		path = rest
	}
	path = strings.TrimSuffix(strings.Trim(path, "/"), ".git")
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return Name{}, false
	}
	n := Name{path[:i], path[i+1:]}
	return n, n.Valid(groups)
}

// Valid reports whether a name can be part of a URL's path without changing its meaning. The owner has at most groups
// parts.
func (n Name) Valid(groups int) bool {
	parts := strings.Split(n.Owner, "/")
	if len(parts) > groups {
		return false
	}
	for _, part := range append(parts, n.Repo) {
		if part == "" || len(part) > 255 || part[0] == '.' || part[0] == '-' || strings.Trim(part, alnum+"-_.") != "" {
			return false
		}
	}
	return true
}

// ValidRef reports whether the name of a branch or commit is not another path in a URL. Git has no such branches.
func ValidRef(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' {
			return false
		}
	}
	return true
}

const alnum = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
