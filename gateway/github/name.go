package github

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/ramus-dev/ramus/gateway/forge"
)

// ParseName reads the name in an upstream's URL, https:// or ssh, or in "owner/repo".
func ParseName(upstream string) (forge.Name, bool) {
	path := upstream
	if strings.Contains(upstream, "://") {
		u, err := url.Parse(upstream)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh" {
			return forge.Name{}, false
		}
		path = strings.Trim(u.Path, "/")
	} else if host, rest, ok := strings.Cut(upstream, ":"); ok {
		// git@github.com:owner/repo.git, the notation of scp.
		if host == "" || strings.Contains(host, "/") {
			return forge.Name{}, false
		}
		path = strings.Trim(rest, "/")
	}
	owner, repo, ok := strings.Cut(path, "/")
	n := forge.Name{Owner: owner, Repo: strings.TrimSuffix(repo, ".git")}
	return n, ok && isName(n)
}

// isName reports whether a name can be part of a URL's path without changing its meaning.
func isName(n forge.Name) bool {
	return len(n.Owner) <= 100 && isLogin(n.Owner) && len(n.Repo) <= 100 && n.Repo != "" && n.Repo != "." &&
		n.Repo != ".." &&
		strings.Trim(n.Repo, alnum+"-_.") == ""
}

// checkRef refuses a name that would be another path in a URL. Git has no such branches.
func checkRef(name string) error {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' {
			return &forge.RefusedError{Forge: site, Message: fmt.Sprintf("%.200q is no name of a branch or commit", name)}
		}
	}
	return nil
}

const alnum = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// isLogin reports whether text can be the login of a user or an organisation. Logins of managed users have underscores.
func isLogin(text string) bool {
	return text != "" && strings.Trim(text, alnum+"-_") == "" && text[0] != '-'
}
