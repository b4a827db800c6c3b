package settings

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/environment"
	"github.com/ramus-dev/ramus/tasks/rules"
)

const (
	// history is the number of earlier commits of a base that are searched for a file without a mistake.
	history = 500
	// most is the number of settings that a Reader remembers.
	most = 256
	// callerBranches is the prefix of the branches under work, from which nothing is read.
	callerBranches = "ramus/"
)

// Reader reads the settings of repositories. Its methods are safe for concurrent use.
type Reader struct {
	mu     sync.Mutex // guards all below
	bounds Bounds
	turn   int // how often the bounds were set
	known  map[place]Settings
}

// place is a base at a commit.
type place struct {
	repo, base string
	commit     gitd.Hash
}

// SetBounds sets the server's bounds.
func (r *Reader) SetBounds(b Bounds) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bounds, r.known = b, nil
	r.turn++
}

// Bounds returns the server's bounds.
func (r *Reader) Bounds() Bounds {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bounds
}

// Read returns the settings that a base of a repository has now. Empty means the repository's own base, and so does a
// branch under work. A repository without commits has those of a repository without a file.
func (r *Reader) Read(ctx context.Context, repo *gitd.Repo, base string) (Settings, error) {
	if base == "" || strings.HasPrefix(base, callerBranches) {
		own, err := repo.Base(ctx)
		if err != nil {
			return Settings{}, fmt.Errorf("cannot read the settings of %s: %w", repo.Name(), err)
		}
		base = own
	}
	commit, err := repo.Resolve(ctx, "refs/heads/"+base)
	if err != nil && !errors.Is(err, gitd.ErrNotFound) {
		return Settings{}, fmt.Errorf("cannot read the settings of %s: %w", repo.Name(), err)
	}
	at := place{repo.Name(), base, commit}
	r.mu.Lock()
	s, ok := r.known[at]
	bounds, turn := r.bounds, r.turn
	r.mu.Unlock()
	if ok {
		return s, nil
	}
	if s, err = read(ctx, bounds, repo, commit); err != nil {
		return s, fmt.Errorf("cannot read the settings of %s: %w", repo.Name(), err)
	}
	s.Base, s.Commit = base, commit
	if s.Rules, err = readRules(ctx, repo, commit); err != nil {
		return s, fmt.Errorf("cannot read the rules of %s: %w", repo.Name(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turn != turn {
		return s, nil // other bounds hold now
	}
	if r.known == nil || len(r.known) >= most {
		r.known = make(map[place]Settings)
	}
	r.known[at] = s
	return s, nil
}

// read returns the settings at a commit, or those at the newest commit before it whose file has no mistake.
func read(ctx context.Context, b Bounds, repo *gitd.Repo, commit gitd.Hash) (Settings, error) {
	if commit == "" {
		return Resolve(b, repo.Name(), environment.File{}), nil
	}
	f, blob, err := readFile(ctx, repo, commit)
	if err != nil {
		return Settings{}, err
	}
	if f.mistake == "" {
		s := Resolve(b, repo.Name(), f.file)
		if blob != "" {
			s.From = commit
		}
		return s, s.describe(ctx, b, repo, commit, f.file)
	}
	good, from, err := lastGood(ctx, repo, commit)
	if err != nil {
		return Settings{}, err
	}
	s := Resolve(b, repo.Name(), good)
	s.From, s.Mistake = from, f.mistake
	return s, s.describe(ctx, b, repo, commit, good)
}

// parsed is a file, or its mistakes.
type parsed struct {
	file    environment.File
	mistake string
}

// readFile reads the file at a commit. blob is empty if there is none.
func readFile(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) (f parsed, blob gitd.Hash, err error) {
	text, blob, mistake, err := readText(ctx, repo, commit, environment.Path, environment.MaxBytes)
	if err != nil || blob == "" || mistake != "" {
		f.mistake = mistake
		return f, blob, err
	}
	if f.file, err = environment.Parse(environment.Path, text); err != nil {
		f.mistake = err.Error()
	}
	return f, blob, nil
}

// readText reads a text file at a commit. blob is empty if there is none.
func readText(ctx context.Context, repo *gitd.Repo, commit gitd.Hash, name string, most int64) (text []byte, blob gitd.Hash, mistake string, err error) {
	e, err := repo.Entry(ctx, string(commit), name)
	switch {
	case errors.Is(err, gitd.ErrNotFound), errors.Is(err, gitd.ErrInvalid): // ErrInvalid: .ramus is no folder
		return nil, "", "", nil
	case err != nil:
		return nil, "", "", err
	case e.Type != "blob" || e.Mode == "120000":
		return nil, e.Hash, fmt.Sprintf("%s:1:1: this must be a file, not a %s", name, kind(e)), nil
	}
	text, err = repo.Blob(ctx, e.Hash, most)
	if errors.Is(err, gitd.ErrTooLarge) {
		return nil, e.Hash, fmt.Sprintf("%s:1:1: the file has more than %d bytes", name, most), nil
	}
	return text, e.Hash, "", err
}

// readRules returns the rules at a commit. A file with a mistake asks about every command.
func readRules(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) (rules.Set, error) {
	if commit == "" {
		return rules.Set{}, nil
	}
	text, blob, mistake, err := readText(ctx, repo, commit, rules.Path, rules.MaxBytes)
	switch {
	case err != nil || blob == "":
		return rules.Set{}, err
	case mistake != "":
		return rules.Broken(mistake), nil
	}
	s, err := rules.Parse(rules.Path, text)
	if err != nil {
		return rules.Broken(err.Error()), nil
	}
	return s, nil
}

func kind(e gitd.TreeEntry) string {
	switch e.Type {
	case "tree":
		return "folder"
	case "commit":
		return "submodule"
	}
	return "symbolic link"
}

// lastGood returns the file of the newest commit, from commit on, that has one without a mistake. Without such a commit it
// returns the zero File.
func lastGood(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) (environment.File, gitd.Hash, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	list, err := repo.Log(ctx, string(commit), gitd.LogOptions{Max: history, First: true})
	if err != nil {
		return environment.File{}, "", err
	}
	seen := make(map[gitd.TreeEntry]bool) // a symbolic link may have the content of a file
	for _, c := range list {
		e, err := repo.Entry(ctx, string(c.Hash), environment.Path)
		if errors.Is(err, gitd.ErrNotFound) || errors.Is(err, gitd.ErrInvalid) {
			return environment.File{}, "", nil // before the file was made
		}
		if err != nil {
			return environment.File{}, "", err
		}
		if seen[e] {
			continue
		}
		seen[e] = true
		f, _, err := readFile(ctx, repo, c.Hash)
		if err != nil {
			return environment.File{}, "", err
		}
		if f.mistake == "" {
			return f.file, c.Hash, nil
		}
	}
	return environment.File{}, "", nil
}
