package gitd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing/format/config"
)

// configMax bounds the bytes of the config file of a repository. Longer ones are refused.
const configMax = 1 << 20

// anonymousKey is the key that lets everybody read a repository.
const anonymousKey = "ramus.anonymous"

// IsPublic reports whether everybody may read the branches and tags of the repository without a token. It is true if
// ramus.anonymous is true in the repository's own configuration.
func (r *Repo) IsPublic() bool {
	own, err := r.view.configuration()
	return err == nil && own.flag(anonymousKey, false)
}

// ownConfig is a repository's own config file, with keys in lower case and the last value of each. The server
// reads it for decisions that come before git. Git itself reads the whole file again, with included files.
type ownConfig map[string]string

// readOwnConfig reads the config file of dir.
func readOwnConfig(dir string) (ownConfig, error) {
	f, err := os.Open(filepath.Join(dir, "config"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, err
	} else if st.Size() > configMax {
		return nil, fmt.Errorf("config has more than %d bytes: %w", configMax, ErrTooLarge)
	}
	cfg := config.New()
	if err := config.NewDecoder(f).Decode(cfg); err != nil {
		return nil, err
	}
	own := ownConfig{}
	for _, sec := range cfg.Sections {
		for _, o := range sec.Options {
			own[strings.ToLower(sec.Name+"."+o.Key)] = o.Value
		}
		for _, sub := range sec.Subsections {
			for _, o := range sub.Options {
				own[strings.ToLower(sec.Name)+"."+sub.Name+"."+strings.ToLower(o.Key)] = o.Value
			}
		}
	}
	return own, nil
}

// names reports whether the file has a value for key.
func (o ownConfig) names(key string) bool {
	_, ok := o[key]
	return ok
}

// flag returns a boolean as git reads it. A value that git would refuse counts as false.
func (o ownConfig) flag(key string, missing bool) bool {
	v, ok := o[key]
	if !ok {
		return missing
	}
	switch strings.ToLower(v) {
	case "true", "yes", "on", "1", "":
		// A key without "=" is true for git, an empty value is false. go-git cannot distinguish them, so only a
		// written word counts as true.
		return v != ""
	}
	return false
}

// atMost returns a size as git reads it, with its units k, m and g. Returns most if the size is larger, or if the
// file has none.
func (o ownConfig) atMost(key string, most int64) int64 {
	text := strings.ToLower(o[key])
	unit := int64(1)
	if digits := strings.TrimRight(text, "kmg"); len(text)-len(digits) == 1 {
		unit = map[byte]int64{'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30}[text[len(text)-1]]
		text = digits
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || n > most/unit {
		return most
	}
	return n * unit
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
	own, err := repo.view.configuration()
	if err != nil {
		return a, fmt.Errorf("cannot read the configuration of %s: %w", name, err)
	}
	// In a repository of the server, only this key counts.
	if v, ok := own[anonymousKey]; ok {
		a.repoConfig = ownConfig{anonymousKey: v}
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
		own, err := readOwnConfig(dir)
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
	text, err := readSmall(filepath.Join(dir, "HEAD"))
	if err != nil {
		return "", fmt.Errorf("cannot read HEAD: %w", err)
	}
	ref, _ := strings.CutPrefix(strings.TrimSpace(string(text)), "ref: ")
	return strings.TrimSpace(ref), nil
}
