package layer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Local is the [Keeper] of a process that is root on the engine's machine, and sees the processes of containers by the
// numbers that it is given. It holds nothing between calls. A mount exists only in the namespace of its container, and
// the kernel frees both together.
//
// Local needs Linux 5.12, and a file system below its root that can be the upper layer of an overlay, such as ext4, xfs
// or btrfs.
type Local struct {
	root string
}

var _ Keeper = (*Local)(nil)

// NewLocal returns a Keeper for the folders below root, an absolute path.
func NewLocal(root string) *Local { return &Local{root: filepath.Clean(root)} }

// Name returns "root".
func (l *Local) Name() string { return "root" }

// Close does nothing, because a Local holds nothing.
func (l *Local) Close() error { return nil }

func (l *Local) below(dir string) (int, error) { return below(l.root, dir) }

// below opens a folder below root, O_PATH. It refuses all other folders, including those that are below root only by a
// link.
func below(root, dir string) (int, error) {
	rest, ok := strings.CutPrefix(dir, root+"/")
	if !ok || filepath.Clean(dir) != dir {
		return -1, fmt.Errorf("%q is not below %q", dir, root)
	}
	top, err := openRoot(root)
	if err != nil {
		return -1, err
	}
	defer unix.Close(top)
	fd, err := openAt(top, rest, unix.O_PATH|unix.O_DIRECTORY, inside)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return fd, nil
}

// made is like below, but makes the folder if it is missing. A new folder gets the owner of its parent.
func (l *Local) made(dir string) (int, error) {
	fd, err := l.below(dir)
	if !errors.Is(err, fs.ErrNotExist) || dir == l.root {
		return fd, err
	}
	above, name := filepath.Split(dir)
	above = filepath.Clean(above)
	at := -1
	if above == l.root {
		at, err = openRoot(above)
	} else {
		at, err = l.made(above)
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, err
	}
	if err := unix.Mkdirat(at, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, &fs.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	if err := unix.Fchownat(at, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return -1, &fs.PathError{Op: "chown", Path: dir, Err: err}
	}
	return l.below(dir)
}

// openRoot opens a folder that ramus itself made.
func openRoot(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return fd, nil
}

// Rules for the look-up of a path by [openAt].
const (
	// inside stays below the descriptor and follows no link.
	inside = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	// asRoot resolves the path with the descriptor as "/", like the container does.
	asRoot = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	// oneMount also refuses to cross into another mount.
	oneMount = inside | unix.RESOLVE_NO_XDEV
)

func openAt(dir int, path string, flags, resolve uint64) (int, error) {
	how := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: resolve}
	for range openTries {
		fd, err := unix.Openat2(dir, path, how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// openTries bounds the attempts of a look-up that concurrent renames disturb.
const openTries = 100

// unable marks errors for operations that this kernel or this process does not support.
func unable(err error) error {
	for _, e := range []error{unix.ENOSYS, unix.EPERM, unix.EACCES, unix.EINVAL, unix.EOPNOTSUPP, unix.ENODEV,
		unix.EXDEV, unix.ELOOP, unix.EROFS} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrUnable, err)
		}
	}
	return err
}

// Bind gives a container its work tree. See [Keeper].
func (l *Local) Bind(ctx context.Context, b Binding) error {
	if err := requireStart(b); err != nil {
		return err
	}
	return l.bind(ctx, b, nil)
}

// requireStart refuses a binding without a start time, because its number may be another process's here.
func requireStart(b Binding) error {
	if b.Start == 0 {
		return fmt.Errorf("cannot reach process %d: %w: its start time is not known because ramus does not see the engine's processes", b.PID, ErrUnable)
	}
	return nil
}

