package runner_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/containerstest"
	"github.com/ramus-dev/ramus/containers/runner"
)

// each runs a test in both modes.
func each(t *testing.T, f func(t *testing.T, b *box)) {
	for _, mode := range two {
		t.Run(mode, func(t *testing.T) { f(t, newBox(t, mode)) })
	}
}

func TestExitCodes(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		for _, c := range []struct {
			name   string
			cmd    containers.Command
			code   int
			signal string
			out    string
		}{
			{"true", containers.Command{Args: []string{"true"}}, 0, "", ""},
			{"exit 3", containers.Command{Shell: "exit 3"}, 3, "", ""},
			{"exit 255", containers.Command{Shell: "exit 255"}, 255, "", ""},
			{"signal", containers.Command{Shell: "kill -KILL $$"}, 137, "KILL", ""},
			{"segv", containers.Command{Shell: "kill -SEGV $$"}, 139, "SEGV", ""},
			{"not found", containers.Command{Args: []string{"no-such-program"}}, 127, "", ""},
			{"not executable", containers.Command{Args: []string{"/etc/passwd"}}, 126, "", ""},
			{"folder", containers.Command{Args: []string{"/etc"}}, 126, "", ""},
			{"shell not found", containers.Command{Shell: "no-such-program"}, 127, "", ""},
			{"no shebang", containers.Command{Shell: "echo 'echo hi $1' > s; chmod +x s; exec env ./s there"}, 0, "",
				"hi there\n"},
			{"no interpreter", containers.Command{Shell: "printf '#!/no/such\\n' > n; chmod +x n"}, 0, "", ""},
			{"no interpreter, run", containers.Command{Args: []string{"./n"}}, 127, "", ""},
			{"relative program", containers.Command{Args: []string{"./s", "you"}}, 0, "", "hi you\n"},
			{"arguments", containers.Command{Args: []string{"printf", "%s|", "a b", "", "$x", "\xff"}}, 0, "",
				"a b||$x|\xff|"},
			{"environment", containers.Command{Shell: "echo $A $HOME $IMAGE", Env: []string{"A=1", "A=2"}}, 0, "",
				"2 /cache/home yes\n"},
			// But for 32 and 33, which are glibc's own and ignored below a make that uses posix_spawn.
			{"signals are at their defaults",
				containers.Command{Shell: "grep -E 'Sig(Blk|Ign)' /proc/self/status | sed 's/0000000[01]80000000$/0000000000000000/'"}, 0, "", "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"},
			{"no descriptors but three", containers.Command{Args: []string{"ls", "/proc/self/fd"}}, 0, "",
				"0\n1\n2\n3\n"}, // 3 is ls's own
		} {
			exit, out, errs := run(t, h, c.cmd)
			if exit.Code != c.code || exit.Signal != c.signal || exit.Reason != "" || out != c.out {
				t.Errorf("%s: %+v, stdout %q, stderr %q", c.name, exit, out, errs)
			}
			if c.code > 125 && c.code < 128 && errs == "" {
				t.Errorf("%s: nothing on stderr", c.name)
			}
		}
	})
}

func TestDir(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		if exit, _, e := shell(t, h, "mkdir -p a/b && ln -s /etc out && ln -s a in && : > file"); exit.Code != 0 {
			t.Fatal(e)
		}
		for dir, want := range map[string]string{"": workDir, "a/b": workDir + "/a/b", workDir + "/a": workDir + "/a",
			"in": workDir + "/a", ".": workDir} {
			if _, out, errs := run(t, h, containers.Command{Args: []string{"pwd", "-P"}, Dir: dir}); out != want+"\n" {
				t.Errorf("in %q: %q %s", dir, out, errs)
			}
		}
		for _, dir := range []string{"..", "/etc", "/", "a/../..", "out", workDir + "/../etc", "none", "file", "/workshop"} {
			if p, err := h.Start(t.Context(), containers.Command{ID: "x", Args: []string{"pwd"}, Dir: dir}); err == nil {
				exit, _ := p.Output(nil, nil)
				t.Errorf("ran in %q: %+v", dir, exit)
			}
		}
	})
}

func TestStreamsApartAndIntact(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		t.Run("Near", func(t *testing.T) { streams(t, b.host(nil)) })
		t.Run("Far", func(t *testing.T) { streams(t, b.far()) })
	})
}

func streams(t *testing.T, h *containers.Host) {
	in := make([]byte, 1<<20+7)
	for i := range in {
		in[i] = byte(i * 7 >> 3)
	}
	var out, errs bytes.Buffer
	p, err := h.Start(t.Context(), containers.Command{ID: "copy", Shell: "tee /dev/stderr", Stdin: bytes.NewReader(in)})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Output(&out, &errs)
	if err != nil || exit.Code != 0 || exit.Stdout != int64(len(in)) || exit.Stderr != int64(len(in)) {
		t.Fatal(exit, err)
	}
	if !bytes.Equal(out.Bytes(), in) || !bytes.Equal(errs.Bytes(), in) {
		t.Error("changed on the way")
	}
	// Again, from any offset.
	for _, off := range []int64{0, 1, 4095, 4096, 1 << 19, int64(len(in)) - 1, int64(len(in)), 1 << 40} {
		p, err := h.Attach(t.Context(), "copy", off, off)
		if err != nil {
			t.Fatal(err)
		}
		var o, e bytes.Buffer
		if exit2, err := p.Output(&o, &e); err != nil || exit2 != exit {
			t.Fatal(exit2, err)
		}
		want := in[min(off, int64(len(in))):]
		if !bytes.Equal(o.Bytes(), want) || !bytes.Equal(e.Bytes(), want) {
			t.Errorf("from %d: %d and %d bytes, want %d", off, o.Len(), e.Len(), len(want))
		}
	}
	if _, err := h.Start(t.Context(), containers.Command{ID: "copy", Shell: "true"}); !errors.Is(err, containers.ErrKnownCommand) {
		t.Errorf("started twice: %v", err)
	}
	if err := h.Forget(t.Context(), "copy"); err != nil {
		t.Error(err)
	}
	if _, err := h.Attach(t.Context(), "copy", 0, 0); !errors.Is(err, containers.ErrUnknownCommand) {
		t.Errorf("attached to what was forgotten: %v", err)
	}
	if err := h.Forget(t.Context(), "copy"); !errors.Is(err, containers.ErrUnknownCommand) {
		t.Errorf("forgot twice: %v", err)
	}
	if err := h.Kill(t.Context(), "copy"); !errors.Is(err, containers.ErrUnknownCommand) {
		t.Errorf("killed what was forgotten: %v", err)
	}
}

