package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// command returns the command of bubblewrap around args. The inherited files become descriptors 3 and up inside.
func (b *box) command(inherited []*os.File, status *os.File, args []string) *exec.Cmd {
	files := slices.Clone(inherited)
	pass := func(f *os.File) string {
		files = append(files, f)
		return strconv.Itoa(2 + len(files))
	}

	a := []string{"--hostname", "ramus", "--new-session", "--clearenv", "--cap-drop", "ALL"}
	a = append(a, b.namespaceArgs()...)
	if status != nil {
		a = append(a, "--json-status-fd", pass(status))
	}
	a = append(a, hostArgs()...)
	for i, d := range b.data {
		if slices.ContainsFunc(b.binds, func(v bind) bool { return v.dst == boxFiles[i].path }) {
			continue // a file of the host takes its place
		}
		a = append(a, "--perms", "0444", "--ro-bind-data", pass(d), boxFiles[i].path)
	}
	a = append(a, b.memoryArgs()...)
	a = append(a, b.bindArgs()...)
	if b.seccomp != nil {
		a = append(a, "--seccomp", pass(b.seccomp))
	}
	a = append(a, "--remount-ro", "/", "--chdir", b.chdir)
	for _, kv := range b.env() {
		k, v, _ := strings.Cut(kv, "=")
		a = append(a, "--setenv", k, v)
	}
	a = append(append(a, "--"), args...)

	cmd := exec.Command(b.bwrap.path, a...)
	if b.owner != nil {
		cmd = b.insideOwner(a)
	}
	cmd.ExtraFiles = files
	cmd.Env = []string{}
	cmd.Dir = "/"
	// A session of its own, so that the end of the terminal of ramus does not end containers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if b.spot != "" {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(b.uid), Gid: uint32(b.uid)}
	}
	return cmd
}

// namespaceArgs returns the arguments that choose the namespaces.
func (b *box) namespaceArgs() (a []string) {
	switch {
	case !b.sidecar:
		a = append(a, "--unshare-all", "--as-pid-1")
	case b.network != nil:
		a = append(a, "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
	default:
		a = append(a, "--unshare-all")
	}
	if b.sidecar {
		// Bubblewrap stays process 1. It adopts orphans, and reports how the program ended.
		a = append(a, "--die-with-parent")
	}
	if b.owner == nil {
		a = append(a, "--unshare-user", "--uid", "1000", "--gid", "1000")
		if b.bwrap.disableUserNS {
			a = append(a, "--disable-userns")
		}
	}
	return a
}

// hostArgs returns the arguments that show /usr and parts of /etc of the host.
func hostArgs() []string {
	a := []string{"--ro-bind", "/usr", "/usr"}
	for _, p := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		a = append(a, showHost(p)...)
	}
	// Without these arguments bubblewrap closes the folders to other users.
	for _, p := range []string{"/etc", "/etc/pki", "/etc/pki/tls", "/etc/ssl"} {
		if fi, err := os.Stat(p); err == nil && fi.IsDir() {
			a = append(a, "--perms", "0755", "--dir", p)
		}
	}
	for _, pattern := range boxEtc {
		names, _ := filepath.Glob("/etc/" + pattern) // the patterns are well formed
		for _, p := range names {
			a = append(a, showHost(p)...)
		}
	}
	return a
}

// memoryArgs returns the arguments for the file systems in memory and those of the kernel.
func (b *box) memoryArgs() []string {
	a := []string{"--proc", "/proc", "--dev", "/dev"}
	a = append(a, b.tmpfs("/dev/shm", min(b.limits.Memory/8, maxShm))...)
	a = append(a, "--remount-ro", "/dev")
	a = append(a, b.tmpfs("/tmp", b.limits.Tmp)...)
	if b.sidecar {
		a = append(a, "--perms", "0700", "--dir", b.home)
	}
	return append(a, "--dir", "/var", "--symlink", "/tmp", "/var/tmp", "--dir", "/run")
}

// bindArgs returns the arguments for b.binds.
func (b *box) bindArgs() (a []string) {
	for i, v := range b.binds {
		src, flag := v.src, "--ro-bind"
		if b.spot != "" {
			src = filepath.Join(b.spot, strconv.Itoa(i))
		}
		if v.writable {
			flag = "--bind"
		}
		a = append(a, flag, src, v.dst)
	}
	return a
}

// insideOwner returns the command of bubblewrap, with its arguments, in b.network and the user namespace b.owner.
//
// In b.owner no further user namespace can be made: that of the container has used up the limit of bubblewrap. The number of the
// user is 0 there. The user owns nothing that it does not own outside, but programs that it starts would have capabilities
// because of the number. The bounding set removes them, after bubblewrap, which gets its own by inheritance. That takes two
// steps, because a capability that is not in the bounding set cannot be made inheritable.
//
// The namespaces are named by descriptors of this process. The program would keep an inherited descriptor.
func (b *box) insideOwner(args []string) *exec.Cmd {
	ours := func(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }
	return exec.Command(b.nsenter, append([]string{
		"--user=" + ours(b.owner), "--net=" + ours(b.network), "--preserve-credentials",
		"--", b.setpriv, "--inh-caps=+all", "--", b.setpriv, "--bounding-set=-all", "--", b.bwrap.path,
	}, args...)...)
}

// maxShm is enough for a browser, which has its windows in /dev/shm.
const maxShm = 256 << 20

// tmpfs returns the arguments for a folder in memory of at most size bytes.
func (b *box) tmpfs(dst string, size int64) []string {
	a := []string{"--perms", "1777"}
	if b.bwrap.size {
		a = append(a, "--size", strconv.FormatInt(max(size, 1<<20), 10))
	}
	return append(a, "--tmpfs", dst)
}

// showHost returns the arguments that show a path of the host as it is: a symbolic link as a symbolic link.
func showHost(p string) []string {
	fi, err := os.Lstat(p)
	if err != nil {
		return nil
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		to, err := os.Readlink(p)
		if err != nil {
			return nil
		}
		abs := to
		if !filepath.IsAbs(abs) {
			abs = filepath.Join(filepath.Dir(p), to)
		}
		if within(abs, "/usr") || within(abs, "/etc/alternatives") {
			return []string{"--symlink", to, p}
		}
	}
	return []string{"--ro-bind-try", p, p}
}
