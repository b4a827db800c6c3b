package gitd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/gitd/clone"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"golang.org/x/sys/unix"
)

const (
	// newFolder below Root has repositories that are not complete yet. No repository can have its name.
	newFolder = ".ramus-new"
	lockName  = ".ramus-lock"
	// serverLockName is the lock of servers without their children.
	serverLockName = ".ramus-server"
)

// fileID distinguishes a folder from another one that took its name.
type fileID struct{ dev, ino uint64 }

// library holds the repositories in use.
type library struct {
	mu    sync.Mutex // guards the map
	repos map[string]*Repo
	// alone is set by Open if no git child of an earlier server lives. Then lock files older than opened belong to
	// nobody.
	alone  bool
	opened time.Time
	lock   *os.File // held while the server is open
}

// openRoot makes Root and finds out whether a child of an earlier server still works in it.
func (s *Server) openRoot(ctx context.Context) (err error) {
	if s.Root == "" {
		return fmt.Errorf("cannot open the repositories: no root folder given: %w", ErrInvalid)
	}
	root, err := filepath.Abs(s.Root)
	if err != nil {
		return fmt.Errorf("cannot open the repositories: %w", err)
	}
	s.Root = root
	if err := os.MkdirAll(root, 0o755); err != nil {
		return fmt.Errorf("cannot open the repositories: %w", err)
	}
	if _, err := gitcmd.Path(); err != nil {
		return err
	}

	lock, err := os.OpenFile(filepath.Join(root, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		if s.OwnConfig && errors.Is(err, fs.ErrPermission) {
			return nil // a folder that can only be read is served all the same
		}
		return fmt.Errorf("cannot open the repositories: %w", err)
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()

	// Each child inherits the lock. Holding it alone, even for an instant, proves that every child of an earlier
	// server has ended. Those of a killed server end soon, because nobody reads their output. Until then the
	// owners of the locks of refs are not known.
	fd := int(lock.Fd())
	s.library.alone = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil
	server, only, err := onlyServer(root)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			server.Close()
		}
	}()
	for end := time.Now().Add(orphanWait); only && !s.library.alone && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(orphanPause)
		s.library.alone = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil
	}

	if s.library.alone {
		if err := s.cleanRoot(lock); err != nil {
			return err
		}
	}
	if err := unix.Flock(fd, unix.LOCK_SH); err != nil {
		return fmt.Errorf("cannot lock %s: %w", root, err)
	}
	s.git.Lock, s.library.lock = lock, server
	return nil
}

// cleanRoot records the time and removes leftovers of an earlier server, none of whose children lives.
func (s *Server) cleanRoot(lock *os.File) error {
	now, err := touch(lock)
	// A file that an earlier server left could have the same time, so the next tick of the clock is awaited.
	for began, first := time.Now(), now; err == nil && now.Equal(first) && time.Since(began) < tickWait; {
		time.Sleep(time.Millisecond)
		now, err = touch(lock)
	}
	if err != nil {
		return fmt.Errorf("cannot open the repositories: %w", err)
	}
	s.library.opened = now

	if err := os.RemoveAll(filepath.Join(s.Root, newFolder)); err != nil {
		return fmt.Errorf("cannot remove unfinished repositories: %w", err)
	}
	if err := os.RemoveAll(filepath.Join(s.Root, clone.Folder)); err != nil {
		return fmt.Errorf("cannot remove the answers that an earlier server kept: %w", err)
	}
	return nil
}

