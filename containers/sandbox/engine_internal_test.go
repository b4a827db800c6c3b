package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/cgroup"
	"github.com/ramus-dev/ramus/containers/proc"
)

func testSandbox(t *testing.T) *Engine {
	t.Helper()
	s := &Engine{Dir: filepath.Join(t.TempDir(), "engine")}
	if err := s.Check(t.Context()); err != nil {
		t.Skipf("cannot run here: engine sandbox: %v", err)
	}
	return s
}

// A key that lets nobody in; these tests need no more than a runner that greets.
const nobodysKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"

func (s *Engine) startTest(t *testing.T) (containers.Container, containers.Spec) {
	t.Helper()
	spec := containers.Spec{Key: "run:x", Owner: "owner", Dir: filepath.Join(t.TempDir(), "box"), ClientKey: nobodysKey}
	c, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Remove(context.Background(), c.ID); err != nil {
			t.Error(err)
		}
	})
	return c, spec
}

func (s *Engine) empty(t *testing.T) {
	t.Helper()
	if left, err := os.ReadDir(s.Dir); err != nil && !errors.Is(err, os.ErrNotExist) || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// ramus died after bubblewrap had started and before it could note its process.
func TestSandboxFoundWithoutPID(t *testing.T) {
	s := testSandbox(t)
	c, _ := s.startTest(t)
	st, err := s.load(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	pid := st.PID
	st.PID, st.Start, st.Cgroups = 0, 0, nil
	groups, err := s.load(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.save(st); err != nil {
		t.Fatal(err)
	}
	again := &Engine{Dir: s.Dir}
	list, err := again.List(t.Context(), "owner")
	if err != nil || len(list) != 1 || !list[0].Running {
		t.Fatalf("%+v, %v", list, err)
	}
	conn, err := again.Dial(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := again.Remove(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := proc.Start(pid); err == nil {
		t.Error("its process runs still")
	}
	if err := cgroup.Remove(t.Context(), groups.Cgroups); err != nil {
		t.Error(err)
	}
	s.empty(t)
}

// A number that means another process now is left alone, and so is every number
// from before a reboot.
func TestSandboxOtherProcess(t *testing.T) {
	for name, change := range map[string]func(*state){
		"reused":   func(st *state) { st.Start-- },
		"rebooted": func(st *state) { st.Boot = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			s := testSandbox(t)
			other := exec.Command("sleep", "600")
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			defer other.Wait()
			defer other.Process.Kill()
			start, err := proc.Start(other.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			st := state{ID: newContainerID(), Key: "run:x", Owner: "owner", Dir: t.TempDir(), Created: time.Now(),
				Boot: proc.BootID(), PID: other.Process.Pid, Start: start}
			change(&st)
			if err := os.MkdirAll(s.home(st.ID), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := s.save(st); err != nil {
				t.Fatal(err)
			}
			list, err := s.List(t.Context(), "owner")
			if err != nil || len(list) != 1 || list[0].Running {
				t.Errorf("%+v, %v", list, err)
			}
			if _, err := s.Dial(t.Context(), st.ID); !errors.Is(err, containers.ErrGone) {
				t.Errorf("dialling says %v", err)
			}
			if err := s.Remove(t.Context(), st.ID); err != nil {
				t.Error(err)
			}
			if err := unix.Kill(other.Process.Pid, 0); err != nil {
				t.Errorf("the other process: %v", err)
			}
			s.empty(t)
		})
	}
}

// A socket's path is longer than the kernel takes; folders nobody else may enter.
func TestSandboxLongPrivatePath(t *testing.T) {
	s := testSandbox(t)
	top := t.TempDir()
	s.Dir = filepath.Join(top, strings.Repeat("d", 120), "engine")
	c, _ := s.startTest(t)
	for p := top; p != s.Dir; p = filepath.Join(p, strings.Repeat("d", 120)) {
		if err := os.Chmod(p, 0o700); err != nil {
			t.Fatal(err)
		}
		if len(p) > len(top) {
			break
		}
	}
	conn, err := s.Dial(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestSandboxStartFails(t *testing.T) {
	script := func(t *testing.T, text string) string {
		p := filepath.Join(t.TempDir(), "runner")
		if err := os.WriteFile(p, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, test := range []struct {
		name, runner, says string
		within             time.Duration
	}{
		{"ends at once", "echo so it goes >&2; exit 3", "so it goes", time.Minute},
		{"says nothing", "exec sleep 600", "", 2 * time.Second},
		{"closes the socket", "exec 3<&-; exec sleep 600", "", 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := testSandbox(t)
			s.Runner = script(t, test.runner)
			ctx, cancel := context.WithTimeout(t.Context(), test.within)
			defer cancel()
			dir := t.TempDir()
			_, err := s.Start(ctx, containers.Spec{Key: "run:x", Owner: "owner", Dir: dir, ClientKey: nobodysKey})
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("it says %v", err)
			}
			s.empty(t)
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
	s := testSandbox(t)
	for _, spec := range []containers.Spec{{}, {Key: "run:x", Owner: "owner"}, {Key: "run:x", Dir: t.TempDir()}} {
		if _, err := s.Start(t.Context(), spec); err == nil {
			t.Errorf("%+v starts", spec)
		}
	}
	s.empty(t)
}

// A look inside without a runner in between.
func (s *Engine) look(t *testing.T, script string) string {
	t.Helper()
	probe, _, err := s.probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.newBox(probe, "", containers.Limits{}.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	var out bytes.Buffer
	cmd := b.command(nil, nil, []string{"/bin/sh", "-c", script})
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := b.start(cmd, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v", script, err)
	}
	return strings.TrimSpace(out.String())
}

func TestSandboxReadOnly(t *testing.T) {
	s := testSandbox(t)
	shown := filepath.Join(t.TempDir(), "module cache")
	if err := os.Mkdir(shown, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shown, "module"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.ReadOnly = []string{shown, filepath.Join(shown, "missing")}
	if got := s.look(t, "cat '"+shown+"/module'; touch '"+shown+"/x' 2>/dev/null || echo closed"); got != "contentclosed" {
		t.Errorf("inside: %q", got)
	}
}

// What ramus was born with, or holds open, stays outside.
func TestSandboxInheritsNothing(t *testing.T) {
	s := testSandbox(t)
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	t.Setenv("SECRET_OF_RAMUS", "x")
	if got := s.look(t, "ls /proc/self/fd | tr '\\n' ' '"); got != "0 1 2 3" {
		t.Errorf("descriptors inside: %s", got)
	}
	if got := s.look(t, "cat /proc/1/environ | tr '\\0' ' '"); strings.Contains(got, "SECRET") ||
		!strings.Contains(got, "HOME=/cache/home") {
		t.Errorf("environment inside: %s", got)
	}
}

func TestVisiblePath(t *testing.T) {
	dir := t.TempDir()
	shown := filepath.Join(dir, "tools")
	if err := os.MkdirAll(filepath.Join(shown, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	host := strings.Join([]string{filepath.Join(shown, "bin"), dir, "/home/someone/bin", ".", "", "/usr/bin",
		"/usrother", "/usr/../etc"}, ":")
	got := strings.Join(visiblePath(host, []string{"/usr", "/bin", shown}), ":")
	if !strings.Contains(got, filepath.Join(shown, "bin")) {
		t.Errorf("a shown folder is missing in %s", got)
	}
	for _, p := range []string{dir + ":", "/home", "/usrother", "/etc", ":."} {
		if strings.Contains(got+":", p) {
			t.Errorf("%s is in %s", p, got)
		}
	}
}

func TestSandboxCheckHints(t *testing.T) {
	s := &Engine{Dir: t.TempDir(), Bwrap: filepath.Join(t.TempDir(), "no-such-bwrap")}
	if err := s.Check(t.Context()); !errors.Is(err, containers.ErrUnavailable) || !strings.Contains(err.Error(), `package "bubblewrap"`) {
		t.Errorf("without bubblewrap: %v", err)
	}
	if s.Gives() != nil || s.Lacks() != nil {
		t.Error("it knows what a missing bubblewrap can do")
	}
	old := filepath.Join(t.TempDir(), "bwrap")
	if err := os.WriteFile(old, []byte("#!/bin/sh\necho usage\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (&Engine{Dir: t.TempDir(), Bwrap: old}).Check(t.Context()); !errors.Is(err, containers.ErrUnavailable) ||
		!strings.Contains(err.Error(), "0.5 or newer") {
		t.Errorf("with an old bubblewrap: %v", err)
	}
	for setting, says := range map[string]string{
		"kernel/unprivileged_userns_clone=0":             "sysctl -w kernel.unprivileged_userns_clone=1",
		"user/max_user_namespaces=0":                     "sysctl -w user.max_user_namespaces",
		"kernel/apparmor_restrict_unprivileged_userns=1": "AppArmor",
		"kernel/apparmor_restrict_unprivileged_userns=0": "itself a container",
	} {
		k, v, _ := strings.Cut(setting, "=")
		if got := userNamespaceHint(func(name string) string {
			if name == k {
				return v
			}
			return ""
		}); !strings.Contains(got, says) {
			t.Errorf("%s: %s", setting, got)
		}
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"id":"sb0011223344556677","pid":5,"start":7}`), []byte(`{"child-pid": 12}`+"\n"+`{"exit-code": 0}`))
	f.Add([]byte(`{"id":"../x"}`), []byte(`{"child-pid": -1}`))
	f.Add([]byte(`null`), []byte(``))
	f.Fuzz(func(t *testing.T, state, status []byte) {
		s := &Engine{Dir: t.TempDir()}
		id := "sb0011223344556677"
		if err := os.Mkdir(s.home(id), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string][]byte{"state.json": state, "status": status} {
			if err := os.WriteFile(filepath.Join(s.home(id), name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if st, err := s.load(id); err == nil && st.ID != id {
			t.Errorf("%s is taken for %s", st.ID, id)
		}
		if pid, err := statusPID(filepath.Join(s.home(id), "status")); err == nil && pid <= 1 {
			t.Errorf("process %d", pid)
		}
	})
}

func TestSandboxIDs(t *testing.T) {
	if id := newContainerID(); !validContainerID(id) {
		t.Errorf("%s is refused", id)
	}
	for _, id := range []string{"", "sb", "..", "sb/../../../etc/x", "sb00112233445566zz", "sb001122334455667788"} {
		if validContainerID(id) {
			t.Errorf("%q is taken", id)
		}
	}
}

func ExampleEngine_Lacks() {
	s := &Engine{Dir: "/var/lib/ramus/sandbox", Bwrap: "/nowhere/bwrap"}
	fmt.Println(s.Name(), s.Lacks())
	// Output: sandbox []
}
