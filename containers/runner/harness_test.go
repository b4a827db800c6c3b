package runner_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/runner"
)

// The test binary is its own runner: as `TEST runner JSON` in a container made
// of namespaces, where `TEST prepare ROOT JSON` has built the file system.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "runner":
			os.Exit(runner.Main(os.Args[2:]))
		case "prepare":
			fmt.Fprintln(os.Stderr, prepare(os.Args[2], os.Args[3]))
			os.Exit(1)
		}
	}
	code := m.Run()
	if dir, _ := copied(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// two are the modes a runner can be started in.
var two = []string{"root", "single"}

// box is a container for one test.
type box struct {
	t      testing.TB
	mode   string
	dir    string // on this machine
	socket string
	signer ssh.Signer
	pin    *pin
	cmd    *exec.Cmd
	log    *bytes.Buffer
}

type pin struct {
	mu  sync.Mutex
	key []byte
}

func (p *pin) Key() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key
}

func (p *pin) Store(key []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = key
	return nil
}

// newSigner makes a client key.
func newSigner(t testing.TB) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newBox starts a runner. root: process 1 is root with the capabilities an
// engine leaves it, commands are 1000. single: bubblewrap, one user for both.
func newBox(t testing.TB, mode string, change ...func(*runner.Config)) *box {
	t.Helper()
	b := &box{t: t, mode: mode, signer: newSigner(t), pin: &pin{}, log: &bytes.Buffer{}}
	// Short: a socket's path has 107 bytes.
	dir, err := os.MkdirTemp("", "box")
	if err != nil {
		t.Fatal(err)
	}
	b.dir = dir
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("cannot remove the container's folder: %v", err)
		}
	})
	for _, d := range []string{"root", "root/work", "root/artifacts", "root/cache", "spool", "run"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.socket = filepath.Join(dir, "run", "s")
	if err := os.Chmod(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := runner.Config{
		Listen:    "unix:/run/ramus/s",
		ClientKey: string(ssh.MarshalAuthorizedKey(b.signer.PublicKey())),
		UID:       1000, GID: 1000,
		Spool:    "/spool",
		DiskFree: -1,
	}
	if mode == "single" {
		cfg.UID, cfg.GID, cfg.Listen = 0, 0, "fd:3"
	}
	for _, f := range change {
		f(&cfg)
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	bin, err := copied()
	if err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(bin, "ramus")
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "IMAGE=yes", "GORACE=halt_on_error=1 exitcode=66 atexit_sleep_ms=50"}
	if cover := os.Getenv("GOCOVERDIR"); cover != "" {
		env = append(env, "GOCOVERDIR="+cover)
	}
	switch mode {
	case "root":
		if os.Getuid() != 0 {
			t.Skip("cannot run here: needs root")
		}
		b.cmd = exec.Command(self, "prepare", dir, string(text))
		b.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	case "single":
		bwrap, err := exec.LookPath("bwrap")
		if err != nil {
			t.Skip("cannot run here: bubblewrap is not installed")
		}
		ln, err := net.Listen("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		ln.(*net.UnixListener).SetUnlinkOnClose(false)
		f, err := ln.(*net.UnixListener).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		defer ln.Close()
		args := []string{"--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--as-pid-1",
			"--die-with-parent",
			"--cap-drop", "ALL", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc",
			"--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
			"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", dir + "/root" + workDir, workDir,
			"--bind", dir + "/root/artifacts", "/artifacts", "--bind", dir + "/root/cache", "/cache",
			"--bind", dir + "/spool", "/spool", "--ro-bind", self, "/ramus", "--chdir", "/", "--", "/ramus", "runner",
			string(text)}
		b.cmd = exec.Command(bwrap, args...)
		b.cmd.ExtraFiles = []*os.File{f}
		if os.Getuid() == 0 {
			// As its own engine does: root mapped to a user inside would still
			// own what the kernel keeps for root.
			b.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			for _, d := range []string{"root/work", "root/artifacts", "root/cache", "spool"} {
				if err := os.Chown(filepath.Join(dir, d), nobody, nobody); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.cmd.Env = env
	log := &lockedBuffer{b: b.log}
	b.cmd.Stdout, b.cmd.Stderr = log, log
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
		if strings.Contains(b.log.String(), "DATA RACE") || strings.Contains(b.log.String(), "panic:") ||
			strings.Contains(b.log.String(), "fatal error") {
			t.Errorf("the runner said:\n%s", b.log)
		} else if t.Failed() {
			t.Logf("the runner said:\n%s", b.log)
		}
	})
	return b
}

const nobody = 65534

// copied is a folder with a copy of the test binary that other users can read.
var copied = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "runner")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return dir, err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return dir, err
	}
	return dir, os.WriteFile(filepath.Join(dir, "ramus"), self, 0o755)
})

