package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers"
)

// boxEtc are the files of the host's /etc that a container sees. With them programs find libraries, certificates and
// the time zone. None of them has users, networks or services of the host. They are patterns of [filepath.Match].
var boxEtc = []string{
	"alternatives", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts", "java-*",
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "lsb-release", "magic", "mime.types",
	"os-release", "perl", "php", "pki/ca-trust", "pki/tls/certs", "protocols", "python3*", "services",
	"ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
}

// hostsText is the hosts file of sidecars. hostsLine is the first line of that of a container, see [Engine.SetNames].
const (
	hostsLine = "127.0.0.1 localhost ramus\n"
	hostsText = hostsLine + "::1 localhost ramus\n"
	hostsName = "hosts" // in the folder of a container
)

// boxFiles are made for each container.
var boxFiles = []struct{ path, text string }{
	{"/etc/passwd", "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n" +
		"task:x:1000:1000:task:" + containers.CacheDir + "/home:/bin/bash\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
	{"/etc/group", "root:x:0:\ntask:x:1000:\nnogroup:x:65534:\n"},
	{"/etc/hosts", hostsText},
	{"/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"},
	{"/etc/hostname", "ramus\n"},
}

// spots are folders that every distribution has and that no program needs.
var spots = []string{"/mnt", "/media", "/srv", "/opt"}

// box is the command line of one bubblewrap and the files that it inherits.
type box struct {
	bwrap  *bwrapProbe
	path   []string // for PATH
	limits containers.Limits
	chdir  string
	// binds are folders and files below private folders of ramus, which the user of the container may be unable to reach.
	binds []bind
	uid   int
	home  string
	more  []string // further variables of the environment
	// sidecar makes it the box of a sidecar. The sidecar ends with ramus, and has the network of the thread that starts it.
	// If network is not nil, the thread enters it first.
	sidecar bool
	network *os.File
	// owner is the user namespace that owns network. It is nil if ramus is root. Only a process with capabilities in
	// that namespace can enter the network. A process of several threads, as each Go program is, cannot enter a user
	// namespace, so nsenter does both.
	owner            *os.File
	nsenter, setpriv string
	// hold, if not nil, keeps the thread until it is closed. The kernel takes the end of the thread for the end of ramus.
	hold chan struct{}
	// spot, if not "", is the folder of binds in a mount namespace that root makes, so that a bubblewrap without privileges
	// reaches them.
	spot    string
	seccomp *os.File   // the filter
	data    []*os.File // the content of boxFiles
	files   []*os.File // close closes these
}

// bind is a path of the host that a container sees.
type bind struct {
	src, dst string
	writable bool
}

// newBox returns the box of a container with folder dir. If dir is "", the container has no folder, for [Engine.Check].
func (s *Engine) newBox(probe *bwrapProbe, dir string, l containers.Limits) (*box, error) {
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
	b.binds = append(b.binds, bind{src: self, dst: containers.RunnerProgram}, bind{src: program, dst: containers.Program})
	visible := []string{"/usr", "/bin", "/sbin"}
	for _, p := range s.ReadOnly {
		p, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(p); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		b.binds = append(b.binds, bind{src: p, dst: p})
		visible = append(visible, p)
	}
	if dir != "" {
		b.chdir = containers.WorkDir
		for _, name := range []string{containers.WorkDir, containers.ArtifactsDir, containers.CacheDir} {
			b.binds = append(b.binds, bind{src: filepath.Join(dir, name), dst: name, writable: true})
		}
		b.binds = append(b.binds, bind{src: filepath.Join(dir, hostsName), dst: "/etc/hosts"})
	}
	b.path = visiblePath(os.Getenv("PATH"), visible)
	if err := b.prepare(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// bareBox returns a box without files of ramus.
func (s *Engine) bareBox(probe *bwrapProbe, l containers.Limits) (*box, error) {
	b := &box{bwrap: probe, limits: l, chdir: "/", home: containers.CacheDir + "/home"}
	var other bool
	if b.uid, other = s.user(); other {
		i := slices.IndexFunc(spots, func(p string) bool { fi, err := os.Lstat(p); return err == nil && fi.IsDir() })
		if i < 0 {
			return nil, fmt.Errorf("none of %s is a folder; one is needed to start as another user",
				strings.Join(spots, ", "))
		}
		b.spot = spots[i]
	}
	return b, nil
}

// visiblePath returns the folders of a PATH of the host that are below the visible folders, after the usual ones.
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

// within reports whether clean path p is dir or is below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// env returns the environment of every command.
func (b *box) env() []string {
	return append([]string{
		"PATH=" + strings.Join(b.path, ":"), "HOME=" + b.home, "LANG=C.UTF-8", "SHELL=/bin/sh",
	}, b.more...)
}

// prepare makes the files that bubblewrap reads from its descriptors.
func (b *box) prepare() error {
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

// textFile returns a file without a name that has this content, positioned at its start.
func (b *box) textFile(text []byte) (*os.File, error) {
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

// close closes the files that prepare made.
func (b *box) close() {
	for _, f := range b.files {
		f.Close()
	}
}