// bind is Bind with another source for the content of files.
func (l *Local) bind(ctx context.Context, b Binding, content contents) error {
	wrap := func(err error) error { return fmt.Errorf("cannot bind %s in process %d: %w", b.Target, b.PID, err) }
	if err := ctx.Err(); err != nil {
		return wrap(err)
	}
	if len(b.Lowers) > maxLowers {
		return wrap(fmt.Errorf("%d layers; %d are possible", len(b.Lowers), maxLowers))
	}
	if b.UID < 0 {
		return wrap(fmt.Errorf("%d is not a user", b.UID))
	}
	p, err := openProcess(b.PID, b.Start)
	if err != nil {
		return wrap(err)
	}
	defer p.close()
	target, err := p.folder(b.Target)
	if err != nil {
		return wrap(err)
	}
	defer unix.Close(target)
	if err := p.foreign(); err != nil {
		return wrap(err)
	}
	tree, err := l.make(b, content)
	if err != nil {
		return wrap(err)
	}
	defer unix.Close(tree)
	if err := ctx.Err(); err != nil {
		return wrap(err)
	}
	if err := p.mount(tree, target); err != nil {
		return wrap(err)
	}
	return nil
}

// make makes the tree of a binding without mounting it. It returns the root of the tree. Closing the root frees the
// tree.
func (l *Local) make(b Binding, content contents) (int, error) {
	dir, err := l.made(b.Dir)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	upper, err := openUpper(dir, b, content)
	if err != nil {
		return -1, err
	}
	defer unix.Close(upper)
	if len(b.Lowers) == 0 {
		return cloneTree(upper, b.ReadOnly)
	}
	work, err := openWork(b.Dir, dir)
	if err != nil {
		return -1, err
	}
	defer unix.Close(work)
	var lowers []int
	defer func() {
		for _, fd := range lowers {
			unix.Close(fd)
		}
	}()
	for _, name := range b.Lowers {
		fd, err := l.below(name)
		if err != nil {
			return -1, err
		}
		lowers = append(lowers, fd)
	}
	return makeOverlay(lowers, upper, work, b.ReadOnly)
}

// openUpper opens the upper of a binding, O_PATH. It fills a new upper under another name and renames it afterwards, so
// an existing upper is complete.
func openUpper(dir int, b Binding, content contents) (int, error) {
	fd, err := openAt(dir, "upper", unix.O_PATH|unix.O_DIRECTORY, inside)
	if err == nil || !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if err := RemoveTree(b.Dir + "/" + newUpper); err != nil { // left by a process that died while it filled the upper
		return -1, err
	}
	if err := unix.Mkdirat(dir, newUpper, 0o700); err != nil {
		return -1, fmt.Errorf("cannot make the upper layer: %w", err)
	}
	if fd, err = openAt(dir, newUpper, unix.O_RDONLY|unix.O_DIRECTORY, inside); err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	t := tree{root: fd, uid: b.UID, fresh: true, content: content}
	err = t.write(b.Fill)
	if err == nil {
		err = t.giveFile(fd, 0o755)
	}
	if err == nil {
		err = unix.Renameat(dir, newUpper, dir, "upper")
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("cannot fill the upper layer: %w", err), RemoveTree(b.Dir+"/"+newUpper))
	}
	return openAt(dir, "upper", unix.O_PATH|unix.O_DIRECTORY, inside)
}

const newUpper = "upper.new"

// openWork makes and opens an empty folder for the kernel's own use. A folder that was mounted before has the mark of a
// volatile overlay and cannot be mounted again. Nothing in it is needed.
func openWork(path string, dir int) (int, error) {
	err := unix.Mkdirat(dir, "work", 0o700)
	if errors.Is(err, unix.EEXIST) {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, "work", &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return -1, err
		}
		if st.Uid != uint32(os.Geteuid()) {
			return -1, fmt.Errorf("%s/work belongs to user %d: it is not the work folder of an overlay", path, st.Uid)
		}
		if err := RemoveTree(path + "/work"); err != nil {
			return -1, err
		}
		err = unix.Mkdirat(dir, "work", 0o700)
	}
	if err != nil {
		return -1, fmt.Errorf("cannot make the work folder of the overlay: %w", err)
	}
	return openAt(dir, "work", unix.O_PATH|unix.O_DIRECTORY, inside)
}

// Put writes through a mounted tree. See [Keeper].
func (l *Local) Put(ctx context.Context, b Binding, files []File) error {
	if err := requireStart(b); err != nil {
		return err
	}
	return l.put(ctx, b, files, nil)
}