type lockedBuffer struct {
	mu sync.Mutex
	b  *bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// prepare builds the file system of a root box and becomes the runner.
func prepare(dir, config string) error {
	runtime.LockOSThread()
	root := filepath.Join(dir, "root")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private: %w", err)
	}
	bind := func(from, to string, flags uintptr) error {
		to = filepath.Join(root, to)
		if info, err := os.Stat(from); err != nil {
			return err
		} else if info.IsDir() {
			err = os.MkdirAll(to, 0o755)
			if err != nil {
				return err
			}
		} else if err := os.WriteFile(to, nil, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", from, err)
		}
		if flags == 0 {
			return nil
		}
		return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
	}
	for _, b := range [][2]string{{"/usr", "usr"}, {"/etc", "etc"}, {self, "ramus"}} {
		if err := bind(b[0], b[1], unix.MS_RDONLY); err != nil {
			return err
		}
	}
	for _, b := range [][2]string{{dir + "/spool", "spool"}, {dir + "/run", "run/ramus"}} {
		if err := bind(b[0], b[1], 0); err != nil {
			return err
		}
	}
	for _, l := range [][2]string{{"usr/bin", "bin"}, {"usr/lib", "lib"}, {"usr/lib64", "lib64"}, {"usr/sbin", "sbin"}} {
		if err := os.Symlink(l[0], filepath.Join(root, l[1])); err != nil {
			return err
		}
	}
	for _, d := range []string{"proc", "tmp", "dev", "sys"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", root+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("proc: %w", err)
	}
	if err := unix.Mount("tmpfs", root+"/tmp", "tmpfs", 0, "mode=1777"); err != nil {
		return fmt.Errorf("tmp: %w", err)
	}
	if err := unix.Mount("tmpfs", root+"/dev", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("dev: %w", err)
	}
	if err := os.MkdirAll(root+"/dev/pts", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("devpts", root+"/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=620,gid=5"); err != nil {
		return fmt.Errorf("devpts: %w", err)
	}
	if err := os.Symlink("pts/ptmx", root+"/dev/ptmx"); err != nil {
		return err
	}
	for _, l := range [][2]string{{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
		{"/proc/self/fd/2", "stderr"}} {
		if err := os.Symlink(l[0], root+"/dev/"+l[1]); err != nil {
			return err
		}
	}
	for _, d := range []string{"null", "zero", "tty", "urandom", "random"} {
		if err := bind("/dev/"+d, "dev/"+d, 0); err != nil {
			return err
		}
	}
	if err := unix.Chroot(root); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	keep := uint64(1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL | 1<<unix.CAP_CHOWN | 1<<unix.CAP_SETPCAP)
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if keep&(1<<c) == 0 {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("bounding set: %w", err)
			}
		}
	}
	return syscall.Exec("/ramus", []string{"/ramus", "runner", config}, os.Environ())
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return err
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// The box is an engine with one container.

func (b *box) Name() string                { return b.mode }
func (b *box) Check(context.Context) error { return nil }
func (b *box) Start(context.Context, containers.Spec) (containers.Container, error) {
	return containers.Container{}, errors.ErrUnsupported
}
func (b *box) List(context.Context, string) ([]containers.Container, error)    { return nil, nil }
func (b *box) Remove(context.Context, string) error                            { return nil }
func (b *box) Close() error                                                    { return nil }
func (b *box) SweepSidecars(context.Context, string) error                     { return nil }
func (b *box) Process(context.Context, string) (int, uint64, error)            { return 0, 0, containers.ErrGone }
func (b *box) Assign(context.Context, string, string, map[string]string) error { return nil }
func (b *box) Volumes(context.Context) ([]string, string)                      { return nil, "" }
func (b *box) TaskUID() int                                                    { return 0 }
func (b *box) RunSidecar(context.Context, string, containers.Sidecar) (containers.SidecarExit, error) {
	return containers.SidecarExit{}, errors.ErrUnsupported
}
func (b *box) Dial(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", b.socket)
}

// host connects; the connection is closed with the test.
func (b *box) host(door http.Handler) *containers.Host {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	h, err := (&containers.Dialer{Engine: b, Signer: b.signer, Pin: b.pin, Door: door}).Dial(ctx, "box")
	if err != nil {
		b.t.Fatalf("%v\nthe runner said:\n%s", err, b.log)
	}
	b.t.Cleanup(func() {
		if err := h.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return h
}

// far connects as over a network, where no files travel.
func (b *box) far() *containers.Host {
	b.t.Helper()
	conn, err := b.Dial(b.t.Context(), "box")
	if err != nil {
		b.t.Fatal(err)
	}
	h, err := (&containers.Dialer{Engine: b, Signer: b.signer, Pin: b.pin}).NewHost(b.t.Context(),
		struct{ net.Conn }{conn}, containers.Container{ID: "box"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { h.Close() })
	return h
}

// run runs a command to its end.
func run(t testing.TB, h *containers.Host, c containers.Command) (exit containers.Exit, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if c.ID == "" {
		c.ID = rand.Text()
	}
	p, err := h.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	var o, e bytes.Buffer
	exit, err = p.Output(&o, &e)
	if err != nil {
		t.Fatal(err)
	}
	return exit, o.String(), e.String()
}

func shell(t testing.TB, h *containers.Host, script string) (containers.Exit, string, string) {
	t.Helper()
	return run(t, h, containers.Command{Shell: script})
}
