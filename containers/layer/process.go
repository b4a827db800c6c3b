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

// process is one process, held by descriptors. They refer to the same process forever, even if its number is used
// again.
type process struct {
	pid  int
	fd   int // a pidfd
	root int // its "/", O_PATH
}

// openProcess opens a process and proves that it is the right one.
func openProcess(pid int, start uint64) (*process, error) {
	if pid <= 1 {
		return nil, fmt.Errorf("%d is not a process of a container", pid)
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
	// The start time is read first, and the process is found alive last. So everything in between belongs to the same
	// process.
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

// alive returns [ErrGone] if the process has ended, even if its parent has not waited for it yet.
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

// foreign returns an error if the process shares the mount namespace of this process or of the machine's process 1. A
// mount there would be visible to all.
func (p *process) foreign() error {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", p.pid))
	if err != nil {
		return p.orGone(err)
	}
	for _, other := range []string{"self", "1"} {
		if ours, err := os.Readlink("/proc/" + other + "/ns/mnt"); err == nil && ours == theirs {
			return fmt.Errorf("process %d has the file systems of the host: it is not in a container", p.pid)
		}
	}
	return p.alive()
}

// orGone returns [ErrGone] instead of err if the process has ended.
func (p *process) orGone(err error) error {
	if gone := p.alive(); gone != nil {
		return gone
	}
	return err
}

// folder opens a folder by its path inside the process's root, O_PATH. It follows no link.
func (p *process) folder(path string) (int, error) {
	if !strings.HasPrefix(path, "/") {
		return -1, fmt.Errorf("%q is not an absolute path", path)
	}
	fd, err := openAt(p.root, path, unix.O_PATH|unix.O_DIRECTORY, asRoot)
	if err != nil {
		return -1, p.orGone(&fs.PathError{Op: "open", Path: path, Err: err})
	}
	return fd, nil
}

// mount moves a detached tree onto a folder of the process.
func (p *process) mount(tree, onto int) error {
	if err := mountIn(p.fd, tree, onto); err != nil {
		return p.orGone(err)
	}
	return nil
}

// mountIn moves a detached tree onto a folder of another mount namespace. ns is a descriptor of a process or of the
// namespace.
func mountIn(ns, tree, onto int) error {
	done := make(chan error, 1)
	go proc.OnThread(func() { done <- mountHere(ns, tree, onto) })
	return <-done
}

// mountHere is mountIn for the calling thread, which stays in the other namespace.
func mountHere(ns, tree, onto int) error {
	// Threads that share their root and current folder may not change their namespace.
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
