package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"golang.org/x/sys/unix"
)

// Create makes an empty bare repository whose HEAD is refs/heads/main.
func (s *Server) Create(ctx context.Context, name string) (*Repo, error) {
	r, err := s.grow(ctx, name, func(dir string) error { return nil })
	if err != nil {
		return nil, fmt.Errorf("cannot create %.120q: %w", name, err)
	}
	return r, nil
}

// Import makes a repository from source (a path or URL that git can clone),
// with its branches and tags; HEAD becomes the base branch. Progress lines go
// to progress, which may be nil. A failed import leaves nothing behind.
// Credentials in the URL are used, but neither stored nor logged.
func (s *Server) Import(ctx context.Context, name, source string, progress io.Writer) (*Repo, error) {
	return s.ImportFrom(ctx, name, Upstream{URL: source}, false, progress)
}

// ImportFrom is Import with all that can be said of an upstream. With shallow
// set only the newest commit of the base is fetched, without its history, other
// branches or tags: it can be worked on at once, and the next refresh brings the
// rest.
func (s *Server) ImportFrom(ctx context.Context, name string, up Upstream, shallow bool, progress io.Writer) (*Repo, error) {
	src, err := up.source(ctx)
	var r *Repo
	if err == nil {
		r, err = s.grow(ctx, name, func(dir string) error { return s.fill(ctx, dir, src, up.Branch, shallow, progress) })
	}
	if err != nil {
		return nil, fmt.Errorf("cannot import %.120q from %.200s: %w", name, withoutPassword(up.URL), src.quietly(err))
	}
	return r, nil
}

