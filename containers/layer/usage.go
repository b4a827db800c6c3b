package layer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Storage is the set of folders on disk that a container writes to.
type Storage struct {
	// Dir is the private folder of the container on the host, below the Keeper's root. A missing folder has no files.
	Dir string
	// Inside are further folders, by their paths for process PID. They are storage of the engine that only the
	// container reaches. PID and Start are as in a [Binding].
	Inside []string
	PID    int
	Start  uint64
}

// Usage is the space that folders take on their file systems.
type Usage struct {
	Bytes int64 // in whole blocks, as du counts; holes of a file and its further names take nothing
	Files int64 // names, which a measurement has to visit; mostly inodes
}

// tally adds up trees while hostile commands may write to them.
type tally struct {
	ctx   context.Context
	most  int64 // bound on sum.Files
	sum   Usage
	named map[inode]bool // files with several names that were counted
	tops  map[inode]bool // folders near the root; they may be mounted in the container as well
	buf   [32 << 10]byte // for answers of the kernel
}

type inode struct{ dev, ino uint64 }

func newTally(ctx context.Context, most int64) *tally {
	return &tally{ctx: ctx, most: most, named: map[inode]bool{}, tops: map[inode]bool{}}
}

// errEnough ends a walk that has counted most names.
var errEnough = errors.New("enough was counted")

// tree adds an open folder, O_PATH, and everything below it on its file system.
func (u *tally) tree(root int) error {
	dir, err := openAt(root, ".", unix.O_RDONLY|unix.O_DIRECTORY, inside)
	if errors.Is(err, unix.EACCES) {
		return nil
	} else if err != nil {
		return err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	if err := u.add(&st); err != nil {
		return err
	}
	return u.folder(dir, 0)
}

func (u *tally) add(st *unix.Stat_t) error {
	u.sum.Files++
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		file := inode{st.Dev, st.Ino}
		if u.named[file] {
			st.Blocks = 0
		} else if len(u.named) < maxNamed { // further files count once for each name
			u.named[file] = true
		}
	}
	u.sum.Bytes += st.Blocks * 512
	if u.sum.Files > u.most {
		return errEnough
	}
	return nil
}

// Bounds on the memory for a hostile tree.
const (
	maxNamed   = 100_000 // files with several names
	maxTops    = 1000    // folders near the root
	maxFolders = 4096    // names of subfolders of one folder that are still to be visited
)

// topDepth is the greatest depth below Storage.Dir of a Binding's upper.
const topDepth = 2

// folder adds the entries of an open folder. It counts entries while it reads them, because there can be millions. It
// keeps at most maxFolders names of subfolders before it visits them.
func (u *tally) folder(dir, depth int) error {
	var folders []string
	for {
		if err := u.ctx.Err(); err != nil {
			return context.Cause(u.ctx)
		}
		n, err := unix.ReadDirent(dir, u.buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		} else if errors.Is(err, unix.ENOENT) { // removed since it was opened
			n = 0
		} else if err != nil {
			return err
		}
		if n == 0 {
			return u.folders(dir, folders, depth)
		}
		_, _, names := unix.ParseDirent(u.buf[:n], -1, nil)
		for _, name := range names {
			var st unix.Stat_t
			err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
			if temporary(err) {
				continue
			} else if err != nil {
				return fmt.Errorf("%q: %w", name, err)
			}
			if err := u.add(&st); err != nil {
				return err
			}
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				if depth < topDepth && len(u.tops) < maxTops {
					u.tops[inode{st.Dev, st.Ino}] = true
				}
				folders = append(folders, name)
			}
		}
		if len(folders) >= maxFolders {
			if err := u.folders(dir, folders, depth); err != nil {
				return err
			}
			folders = folders[:0]
		}
	}
}

// folders adds the content of subfolders of an open folder.
func (u *tally) folders(dir int, names []string, depth int) error {
	if len(names) > 0 && depth >= maxDepth {
		return fmt.Errorf("%w: folders are nested deeper than %d", ErrTooMany, maxDepth)
	}
	for _, name := range names {
		fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, oneMount)
		if temporary(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		err = u.folder(fd, depth+1)
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

// temporary reports whether err comes from an entry that others may have changed, hidden or covered meanwhile. The
// visible rest is counted all the same.
func temporary(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, unix.EACCES} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Usage returns the disk space that a container takes. See [Keeper].
func (l *Local) Usage(ctx context.Context, s Storage, most int64) (Usage, error) {
	if len(s.Inside) > 0 {
		if err := requireStart(Binding{PID: s.PID, Start: s.Start}); err != nil {
			return Usage{}, err
		}
	}
	return l.usage(ctx, s, most)
}

// usage is Usage, but also accepts a process without a start time.
func (l *Local) usage(ctx context.Context, s Storage, most int64) (Usage, error) {
	wrap := func(err error) error { return fmt.Errorf("cannot measure the disk space of %s: %w", s.Dir, err) }
	u := newTally(ctx, most)
	fd, err := l.below(s.Dir)
	switch {
	case err == nil:
		err = u.tree(fd)
		unix.Close(fd)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err == nil && len(s.Inside) > 0 {
		err = u.inside(s)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return u.sum, wrap(err)
	}
	return u.sum, nil
}

// Count returns the space that the folders at some paths take together, for a process that sees them at these paths. No
// link is followed, at the end of a path or below. Commands may change the content meanwhile. A sum above most has a
// larger number of files than most.
func Count(ctx context.Context, most int64, paths ...string) (Usage, error) {
	u := newTally(ctx, most)
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			err = u.tree(fd)
			unix.Close(fd)
		}
		if errors.Is(err, errEnough) {
			break
		} else if err != nil {
			return u.sum, fmt.Errorf("cannot measure the disk space of %s: %w", path, err)
		}
	}
	return u.sum, nil
}

// inside adds the folders in storage of the engine.
func (u *tally) inside(s Storage) error {
	p, err := openProcess(s.PID, s.Start)
	if err != nil {
		return err
	}
	defer p.close()
	for _, path := range s.Inside {
		fd, err := p.folder(path)
		if err != nil {
			return err
		}
		// A mounted tree of a Binding was counted below Dir.
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil && !u.tops[inode{st.Dev, st.Ino}] {
			err = u.tree(fd)
		}
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}
