package containers

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/proc"
)

// boxEtc is what a sandbox sees of the host's /etc: what programs need to find
// their libraries, certificates and time zone, and nothing that tells of the
// host's users, network or services. Patterns as of [filepath.Match].
var boxEtc = []string{
	"alternatives", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts", "java-*",
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "lsb-release", "magic", "mime.types",
	"os-release", "perl", "php", "pki/ca-trust", "pki/tls/certs", "protocols", "python3*", "services",
	"ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
}

// boxFiles are made for the sandbox.
var boxFiles = []struct{ path, text string }{
	{"/etc/passwd", "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n" +
		"task:x:1000:1000:task:" + CacheDir + "/home:/bin/bash\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
	{"/etc/group", "root:x:0:\ntask:x:1000:\nnogroup:x:65534:\n"},
	{"/etc/hosts", "127.0.0.1 localhost ramus\n::1 localhost ramus\n"},
	{"/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"},
	{"/etc/hostname", "ramus\n"},
}

// spots are folders that every distribution has and no program of it lives in.
var spots = []string{"/mnt", "/media", "/srv", "/opt"}

// sandboxBox is the command line of one bubblewrap and what it inherits.
type sandboxBox struct {
	bwrap  *bwrapProbe
	path   []string // for PATH
	limits Limits
	chdir  string
	// binds are folders and files that the user of the sandbox may have no way
	// to: they lie below private folders of ramus.
	binds []boxBind
	uid   int
	home  string
	more  []string // environment besides
	// beside makes it a sidecar's: it ends with ramus, and has the network of the
	// thread that starts it. network, when set, is where that thread goes before.
	beside  bool
	network *os.File
	// owner is the user namespace that network belongs to, where ramus is not root.
	// Only who has that namespace's capabilities may enter the network, and a
	// process of several threads, as every Go program is, may not enter a user
	// namespace: nsenter does both.
	owner            *os.File
	nsenter, setpriv string
	// hold, when set, keeps that thread until it is closed: its end would be taken
	// for the end of ramus.
	hold chan struct{}
	// spot, when set, is where binds are laid out in a mount namespace of
	// root's, so that an unprivileged bubblewrap finds them.
	spot    string
	seccomp *os.File   // the filter
	data    []*os.File // the content of boxFiles
	files   []*os.File // all that close closes
}

type boxBind struct {
	src, dst string
	writable bool
}

// newBox collects what a sandbox over dir shows. dir "" is a sandbox without
// folders of its own, for [Sandbox.Check].
func (s *Sandbox) newBox(probe *bwrapProbe, dir string, l Limits) (*sandboxBox, error) {
	b, err := s.bareBox(probe, l)
	if err != nil {
		return nil, err
	}
	self, err := s.runnerPath()
	if err != nil {
		return nil, fmt.Errorf("cannot find the runner's program: %w", err)
	}
	program, err := filepath.Abs(cmp.Or(s.Program, self))
	if err != nil {
		return nil, fmt.Errorf("cannot find the commands' program: %w", err)
	}
	b.binds = append(b.binds, boxBind{src: self, dst: RunnerProgram}, boxBind{src: program, dst: Program})
	visible := []string{"/usr", "/bin", "/sbin"}
	for _, p := range s.ReadOnly {
		p, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(p); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		b.binds = append(b.binds, boxBind{src: p, dst: p})
		visible = append(visible, p)
	}
	if dir != "" {
		b.chdir = WorkDir
		for _, name := range []string{WorkDir, ArtifactsDir, CacheDir} {
			b.binds = append(b.binds, boxBind{src: filepath.Join(dir, name), dst: name, writable: true})
		}
	}
	b.path = visiblePath(os.Getenv("PATH"), visible)
	if err := b.prepare(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// bareBox is a sandbox without anything of ramus's.
func (s *Sandbox) bareBox(probe *bwrapProbe, l Limits) (*sandboxBox, error) {
	b := &sandboxBox{bwrap: probe, limits: l, chdir: "/", home: CacheDir + "/home"}
	var other bool
	if b.uid, other = s.user(); other {
		i := slices.IndexFunc(spots, func(p string) bool { fi, err := os.Lstat(p); return err == nil && fi.IsDir() })
		if i < 0 {
			return nil, fmt.Errorf("none of %s is a folder; one is needed to start as another user", strings.Join(spots, ", "))
		}
		b.spot = spots[i]
	}
	return b, nil
}

// visiblePath is a PATH of those folders of the host's that a sandbox shows.
func visiblePath(host string, visible []string) []string {
	dirs := []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	extra := append(filepath.SplitList(host), "/usr/local/go/bin", "/usr/lib/go/bin")
	for _, p := range extra {
		p = filepath.Clean(p)
		if slices.Contains(dirs, p) || !slices.ContainsFunc(visible, func(v string) bool { return within(p, v) }) {
			continue
		}
		if fi, err := os.Stat(p); err == nil && fi.IsDir() {
			dirs = append(dirs, p)
		}
	}
	return dirs
}

// within tells whether clean path p is dir or lies below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// env is the environment of every command.
func (b *sandboxBox) env() []string {
	return append([]string{
		"PATH=" + strings.Join(b.path, ":"), "HOME=" + b.home, "LANG=C.UTF-8", "SHELL=/bin/sh",
	}, b.more...)
}

// command is bubblewrap around args. The inherited files become descriptors 3
// and up inside.
func (b *sandboxBox) command(inherited []*os.File, status *os.File, args []string) *exec.Cmd {
	files := slices.Clone(inherited)
	pass := func(f *os.File) string {
		files = append(files, f)
		return strconv.Itoa(2 + len(files))
	}
	a := []string{"--hostname", "ramus", "--new-session", "--clearenv", "--cap-drop", "ALL"}
	switch {
	case !b.beside:
		a = append(a, "--unshare-all", "--as-pid-1")
	case b.network != nil:
		a = append(a, "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
	default:
		a = append(a, "--unshare-all")
	}
	if b.beside {
		// Bubblewrap stays process 1: it takes in what is orphaned, and tells how
		// the program ended.
		a = append(a, "--die-with-parent")
	}
	if b.owner == nil {
		a = append(a, "--unshare-user", "--uid", "1000", "--gid", "1000")
		if b.bwrap.disableUserNS {
			a = append(a, "--disable-userns")
		}
	}
	if status != nil {
		a = append(a, "--json-status-fd", pass(status))
	}
	a = append(a, "--ro-bind", "/usr", "/usr")
	for _, p := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		a = append(a, showHost(p)...)
	}
	// Without a line of its own bubblewrap closes such a folder to others.
	for _, p := range []string{"/etc", "/etc/pki", "/etc/pki/tls", "/etc/ssl"} {
		if fi, err := os.Stat(p); err == nil && fi.IsDir() {
			a = append(a, "--perms", "0755", "--dir", p)
		}
	}
	for _, pattern := range boxEtc {
		names, _ := filepath.Glob("/etc/" + pattern) // the patterns are ours and well formed
		for _, p := range names {
			a = append(a, showHost(p)...)
		}
	}
	for i, d := range b.data {
		a = append(a, "--perms", "0444", "--ro-bind-data", pass(d), boxFiles[i].path)
	}
	a = append(a, "--proc", "/proc", "--dev", "/dev")
	a = append(a, b.tmpfs("/dev/shm", min(b.limits.Memory/8, maxShm))...)
	a = append(a, "--remount-ro", "/dev")
	a = append(a, b.tmpfs("/tmp", b.limits.Tmp)...)
	if b.beside {
		a = append(a, "--perms", "0700", "--dir", b.home)
	}
	a = append(a, "--dir", "/var", "--symlink", "/tmp", "/var/tmp", "--dir", "/run")
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
		// In the namespace of the network's owner no further one can be made: the
		// container's own has used up what bubblewrap allows. The user's number is 0
		// there. It owns nothing that the user does not, but programs it starts would
		// have capabilities by its number: the bounding set takes them, after
		// bubblewrap, which gets its own by inheritance. In two steps: what is not
		// in the bounding set any more cannot be made inheritable.
		//
		// The namespaces are named by descriptors of this process: one that was
		// inherited would be the program's in the end.
		ours := func(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }
		cmd = exec.Command(b.nsenter, append([]string{
			"--user=" + ours(b.owner), "--net=" + ours(b.network), "--preserve-credentials",
			"--", b.setpriv, "--inh-caps=+all", "--", b.setpriv, "--bounding-set=-all", "--", b.bwrap.path,
		}, a...)...)
	}
	cmd.ExtraFiles = files
	cmd.Env = []string{}
	cmd.Dir = "/"
	// Its own session: what ends ramus's terminal does not end containers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if b.spot != "" {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(b.uid), Gid: uint32(b.uid)}
	}
	return cmd
}

// maxShm is enough for a browser, which keeps its windows in /dev/shm.
const maxShm = 256 << 20

// tmpfs is a folder in memory, of at most size bytes.
func (b *sandboxBox) tmpfs(dst string, size int64) []string {
	a := []string{"--perms", "1777"}
	if b.bwrap.size {
		a = append(a, "--size", strconv.FormatInt(max(size, 1<<20), 10))
	}
	return append(a, "--tmpfs", dst)
}

// showHost shows a path of the host's as it is: a symlink as a symlink.
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

// start starts the command in its control groups.
//
// The groups of version 1 and the mount namespace belong to a thread, and a
// child inherits those of the thread that forks it. So a thread is taken, bent
// to the child's needs, and thrown away.
func (b *sandboxBox) start(cmd *exec.Cmd, cgroups *cgroupRoot, dirs []string) error {
	if cgroups.usable() && cgroups.v2 != "" && len(dirs) > 0 {
		d, err := os.Open(dirs[0])
		if err != nil {
			return err
		}
		defer d.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(d.Fd())
	}
	// A descriptor that ramus was born with would reach into the sandbox.
	// Kernels before 5.11 do not know the call; there the runner's own closing must do.
	unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	done := make(chan error)
	go proc.OnThread(func() {
		err := b.enterNetwork()
		if err == nil {
			err = b.layOut()
		}
		if err == nil && cgroups.usable() {
			err = cgroups.join(dirs)
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
func (b *sandboxBox) enterNetwork() error {
	if b.network == nil || b.owner != nil {
		return nil
	}
	if err := unix.Setns(int(b.network.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("cannot enter the container's network: %w", err)
	}
	return nil
}

// layOut makes, on the calling thread alone, a mount namespace in which the
// sandbox's folders are at b.spot. It vanishes with the last process in it.
func (b *sandboxBox) layOut() error {
	if b.spot == "" {
		return nil
	}
	wrap := func(err error) error { return fmt.Errorf("cannot lay out the sandbox's folders: %w", err) }
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return wrap(err)
	}
	// What is mounted here must not reach the host; what the host unmounts must
	// be let go here.
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

// prepare makes the files that bubblewrap reads from its descriptors.
func (b *sandboxBox) prepare() error {
	filter, err := seccompFilter()
	if err != nil {
		return err
	}
	if b.seccomp, err = b.textFile(filter); err != nil {
		return err
	}
	for _, f := range boxFiles {
		d, err := b.textFile([]byte(f.text))
		if err != nil {
			return err
		}
		b.data = append(b.data, d)
	}
	return nil
}

// textFile is a nameless file with this content, read from its start.
func (b *sandboxBox) textFile(text []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("ramus", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	b.files = append(b.files, f)
	if _, err := f.Write(text); err != nil {
		return nil, err
	}
	_, err = f.Seek(0, 0)
	return f, err
}

func (b *sandboxBox) close() {
	for _, f := range b.files {
		f.Close()
	}
}