// alive lists what runs inside besides the runner.
func (b *box) alive(h *containers.Host) []string {
	b.t.Helper()
	_, out, _ := run(b.t, h, containers.Command{Shell: `for d in /proc/[0-9]*; do p=${d#/proc/}; [ $p = 1 -o $p = $$ ] && continue
		read -r stat 2>/dev/null < $d/stat || continue; case $stat in *") Z "*) continue;; esac; tr '\0' ' ' < $d/cmdline; echo; done`})
	return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' })
}

func TestNothingIsLeftOfForeground(t *testing.T) {
	const mark = "86397"
	for name, script := range map[string]string{
		"child":               "sleep " + mark + " &",
		"keeps the pipe":      "sleep " + mark + " & echo started",
		"setsid":              "setsid sleep " + mark + " >/dev/null 2>&1 & sleep 0.1",
		"double fork":         "(setsid sh -c 'sleep " + mark + " & sleep " + mark + "' &) & sleep 0.1",
		"no environment":      "env -i setsid sleep " + mark + " & sleep 0.1",
		"ignores SIGTERM":     "(trap '' TERM HUP INT; setsid sh -c 'sleep " + mark + "; sleep " + mark + "') & sleep 0.1",
		"stopped":             "(kill -STOP $(exec sh -c 'echo $PPID'); sleep " + mark + ") & sleep 0.1",
		"closes its output":   "exec >&- 2>&-; sleep " + mark + " & exit 0",
		"forged cookie":       "RAMUS_COMMAND=other setsid sleep " + mark + " & sleep 0.1",
		"waits to be orphan ": "(sh -c 'sleep 0.05; exec sleep " + mark + "' &)",
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, b *box) {
				h := b.host(nil)
				for _, busy := range []bool{false, true} {
					if busy {
						// With another process alive the kernel's one-step kill cannot be used.
						p, err := h.Start(t.Context(),
							containers.Command{ID: "background", Args: []string{"sleep", "1000"}, Background: true})
						if err != nil {
							t.Fatal(err)
						}
						defer p.Output(nil, nil)
						defer h.Kill(context.Background(), "background")
					}
					if exit, _, errs := shell(t, h, script); exit.Code != 0 || exit.Reason != "" {
						t.Fatal(exit, errs)
					}
					left := b.alive(h)
					if i := slices.Index(left, "sleep 1000 "); busy != (i >= 0) {
						t.Errorf("with a background command %v: %q is left", busy, left)
					}
					for _, line := range left {
						if strings.Contains(line, mark) {
							t.Errorf("with a background command %v: %q is left", busy, left)
						}
					}
				}
			})
		})
	}
}

func TestTimeout(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		for name, c := range map[string]struct {
			cmd    containers.Command
			code   int
			signal string
		}{
			"hangs":                {containers.Command{Shell: "exec sleep 1000"}, 143, "TERM"},
			"hangs in a child":     {containers.Command{Shell: "sleep 1000; true"}, 143, "TERM"},
			"prints without end":   {containers.Command{Shell: "exec yes"}, 143, "TERM"},
			"stopped":              {containers.Command{Shell: "kill -STOP $$"}, 143, "TERM"},
			"setsid":               {containers.Command{Shell: "setsid sleep 1000"}, 143, "TERM"},
			"no output, but lives": {containers.Command{Shell: "exec >&- 2>&- <&-; exec sleep 1000"}, 143, "TERM"},
		} {
			c.cmd.Timeout, c.cmd.Grace = 300*time.Millisecond, 400*time.Millisecond
			exit, _, _ := run(t, h, c.cmd)
			if exit.Reason != containers.ReasonTimeout || exit.Code != c.code || exit.Signal != c.signal {
				t.Errorf("%s: %+v", name, exit)
			}
		}
		if left := b.alive(h); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

func TestGraceIsForChildrenToo(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		exit, out := killedWhenUp(t, h, containers.Command{
			// The shell dies of SIGTERM at once; its child tidies up.
			Shell: "sh -c 'trap \"sleep 0.5; echo saved; exit\" TERM; echo up; while :; do sleep 0.02; done' & wait",
			Grace: time.Minute,
		})
		if exit.Reason != containers.ReasonKilled || out != "up\nsaved\n" {
			t.Errorf("%+v %q", exit, out)
		}
	})
}

