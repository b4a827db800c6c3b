package gitd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"golang.org/x/sys/unix"
)

// Create makes an empty bare repository whose HEAD is refs/heads/main.
func (s *Server) Create(ctx context.Context, name string) (*Repo, error) {
	r, err := s.createWith(ctx, name, func(dir string) error { return nil })
	if err != nil {
		return nil, fmt.Errorf("cannot create %.120q: %w", name, err)
	}
	return r, nil
}

// Import makes a repository with the branches and tags of source, which is a path or URL that git can clone. HEAD
// becomes the base branch. Progress lines go to progress, which may be nil. A failed import leaves nothing.
// Credentials in the URL are used, but neither stored nor logged.
func (s *Server) Import(ctx context.Context, name, source string, progress io.Writer) (*Repo, error) {
	return s.ImportFrom(ctx, name, Upstream{URL: source}, false, progress)
}

// ImportFrom is Import from an upstream. With shallow only the newest commit of the base is fetched, without its
// history, other branches or tags. It can be used at once, and the next refresh fetches the rest.
func (s *Server) ImportFrom(ctx context.Context, name string, up Upstream, shallow bool, progress io.Writer) (*Repo, error) {
	src, err := up.resolveSource(ctx)
	var r *Repo
	if err == nil {
		r, err = s.createWith(ctx, name,
			func(dir string) error { return s.fillRepo(ctx, dir, src, up.Branch, shallow, progress) })
	}
	if err != nil {
		return nil, fmt.Errorf("cannot import %.120q from %.200s: %w", name, withoutPassword(up.URL), src.redactError(err))
	}
	return r, nil
}

// createWith makes a repository in the scratch folder, calls fill, and moves the repository to its place when it
// is complete and on disk. There is never half a repository.
func (s *Server) createWith(ctx context.Context, name string, fill func(dir string) error) (_ *Repo, err error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	place := filepath.Join(s.Root, filepath.FromSlash(name)+".git")
	if _, err := os.Lstat(place); err == nil {
		return nil, ErrExists
	}
	nursery, err := s.makeScratch()
	if err != nil {
		return nil, err
	}

	dir, err := os.MkdirTemp(nursery, "*.git")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = gitcmd.ExplainFullDisk(err, s.Root)
			// Half a repository must not stay, even if ctx has ended.
			if e := os.RemoveAll(dir); e != nil {
				s.log().Error("cannot remove an unfinished repository", "dir", dir, "err", e)
			}
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	if err := s.git.Run(ctx, gitcmd.Command{
		Args: []string{"init", "--quiet", "--bare", "--template=", "--initial-branch=main",
			"--object-format=sha1", "--", dir},
		Config: []string{"core.fsync=none"},
	}); err != nil {
		return nil, err
	}
	if err := fill(dir); err != nil {
		return nil, err
	}
	if err := syncfs(dir); err != nil {
		return nil, err
	}
	if err := s.claimName(ctx, name); err != nil {
		return nil, err
	}
	if err := s.moveIntoPlace(dir, place); err != nil {
		if errors.Is(err, ErrExists) { // another call was faster, and has the claim
			return nil, err
		}
		return nil, errors.Join(err, s.dropped(ctx, name))
	}
	if err := syncfs(s.Root); err != nil {
		return nil, errors.Join(err, os.RemoveAll(place), s.dropped(ctx, name))
	}
	return s.Repo(name)
}

// Adopt makes a folder of the same file system, which is a bare repository, the repository of a name that this server has
// claimed already.
func (s *Server) Adopt(ctx context.Context, name, dir string) (*Repo, error) {
	err := CheckName(name)
	if err == nil {
		_, err = bareRepository(dir)
	}
	if err == nil {
		err = syncfs(dir)
	}
	if err == nil {
		err = s.moveIntoPlace(dir, filepath.Join(s.Root, filepath.FromSlash(name)+".git"))
	}
	if err == nil {
		err = syncfs(s.Root)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot adopt the repository %.120q: %w", name, err)
	}
	return s.Repo(name)
}

// moveIntoPlace moves a folder to a free place. It makes the folders above the place.
func (s *Server) moveIntoPlace(dir, place string) error {
	for range 10 {
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			if errors.Is(err, unix.ENOTDIR) {
				return fmt.Errorf("a file is in the place of a folder: %w", ErrInvalid)
			}
			return err
		}
		err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, place, unix.RENAME_NOREPLACE)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EEXIST):
			return ErrExists
		case errors.Is(err, unix.ENOENT): // another call that failed removed the folder above
			continue
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
			// The file system does not support NOREPLACE. rename(2) refuses a folder that is not empty.
			if err := os.Rename(dir, place); errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
				return ErrExists
			} else {
				return err
			}
		default:
			return &os.PathError{Op: "rename", Path: place, Err: err}
		}
	}
	return fmt.Errorf("the folder above it keeps vanishing: %w", ErrConflict)
}

