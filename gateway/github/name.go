package github

import (
	"fmt"
	"net/url"
	"strings"
)

// Name is the name of a repository at GitHub.
type Name struct{ Owner, Repo string }

// String returns "owner/repo".
func (n Name) String() string { return n.Owner + "/" + n.Repo }

// Is reports whether two names are of the same repository. GitHub ignores case.
func (n Name) Is(o Name) bool {
	return strings.EqualFold(n.Owner, o.Owner) && strings.EqualFold(n.Repo, o.Repo)
}

// ParseName reads the name in an upstream's URL, https:// or ssh, or in "owner/repo".
func ParseName(upstream string) (Name, bool) {
	path := upstream
	if strings.Contains(upstream, "://") {
		u, err := url.Parse(upstream)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh" {
			return Name{}, false
		}
		path = strings.Trim(u.Path, "/")
	} else if host, rest, ok := strings.Cut(upstream, ":"); ok {
		// git@github.com:owner/repo.git, the notation of scp.
		if host == "" || strings.Contains(host, "/") {
			return Name{}, false
		}
		path = strings.Trim(rest, "/")
	}
	owner, repo, ok := strings.Cut(path, "/")
	n := Name{owner, strings.TrimSuffix(repo, ".git")}
	return n, ok && n.valid()
}

// valid reports whether a name can be part of a URL's path without changing its meaning.
func (n Name) valid() bool {
	return len(n.Owner) <= 100 && isLogin(n.Owner) && len(n.Repo) <= 100 && n.Repo != "" && n.Repo != "." && n.Repo != ".." &&
		strings.Trim(n.Repo, alnum+"-_.") == ""
}

// checkRef refuses a name that would be another path in a URL. Git has no such branches.
func checkRef(name string) error {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' {
			return &RefusedError{Message: fmt.Sprintf("%.200q is no name of a branch or commit", name)}
		}
	}
	return nil
}

const alnum = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// isLogin reports whether text can be the login of a user or an organisation. Logins of managed users have underscores.
func isLogin(text string) bool {
	return text != "" && strings.Trim(text, alnum+"-_") == "" && text[0] != '-'
}
