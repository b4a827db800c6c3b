package sandbox

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/cgroup"
	"github.com/ramus-dev/ramus/containers/proc"
)

// start starts a command of bubblewrap in its control groups.
//
// Control groups of version 1 and the mount namespace belong to a thread, and a child inherits those of the thread that forks it.
// So start uses a thread of its own, which ends afterwards.
func (b *box) start(cmd *exec.Cmd, cgroups *cgroup.Root, dirs []string) error {
	if dir := cgroups.CloneInto(dirs); dir != "" {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer d.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(d.Fd())
	}
	// A descriptor that ramus inherited would reach into the container. Kernels before 5.11 do not have the call. There
	// the runner closes such descriptors itself.
	unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	done := make(chan error)
	go proc.OnThread(func() {
		err := b.enterNetwork()
		if err == nil {
			err = b.layOut()
		}
		if err == nil && cgroups.Usable() {
			err = cgroups.Join(dirs)
		}
		if err == nil {
			err = cmd.Start()
		}
		done <- err
		if err == nil && b.hold != nil {
			<-b.hold
		}
	})
	return <-done
}

// enterNetwork moves the calling thread into b.network.
func (b *box) enterNetwork() error {
	if b.network == nil || b.owner != nil {
		return nil
	}
	if err := unix.Setns(int(b.network.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("cannot enter the container's network: %w", err)
	}
	return nil
}

// layOut makes a mount namespace for the calling thread, in which the binds are in the folder b.spot. The namespace ends with its
// last process.
func (b *box) layOut() error {
	if b.spot == "" {
		return nil
	}
	wrap := func(err error) error { return fmt.Errorf("cannot lay out the sandbox's folders: %w", err) }
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return wrap(err)
	}
	// Mounts made here must not reach the host. Unmounts of the host must reach here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return wrap(err)
	}
	fds := make([]int, len(b.binds))
	for i, v := range b.binds {
		fd, err := unix.Open(v.src, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return wrap(fmt.Errorf("%s: %w", v.src, err))
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	if err := unix.Mount("ramus", b.spot, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return wrap(err)
	}
	for i, v := range b.binds {
		at := filepath.Join(b.spot, strconv.Itoa(i))
		var st unix.Stat_t
		err := unix.Fstat(fds[i], &st)
		if err == nil {
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				err = unix.Mkdir(at, 0o755)
			} else {
				err = unix.Mknod(at, unix.S_IFREG|0o644, 0)
			}
		}
		if err == nil {
			err = unix.Mount("/proc/self/fd/"+strconv.Itoa(fds[i]), at, "", unix.MS_BIND|unix.MS_REC, "")
		}
		if err != nil {
			return wrap(fmt.Errorf("%s: %w", v.src, err))
		}
	}
	return nil
}