// killedWhenUp runs a command that says when it is prepared for its end, kills it then, and
// returns how it ended and what it printed.
func killedWhenUp(t *testing.T, h *containers.Host, c containers.Command) (containers.Exit, string) {
	t.Helper()
	c.ID = rand.Text()
	p, err := h.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	killed := false
	exit, err := p.Output(writerFunc(func(b []byte) (int, error) {
		out.Write(b)
		if !killed && strings.Contains(out.String(), "up\n") {
			killed = true
			if err := h.Kill(t.Context(), c.ID); err != nil {
				t.Error(err)
			}
		}
		return len(b), nil
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	return exit, out.String()
}

func TestKill(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		p, err := h.Start(t.Context(), containers.Command{ID: "k", Shell: "echo up; exec sleep 1000"})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Forget(t.Context(), "k"); err == nil {
			t.Error("forgot a running command")
		}
		if err := h.Kill(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		exit, err := p.Output(nil, nil)
		if err != nil || exit.Reason != containers.ReasonKilled || exit.Code != 143 {
			t.Errorf("%+v %v", exit, err)
		}
		if err := h.Kill(t.Context(), "k"); err != nil {
			t.Errorf("killing what has ended: %v", err)
		}
		for name, c := range map[string]struct {
			cmd    containers.Command
			code   int
			signal string
		}{
			"ignores SIGTERM": {containers.Command{Shell: "trap '' TERM; echo up; while :; do sleep 1000; done",
				Grace: 200 * time.Millisecond}, 137, "KILL"},
			"ends itself properly": {containers.Command{Shell: "trap 'exit 7' TERM; echo up; while :; do sleep 0.02; done", Grace: time.Minute}, 7, ""},
		} {
			if exit, _ := killedWhenUp(t, h, c.cmd); exit.Reason != containers.ReasonKilled || exit.Code != c.code ||
				exit.Signal != c.signal {
				t.Errorf("%s: %+v", name, exit)
			}
		}
		if left := b.alive(h); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

func TestBackground(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		running := func(id string) bool {
			all, err := h.Commands(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range all {
				if c.ID == id {
					return c.Running
				}
			}
			t.Fatalf("no %s", id)
			return false
		}
		start := func(id, script string) *containers.Process {
			p, err := h.Start(t.Context(), containers.Command{ID: id, Shell: script, Background: true})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		plain := start("plain", "echo up; exec sleep 1001")
		daemon := start("daemon", "setsid sh -c 'sleep 1002; true' >/dev/null 2>&1 & echo $!")
		for range 3 {
			shell(t, h, "sleep 1003 & true")
		}
		if !running("plain") || !running("daemon") {
			t.Error("a foreground command took a background one with it")
		}
		left := strings.Join(b.alive(h), "\n")
		if !strings.Contains(left, "1001") || !strings.Contains(left, "1002") || strings.Contains(left, "1003") {
			t.Errorf("alive: %s", left)
		}
		for id, p := range map[string]*containers.Process{"plain": plain, "daemon": daemon} {
			if err := h.Kill(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if exit, err := p.Output(nil, nil); err != nil || exit.Reason != containers.ReasonKilled {
				t.Errorf("%s: %+v %v", id, exit, err)
			}
		}
		if left := b.alive(h); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		short := start("short", "echo done")
		if exit, err := short.Output(nil, nil); err != nil || exit.Code != 0 || exit.Reason != "" {
			t.Errorf("%+v %v", exit, err)
		}
	})
}

// TestFlood: a command that prints more than is kept is neither slowed nor
// stopped, costs what is kept, and all it printed is counted.
func TestFlood(t *testing.T) {
	for _, mode := range two {
		t.Run(mode, func(t *testing.T) {
			const kept, printed = 5 << 20, 1 << 30
			b := newBox(t, mode, func(c *runner.Config) { c.Output = kept })
			h := b.host(nil)
			p, err := h.Start(t.Context(),
				containers.Command{ID: "f", Shell: fmt.Sprintf("yes abcdefg | head -c %d; echo over >&2", printed)})
			if err != nil {
				t.Fatal(err)
			}
			sum := &counter{}
			var errs bytes.Buffer
			exit, err := p.Output(sum, &errs)
			if err != nil || exit.Code != 0 || exit.Stdout != printed || sum.n != kept || errs.String() != "over\n" {
				t.Errorf("%+v %v: %d bytes, stderr %q", exit, err, sum.n, errs.String())
			}
			if left := b.alive(h); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func TestForkBomb(t *testing.T) {
	for _, mode := range two {
		t.Run(mode, func(t *testing.T) {
			b := newBox(t, mode, func(c *runner.Config) { c.PIDs = 200 })
			if mode == "root" {
				b.limitPIDs(200)
			}
			h := b.host(nil)
			for _, busy := range []bool{false, true} {
				if busy {
					p, err := h.Start(t.Context(),
						containers.Command{ID: "background", Args: []string{"sleep", "1000"}, Background: true})
					if err != nil {
						t.Fatal(err)
					}
					defer p.Output(nil, nil)
					defer h.Kill(context.Background(), "background")
				}
				exit, _, _ := run(t, h, containers.Command{
					Shell:   `bomb() { bomb & bomb & sleep 1000; }; trap '' TERM; bomb & exec sleep 1000`, // a shell that cannot fork would end
					Timeout: time.Second, Grace: 500 * time.Millisecond,
				})
				if exit.Reason != containers.ReasonTimeout {
					t.Errorf("with a background command %v: %+v", busy, exit)
				}
				for _, line := range b.alive(h) {
					if line != "sleep 1000 " || !busy {
						t.Errorf("with a background command %v: %q is left", busy, line)
					}
				}
			}
		})
	}
}

// limitPIDs puts the box into a cgroup of its own, as an engine does.
func (b *box) limitPIDs(n int) {
	b.t.Helper()
	for _, base := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		if _, err := os.Stat(base + "/cgroup.procs"); err != nil {
			continue
		}
		dir := filepath.Join(base, filepath.Base(b.dir))
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.t.Skipf("cannot run here: no cgroup for processes: %v", err)
		}
		b.t.Cleanup(func() {
			_ = b.cmd.Process.Kill()
			_ = b.cmd.Wait()
			eventually(b.t, "the end of the cgroup", func() error { return os.Remove(dir) })
		})
		if err := os.WriteFile(dir+"/pids.max", []byte(strconv.Itoa(n)), 0); err != nil {
			b.t.Skipf("cannot run here: no cgroup for processes: %v", err)
		}
		// Threads started later follow the process; those there are follow with it.
		if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(b.cmd.Process.Pid)), 0); err != nil {
			b.t.Fatal(err)
		}
		return
	}
	b.t.Skip("cannot run here: no cgroup for processes")
}

// TestRunnerCannotBeHurt checks that process 1 survives all signals of the task's user.
func TestRunnerCannotBeHurt(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		shell(t, h, `for s in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 34 35 50 64; do kill -$s 1 2>/dev/null; done; true`)
		exit, _, _ := shell(t, h, "sleep 1000 & kill -9 -1") // spares the shell itself
		if exit.Code != 0 {
			t.Errorf("%+v", exit)
		}
		for _, script := range []string{
			"cat /proc/1/environ", "ls /proc/1/fd/", "cat /proc/1/mem", "cat /proc/1/maps", "ls /proc/1/cwd/",
			"readlink /proc/1/exe",
			"ls -A /run/ramus", "ls -A /spool/x", "echo 1000 > /proc/1/oom_score_adj",
		} {
			if exit, out, _ := shell(t, h, script); exit.Code == 0 || out != "" {
				t.Errorf("%s: %+v %q", script, exit, out)
			}
		}
		_, out, _ := shell(t, h, "grep -E '^(Cap|NoNewPrivs|Uid|Gid|Groups)' /proc/self/status")
		for _, want := range []string{"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000",
			"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1",
			"Uid:\t1000\t1000\t1000\t1000", "Gid:\t1000\t1000\t1000\t1000"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if exit, out, errs := shell(t, h, "echo fine; echo fine >/dev/stderr"); exit.Code != 0 || out != "fine\n" || errs != "fine\n" {
			t.Errorf("%+v %q %q", exit, out, errs)
		}
	})
}

// TestForgedSignals: a fault the kernel seems to report ends any Go program.
func TestForgedSignals(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("cannot run here: the calls' numbers are amd64's")
	}
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		exit, out, errs := run(t, h, containers.Command{Args: []string{"python3", "-c", `
import ctypes, os, fcntl, resource, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*a):
    ctypes.set_errno(0)
    return libc.syscall(*a) == -1 and ctypes.get_errno() in (1, 38)
info = ctypes.create_string_buffer(struct.pack("iii", 11, 0, -1) + bytes(116))
print("queue", call(129, 1, 11, info))
print("tgqueue", call(297, 1, 1, 11, info))
fd = libc.syscall(434, 1, 0)
print("pidfd", call(424, fd, 11, info, 0))
print("limit", call(302, 1, resource.RLIMIT_CPU, struct.pack("QQ", 1, 1), None))
print("nice", call(141, 0, 1, 19))
a, z = socket.socketpair()
try:
    fcntl.fcntl(a, fcntl.F_SETOWN, 1)
    fcntl.fcntl(a, 10, 11)
    fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    z.send(b"x")
    print("io False")
except PermissionError:
    print("io True")
# What others do with the same calls goes on.
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    signal.pause()
libc.syscall(424, libc.syscall(434, pid, 0), 9, None, 0)
print("own", os.waitpid(pid, 0)[1])
resource.prlimit(0, resource.RLIMIT_NOFILE, (100, 200))
`}})
		if b.mode == "root" {
			// Another user may ask for the signal; the kernel then does not send it.
			out = strings.Replace(out, "io False", "io True", 1)
		}
		if exit.Code != 0 || strings.Count(out, "True") != 6 || !strings.Contains(out, "own 9") {
			t.Errorf("%+v %q %s", exit, out, errs)
		}
		if exit, _, _ := shell(t, h, "true"); exit.Code != 0 {
			t.Error("the runner did not survive")
		}
	})
}

func TestManyShortCommandsLeakNothing(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		shell(t, h, "true")
		before, threads := b.descriptors(), runtime.NumGoroutine()
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 125 {
					id := fmt.Sprintf("c%d-%d", w, i)
					script := "true"
					if i%10 == 0 {
						script = "head -c 20000 /dev/zero" // enough for a spool file
					}
					p, err := h.Start(t.Context(), containers.Command{ID: id, Shell: script})
					if err != nil {
						t.Error(err)
						return
					}
					if exit, err := p.Output(nil, nil); err != nil || exit.Code != 0 {
						t.Error(exit, err)
					}
					if err := h.Forget(t.Context(), id); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		eventually(t, "descriptors", func() error {
			if after := b.descriptors(); after > before+2 {
				return fmt.Errorf("%d, before %d", after, before)
			}
			return nil
		})
		eventually(t, "goroutines", func() error {
			if n := runtime.NumGoroutine(); n > threads+2 {
				return fmt.Errorf("%d, before %d", n, threads)
			}
			return nil
		})
	})
}

// descriptors counts what the runner holds open, seen from outside.
func (b *box) descriptors() int {
	b.t.Helper()
	pid := b.cmd.Process.Pid
	if b.mode == "single" {
		// Bubblewrap's child is process 1.
		all, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			b.t.Fatal(err)
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(all)))
		if err != nil {
			b.t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if errors.Is(err, os.ErrPermission) {
		return 0 // an undumpable process is closed to all but root
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return len(entries)
}

// eventually retries what becomes true by itself.
func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestLostConnection(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		const script = `i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo "line $i"; echo "err $i" >&2; done; printf '\377\000end'; exit 9`
		p, err := h.Start(t.Context(), containers.Command{ID: "lost", Shell: script})
		if err != nil {
			t.Fatal(err)
		}
		got := &counter{}
		// The connection is closed in mid-stream, by the side that writes.
		if _, err := p.Output(writerFunc(func(q []byte) (int, error) {
			got.n += int64(len(q))
			go h.Close()
			return len(q), nil
		}), nil); err == nil {
			t.Log("the command was faster than the loss")
		} else if !errors.Is(err, containers.ErrGone) {
			t.Errorf("a lost connection is: %v", err)
		}
		<-h.Done()
		if _, err := h.Start(t.Context(), containers.Command{ID: "late", Shell: "true"}); !errors.Is(err, containers.ErrGone) {
			t.Errorf("start without connection: %v", err)
		}
		if _, err := h.Files(t.Context()); !errors.Is(err, containers.ErrGone) {
			t.Errorf("files without connection: %v", err)
		}
		h2 := b.host(nil)
		p, err = h2.Attach(t.Context(), "lost", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var out, errs, wantOut, wantErr bytes.Buffer
		exit, err := p.Output(&out, &errs)
		for i := 1; i <= 3000; i++ {
			fmt.Fprintf(&wantOut, "line %d\n", i)
			fmt.Fprintf(&wantErr, "err %d\n", i)
		}
		wantOut.WriteString("\xff\x00end")
		if err != nil || exit.Code != 9 || !bytes.Equal(out.Bytes(), wantOut.Bytes()) || !bytes.Equal(errs.Bytes(), wantErr.Bytes()) {
			t.Errorf("%+v %v: %d and %d bytes", exit, err, out.Len(), errs.Len())
		}
		// The rest, from where the lost one had come to.
		p, err = h2.Attach(t.Context(), "lost", got.n, 0)
		if err != nil {
			t.Fatal(err)
		}
		out.Reset()
		if _, err := p.Output(&out, nil); err != nil || !bytes.Equal(out.Bytes(), wantOut.Bytes()[got.n:]) {
			t.Errorf("the rest from %d: %d bytes, %v", got.n, out.Len(), err)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestBrokenInput: half an input must not be taken for the whole.
func TestBrokenInput(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		r, w := io.Pipe()
		if _, err := h.Start(t.Context(), containers.Command{ID: "in", Shell: "cat > got; echo complete > done", Stdin: r}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("half")); err != nil {
			t.Fatal(err)
		}
		h2 := b.host(nil)
		eventually(t, "the half arrives", func() error {
			if got, _ := os.ReadFile(b.dir + "/root" + workDir + "/got"); string(got) != "half" {
				return fmt.Errorf("got %q", got)
			}
			return nil
		})
		h.Close()
		w.Close()
		if _, out, _ := run(t, h2, containers.Command{Shell: "sleep 0.3; ls", Background: true}); out != "got\n" {
			t.Errorf("the command took half its input for all: %q", out)
		}
		if err := h2.Kill(t.Context(), "in"); err != nil {
			t.Error(err)
		}
		// An attachment that ended by its context leaves the command running, too.
		ctx, cancel := context.WithCancel(t.Context())
		p, err := h2.Start(ctx, containers.Command{ID: "ctx", Args: []string{"sleep", "1000"}, Background: true})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := p.Output(nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if left := b.alive(h2); !slices.Contains(left, "sleep 1000 ") {
			t.Errorf("alive: %q", left)
		}
	})
}

// TestInputNeverCame: who asks for a command and is gone before it began sends it no input.
func TestInputNeverCame(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil) // it waits until the runner is there
		const commands = 10
		for i := range commands {
			conn, err := b.Dial(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			c, chans, reqs, err := ssh.NewClientConn(conn, "", &ssh.ClientConfig{
				Auth: []ssh.AuthMethod{ssh.PublicKeys(b.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey()})
			if err != nil {
				t.Fatal(err)
			}
			client := ssh.NewClient(c, chans, reqs)
			ch, said, err := client.OpenChannel("session", nil)
			if err != nil {
				t.Fatal(err)
			}
			go ssh.DiscardRequests(said)
			text, err := json.Marshal(runner.Request{Version: runner.Version, Op: runner.OpStart,
				ID: fmt.Sprint("gone-", i), Shell: []byte("cat"), Stdin: true, Background: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ch.SendRequest("exec", false, ssh.Marshal(struct{ Command string }{string(text)})); err != nil {
				t.Fatal(err)
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		}
		eventually(t, "all are begun, and known to have no input", func() error {
			list, err := h.Commands(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cut := 0
			for _, c := range list {
				if c.Cut && c.Running {
					cut++
				}
			}
			if cut != commands {
				return fmt.Errorf("%d of %d: %+v", cut, commands, list)
			}
			return nil
		})
	})
}

func TestTerminal(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		r, w := io.Pipe()
		p, err := h.Start(t.Context(), containers.Command{
			ID: "tty", Shell: `tty; echo $TERM; stty size; trap 'stty size; exit 4' WINCH; echo err >&2; read line; echo "got $line"; while :; do sleep 0.05; done`,
			TTY: &containers.Window{Rows: 11, Cols: 22, Term: "vt100"}, Stdin: r,
		})
		if err != nil {
			t.Fatal(err)
		}
		go w.Write([]byte("hello\r"))
		var out bytes.Buffer
		resized := false
		exit, err := p.Output(writerFunc(func(q []byte) (int, error) {
			out.Write(q)
			if !resized && strings.Contains(out.String(), "got hello") {
				resized = true // once: the second time the command has ended
				if err := p.Resize(containers.Window{Rows: 33, Cols: 44}); err != nil {
					t.Error(err)
				}
			}
			return len(q), nil
		}), nil)
		w.Close()
		if err != nil || exit.Code != 4 {
			t.Errorf("%+v %v", exit, err)
		}
		for _, want := range []string{"/dev/pts/", "vt100\r\n", "11 22\r\n", "err\r\n", "got hello\r\n", "33 44\r\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in %q", want, out.String())
			}
		}
		// ^C is a signal, ^D the end, and both sides survive.
		exit, text, _ := run(t, h, containers.Command{Shell: "cat; echo end", TTY: &containers.Window{Rows: 1, Cols: 1},
			Stdin: strings.NewReader("a\r")})
		if exit.Code != 0 || !strings.Contains(text, "end") {
			t.Errorf("%+v %q", exit, text)
		}
		exit, _, _ = run(t, h, containers.Command{Args: []string{"sleep", "1000"},
			TTY: &containers.Window{Rows: 1, Cols: 1}, Stdin: strings.NewReader("\x03")})
		if exit.Signal != "INT" {
			t.Errorf("%+v", exit)
		}
	})
}

func TestWrongKeys(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.host(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if h, err := (&containers.Dialer{Engine: b, Signer: newSigner(t)}).Dial(ctx, "box"); err == nil {
			h.Close()
			t.Error("a wrong client key was let in")
		} else if ctx.Err() != nil {
			t.Errorf("a wrong client key was tried until the end: %v", err)
		}
		other := &pin{key: newSigner(t).PublicKey().Marshal()}
		if h, err := (&containers.Dialer{Engine: b, Signer: b.signer, Pin: other}).Dial(ctx, "box"); err == nil {
			h.Close()
			t.Error("a wrong host key was accepted")
		} else if !errors.Is(err, containers.ErrImpostor) {
			t.Errorf("a wrong host key is: %v", err)
		}
		if b.pin.Key() == nil {
			t.Error("the first host key was not stored")
		}
	})
}

func TestDialWaitsForTheRunner(t *testing.T) {
	b := newBox(t, "single")
	// The engine answers before anything listens, as a proxy would.
	tries := 0
	early := &earlyEngine{box: b, fail: func() bool { tries++; return tries < 4 }}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	h, err := (&containers.Dialer{Engine: early, Signer: b.signer}).Dial(ctx, "box")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	early.fail = func() bool { return true }
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := (&containers.Dialer{Engine: early, Signer: b.signer}).Dial(short, "box"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a runner that never answers: %v", err)
	}
	early.err = containers.ErrGone
	if _, err := (&containers.Dialer{Engine: early, Signer: b.signer}).Dial(ctx, "box"); !errors.Is(err, containers.ErrGone) {
		t.Errorf("a container that is gone: %v", err)
	}
}

type earlyEngine struct {
	*box
	fail func() bool
	err  error
}

func (e *earlyEngine) Dial(ctx context.Context, id string) (net.Conn, error) {
	if e.err != nil {
		return nil, e.err
	}
	if !e.fail() {
		return e.box.Dial(ctx, id)
	}
	a, c := net.Pipe()
	c.Close()
	return a, nil
}

func TestDoor(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		get := func(h *containers.Host, path string) string {
			_, out, errs := shell(t, h, "exec 2>&1; curl -sS --max-time 10 http://127.0.0.1:7070"+path)
			return out + errs
		}
		answer := func(s string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodConnect {
					// What an egress proxy does: take the connection over.
					c, rw, err := w.(http.Hijacker).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer c.Close()
					fmt.Fprintf(rw, "HTTP/1.1 200 OK\r\n\r\n")
					rw.Flush()
					io.Copy(c, io.LimitReader(rw, 5))
					return
				}
				n, _ := io.Copy(io.Discard, r.Body)
				fmt.Fprintf(w, "%s %s %d", s, r.URL.Path, n)
			})
		}
		h := b.host(answer("one"))
		if got := get(h, "/x"); got != "one /x 0" {
			t.Errorf("through the door: %q", got)
		}
		if _, out, errs := shell(t, h,
			"head -c 30000000 /dev/zero | curl -sS --max-time 20 -T - http://127.0.0.1:7070/big"); out != "one /big 30000000" {
			t.Errorf("a large body: %q %s", out, errs)
		}
		_, out, errs := run(t, h, containers.Command{Args: []string{"python3", "-c", `
import socket
s = socket.create_connection(("127.0.0.1", 7070)); s.settimeout(10)
s.sendall(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n")
b = b""
while not b.endswith(b"\r\n\r\n"): b += s.recv(1000)
s.sendall(b"hello"); b = b""
while len(b) < 5: b += s.recv(1000)
print(b.decode())
`}})
		if out != "hello\n" {
			t.Errorf("a connection taken over: %q %s", out, errs)
		}
		// The door belongs to the connection that asked last.
		h2 := b.host(answer("two"))
		if got := get(h2, "/"); got != "two / 0" {
			t.Errorf("the second host's door: %q", got)
		}
		// One that asks and leaves gives it back to one that stays.
		brief := b.host(answer("brief"))
		if got := get(brief, "/"); got != "brief / 0" {
			t.Errorf("the third host's door: %q", got)
		}
		brief.Close()
		if got := get(h2, "/"); got != "two / 0" {
			t.Errorf("the door after its latest host has left: %q", got)
		}
		// While no host is there, who knocks waits.
		p, err := h2.Start(t.Context(),
			containers.Command{ID: "knock", Shell: "sleep 0.3; curl -sS --max-time 20 http://127.0.0.1:7070/later"})
		if err != nil {
			t.Fatal(err)
		}
		_ = p
		h.Close()
		h2.Close()
		time.Sleep(500 * time.Millisecond) // long enough for it to knock at a door without a host; shorter proves less, never fails
		h3 := b.host(answer("three"))
		p, err = h3.Attach(t.Context(), "knock", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var buf, ebuf bytes.Buffer
		if exit, err := p.Output(&buf, &ebuf); err != nil || buf.String() != "three /later 0" {
			t.Errorf("%+v %v: %q %q", exit, err, buf.String(), ebuf.String())
		}
		h4 := b.host(nil)
		if exit, out, _ := shell(t, h4, "curl -sS --max-time 10 http://127.0.0.1:7070/"); exit.Code == 0 {
			t.Errorf("a closed door answered: %q", out)
		}
		// Nobody can take its place.
		exit, _, errs := run(t, h4,
			containers.Command{Args: []string{"python3", "-c",
				"import socket; s=socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('127.0.0.1', 7070))"}})
		if exit.Code == 0 || !strings.Contains(errs, "Address already in use") {
			t.Errorf("%+v %s", exit, errs)
		}
	})
}

