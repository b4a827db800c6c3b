package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/proc"
)

// process is one process, held by descriptors: they mean the same one for ever,
// whatever becomes of its number.
type process struct {
	pid  int
	fd   int // a pidfd
	root int // its "/", O_PATH
}

// openProcess takes hold of a process and proves that it is the one that is meant.
func openProcess(pid int, start uint64) (*process, error) {
	if pid <= 1 {
		return nil, fmt.Errorf("%d is no process of a container", pid)
	}
	gone := func(err error) error {
		if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
		return unable(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, gone(err)
	}
	p := &process{pid: pid, fd: fd, root: -1}
	// Whose number it is now is seen first, and whether that one still lives last: what
	// lies in between is of the same process.
	now, err := proc.Start(pid)
	if err == nil && start != 0 && now != start {
		err = fmt.Errorf("%w: its number is another process's now", ErrGone)
	}
	if err == nil {
		p.root, err = unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		err = p.alive()
	}
	if err != nil {
		p.close()
		return nil, gone(err)
	}
	return p, nil
}

func (p *process) close() {
	unix.Close(p.fd)
	if p.root >= 0 {
		unix.Close(p.root)
	}
}

// alive fails when the process has ended, also one that nobody has waited for yet.
func (p *process) alive() error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n > 0:
			return ErrGone
		}
		return nil
	}
}

// foreign fails for a process that shares the mount namespace of this one or of the
// machine's process 1: what is mounted there is mounted for all.
func (p *process) foreign() error {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", p.pid))
	if err != nil {
		return p.orGone(err)
	}
	for _, other := range []string{"self", "1"} {
		if ours, err := os.Readlink("/proc/" + other + "/ns/mnt"); err == nil && ours == theirs {
			return fmt.Errorf("process %d has the file systems of the host: it is no container's", p.pid)
		}
	}
	return p.alive()
}

// orGone explains an error by the end of the process.
func (p *process) orGone(err error) error {
	if gone := p.alive(); gone != nil {
		return gone
	}
	return err
}

// folder opens a folder by the path that it has for the process, O_PATH. No link is followed.
func (p *process) folder(path string) (int, error) {
	if !strings.HasPrefix(path, "/") {
		return -1, fmt.Errorf("%q is no path from the root", path)
	}
	fd, err := openAt(p.root, path, unix.O_PATH|unix.O_DIRECTORY, asRoot)
	if err != nil {
		return -1, p.orGone(&fs.PathError{Op: "open", Path: path, Err: err})
	}
	return fd, nil
}

// mount moves a tree that is mounted nowhere onto a folder of the process's.
func (p *process) mount(tree, onto int) error {
	if err := mountIn(p.fd, tree, onto); err != nil {
		return p.orGone(err)
	}
	return nil
}

// mountIn moves a tree that is mounted nowhere onto a folder of another mount namespace,
// which a process's descriptor names, or its own.
func mountIn(ns, tree, onto int) error {
	done := make(chan error, 1)
	go proc.OnThread(func() { done <- mountHere(ns, tree, onto) })
	return <-done
}

// mountHere leaves the calling thread in that namespace.
func mountHere(ns, tree, onto int) error {
	// Threads that share their root and current folder may not change namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return unable(fmt.Errorf("cannot leave the other threads' folders: %w", err))
	}
	if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
		return unable(fmt.Errorf("cannot enter the container's mount namespace: %w", err))
	}
	if err := unix.MoveMount(tree, "", onto, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return unable(fmt.Errorf("cannot mount in the container: %w", err))
	}
	return nil
}
