package docker_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/docker"
)

// private is a Docker Engine of a test's own, in network and mount namespaces
// of its own: it can be stopped without harm to anybody's containers.
type private struct {
	t      *testing.T
	dir    string
	holder *exec.Cmd // keeps the namespaces while no engine runs
	engine *exec.Cmd // nil while stopped
	log    *os.File
}

func newPrivate(t *testing.T) *private {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("cannot run here: only root can run an engine of its own")
	}
	for _, tool := range []string{"dockerd", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("cannot run here: %v", err)
		}
	}
	// Short, for its sockets.
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		t.Fatal(err)
	}
	p := &private{t: t, dir: dir}
	if p.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "daemon.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.holder = exec.Command("sleep", "infinity")
	p.holder.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := p.holder.Start(); err != nil {
		os.RemoveAll(dir)
		t.Skipf("cannot run here: no namespaces for an engine of its own: %v", err)
	}
	t.Cleanup(func() {
		p.stop()
		p.holder.Process.Kill()
		p.holder.Wait()
		p.log.Close()
		if t.Failed() {
			said, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("the end of the engine's log:\n%s", said[max(0, len(said)-4000):])
		}
		// The last mounts go with the last process of the namespace.
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			if err = os.RemoveAll(dir); err == nil || time.Now().After(deadline) {
				break
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *private) host() string { return "unix://" + filepath.Join(p.dir, "sock") }

// start starts the engine and waits until it answers.
func (p *private) start(e *docker.Engine, more ...string) {
	p.t.Helper()
	p.engine = exec.Command("nsenter", append([]string{
		"--target", strconv.Itoa(p.holder.Process.Pid), "--mount", "--net", "--",
		"dockerd", "--host", p.host(), "--data-root", filepath.Join(p.dir, "data"), "--exec-root",
		filepath.Join(p.dir, "exec"),
		"--pidfile", filepath.Join(p.dir, "pid"), "--config-file", filepath.Join(p.dir, "daemon.json"),
		"--bridge=none", "--iptables=false", "--ip6tables=false",
	}, more...)...)
	p.engine.Stdout, p.engine.Stderr = p.log, p.log
	p.engine.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
	if err := p.engine.Start(); err != nil {
		p.t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, err := e.List(p.t.Context(), "nobody")
		if err == nil {
			return
		}
		if !errors.Is(err, containers.ErrUnavailable) || time.Now().After(deadline) {
			p.t.Fatal(err)
		}
	}
}

func (p *private) stop() {
	if p.engine == nil {
		return
	}
	p.engine.Process.Signal(unix.SIGTERM)
	p.engine.Wait()
	p.engine = nil
}

func TestEngineRestarts(t *testing.T) {
	p := newPrivate(t)
	program, err := built.runner()
	if err != nil {
		t.Fatal(err)
	}
	standin, err := built.standin()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(standin)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_HOST", p.host())
	open := func() *docker.Engine {
		e := &docker.Engine{Runner: program}
		t.Cleanup(func() { e.Close() })
		return e
	}
	e := open()

	p.start(e, "--live-restore")
	t.Cleanup(p.stop) // after the containers were removed
	spec, signer := newSpec(t)
	spec.Image = importImage(t, map[string]string{"standin": string(text)})
	c, h := start(t, e, spec, signer)
	command := containers.Command{ID: rand.Text(), Args: []string{"/standin", "wait"}}
	process, err := h.Start(t.Context(), command)
	if err != nil {
		t.Fatal(err)
	}

	// The engine goes away in the middle of the command.
	p.stop()
	if _, err := e.List(t.Context(), spec.Owner); !errors.Is(err, containers.ErrUnavailable) {
		t.Errorf("List without an engine: %v", err)
	}
	if conn, err := e.Dial(t.Context(), c.ID); err != nil {
		t.Errorf("the container is out of reach: %v", err)
	} else {
		conn.Close()
	}
	p.start(e, "--live-restore")

	// Another process of ramus finds the container, and the command in it.
	e = open()
	list, err := e.List(t.Context(), spec.Owner)
	if err != nil || len(list) != 1 || !list[0].Running || list[0].ID != c.ID {
		t.Fatalf("list %+v (%v)", list, err)
	}
	h, err = (&containers.Dialer{Engine: e, Signer: signer, Pin: &pin{}}).Dial(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	files, err := h.Files(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	f, err := files.Create(containers.WorkDir + "/go")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	again, err := h.Attach(t.Context(), command.ID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for what, p := range map[string]*containers.Process{"the first connection": process, "the second connection": again} {
		var said bytes.Buffer
		if exit, err := p.Output(&said, &said); err != nil || exit.Code != 3 || said.String() != "waiting\ngone\n" {
			t.Errorf("%s: %q, %+v (%v)", what, said.String(), exit, err)
		}
	}

	// Without live-restore the engine ends its containers; they are known to be dead.
	p.stop()
	p.start(e)
	p.stop()
	p.start(e)
	list, err = e.List(t.Context(), spec.Owner)
	if err != nil || len(list) != 1 || list[0].Running {
		t.Errorf("list %+v (%v)", fmt.Sprint(list), err)
	}
	if _, err := e.Dial(t.Context(), c.ID); !errors.Is(err, containers.ErrGone) {
		t.Errorf("Dial: %v", err)
	}
	if err := e.Remove(t.Context(), c.ID); err != nil {
		t.Error(err)
	}
}