// grow makes a repository out of sight, lets fill fill it, and puts it in its
// place when it is complete and on disk: there is never half a repository.
func (s *Server) grow(ctx context.Context, name string, fill func(dir string) error) (_ *Repo, err error) {
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
			// Whatever ctx says: half a repository must not stay.
			if e := os.RemoveAll(dir); e != nil {
				s.log().Error("cannot remove an unfinished repository", "dir", dir, "error", e)
			}
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	if err := s.git.Run(ctx, gitcmd.Command{
		Args:   []string{"init", "--quiet", "--bare", "--template=", "--initial-branch=main", "--object-format=sha1", "--", dir},
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
	if err := s.place(dir, place); err != nil {
		return nil, err
	}
	if err := syncfs(s.Root); err != nil {
		return nil, errors.Join(err, os.RemoveAll(place))
	}
	return s.Repo(name)
}

// place moves a folder to a place that must be free, making the folders above it.
func (s *Server) place(dir, place string) error {
	for range 10 {
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			if errors.Is(err, unix.ENOTDIR) {
				return fmt.Errorf("a file stands where a folder is needed: %w", ErrInvalid)
			}
			return err
		}
		err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, place, unix.RENAME_NOREPLACE)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EEXIST):
			return ErrExists
		case errors.Is(err, unix.ENOENT): // a failing neighbour removed the folder above
			continue
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
			// A file system without NOREPLACE; rename(2) refuses a folder that is not empty.
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

// outgrown says whether a pack below dir reached the limit on file size that
// its maker had; the maker can no longer tell, SIGXFSZ ended it.
func outgrown(dir string, limit int64) bool {
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

// oldSins are mistakes that fsck finds in old and honest repositories and that
// hurt nobody.
var oldSins = []string{
	"badDate", "badDateOverflow", "badEmail", "badName", "badTimezone", "badTagName", "duplicateEntries", "emptyName",
	"extraHeaderEntry", "fullPathname", "gitmodulesParse", "gitmodulesLarge", "missingAuthor", "missingCommitter", "missingEmail",
	"missingNameBeforeEmail", "missingSpaceBeforeDate", "missingSpaceBeforeEmail", "missingTaggerEntry",
	"multipleAuthors", "nulInCommit", "treeNotSorted", "zeroPaddedDate", "zeroPaddedFilemode",
}

// fill fetches branches and tags of a source into a new repository. Branch,
// when it is not empty, becomes the base.
func (s *Server) fill(ctx context.Context, dir string, src source, branch string, shallow bool, progress io.Writer) error {
	if src.local {
		if err := s.refusePartial(ctx, src.where); err != nil {
			return err
		}
	}
	head, err := s.remoteHead(ctx, src)
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
	fetch := fetch{dir: dir, specs: []string{"+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"},
		config: []string{"core.fsync=none"}} // one syncfs at the end; until then there is nothing to lose
	if shallow {
		if CheckRef(head.Name) != nil {
			return fmt.Errorf("its HEAD names no branch: name the base: %w", ErrInvalid)
		}
		fetch.depth, fetch.specs = "--depth=1", []string{"+" + head.Name + ":" + head.Name}
	}
	lines, done := src.listen(progress)
	defer done()
	if err := s.fetch(ctx, src, fetch, bytes, lines); err != nil {
		return unreadable(err)
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
	if err := r.remember(ctx, src); err != nil {
		return err
	}
	return r.tidy(ctx, lines, "core.fsync=none")
}

// fetch is one conversation with a source.
type fetch struct {
	dir    string // the repository's
	specs  []string
	depth  string // "--depth=1", "--unshallow" or empty
	config []string
}

// fetch runs git fetch. No file that it writes becomes larger than room bytes.
func (s *Server) fetch(ctx context.Context, src source, f fetch, room int64, lines *progressLines) error {
	config := slices.Concat([]string{"fetch.unpackLimit=1", "fetch.fsckObjects=true"}, f.config, src.config)
	for _, sin := range oldSins {
		config = append(config, "fetch.fsck."+sin+"=ignore")
	}
	args := []string{"fetch", "--progress", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"}
	if f.depth != "" {
		args = append(args, f.depth)
	}
	args = append(append(args, "--end-of-options", src.where), f.specs...)
	err := s.git.Run(ctx, gitcmd.Command{Repo: f.dir, Config: config, Env: src.env, Progress: lines, File: room, Args: args})
	if err != nil && outgrown(f.dir, room) {
		return fmt.Errorf("it is larger than the %d bytes that the disk has to spare: %w", room, ErrTooLarge)
	}
	return err
}

// refusePartial refuses a local clone that lacks objects: reading it would
// make git fetch them, by a program that the clone's configuration names.
func (s *Server) refusePartial(ctx context.Context, dir string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return err // a bundle
	}
	err := s.git.Run(ctx, gitcmd.Command{Args: []string{"-C", dir, "config", "--local", "--includes", "--get-regexp", `^(extensions\.partialclone|remote\..*\.promisor)$`}})
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

// unreadable blames the source for what git said of it: there is no repository,
// it is damaged, or nobody answers.
func unreadable(err error) error {
	if gitcmd.ExitCode(err) > 0 {
		return fmt.Errorf("no whole Git repository can be read there: %w: %w", err, ErrInvalid)
	}
	return err
}

// remoteHead asks a source for its HEAD: the branch it names, or its commit.
func (s *Server) remoteHead(ctx context.Context, src source) (Ref, error) {
	out, err := s.git.Output(ctx, gitcmd.Command{Config: src.config, Env: src.env,
		Args: []string{"ls-remote", "--symref", "--end-of-options", src.where, "HEAD"}})
	if err != nil {
		return Ref{}, unreadable(err)
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

// chooseBase finds the branch to be HEAD: the source's, or, when that had no
// branch checked out, the likeliest.
func (r *Repo) chooseBase(ctx context.Context, head Ref) (string, error) {
	refs, err := r.Refs(ctx, "refs/heads")
	if err != nil {
		return "", err
	}
	branches := map[string]Hash{}
	for _, ref := range refs {
		branches[strings.TrimPrefix(ref.Name, "refs/heads/")] = ref.Hash
	}
	if branch, ok := strings.CutPrefix(head.Name, "refs/heads/"); ok && (branches[branch] != "" || len(branches) == 0) && CheckRef(head.Name) == nil {
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

// progressLines passes git's progress on, line by line. Git overwrites a line
// with '\r'; what a remote server writes in between loses its control characters.
type progressLines struct {
	mu   sync.Mutex // guards line; git's output and our own come from two goroutines
	to   io.Writer
	line []byte
}

func newProgress(to io.Writer) *progressLines {
	if to == nil {
		to = io.Discard
	}
	return &progressLines{to: to}
}

func (p *progressLines) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range b {
		switch {
		case c == '\n' || c == '\r':
			p.emit()
		case c >= ' ' && c != 0x7f && len(p.line) < 400:
			p.line = append(p.line, c)
		}
	}
	return len(b), nil
}

// emit is called under mu. A reader that went away does not end an import.
func (p *progressLines) emit() {
	if line := bytes.TrimSpace(p.line); len(line) > 0 {
		fmt.Fprintf(p.to, "%s\n", bytes.ToValidUTF8(line, []byte("?")))
	}
	p.line = p.line[:0]
}

func (p *progressLines) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.emit()
}
