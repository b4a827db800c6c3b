package layer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Storage is where on disk lies what a container has written.
type Storage struct {
	// Dir is its private folder on the host, one below the Keeper's; one that is missing holds nothing.
	Dir string
	// Inside are further folders, by the paths that they have for process PID, which is
	// named as in a [Binding]: storage of the engine's own, that is reached through the
	// container alone.
	Inside []string
	PID    int
	Start  uint64
}

// Usage is what folders take on their file systems.
type Usage struct {
	Bytes int64 // in whole blocks, as du counts: the holes of a file take nothing, its second name neither
	Files int64 // names: what a look costs, and mostly inodes
}

// usage adds up trees while hostile commands may write to them.
type usage struct {
	ctx   context.Context
	most  int64 // names
	sum   Usage
	named map[inode]bool // files with several names
	tops  map[inode]bool // folders near the root, which may be mounted in the container as well
	buf   [32 << 10]byte // for what the kernel answers
}

type inode struct{ dev, ino uint64 }

func newUsage(ctx context.Context, most int64) *usage {
	return &usage{ctx: ctx, most: most, named: map[inode]bool{}, tops: map[inode]bool{}}
}

// errEnough ends a walk that has counted all that it may.
var errEnough = errors.New("enough was counted")

// tree adds an open folder, O_PATH, and all below it on its file system.
func (u *usage) tree(root int) error {
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

func (u *usage) add(st *unix.Stat_t) error {
	u.sum.Files++
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		file := inode{st.Dev, st.Ino}
		if u.named[file] {
			st.Blocks = 0
		} else if len(u.named) < maxNamed { // who has more of them pays for each name
			u.named[file] = true
		}
	}
	u.sum.Bytes += st.Blocks * 512
	if u.sum.Files > u.most {
		return errEnough
	}
	return nil
}

// Of a hostile tree no more is remembered at a time than this.
const (
	maxNamed   = 100_000 // files with several names
	maxTops    = 1000    // folders near the root
	maxFolders = 4096    // names of folders in one folder, that are still to be looked into
)

// topDepth is how many levels below Storage.Dir the upper of a Binding may be its root.
const topDepth = 2

// folder adds what an open folder holds. Its entries are counted as they are read, for
// there can be millions; the names of its folders are kept until there are many.
func (u *usage) folder(dir, depth int) error {
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
			if passing(err) {
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

// folders adds what folders in an open one hold.
func (u *usage) folders(dir int, names []string, depth int) error {
	if len(names) > 0 && depth >= maxDepth {
		return fmt.Errorf("%w: folders lie deeper than %d", ErrTooMany, maxDepth)
	}
	for _, name := range names {
		fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, oneMount)
		if passing(err) {
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

// passing are the errors of an entry that others may have changed, hidden or covered
// meanwhile: what can be seen of it is counted all the same.
func passing(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, unix.EACCES} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Usage tells what a container has written; see [Keeper].
func (l *Local) Usage(ctx context.Context, s Storage, most int64) (Usage, error) {
	if len(s.Inside) > 0 {
		if err := known(Binding{PID: s.PID, Start: s.Start}); err != nil {
			return Usage{}, err
		}
	}
	return l.usage(ctx, s, most)
}

// usage is Usage, also by the number of a process alone.
func (l *Local) usage(ctx context.Context, s Storage, most int64) (Usage, error) {
	wrap := func(err error) error { return fmt.Errorf("cannot tell what %s takes: %w", s.Dir, err) }
	u := newUsage(ctx, most)
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

// inside adds what lies in storage of the engine's.
func (u *usage) inside(s Storage) error {
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
		// What a Binding has put there was counted below Dir.
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
