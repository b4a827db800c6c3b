package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/crypto/ssh"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/containerstest"
	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/internal/programs"
)

// built is where TestMain puts the programs these tests need, made when first asked for.
var built struct {
	dir             string
	runner, standin func() (string, error)
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "docker-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Others must be able to start programs in it.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.dir = dir
	build := func(pkg string) func() (string, error) {
		return sync.OnceValues(func() (string, error) {
			return filepath.Join(dir, path.Base(pkg)), programs.Into(dir, pkg)
		})
	}
	built.runner = build("cmd/ramus-runner")
	built.standin = build("containers/docker/testdata/standin")
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// newEngine returns an engine that works, or skips the test.
func newEngine(t *testing.T, program func() (string, error)) *docker.Engine {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	e := &docker.Engine{Runner: path}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.Check(ctx); err != nil {
		t.Skipf("cannot run here: %v", err)
	}
	return e
}

func newAPI(t *testing.T) *client.Client {
	t.Helper()
	api, err := client.New(client.FromEnv)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	return api
}

// newSpec describes a container of an owner of its own; when the test ends
// nothing of that owner may be left.
func newSpec(t *testing.T, env ...string) (containers.Spec, ssh.Signer) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	owner := rand.Text()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		api := newAPI(t)
		label := make(client.Filters).Add("label", "ramus.owner="+owner)
		left, err := api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: label})
		if err != nil {
			t.Error(err)
		}
		for _, c := range left.Items {
			if !t.Failed() {
				t.Errorf("container %s is left", c.Names)
			}
			api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		}
		volumes, err := api.VolumeList(ctx, client.VolumeListOptions{Filters: label})
		if err != nil {
			t.Error(err)
		}
		for _, v := range volumes.Items {
			t.Errorf("volume %s is left", v.Name)
			api.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{Force: true})
		}
	})
	return containers.Spec{
		Key: "run:fancy-mallard", Owner: owner, Dir: filepath.Join(t.TempDir(), "c"), Env: env,
		ClientKey: string(ssh.MarshalAuthorizedKey(signer.PublicKey())),
		Labels:    map[string]string{"team": "red"},
	}, signer
}

type pin struct{ key []byte }

func (p *pin) Key() []byte          { return p.key }
func (p *pin) Store(k []byte) error { p.key = k; return nil }

// start makes a container and connects to it.
func start(t *testing.T, e *docker.Engine, s containers.Spec, signer ssh.Signer) (containers.Container, *containers.Host) {
	t.Helper()
	c, err := e.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Remove(context.WithoutCancel(t.Context()), c.ID); err != nil {
			t.Error(err)
		}
	})
	h, err := (&containers.Dialer{Engine: e, Signer: signer, Pin: &pin{}}).Dial(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return c, h
}

// run runs a command and returns all it printed.
func run(t *testing.T, h *containers.Host, c containers.Command) (string, containers.Exit) {
	t.Helper()
	c.ID = rand.Text()
	p, err := h.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	exit, err := p.Output(&said, &said)
	if err != nil {
		t.Fatal(err)
	}
	return said.String(), exit
}

func TestConformance(t *testing.T) {
	newEngine(t, built.runner)
	program, _ := built.runner()
	open := func(t *testing.T) containers.Engine { return &docker.Engine{Runner: program} }
	containerstest.Run(t, open, containerstest.Options{Image: docker.DefaultImage, BrowserImage: docker.BrowserImage,
		Left: func(owner string) (left []string) {
			api := newAPI(t)
			found, err := api.ContainerList(t.Context(), client.ContainerListOptions{
				All: true, Filters: make(client.Filters).Add("label", "ramus.sidecar.owner="+owner),
			})
			if err != nil {
				t.Error(err)
			}
			for _, c := range found.Items {
				left = append(left, c.ID)
			}
			return left
		}})
}