func TestDoorHandlersEndWithTheHost(t *testing.T) {
	b := newBox(t, "single")
	inside := make(chan struct{})
	ended := make(chan struct{})
	h := b.host(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(inside)
		<-r.Context().Done()
		close(ended)
	}))
	if _, err := h.Start(t.Context(), containers.Command{ID: "c", Shell: "curl -s http://127.0.0.1:7070/"}); err != nil {
		t.Fatal(err)
	}
	<-inside
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	default:
		t.Error("Close did not wait for the handler")
	}
}

func TestPorts(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(http.NotFoundHandler())
		if ports, err := h.Ports(t.Context()); err != nil || len(ports) != 0 {
			t.Errorf("%v %v", ports, err)
		}
		p, err := h.Start(t.Context(), containers.Command{ID: "srv", Background: true, Args: []string{"python3", "-uc", `
import socket
s = socket.create_server(("127.0.0.1", 5173)); print("up")
while True:
    c, _ = s.accept()
    while (b := c.recv(65536)): c.sendall(b)
    c.sendall(b"bye"); c.close()
`}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Output(nil, nil)
		defer h.Kill(context.Background(), "srv")
		eventually(t, "port", func() error {
			if ports, err := h.Ports(t.Context()); err != nil || !slices.Equal(ports, []int{5173}) {
				return fmt.Errorf("%v %v", ports, err)
			}
			return nil
		})
		c, err := h.Dial(t.Context(), "127.0.0.1:5173")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		var timeout net.Error
		if n, err := c.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("read %d, %v", n, err)
		}
		c.SetReadDeadline(time.Time{})
		want := bytes.Repeat([]byte("0123456789"), 200_000)
		go func() {
			c.Write(want)
			c.(interface{ CloseWrite() error }).CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, append(want, "bye"...)) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		for _, addr := range []string{"127.0.0.1:1", "127.0.0.1:7070", "192.0.2.1:80", "127.0.0.1:0", "example.invalid:80"} {
			if c, err := h.Dial(t.Context(), addr); err == nil {
				c.Close()
				t.Errorf("reached %s", addr)
			}
		}
	})
}