// touch writes to the lock, and returns the time of the write by the clock of the file system, which is coarser than that
// of the system.
func touch(lock *os.File) (time.Time, error) {
	if _, err := lock.WriteAt([]byte("held by a Git server of ramus\n"), 0); err != nil {
		return time.Time{}, err
	}
	info, err := lock.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// closeRoot ends the kept processes and all other children.
func (s *Server) closeRoot() error {
	s.library.mu.Lock()
	repos := s.library.repos
	s.library.repos = nil
	s.library.mu.Unlock()
	s.git.Close()
	err := s.clones.Close()
	for _, r := range repos {
		r.release()
	}
	for _, f := range []*os.File{s.git.Lock, s.library.lock} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// tickWait bounds the wait for the next tick of a file system's clock. Most tick every 4 ms, and some each second.
const tickWait = 2 * time.Second

// The time that the children of a killed server get to end, and the pause between two checks.
const (
	orphanWait  = 10 * time.Second
	orphanPause = 5 * time.Millisecond
)

// onlyServer reports whether no other server has the folder open. Children of another server do not matter,
// because they do not inherit this lock. It is held until it is closed.
func onlyServer(root string) (lock *os.File, only bool, err error) {
	lock, err = os.OpenFile(filepath.Join(root, serverLockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("cannot open the repositories: %w", err)
	}
	only = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH); err != nil {
		lock.Close()
		return nil, false, fmt.Errorf("cannot lock %s: %w", root, err)
	}
	return lock, only, nil
}

// release closes the files and processes of the repository, which may be used again afterwards.
func (r *Repo) release() {
	r.refs.close()
	r.objects.Close()
	r.server.clones.Release(cloneRepo{r})
}

// Repo returns the repository called name. Returns [ErrNotFound] or [ErrInvalid] if there is none.
func (s *Server) Repo(name string) (*Repo, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.Root, filepath.FromSlash(name)+".git")
	id, err := bareRepository(dir)
	s.library.mu.Lock()
	old := s.library.repos[name]
	if err == nil && old != nil && old.id == id {
		s.library.mu.Unlock()
		return old, nil
	}

	var r *Repo
	if err == nil {
		r = &Repo{server: s, name: name, dir: dir, id: id,
			merging: make(chan struct{}, 1), maintaining: make(chan struct{}, 1), refreshing: make(chan struct{}, 1)}
		r.refs.init(r)
		r.openView()
		r.objects.Dir, r.objects.Git = dir, &s.git
		r.objects.Packs.Dir, r.objects.Packs.OnAdopt = filepath.Join(dir, pack.Folder), r.countWrite
		if s.library.repos == nil {
			s.library.repos = map[string]*Repo{}
		}
		s.library.repos[name] = r
	} else {
		delete(s.library.repos, name)
	}
	s.library.mu.Unlock()
	if old != nil {
		s.upkeep.forget(old)
		old.release()
	}
	if err != nil {
		return nil, fmt.Errorf("repository %s: %w", name, err)
	}
	r.removeStaleLocks()
	return r, nil
}

// bareRepository returns the identity of a bare repository, by the rules of git itself, which asks for HEAD,
// objects and refs.
func bareRepository(dir string) (fileID, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fileID{}, ErrNoRepository
	case err != nil:
		return fileID{}, fmt.Errorf("cannot read it: %w", err)
	case !info.IsDir():
		return fileID{}, fmt.Errorf("%s is a file, not a bare repository: %w", filepath.Base(dir), ErrInvalid)
	}
	for _, need := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Lstat(filepath.Join(dir, need)); errors.Is(err, fs.ErrNotExist) {
			return fileID{}, fmt.Errorf("%s is not a bare repository: it has no %s: %w", filepath.Base(dir),
				need, ErrInvalid)
		} else if err != nil {
			return fileID{}, fmt.Errorf("cannot read it: %w", err)
		}
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, errors.New("cannot identify its folder")
	}
	return fileID{uint64(st.Dev), st.Ino}, nil
}

// Repos lists the repositories by name. It leaves out folders that are no repositories, and names that could not
// be served.
func (s *Server) Repos(ctx context.Context) ([]*Repo, error) {
	var repos []*Repo
	var walk func(folder string, depth int) error
	walk = func(folder string, depth int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := os.ReadDir(filepath.Join(s.Root, folder))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		} else if err != nil {
			return err
		}
		for _, e := range entries {
			path := filepath.ToSlash(filepath.Join(folder, e.Name()))
			if name, ok := strings.CutSuffix(path, ".git"); ok {
				if object.NameFault(name) != "" {
					continue
				}
				if r, err := s.Repo(name); err == nil {
					repos = append(repos, r)
				}
				continue
			}
			// A symbolic link to a folder is not entered, because it could lead back here.
			if e.IsDir() && CheckName(path) == nil && depth < object.MaxName/2 {
				if err := walk(path, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk("", 0); err != nil {
		return nil, fmt.Errorf("cannot list the repositories: %w", err)
	}
	slices.SortFunc(repos, func(a, b *Repo) int { return strings.Compare(a.name, b.name) })
	return repos, nil
}

// removeStaleLocks removes lock files that a power cut or a SIGKILL of git left, each of which would make its ref
// unwritable forever. It acts only if Open proved that their makers have ended, and never in folders in which
// others may work.
func (r *Repo) removeStaleLocks() {
	lib := &r.server.library
	if !lib.alone || r.server.OwnConfig {
		return
	}
	stale := func(path string, d fs.DirEntry) {
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() || !info.ModTime().Before(lib.opened) {
			return
		}
		if err := os.Remove(path); err == nil {
			r.server.log().Warn("removed a stale file of git", "repo", r.name, "file", path)
		}
	}

	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".lock") {
			stale(filepath.Join(r.dir, e.Name()), e)
		}
	}
	for _, folder := range []string{"refs", "objects/info", "objects/pack"} {
		filepath.WalkDir(filepath.Join(r.dir, folder), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".lock") {
				stale(path, d)
			}
			return nil
		})
	}

	// Folders of git and of Merge for objects that were not accepted, and unfinished packs.
	if entries, err = os.ReadDir(filepath.Join(r.dir, pack.Folder)); err == nil {
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "tmp_") {
				stale(filepath.Join(r.dir, pack.Folder, e.Name()), e)
			}
		}
	}
	if entries, err = os.ReadDir(filepath.Join(r.dir, "objects")); err != nil {
		return
	}

	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.ModTime().Before(lib.opened) {
			continue
		}
		if strings.HasPrefix(e.Name(), scratchPrefix) || strings.HasPrefix(e.Name(), "tmp_obj_") {
			os.RemoveAll(filepath.Join(r.dir, "objects", e.Name()))
		}
	}
}
