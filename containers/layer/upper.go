package layer

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Attributes of the kernel's overlayfs. Only administrators of the machine can set them, so they can be trusted. Its
// other attributes (origin, impure, nlink, …) do not affect the content of a tree.
const (
	attrOpaque   = "trusted.overlay.opaque"
	attrRedirect = "trusted.overlay.redirect"
	attrWhiteout = "trusted.overlay.whiteout"
)

const (
	// maxDepth bounds the depth of an upper. Each level takes a descriptor while it is read, and git refuses deeper
	// trees as well.
	maxDepth = 1000
	// maxText bounds the sum of the paths and links of one list, in bytes, because a few deep entries can have very
	// long ones.
	maxText = 64 << 20
	// turns bounds the attempts to read an entry that changes meanwhile.
	turns = 10
)

// walk lists an upper while its container may write to it.
type walk struct {
	ctx  context.Context
	max  int
	text int
	list []Change
	buf  [32 << 10]byte // for answers of the kernel
}

// changes returns the entries below an open folder.
func changes(ctx context.Context, root, max int) ([]Change, error) {
	dir, err := openAt(root, ".", unix.O_RDONLY|unix.O_DIRECTORY, inside)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	w := &walk{ctx: ctx, max: max}
	opaque, err := w.attr(dir, attrOpaque)
	if err != nil {
		return nil, err
	}
	if err := w.folder(dir, "", "", opaque == "x", 0); err != nil {
		return nil, err
	}
	return w.list, nil
}

// attr returns an attribute of an open folder. Returns "" if it has none.
func (w *walk) attr(dir int, name string) (string, error) {
	n, err := unix.Fgetxattr(dir, name, w.buf[:])
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", name, err)
	}
	return string(w.buf[:n]), nil
}

// folder lists an open folder. path is its own path, and under the path of the folder that it covers. marked means that
// an attribute may make files in it whiteouts.
func (w *walk) folder(dir int, path, under string, marked bool, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: folders are nested deeper than %d", ErrTooMany, maxDepth)
	}
	names, err := names(w.ctx, dir, w.buf[:], w.max-len(w.list))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := w.entry(dir, path, under, name, marked, depth); err != nil {
			return err
		}
	}
	return nil
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// entry lists one entry and everything below it.
func (w *walk) entry(dir int, path, under, name string, marked bool, depth int) error {
	path = join(path, name)
	for range turns {
		var st unix.Stat_t
		err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			return nil // the entry was removed meanwhile, or had two names for a moment
		} else if err != nil {
			return err
		}
		again := func(err error) bool {
			return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
				errors.Is(err, unix.EINVAL)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, oneMount)
			if again(err) {
				continue
			} else if err != nil {
				return fmt.Errorf("%q: %w", path, err)
			}
			err = w.child(fd, path, under, name, depth)
			unix.Close(fd)
			return err
		case unix.S_IFLNK:
			n, err := unix.Readlinkat(dir, name, w.buf[:])
			if again(err) {
				continue
			} else if err != nil {
				return fmt.Errorf("%q: %w", path, err)
			}
			c := change(path, KindLink, &st)
			c.Link = string(w.buf[:n])
			return w.add(c)
		case unix.S_IFREG:
			c := change(path, KindFile, &st)
			if marked && st.Size == 0 {
				_, err := unix.Lgetxattr(procFD(dir)+"/"+name, attrWhiteout, w.buf[:])
				if again(err) {
					continue
				} else if err == nil {
					c.Kind = KindWhiteout
				} else if !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
					return fmt.Errorf("%q: %w", path, err)
				}
			}
			if c.Kind == KindFile {
				c.Exec, c.Size, c.Closed = st.Mode&0o100 != 0, st.Size, st.Mode&0o400 == 0
			}
			return w.add(c)
		case unix.S_IFCHR:
			if st.Rdev == 0 {
				return w.add(change(path, KindWhiteout, &st))
			}
		}
		return w.add(change(path, KindOther, &st))
	}
	return fmt.Errorf("%q changes all the time", path)
}

// child lists an open folder that is not the root, and everything below it.
func (w *walk) child(fd int, path, under, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	c := change(path, KindFolder, &st)
	opaque, err := w.attr(fd, attrOpaque)
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	redirect, err := w.attr(fd, attrRedirect)
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	c.Opaque, c.Closed = opaque == "y", st.Mode&0o700 != 0o700
	if c.Redirect, err = redirected(under, redirect); err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	if err := w.add(c); err != nil {
		return err
	}
	if under = join(under, name); c.Redirect != "" {
		under = c.Redirect
	}
	return w.folder(fd, path, under, opaque == "x", depth+1)
}

// redirected returns the path, in the layers below, that the attribute of a folder names. The value is a path from
// their root, or the name of a sibling below under.
func redirected(under, value string) (string, error) {
	if value == "" {
		return "", nil
	}
	path := join(under, value)
	if value[0] == '/' {
		path = value[1:]
	}
	if _, err := parts(path); err != nil {
		return "", fmt.Errorf("cannot read the path it was renamed from: %w", err)
	}
	return path, nil
}

func change(path string, kind Kind, st *unix.Stat_t) Change {
	return Change{Path: path, Kind: kind, Inode: st.Ino, MTime: st.Mtim.Nano(), CTime: st.Ctim.Nano()}
}

func (w *walk) add(c Change) error {
	w.text += len(c.Path) + len(c.Link) + len(c.Redirect)
	if len(w.list) >= w.max {
		return fmt.Errorf("%w: more than %d entries", ErrTooMany, w.max)
	}
	if w.text > maxText {
		return fmt.Errorf("%w: their paths take more than %d bytes", ErrTooMany, maxText)
	}
	w.list = append(w.list, c)
	return nil
}

// maxPath bounds the path of one look-up, in bytes (PATH_MAX).
const maxPath = 4096

// openRegular opens a regular file below an open folder.
func openRegular(root int, path string) (*os.File, error) {
	names, err := parts(path)
	if err != nil {
		return nil, err
	}
	// Longer paths take several look-ups. None goes back up, so concurrent renames lead nowhere else.
	at := root
	defer func() {
		if at != root {
			unix.Close(at)
		}
	}()
	for len(path) >= maxPath {
		n, head := 0, ""
		for next := names[0]; len(next) < maxPath; next = head + "/" + names[n] {
			head = next
			n++
		}
		fd, err := openAt(at, head, unix.O_PATH|unix.O_DIRECTORY, oneMount)
		if err != nil {
			return nil, err
		}
		if at != root {
			unix.Close(at)
		}
		at, names, path = fd, names[n:], path[len(head)+1:]
	}
	// The kind of the file is checked before it is opened, because opening a pipe blocks and opening a device can have
	// any effect.
	named, err := openAt(at, path, unix.O_PATH, oneMount)
	if err != nil {
		return nil, err
	}
	defer unix.Close(named)
	var st unix.Stat_t
	if err := unix.Fstat(named, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("it is not a regular file")
	}
	// O_NONBLOCK avoids a wait for a holder of a lease of the file.
	fd, err := unix.Open(procFD(named), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}