func TestDiskFull(t *testing.T) {
	for _, mode := range two {
		t.Run(mode, func(t *testing.T) {
			floor, hog := containerstest.DiskHog(t, os.TempDir())
			b := newBox(t, mode, func(c *runner.Config) { c.DiskFree = floor; c.FileSize = 1 << 30 })
			h := b.host(nil)
			exit, _, _ := shell(t, h, hog)
			if exit.Reason != containers.ReasonDiskFull {
				t.Errorf("%+v", exit)
			}
			// Below the limit, what cleans up is let run.
			if exit, _, errs := shell(t, h, "rm fill*; sleep 0.5"); exit.Code != 0 || exit.Reason != "" {
				t.Errorf("%+v %s", exit, errs)
			}
		})
	}
}

func TestFileSize(t *testing.T) {
	b := newBox(t, "single", func(c *runner.Config) { c.FileSize = 1 << 20 })
	h := b.host(nil)
	if exit, _, _ := shell(t, h, "head -c 2000000 /dev/zero > f"); exit.Signal != "XFSZ" && exit.Code == 0 {
		t.Errorf("%+v", exit)
	}
	if exit, _, _ := shell(t, h, "head -c 3000000 /dev/zero"); exit.Code != 0 || exit.Stdout != 3000000 {
		t.Errorf("%+v", exit)
	}
}