// put is Put with another source for the content of files.
func (l *Local) put(ctx context.Context, b Binding, files []File, content contents) error {
	wrap := func(err error) error {
		return fmt.Errorf("cannot write below %s of process %d: %w", b.Target, b.PID, err)
	}
	if err := ctx.Err(); err != nil {
		return wrap(err)
	}
	upper, err := l.below(b.Upper())
	if errors.Is(err, fs.ErrNotExist) {
		return wrap(fmt.Errorf("%w: %w", ErrGone, err))
	} else if err != nil {
		return wrap(err)
	}
	defer unix.Close(upper)
	p, err := openProcess(b.PID, b.Start)
	if err != nil {
		return wrap(err)
	}
	defer p.close()
	if err := p.foreign(); err != nil {
		return wrap(err)
	}
	root, err := p.folder(b.Target)
	if err != nil {
		return wrap(err)
	}
	defer unix.Close(root)
	if err := sameTree(root, upper, len(b.Lowers) > 0); err != nil {
		return wrap(err)
	}
	t := tree{root: root, uid: b.UID, content: content}
	if err := t.write(files); err != nil {
		return wrap(err)
	}
	return nil
}

// Changes lists an upper. See [Keeper].
func (l *Local) Changes(ctx context.Context, upper string, max int) ([]Change, error) {
	wrap := func(err error) error { return fmt.Errorf("cannot list what changed in %s: %w", upper, err) }
	fd, err := l.below(upper)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, wrap(fmt.Errorf("%w: %w", ErrGone, err))
	} else if err != nil {
		return nil, wrap(err)
	}
	defer unix.Close(fd)
	list, err := changes(ctx, fd, max)
	if err != nil {
		return nil, wrap(err)
	}
	return list, nil
}

// Open opens a regular file of an upper. See [Keeper].
func (l *Local) Open(ctx context.Context, upper, path string) (*os.File, error) {
	wrap := func(err error) error { return fmt.Errorf("cannot open %q in %s: %w", path, upper, err) }
	if err := ctx.Err(); err != nil {
		return nil, wrap(err)
	}
	fd, err := l.below(upper)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, wrap(fmt.Errorf("%w: %w", ErrGone, err))
	} else if err != nil {
		return nil, wrap(err)
	}
	defer unix.Close(fd)
	f, err := openRegular(fd, path)
	if err != nil {
		return nil, wrap(err)
	}
	return f, nil
}

// Fill writes the files of a future layer. See [Keeper].
func (l *Local) Fill(ctx context.Context, dir string, uid int, files []File) error {
	return l.fill(ctx, dir, uid, files, nil)
}

// fill is Fill with another source for the content of files.
func (l *Local) fill(ctx context.Context, dir string, uid int, files []File, content contents) error {
	wrap := func(err error) error { return fmt.Errorf("cannot fill %s: %w", dir, err) }
	if err := ctx.Err(); err != nil {
		return wrap(err)
	}
	if uid < 0 {
		return wrap(fmt.Errorf("%d is not a user", uid))
	}
	named, err := l.made(dir)
	if err != nil {
		return wrap(err)
	}
	defer unix.Close(named)
	fd, err := openAt(named, ".", unix.O_RDONLY|unix.O_DIRECTORY, inside)
	if err != nil {
		return wrap(err)
	}
	defer unix.Close(fd)
	t := tree{root: fd, uid: uid, fresh: true, content: content}
	if err := errors.Join(t.write(files), t.giveFile(fd, 0o755)); err != nil {
		return wrap(err)
	}
	return nil
}

// Own gives a tree to uid. See [Keeper].
func (l *Local) Own(ctx context.Context, dir string, uid int) error {
	wrap := func(err error) error { return fmt.Errorf("cannot give %s to user %d: %w", dir, uid, err) }
	if uid < 0 {
		return wrap(errors.New("it is not a user"))
	}
	fd, err := l.below(dir)
	if err != nil {
		return wrap(err)
	}
	defer unix.Close(fd)
	if err := giveToUser(ctx, fd, uid); err != nil {
		return wrap(err)
	}
	return nil
}

// Remove deletes a folder. See [Keeper].
func (l *Local) Remove(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cannot remove %s: %w", dir, err)
	}
	fd, err := l.below(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		unix.Close(fd)
		err = ClearAway(ctx, dir)
	}
	if err != nil {
		return fmt.Errorf("cannot remove %s: %w", dir, err)
	}
	return nil
}
