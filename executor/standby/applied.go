package standby

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/ramus-dev/ramus/executor/backup"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/durable"
)

const (
	// roundName is the file with a round that is being applied. Everything that the round needs is on disk.
	roundName = "round.json"
	// makingName is the file with the names of the repositories that were made for a round which is not applied yet.
	makingName = "making.json"
)

// applied is a round that is being applied. The files are in the folder files, named by their index.
type applied struct {
	Full      bool     `json:"full,omitempty"`
	Repos     []Repo   `json:"repos,omitempty"`
	Files     []File   `json:"files,omitempty"`
	GoneRepos []string `json:"gone_repos,omitempty"`
	GoneFiles []string `json:"gone_files,omitempty"`
}

// findGone lists the refs, repositories and files that a full round does not have.
func (p *applied) findGone(ctx context.Context, data string, git *gitd.Server, r *Round) error {
	there := make(map[string]bool)
	for i, c := range p.Repos {
		there[c.Name] = true
		repo, err := git.Repo(c.Name)
		if err != nil {
			return err
		}
		have, err := repo.Refs(ctx, "refs")
		if err != nil {
			return err
		}
		named := make(map[string]bool, len(c.Refs))
		for _, ref := range c.Refs {
			named[ref.Name] = true
		}
		for _, ref := range have {
			if !named[ref.Name] {
				p.Repos[i].Refs = append(p.Repos[i].Refs, gitd.Ref{Name: ref.Name})
			}
		}
	}
	repos, err := git.Repos(ctx)
	if err != nil {
		return err
	}
	for _, repo := range repos {
		if !there[repo.Name()] {
			p.GoneRepos = append(p.GoneRepos, repo.Name())
		}
	}
	files := make(map[string]bool)
	for _, f := range r.Files {
		files[f.Path] = true
	}
	note := func(path string) error {
		name, err := filepath.Rel(data, path)
		if name = filepath.ToSlash(name); err == nil && isPlace(name) && !files[name] {
			p.GoneFiles = append(p.GoneFiles, name)
		}
		return err
	}
	if err := backup.EachSmall(data, r.Keys, note); err != nil {
		return err
	}
	return backup.EachArtifact(data, note)
}

// Applied brings a round that was taken to its end, if there is one. It may be repeated after any failure, and after the
// process was killed.
func Applied(ctx context.Context, data string, git *gitd.Server) error {
	var p applied
	err := readState(data, roundName, &p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = p.apply(ctx, data, git)
	}
	if err == nil {
		err = removeState(data, makingName)
	}
	if err == nil {
		err = removeState(data, roundName)
	}
	if err != nil {
		return fmt.Errorf("cannot apply a round of the server that is followed: %w", err)
	}
	return nil
}

// dropMade removes the repositories that were made for a round which never arrived as a whole.
func dropMade(ctx context.Context, data string, git *gitd.Server) error {
	var names []string
	err := readState(data, makingName, &names)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		if err == nil {
			if err = git.Remove(ctx, name); errors.Is(err, gitd.ErrNotFound) {
				err = nil
			}
		}
	}
	if err == nil {
		err = removeState(data, makingName)
	}
	if err != nil {
		return fmt.Errorf("cannot remove the repositories of a round that did not arrive: %w", err)
	}
	return nil
}

func (p *applied) apply(ctx context.Context, data string, git *gitd.Server) error {
	for _, c := range p.Repos {
		repo, err := git.Repo(c.Name)
		if err != nil {
			return err
		}
		if err := repo.Replace(ctx, c.Refs, c.Files); err != nil {
			return err
		}
	}
	for _, name := range p.GoneRepos {
		if err := git.Remove(ctx, name); err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return err
		}
	}
	folders := make(map[string]bool)
	for i, f := range p.Files {
		place := filepath.Join(data, filepath.FromSlash(f.Path))
		if err := makeFolder(data, filepath.Dir(place), folders); err != nil {
			return err
		}
		staged := filepath.Join(data, Folder, "files", fmt.Sprint(i))
		put := os.Rename
		if f.From > 0 {
			put = func(staged, place string) error { return extend(place, staged, f) }
		}
		// A file that is gone was put into its place before the process was killed.
		if err := put(staged, place); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, name := range p.GoneFiles {
		place := filepath.Join(data, filepath.FromSlash(name))
		if err := os.Remove(place); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// Folders of runs that ended go with their last file.
		for dir := filepath.Dir(place); dir != data && os.Remove(dir) == nil; dir = filepath.Dir(dir) {
			delete(folders, dir)
			folders[filepath.Dir(dir)] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		if err := durable.Folder(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// makeFolder makes a folder below data and those above it, and notes those whose names have to be synced.
func makeFolder(data, dir string, folders map[string]bool) error {
	for at := dir; at != data; at = filepath.Dir(at) {
		folders[at] = true
	}
	folders[data] = true
	return os.MkdirAll(dir, 0o700)
}

// extend appends a staged file to the first bytes of another, whose size is f.From or more. It leaves the staged file, so
// that it can be repeated.
func extend(place, staged string, f File) error {
	from, err := os.Open(staged)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(place, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(to, f.From), from)
	if err == nil {
		err = to.Truncate(f.Size)
	}
	return errors.Join(err, to.Sync(), to.Close())
}