// TestMemoryReason gives the runner a count of killed processes to look at.
func TestMemoryReason(t *testing.T) {
	each2 := func(t *testing.T, mode string) {
		b := newBox(t, mode, func(c *runner.Config) { c.Memory = workDir + "/events" })
		if err := os.WriteFile(b.dir+"/root"+workDir+"/events", []byte("low 0\noom 1\noom_kill 3\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(b.dir+"/root"+workDir+"/events", 0o666); err != nil {
			t.Fatal(err)
		}
		h := b.host(nil)
		for _, c := range [][2]string{
			{"kill -9 $$", ""},
			{"printf 'oom_kill_disable 0\\noom_kill 4\\n' > events; kill -9 $$", containers.ReasonMemory},
			{"echo oom_kill 5 > events; exit 0", ""},
		} {
			if exit, _, errs := shell(t, h, c[0]); exit.Reason != c[1] {
				t.Errorf("%s: %+v %s", c[0], exit, errs)
			}
		}
	}
	for _, mode := range two {
		t.Run(mode, func(t *testing.T) { each2(t, mode) })
	}
}

func TestRemembersSoMany(t *testing.T) {
	b := newBox(t, "single", func(c *runner.Config) { c.Commands = 5 })
	h := b.host(nil)
	for i := range 8 {
		run(t, h, containers.Command{ID: "b" + strconv.Itoa(i), Shell: "echo hi", Background: true})
	}
	all, err := h.Commands(t.Context())
	if err != nil || len(all) != 5 || all[0].ID != "b3" || all[4].ID != "b7" {
		t.Errorf("%v %v", all, err)
	}
	for i := range 5 {
		run(t, h, containers.Command{ID: "f" + strconv.Itoa(i), Args: []string{"echo", "a b", "c"}})
	}
	if _, err := h.Start(t.Context(), containers.Command{ID: "more", Shell: "true"}); err == nil {
		t.Error("a foreground command's output was forgotten unasked")
	}
	all, err = h.Commands(t.Context())
	if err != nil || len(all) != 5 || all[0].Line != "echo 'a b' c" || all[0].Running || all[0].Exit.Stdout != 6 ||
		all[0].Started.IsZero() {
		t.Errorf("%+v %v", all, err)
	}
}

func TestBadRequests(t *testing.T) {
	b := newBox(t, "single")
	h := b.host(nil)
	for name, c := range map[string]containers.Command{
		"no id":          {Shell: "true"},
		"bad id":         {ID: "a/b", Shell: "true"},
		"nothing":        {ID: "a"},
		"empty program":  {ID: "a", Args: []string{""}},
		"NUL":            {ID: "a", Args: []string{"a\x00b"}},
		"variable":       {ID: "a", Shell: "true", Env: []string{"A"}},
		"nameless":       {ID: "a", Shell: "true", Env: []string{"=A"}},
		"negative":       {ID: "a", Shell: "true", Timeout: -1},
		"far too long":   {ID: "a", Shell: strings.Repeat("x", 1<<20)},
		"far too many":   {ID: "a", Args: slices.Repeat([]string{"x"}, 100_000)},
		"terminal's NUL": {ID: "a", Shell: "true", TTY: &containers.Window{Term: "a\x00"}},
	} {
		if _, err := h.Start(t.Context(), c); err == nil {
			t.Errorf("%s: started", name)
		}
	}
	// An argument longer than the kernel takes is the command's failure.
	if exit, _, errs := run(t, h,
		containers.Command{Args: []string{"true", strings.Repeat("x", 150_000)}}); exit.Code != 126 || errs == "" {
		t.Errorf("%+v %q", exit, errs)
	}
	if exit, _, _ := shell(t, h, "true"); exit.Code != 0 {
		t.Error("the runner did not survive")
	}
}

func TestUnreadOutputBlocksNobody(t *testing.T) {
	b := newBox(t, "single")
	h := b.host(nil)
	for i := range 5 {
		if _, err := h.Start(t.Context(), containers.Command{ID: "u" + strconv.Itoa(i),
			Shell: "head -c 8000000 /dev/zero", Background: true}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all end", func() error {
		all, err := h.Commands(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if c.Running {
				return fmt.Errorf("%s runs", c.ID)
			}
		}
		return nil
	})
	h.Close()
	h = b.host(nil)
	p, err := h.Attach(t.Context(), "u3", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	n := &counter{}
	if _, err := p.Output(io.MultiWriter(sum, n), nil); err != nil || n.n != 8000000 {
		t.Errorf("%d bytes, %v", n.n, err)
	}
	if _, err := p.Output(nil, nil); err == nil {
		t.Error("output read twice")
	}
}

func BenchmarkTrue(b *testing.B) {
	for _, mode := range two {
		b.Run(mode, func(b *testing.B) {
			h := newBox(b, mode).host(nil)
			for i := range b.N {
				id := "t" + strconv.Itoa(i)
				run(b, h, containers.Command{ID: id, Args: []string{"true"}})
				if err := h.Forget(context.Background(), id); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStdout(b *testing.B) {
	const size = 100 << 20
	for _, block := range []string{"4096", "1M"} {
		b.Run(block, func(b *testing.B) {
			// In memory: what a disk takes is not the runner's doing.
			h := newBox(b, "root", func(c *runner.Config) { c.Spool = "/tmp" }).host(nil)
			b.SetBytes(size)
			for i := range b.N {
				id := "s" + strconv.Itoa(i)
				p, err := h.Start(context.Background(), containers.Command{
					ID: id, Args: []string{"dd", "status=none", "if=/dev/zero", "bs=" + block,
						"count=" + strconv.Itoa(size), "iflag=count_bytes"},
				})
				if err != nil {
					b.Fatal(err)
				}
				n := &counter{}
				if _, err := p.Output(n, nil); err != nil || n.n != size {
					b.Fatal(n.n, err)
				}
				if err := h.Forget(context.Background(), id); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