func TestLife(t *testing.T) {
	e := newEngine(t, built.standin)
	spec, _ := newSpec(t)
	c, err := e.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	name, digest, ok := strings.Cut(c.Image, "@sha256:")
	if !c.Running || c.Key != spec.Key || c.Labels["team"] != "red" || len(c.Labels) != 1 ||
		name != docker.DefaultImage || !ok || len(digest) != 64 {
		t.Errorf("started %+v", c)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	// Another process finds it as it was told.
	e = newEngine(t, built.standin)
	list, err := e.List(t.Context(), spec.Owner)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(list), fmt.Sprint([]containers.Container{c}); got != want {
		t.Errorf("list %s, want %s", got, want)
	}
	if list, err := e.List(t.Context(), rand.Text()); err != nil || len(list) != 0 {
		t.Errorf("another owner sees %v (%v)", list, err)
	}
	conn, err := e.Dial(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()

	// Killed by somebody else it is listed as dead.
	if _, err := newAPI(t).ContainerKill(t.Context(), c.ID, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	for alive := true; alive; {
		list, err := e.List(t.Context(), spec.Owner)
		if err != nil || len(list) != 1 {
			t.Fatalf("list %v (%v)", list, err)
		}
		alive = list[0].Running
	}
	if _, err := e.Dial(t.Context(), c.ID); !errors.Is(err, containers.ErrGone) {
		t.Errorf("Dial: %v", err)
	}

	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := e.Remove(t.Context(), c.ID); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := e.Remove(t.Context(), c.ID); err != nil {
		t.Error(err)
	}
	if _, err := e.Dial(t.Context(), c.ID); !errors.Is(err, containers.ErrGone) {
		t.Errorf("Dial: %v", err)
	}
	if left, _ := os.ReadDir(spec.Dir); len(left) > 0 {
		t.Errorf("left in the folder: %v", left)
	}
}

// TestRunnersThatFail: nothing is left of a start that did not come to its end.
func TestRunnersThatFail(t *testing.T) {
	e := newEngine(t, built.standin)
	for _, test := range []struct{ env, want string }{
		{"STANDIN=dies", "exit code 7: these are its last words"},
		{"STANDIN=silent", "nobody waits any longer"},
		{"STANDIN=points elsewhere", "is not a socket"},
	} {
		t.Run(test.env, func(t *testing.T) {
			t.Parallel()
			spec, _ := newSpec(t, test.env)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			// The caller gives up some time after there is something to talk to: many tries.
			var group sync.WaitGroup
			defer group.Wait()
			ended := make(chan struct{})
			defer close(ended)
			group.Go(func() {
				for pause := 10 * time.Millisecond; ; {
					if _, err := os.Lstat(filepath.Join(spec.Dir, "run", "runner.sock")); err == nil {
						pause = time.Second
					}
					select {
					case <-ended:
						return
					case <-time.After(pause):
					}
					if pause == time.Second {
						cancel(errors.New("nobody waits any longer"))
						return
					}
				}
			})
			_, err := e.Start(ctx, spec)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Start: %v", err)
			}
			if list, err := e.List(t.Context(), spec.Owner); err != nil || len(list) != 0 {
				t.Errorf("left: %v (%v)", list, err)
			}
		})
	}
}

// TestOtherUser: ramus need not be root, only be let in by the engine. The
// test starts itself as such a user.
func TestOtherUser(t *testing.T) {
	const uid = 60998
	if os.Getenv("OTHER_USER") != "" {
		e := &docker.Engine{Runner: os.Getenv("OTHER_USER")}
		defer e.Close()
		spec, signer := newSpec(t)
		_, h := start(t, e, spec, signer)
		if got, _ := run(t, h, containers.Command{Shell: "id -u"}); got != "1000\n" {
			t.Error(got)
		}
		return
	}
	if os.Getuid() != 0 {
		return // all other tests are this one
	}
	newEngine(t, built.runner)
	program, _ := built.runner()
	socket, ok := strings.CutPrefix(newAPI(t).DaemonHost(), "unix://")
	if !ok {
		t.Skip("the engine is not behind a socket with an owner")
	}
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(built.dir, "tests")
	if err := os.WriteFile(copied, self, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(built.dir, "other")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), copied, "-test.run=^TestOtherUser$", "-test.timeout=2m")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "OTHER_USER="+program, "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
		Uid: uid, Gid: uid, Groups: []uint32{info.Sys().(*syscall.Stat_t).Gid},
	}}
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestAnyImage: the runner needs nothing of the image, not even a shell.
func TestAnyImage(t *testing.T) {
	e := newEngine(t, built.runner)
	spec, signer := newSpec(t)
	spec.Image = importImage(t, nil)
	_, h := start(t, e, spec, signer)
	if _, exit := run(t, h, containers.Command{Args: []string{"sh"}}); exit.Code != 127 {
		t.Errorf("a program that is not there: %+v", exit)
	}
	files, err := h.Files(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	f, err := files.Create(containers.WorkDir + "/file")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("text")); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// importImage makes an image of a few files and returns its name.
func importImage(t *testing.T, files map[string]string) string {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if files == nil {
		files = map[string]string{"nothing": ""}
	}
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	api := newAPI(t)
	name := "ramus-test/" + strings.ToLower(rand.Text()) + ":latest"
	said, err := api.ImageImport(t.Context(), client.ImageImportSource{Source: &archive, SourceName: "-"}, name,
		client.ImageImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, said)
	said.Close()
	t.Cleanup(func() {
		if _, err := api.ImageRemove(context.WithoutCancel(t.Context()), name, client.ImageRemoveOptions{}); err != nil {
			t.Error(err)
		}
	})
	return name
}

// TestInside looks at a container the way a hostile command would.
func TestInside(t *testing.T) {
	e := newEngine(t, built.runner)
	spec, signer := newSpec(t, "FROM_SPEC=yes")
	spec.Limits = containers.Limits{Memory: 256 << 20, PIDs: 128, Tmp: 16 << 20}
	_, h := start(t, e, spec, signer)

	for _, test := range []struct{ name, shell, want string }{
		{"user", "id -u; id -g; id -G", "1000\n1000\n1000\n"},
		{"capabilities", `grep ^Cap /proc/self/status | grep -v '0000000000000000$'`, ""},
		{"rights", `grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status`, "NoNewPrivs:\t1\nSeccomp:\t2\n"},
		{"network", `tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '`, "lo\n"},
		{"names", `getent ahosts localhost | cut -d' ' -f1 | sort -u; getent hosts "$(hostname)" | cut -d' ' -f1; getent hosts example.com; echo x 2>/dev/null >/etc/hosts && echo wrote`, "127.0.0.1\n127.0.0.1\n"},
		{"image is read-only", `for d in / /etc /usr /run /var/tmp /home; do if touch $d/x 2>/dev/null; then echo "$d is writable"; fi; done`, ""},
		{"folders are not", `for d in /work /artifacts /cache /cache/home /tmp "$HOME"; do touch "$d/x" || echo "$d"; done`, ""},
		{"programs in /tmp", `printf '#!/bin/sh\necho runs\n' >/tmp/p; chmod +x /tmp/p; /tmp/p`, "runs\n"},
		{"/tmp is bounded", `head -c 32M /dev/zero >/tmp/big 2>/dev/null; stat -c %s /tmp/big | awk '{print ($1 <= 16777216)}'; rm /tmp/big`, "1\n"},
		{"socket is out of sight",
			`ls /run/ramus 2>/dev/null; ls /run/ramus/run 2>/dev/null; cat /proc/1/environ 2>/dev/null; ls /proc/1/root 2>/dev/null`, ""},
		{"other processes", `ls /proc | grep -c '^[0-9]*$' | awk '{print ($1 < 10)}'`, "1\n"},
		{"devices", `ls /dev | grep -E '^(sd|vd|nvme|mem|kmsg|kvm)' ; mknod dev b 254 0 2>/dev/null && echo made`, ""},
		{"namespaces", `unshare -Ur true 2>/dev/null && echo made; unshare -m true 2>/dev/null && echo made; mount -t tmpfs x /work 2>/dev/null && echo mounted`, ""},
		{"root stays out of reach", `kill -9 1 2>/dev/null && echo killed; chmod u+s x; su -c id 2>/dev/null`, ""},
		{"environment", `echo $FROM_SPEC $HOME`, "yes /cache/home\n"},
		{"clock and kernel", `date -s 2000-01-01 2>/dev/null >/dev/null && echo set; echo 1 2>/dev/null >/proc/sys/kernel/sysrq && echo wrote`, ""},
		{"host name", `hostname`, "run-fancy-mallard\n"},
		{"no core files", `ulimit -c`, "0\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, exit := run(t, h, containers.Command{Shell: test.shell, Timeout: 20 * time.Second}); got != test.want {
				t.Errorf("%q (%+v), want %q", got, exit, test.want)
			}
		})
	}
	t.Run("memory", func(t *testing.T) {
		_, exit := run(t, h, containers.Command{Shell: `python3 -c 'b = bytearray(1 << 30)'`, Timeout: time.Minute})
		if exit.Code == 0 || exit.Reason != containers.ReasonMemory {
			t.Errorf("1 GiB in a container of 256 MiB: %+v", exit)
		}
	})
	t.Run("fork storm", func(t *testing.T) {
		run(t, h, containers.Command{Shell: `for i in $(seq 400); do sleep 30 & done; wait`, Timeout: 3 * time.Second,
			Grace: time.Millisecond})
	})
	t.Run("lives on", func(t *testing.T) {
		if got, _ := run(t, h, containers.Command{Shell: "echo here"}); got != "here\n" {
			t.Error(got)
		}
	})
}
