package gitd

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/gitd/gitfile"
)

// anonymousKey is the key that lets everybody read a repository.
const anonymousKey = "ramus.anonymous"

// IsPublic reports whether everybody may read the branches and tags of the repository without a token. It is true if
// ramus.anonymous is true in the repository's own configuration.
func (r *Repo) IsPublic() bool {
	own, err := r.view.Config()
	return err == nil && own.Flag(anonymousKey, false)
}

// locateRepo finds the repository at the path of a request.
func (s *Server) locateRepo(path string) (access, error) {
	if s.OwnConfig {
		return s.locateOwn(path)
	}
	name := strings.TrimSuffix(path, ".git")
	repo, err := s.Repo(name)
	if err != nil {
		return access{name: name}, err
	}
	a := access{name: name, dir: repo.Dir(), repo: repo}
	own, err := repo.view.Config()
	if err != nil {
		return a, fmt.Errorf("cannot read the configuration of %s: %w", name, err)
	}
	// In a repository of the server, only this key counts.
	if v, ok := own[anonymousKey]; ok {
		a.repoConfig = gitfile.Config{anonymousKey: v}
	}
	return a, nil
}

// locateOwn finds a repository in a folder that others made. The folder may have ".git" at its end or be a work
// tree, and it may have a name that ramus would not give.
func (s *Server) locateOwn(path string) (access, error) {
	a := access{name: strings.TrimSuffix(path, ".git")}
	if !servable(path) {
		return a, fmt.Errorf("repository %.120q: %w", path, ErrInvalid)
	}
	other := path + ".git"
	if a.name != path {
		other = a.name
	}
	for _, try := range []string{path, path + "/.git", other, other + "/.git"} {
		dir := filepath.Join(s.Root, filepath.FromSlash(try))
		if _, err := bareRepository(dir); err != nil {
			if errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) {
				continue
			}
			return a, fmt.Errorf("repository %s: %w", a.name, err)
		}
		own, err := gitfile.ReadConfig(dir)
		if err != nil {
			return a, fmt.Errorf("cannot read the configuration of %s: %w", a.name, err)
		}
		a.dir, a.repoConfig = dir, own
		return a, nil
	}
	return a, fmt.Errorf("repository %s: %w", a.name, ErrNoRepository)
}

// servable reports whether a path can be looked up below Root without leaving Root, being taken for an option, or
// reaching into a repository.
func servable(path string) bool {
	if path == "" || len(path) > 1024 || strings.ContainsFunc(path, unicode.IsControl) || strings.ContainsAny(path, `\`) {
		return false
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if p == "" || p[0] == '-' || p[0] == '.' || strings.HasSuffix(p, ".lock") {
			return false
		}
		if i < len(parts)-1 && strings.HasSuffix(p, ".git") {
			return false
		}
	}
	return true
}

// readHead returns the ref that HEAD names, or "" if HEAD is detached.
func readHead(dir string) (string, error) {
	text, err := gitfile.ReadSmall(filepath.Join(dir, "HEAD"))
	if err != nil {
		return "", fmt.Errorf("cannot read HEAD: %w", err)
	}
	ref, _ := strings.CutPrefix(strings.TrimSpace(string(text)), "ref: ")
	return strings.TrimSpace(ref), nil
}