// reachedFileLimit reports whether a pack below dir reached the limit on file size of its maker, which was ended
// by SIGXFSZ and can no longer report it.
func reachedFileLimit(dir string, limit int64) bool {
	packs, err := os.ReadDir(filepath.Join(dir, "objects", "pack"))
	if err != nil {
		return false
	}
	for _, p := range packs {
		if info, err := p.Info(); err == nil && info.Size() >= limit {
			return true
		}
	}
	return false
}

// toleratedFaults are faults that fsck finds in old and honest repositories and that do no harm.
var toleratedFaults = []string{
	"badDate", "badDateOverflow", "badEmail", "badName", "badTimezone", "badTagName", "duplicateEntries", "emptyName",
	"extraHeaderEntry", "fullPathname", "gitmodulesParse", "gitmodulesLarge", "missingAuthor", "missingCommitter",
	"missingEmail",
	"missingNameBeforeEmail", "missingSpaceBeforeDate", "missingSpaceBeforeEmail", "missingTaggerEntry",
	"multipleAuthors", "nulInCommit", "treeNotSorted", "zeroPaddedDate", "zeroPaddedFilemode",
}

// fillRepo fetches the branches and tags of a source into a new repository. branch becomes the base unless it is
// empty.
func (s *Server) fillRepo(ctx context.Context, dir string, src source, branch string, shallow bool, progress io.Writer) error {
	if src.local {
		if err := s.refusePartial(ctx, src.location); err != nil {
			return err
		}
	}
	head, err := s.readRemoteHead(ctx, src)
	if err != nil {
		return err
	}

	bytes, err := gitcmd.FreeSpace(dir)
	if err != nil {
		return err
	}
	if branch != "" {
		head = Ref{Name: "refs/heads/" + branch}
		if err := CheckRef(head.Name); err != nil {
			return err
		}
	}

	fetch := fetchRequest{dir: dir, specs: []string{"+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"},
		config: []string{"core.fsync=none"}} // one syncfs at the end, there is nothing to lose before
	if shallow {
		if CheckRef(head.Name) != nil {
			return fmt.Errorf("its HEAD names no branch: name the base: %w", ErrInvalid)
		}
		fetch.depth, fetch.specs = "--depth=1", []string{"+" + head.Name + ":" + head.Name}
	}
	lines, done := src.progressWriter(progress)
	defer done()
	if err := s.runFetch(ctx, src, fetch, bytes, lines); err != nil {
		return blameSource(err)
	}

	r := &Repo{server: s, name: "the new repository", dir: dir}
	r.refs.init(r)
	r.objects.Dir, r.objects.Git = dir, &s.git
	defer r.release()
	base, err := r.chooseBase(ctx, head)
	if err != nil {
		return err
	}
	if branch != "" && base != branch {
		return fmt.Errorf("it has no branch %.200q: %w", branch, ErrNotFound)
	}
	if err := s.git.Run(ctx, gitcmd.Command{Repo: dir, Args: []string{"symbolic-ref", "HEAD", "refs/heads/" + base}}); err != nil {
		return err
	}
	if err := r.recordRefresh(ctx, src); err != nil {
		return err
	}
	return r.tidy(ctx, lines, "core.fsync=none")
}

// fetchRequest is one conversation with a source.
type fetchRequest struct {
	dir    string // of the repository
	specs  []string
	depth  string // "--depth=1", "--unshallow" or empty
	config []string
}

