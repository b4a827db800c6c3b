package layer

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tree is a work tree that is written to from outside while its container may write to it as well. Each step goes from
// one open folder to the next, and none follows a link.
type tree struct {
	root int // an open folder
	uid  int // owner of new entries
	// fresh means that no process sees the tree yet. New entries are then made under their own names, and may be
	// whiteouts.
	fresh bool
	// content opens the content of a file. If it is nil, the content is the Data or the Source of the file.
	content contents

	last   string // the folder that was written to last
	lastFD int
}

// contents opens the content of file i. Each is read to its end, in order.
type contents func(i int) (io.ReadCloser, error)

// maxName is the kernel's limit for the name of a file (NAME_MAX).
const maxName = 255

// parts splits a path. It refuses a path that is not below a folder.
func parts(path string) ([]string, error) {
	list := strings.Split(path, "/")
	for _, p := range list {
		if p == "" || p == "." || p == ".." || len(p) > maxName || strings.ContainsRune(p, 0) {
			return nil, fmt.Errorf("%q is not a path below a folder", path)
		}
	}
	return list, nil
}

func (t *tree) write(files []File) error {
	defer t.leave()
	for i, f := range files {
		if err := t.put(i, f); err != nil {
			return fmt.Errorf("%q: %w", f.Path, err)
		}
	}
	return nil
}

func (t *tree) leave() {
	if t.last != "" {
		unix.Close(t.lastFD)
		t.last = ""
	}
}

// enter returns the descriptor of a folder. It makes missing folders. The next call closes the descriptor.
func (t *tree) enter(names []string) (int, error) {
	path := strings.Join(names, "/")
	if path == "" {
		return t.root, nil
	}
	if path == t.last {
		return t.lastFD, nil
	}
	at := t.root
	for _, name := range names {
		next, err := openAt(at, name, unix.O_RDONLY|unix.O_DIRECTORY, oneMount)
		if errors.Is(err, unix.ENOENT) {
			next, err = t.makeFolder(at, name)
		}
		if at != t.root {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at = next
	}
	t.leave()
	t.last, t.lastFD = path, at
	return at, nil
}

func (t *tree) makeFolder(at int, name string) (int, error) {
	err := unix.Mkdirat(at, name, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	fd, oerr := openAt(at, name, unix.O_RDONLY|unix.O_DIRECTORY, oneMount)
	if oerr != nil {
		return -1, oerr
	}
	if err == nil {
		err = t.giveFile(fd, 0o755)
	} else {
		err = nil // another process made the folder, with the mode of its choice
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (t *tree) giveFile(fd int, mode uint32) error {
	if err := unix.Fchown(fd, t.uid, t.uid); err != nil {
		return err
	}
	return unix.Fchmod(fd, mode)
}

func (t *tree) put(i int, f File) error {
	names, err := parts(f.Path)
	if err != nil {
		return err
	}
	if f.Kind == KindFolder {
		_, err := t.enter(names)
		return err
	}
	dir, err := t.enter(names[:len(names)-1])
	if err != nil {
		return err
	}
	name := names[len(names)-1]
	as := name
	if !t.fresh {
		as = ".ramus-" + rand.Text()
	}
	switch f.Kind {
	case KindFile:
		err = t.makeFile(dir, as, i, f)
	case KindLink:
		var to string
		if to, err = t.linkTarget(i, f); err == nil {
			err = unix.Symlinkat(to, dir, as)
		}
		if err == nil {
			err = unix.Fchownat(dir, as, t.uid, t.uid, unix.AT_SYMLINK_NOFOLLOW)
		}
	case KindWhiteout:
		if !t.fresh {
			return errors.New("a whiteout can only be written before the tree is mounted")
		}
		return unix.Mknodat(dir, as, unix.S_IFCHR, 0) // number 0:0
	default:
		return fmt.Errorf("entries of kind %q cannot be written", f.Kind)
	}
	if err == nil && !f.Time.IsZero() {
		err = setTime(dir, as, f.Time)
	}
	if err == nil && as != name {
		err = unix.Renameat(dir, as, dir, name)
	}
	if err != nil && as != name {
		unix.Unlinkat(dir, as, 0) // the entry may not exist, and the first error says more
	}
	return err
}

func (t *tree) makeFile(dir int, name string, i int, f File) (err error) {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), f.Path)
	defer func() {
		if cerr := out.Close(); err == nil {
			err = cerr
		}
	}()
	in, err := t.open(i, f)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	mode := uint32(0o644)
	if f.Exec {
		mode = 0o755
	}
	return t.giveFile(fd, mode)
}

// open opens the content of a file or link.
func (t *tree) open(i int, f File) (io.ReadCloser, error) {
	switch {
	case t.content != nil:
		return t.content(i)
	case f.Source != "":
		return os.Open(f.Source)
	}
	return io.NopCloser(bytes.NewReader(f.Data)), nil
}

func (t *tree) linkTarget(i int, f File) (string, error) {
	in, err := t.open(i, f)
	if err != nil {
		return "", err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxLink+1))
	return string(b), err // the kernel refuses a target that is too long
}

func setTime(dir int, name string, at time.Time) error {
	ts, err := unix.TimeToTimespec(at)
	if err != nil {
		return err
	}
	return unix.UtimesNanoAt(dir, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}
