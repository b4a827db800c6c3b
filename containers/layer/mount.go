package layer

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLowers is the number of layers that fit into an option of a mount, for which the kernel allows 255 bytes.
const maxLowers = 10

// makeOverlay makes an overlay without mounting it, and returns its root.
//
// The layers are named by descriptors of this process. So their paths need no quoting and have no limit of length, no
// other process can exchange a folder, and the container's list of mounts does not reveal their paths.
func makeOverlay(lowers []int, upper, work int, readOnly bool) (int, error) {
	fail := func(what string, err error) (int, error) {
		return -1, unable(fmt.Errorf("cannot %s an overlay: %w", what, err))
	}
	c, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fail("begin", err)
	}
	defer unix.Close(c)
	var under []string
	for _, fd := range lowers {
		under = append(under, procFD(fd))
	}
	for _, o := range []struct{ key, value string }{
		{"source", "ramus"},
		{"lowerdir", strings.Join(under, ":")},
		{"upperdir", procFD(upper)},
		{"workdir", procFD(work)},
		// Without redirect_dir the kernel refuses to rename folders of the layers below.
		{"redirect_dir", "on"},
		// A file of the upper is complete, never only its attributes.
		{"metacopy", "off"},
		{"index", "off"},
		// Files keep the inode numbers of the layers below, so git's index stays right.
		{"xino", "off"},
	} {
		if err := unix.FsconfigSetString(c, o.key, o.value); err != nil {
			return fail("set "+o.key+" of", err)
		}
	}
	// Work that counts is in the branch, so nothing in the container has to wait for the disk.
	if err := unix.FsconfigSetFlag(c, "volatile"); err != nil {
		return fail("set volatile of", err)
	}
	attrs := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	if readOnly {
		if err := unix.FsconfigSetFlag(c, "ro"); err != nil {
			return fail("set ro of", err)
		}
		attrs |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.FsconfigCreate(c); err != nil {
		return fail("make", explain(c, err))
	}
	fd, err := unix.Fsmount(c, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return fail("mount", explain(c, err))
	}
	return fd, nil
}

// explain adds the kernel's own text to an error.
func explain(c int, err error) error {
	var b [512]byte
	if n, rerr := unix.Read(c, b[:]); rerr == nil && n > 0 {
		// The kernel marks an error with "e ".
		return fmt.Errorf("%w (%s)", err, strings.TrimSpace(strings.TrimPrefix(string(b[:n]), "e ")))
	}
	return err
}

func procFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// cloneTree makes a mount of a folder without attaching it, and returns its root.
func cloneTree(dir int, readOnly bool) (int, error) {
	fd, err := unix.OpenTree(dir, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, unable(fmt.Errorf("cannot mount a folder: %w", err))
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(fd)
		return -1, unable(fmt.Errorf("cannot set the attributes of a mount: %w", err))
	}
	return fd, nil
}

// sameTree returns [ErrGone] if root is not the root of the tree that was mounted over upper.
func sameTree(root, upper int, overlay bool) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(root, &fs); err != nil {
		return err
	}
	var r, u unix.Stat_t
	if err := errors.Join(unix.Fstat(root, &r), unix.Fstat(upper, &u)); err != nil {
		return err
	}
	same := r.Dev == u.Dev && r.Ino == u.Ino
	if overlay {
		same = fs.Type == unix.OVERLAYFS_SUPER_MAGIC
	}
	if !same {
		return fmt.Errorf("nothing is bound there: %w", ErrGone)
	}
	return nil
}