// runFetch runs git fetch. It writes no file of more than room bytes.
func (s *Server) runFetch(ctx context.Context, src source, f fetchRequest, room int64, lines *progressLines) error {
	config := slices.Concat([]string{"fetch.unpackLimit=1", "fetch.fsckObjects=true"}, f.config, src.config)
	for _, sin := range toleratedFaults {
		config = append(config, "fetch.fsck."+sin+"=ignore")
	}
	args := []string{"fetch", "--progress", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"}
	if f.depth != "" {
		args = append(args, f.depth)
	}
	args = append(append(args, "--end-of-options", src.location), f.specs...)
	err := s.git.Run(ctx, gitcmd.Command{Repo: f.dir, Config: config, Env: src.env, Progress: lines, File: room, Args: args})
	if err != nil && reachedFileLimit(f.dir, room) {
		return fmt.Errorf("it is larger than the %d bytes that the disk has to spare: %w", room, ErrTooLarge)
	}
	return err
}

// refusePartial refuses a local clone that lacks objects. Reading it would make git fetch them, with a program
// that the configuration of the clone names.
func (s *Server) refusePartial(ctx context.Context, dir string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return err // a bundle
	}
	err := s.git.Run(ctx, gitcmd.Command{Args: []string{"-C", dir, "config", "--local", "--includes", "--get-regexp",
		`^(extensions\.partialclone|remote\..*\.promisor)$`}})
	switch gitcmd.ExitCode(err) {
	case 1: // no such key
		return nil
	case -1:
		if err == nil {
			return fmt.Errorf("it is a partial clone, its objects are elsewhere: import from where it was cloned: %w", ErrInvalid)
		}
		return err
	}
	return fmt.Errorf("%s is no Git repository: %w", dir, ErrInvalid)
}

// blameSource adds [ErrInvalid] to an error of git that the source caused. There is no repository, it is damaged,
// or nobody answers.
func blameSource(err error) error {
	if gitcmd.ExitCode(err) > 0 {
		return fmt.Errorf("no whole Git repository can be read there: %w: %w", err, ErrInvalid)
	}
	return err
}

// readRemoteHead returns the HEAD of a source, either the name of a branch or a commit.
func (s *Server) readRemoteHead(ctx context.Context, src source) (Ref, error) {
	out, err := s.git.Output(ctx, gitcmd.Command{Config: src.config, Env: src.env,
		Args: []string{"ls-remote", "--symref", "--end-of-options", src.location, "HEAD"}})
	if err != nil {
		return Ref{}, blameSource(err)
	}
	var head Ref
	for line := range strings.SplitSeq(string(out), "\n") {
		what, name, ok := strings.Cut(line, "\t")
		if !ok || name != "HEAD" {
			continue
		}
		if target, ok := strings.CutPrefix(what, "ref: "); ok {
			head.Name = target
		} else if CheckHash(Hash(what)) == nil {
			head.Hash = Hash(what)
		}
	}
	return head, nil
}

// chooseBase returns the branch that HEAD should name. That is the branch of the source's HEAD or, if it names
// none, the likeliest one.
func (r *Repo) chooseBase(ctx context.Context, head Ref) (string, error) {
	refs, err := r.Refs(ctx, "refs/heads")
	if err != nil {
		return "", err
	}
	branches := map[string]Hash{}
	for _, ref := range refs {
		branches[strings.TrimPrefix(ref.Name, "refs/heads/")] = ref.Hash
	}
	if branch, ok := strings.CutPrefix(head.Name, "refs/heads/"); ok &&
		(branches[branch] != "" || len(branches) == 0) && CheckRef(head.Name) == nil {
		return branch, nil
	}

	for _, branch := range []string{"main", "master"} {
		if h := branches[branch]; h != "" && (head.Hash == "" || h == head.Hash) {
			return branch, nil
		}
	}
	for _, ref := range refs {
		if ref.Hash == head.Hash {
			return strings.TrimPrefix(ref.Name, "refs/heads/"), nil
		}
	}

	for _, branch := range []string{"main", "master"} {
		if branches[branch] != "" {
			return branch, nil
		}
	}
	if len(refs) > 0 {
		return strings.TrimPrefix(refs[0].Name, "refs/heads/"), nil
	}
	if head.Hash != "" {
		return "", fmt.Errorf("it has commits but no branch: make one there first: %w", ErrInvalid)
	}
	return "main", nil
}

// ImportRefs makes a repository with the refs of source that begin with prefix, such as "refs/ramus/", under their names.
// source is a folder or a bundle.
func (s *Server) ImportRefs(ctx context.Context, name string, source Upstream, prefix string) (*Repo, error) {
	src, err := source.resolveSource(ctx)
	var r *Repo
	if err == nil {
		r, err = s.createWith(ctx, name, func(dir string) error {
			room, err := gitcmd.FreeSpace(dir)
			if err != nil {
				return err
			}
			lines, flush := src.progressWriter(nil)
			defer flush()
			return s.runFetch(ctx, src, fetchRequest{dir: dir, specs: []string{"+" + prefix + "*:" + prefix + "*"}}, room, lines)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot import %s from %.200s: %w", prefix, source.Location(), src.redactError(err))
	}
	return r, nil
}
