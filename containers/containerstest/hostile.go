package containerstest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
)

func processes() []int {
	names, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, n := range names {
		if pid, err := strconv.Atoi(filepath.Base(n)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func procFile(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

func testPrivileges(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	status := map[string]string{}
	for line := range strings.Lines(b.ok(t, "cat /proc/self/status")) {
		k, v, _ := strings.Cut(line, ":")
		status[k] = strings.TrimSpace(v)
	}
	none := strings.Repeat("0", 16)
	for k, want := range map[string]string{
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2",
	} {
		if status[k] != want {
			t.Errorf("%s is %q, not %q", k, status[k], want)
		}
	}
	for _, try := range []string{
		"mount -t tmpfs x /tmp", "unshare -U true", "unshare -m true", "unshare -n true",
		"unshare -Ur mount -t tmpfs x /tmp",
		"mknod /tmp/device b 8 0", "chroot / true", "hostname other", "chown 0 /work", "su -c true", "nsenter -t 1 -m true",
		"date -s 2001-01-01", "echo 1 > /proc/sys/kernel/panic", "echo c > /proc/sysrq-trigger", "dmesg",
		"sysctl -w vm.overcommit_memory=1",
		"ip link add x type dummy", "insmod /x", "renice -n -10 $$", "kill -9 1 && test ! -d /proc/1",
	} {
		if _, _, exit := b.run(t, try); exit.Code == 0 {
			t.Errorf("it may: %s", try)
		}
	}
	// A program with the set-user-id bit is one like any other.
	if got := b.ok(t, "cp /usr/bin/id id 2>/dev/null || cp /bin/id id; chmod 4755 id; ./id -u"); got != "1000" {
		t.Errorf("a set-user-id program runs as %s", got)
	}
	b.usable(t)
}

func testNetwork(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	for i, line := range strings.Split(b.ok(t, "cat /proc/net/dev"), "\n") {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); i >= 2 && ok && name != "lo" {
			t.Errorf("there is a network interface %s", name)
		}
	}
	if routes := b.ok(t, "cat /proc/net/route"); strings.Count(routes, "\n") > 0 {
		t.Errorf("there are routes:\n%s", routes)
	}
	for _, try := range []string{"</dev/tcp/192.0.2.1/80", "</dev/udp/192.0.2.1/53", "</dev/tcp/127.0.0.1/22"} {
		if _, _, exit := b.run(t, "timeout 30 bash -c '"+try+"'"); exit.Code == 0 || exit.Code == 124 {
			t.Errorf("%s: exit %+v; it should be refused at once", try, exit)
		}
	}
}

func testReadOnly(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	for _, dir := range []string{"/", "/etc", "/usr", "/usr/bin", "/bin/", "/lib/", "/dev", "/run", "/var", "/var/lib",
		"/home", "/root", "/opt", "/srv", "/mnt", "/proc", "/sys"} {
		if _, _, exit := b.run(t, "touch "+dir+"/ramus-suite"); exit.Code == 0 {
			t.Errorf("%s is writable", dir)
		}
	}
	// Other writable folders are found by a walk over everything except large folders.
	out := b.ok(t, "find / \\( -path /proc -o -path /usr \\) -prune -o -type d -writable -print 2>/dev/null; true")
	for dir := range strings.Lines(out) {
		dir = strings.TrimSpace(dir)
		switch top, _, _ := strings.Cut(strings.TrimPrefix(dir, "/"), "/"); {
		case top == "work", top == "artifacts", top == "cache", top == "tmp", strings.HasPrefix(dir, "/dev/shm"),
			dir == "/dev/mqueue", dir == "/dev/pts":
		case strings.HasPrefix(dir, "/var/tmp"), strings.HasPrefix(dir, "/run"):
			t.Logf("writable besides: %s", dir)
		default:
			t.Errorf("%s is writable", dir)
		}
	}
}

func testHostOutOfSight(s *suite, t *testing.T) {
	canary := filepath.Join(s.dir, "canary")
	if err := os.WriteFile(canary, []byte("host"), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(canary)
	secret := "sleep-of-the-host-" + s.mark
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "sleep 600 #"+secret)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cancel()

	b := s.start(t, containers.Limits{})
	if _, _, exit := b.run(t, "test -e "+canary); exit.Code == 0 {
		t.Errorf("%s of the host is in sight", canary)
	}
	if out := b.ok(t, "cat /proc/*/cmdline | tr '\\0' ' '"); strings.Contains(out, secret) {
		t.Error("a process of the host is in sight")
	}
	if n, err := strconv.Atoi(b.ok(t, "ls -d /proc/[0-9]* | wc -l")); err != nil || n > 10 {
		t.Errorf("%d processes are in sight, %v", n, err)
	}
	host, err := os.Hostname()
	if err == nil && b.ok(t, "cat /proc/sys/kernel/hostname") == host {
		t.Error("it has the host's name")
	}
	// Sockets of the host's, Docker's above all, and of the engine's. The door's is for commands.
	if out := b.ok(t, "find / \\( -path /proc -o -path /usr \\) -prune -o -type s -writable -print 2>/dev/null; true"); out != containers.DoorFolder+"/door.sock" {
		t.Errorf("sockets are in reach: %s", out)
	}
	if out := b.ok(t, "find / \\( -path /proc -o -path /usr \\) -prune -o -type b -print 2>/dev/null; true"); out != "" {
		t.Errorf("block devices are in sight: %s", out)
	}
	for _, p := range []string{"/var/run/docker.sock", "/run/docker.sock", "/etc/shadow", "/dev/mem", "/dev/kmem",
		"/dev/kvm", "/dev/sda", "/proc/kcore"} {
		if _, _, exit := b.run(t, "head -c 1 "+p+" || test -S "+p); exit.Code == 0 {
			t.Errorf("%s can be read", p)
		}
	}
}

func testRunnerOutOfReach(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	for _, try := range []string{
		"cat /proc/1/environ", "ls /proc/1/fd/", "cat /proc/1/maps", "cat /proc/1/mem", "ls /proc/1/root/",
		"cat /proc/1/auxv",
		"ls /proc/1/cwd/", "echo 1000 > /proc/1/oom_score_adj", "cat /proc/1/task/*/mem", "ls /proc/1/task/1/fd/",
		"readlink /proc/1/exe",
		"cat /proc/1/stack", "prlimit --pid 1 --nofile=1:1",
	} {
		if out, _, exit := b.run(t, try); exit.Code == 0 {
			t.Errorf("it may: %s: %q", try, out[:min(len(out), 200)])
		}
	}
	if _, _, exit := b.run(t, "command -v python3"); exit.Code == 0 {
		for name, call := range map[string]string{
			"ptrace attach":     "ptrace(16, 1, 0, 0)",
			"ptrace seize":      "ptrace(0x4206, 1, 0, 0)",
			"pidfd_getfd":       "syscall(438, lib.syscall(434, 1, 0), 3, 0)",
			"process_vm_readv":  "process_vm_readv(1, ctypes.byref((ctypes.c_size_t*2)(ctypes.addressof(buf), 8)), 1, ctypes.byref((ctypes.c_size_t*2)(0x400000, 8)), 1, 0)",
			"process_vm_writev": "process_vm_writev(1, ctypes.byref((ctypes.c_size_t*2)(ctypes.addressof(buf), 8)), 1, ctypes.byref((ctypes.c_size_t*2)(0x400000, 8)), 1, 0)",
		} {
			script := "import ctypes,sys\nlib=ctypes.CDLL(None)\nbuf=ctypes.create_string_buffer(8)\nsys.exit(0 if lib." + call + ">=0 else 1)"
			if _, errOut, exit := b.command(t,
				containers.Command{Args: []string{"python3", "-c", script}}); exit.Code != 1 || errOut != "" {
				t.Errorf("%s on the runner: %+v %s", name, exit, errOut)
			}
		}
	} else {
		t.Log("not tested without python3 inside: tracing the runner")
	}
	b.run(t, "for s in TERM INT HUP QUIT USR1 USR2 PIPE ALRM ABRT SEGV STOP TSTP KILL; do kill -$s 1; done")
	b.usable(t)
	// Nothing the runner has open reaches a command.
	if got := b.ok(t, "ls /proc/self/fd | tr '\\n' ' '"); got != "0 1 2 3" {
		t.Errorf("a command starts with the descriptors %s", got)
	}
	if got := b.ok(t, "env"); strings.Contains(strings.ToLower(got), "key") || strings.Contains(got, "TOKEN") {
		t.Errorf("the environment is:\n%s", got)
	}
}

func testKillAll(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	_, _, exit := b.run(t, "kill -9 -1; echo not reached by everyone")
	t.Logf("kill -9 -1: %+v", exit)
	b.usable(t)
	files, err := b.host.Files(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	files.Close()
}

func testMemoryHog(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{Memory: 200 << 20, Tmp: 1 << 30})
	// tail keeps a line until it ends.
	_, _, exit := b.command(t,
		containers.Command{Shell: "head -c 3000000000 /dev/zero | tail -n 1 | wc -c; exit ${PIPESTATUS:-0}",
			Timeout: 50 * time.Second})
	t.Logf("a hog of memory in a pipeline: %+v", exit)
	if exit.Reason == containers.ReasonTimeout {
		t.Error("it was not stopped")
	}
	_, _, exit = b.command(t, containers.Command{Args: []string{"tail", "-n", "1", "/dev/zero"}, Timeout: 50 * time.Second})
	if exit.Code != 137 || exit.Reason != containers.ReasonMemory {
		t.Errorf("a hog of memory ends with %+v", exit)
	}
	b.usable(t)
	// A file in memory counts too.
	_, _, exit = b.command(t,
		containers.Command{Shell: "head -c 1000000000 /dev/zero > /tmp/hog", Timeout: 50 * time.Second})
	if exit.Code == 0 || exit.Reason == containers.ReasonTimeout {
		t.Errorf("a hog of /tmp ends with %+v", exit)
	}
	b.run(t, "rm -f /tmp/hog")
	b.usable(t)
}

func testForkStorm(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{PIDs: 100})
	_, _, exit := b.command(t, containers.Command{
		Shell:   "f() { f | f & }; f; while :; do f; sleep 0.1; done",
		Timeout: 2 * time.Second, Grace: 100 * time.Millisecond,
	})
	t.Logf("a fork storm: %+v", exit) // its shell may be the first to get no process
	b.usable(t)
	s.onlyRunner(t, b)
	// The limit itself: sleepers beyond it are refused. It may allow for the runner's own threads.
	out, _, _ := b.command(t, containers.Command{
		Shell:   "i=0; while [ $i -lt 400 ]; do sleep 60 & i=$((i+1)); done 2>/dev/null; ls -d /proc/[0-9]* | wc -l",
		Timeout: 20 * time.Second, Grace: 100 * time.Millisecond,
	})
	if n, err := strconv.Atoi(strings.TrimSpace(out)); err == nil && n > 100+64 {
		t.Errorf("%d processes at a limit of 100", n)
	}
	s.onlyRunner(t, b)
}

func testTmpSize(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{Tmp: 16 << 20})
	b.ok(t, "head -c 8000000 /dev/zero > /tmp/fits")
	out, _, exit := b.run(t, "head -c 30000000 /dev/zero > /tmp/does-not; code=$?; stat -c %s /tmp/does-not; exit $code")
	if size, err := strconv.Atoi(strings.TrimSpace(out)); exit.Code == 0 || err != nil || size > 16<<20 {
		t.Errorf("/tmp of 16 MiB takes %s bytes: %+v", strings.TrimSpace(out), exit)
	}
}

func testFileSize(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{FileSize: 8 << 20})
	b.run(t, "head -c 30000000 /dev/zero > "+containers.WorkDir+"/large")
	if size, err := strconv.Atoi(b.ok(t, "stat -c %s "+containers.WorkDir+"/large")); err != nil || size > 8<<20 {
		t.Errorf("a file of %d bytes could be written, %v", size, err)
	}
}

func testOutputSize(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{Output: 1 << 20})
	out, _, exit := b.run(t, "head -c 5000000 /dev/zero; echo end >&2")
	if len(out) > 2<<20 || len(out) < 1<<20 || exit.Stdout != 5_000_000 || exit.Code != 0 {
		t.Errorf("of 5 MB %d bytes were kept: %+v", len(out), exit)
	}
}

func testDiskFull(s *suite, t *testing.T) {
	floor, hog := DiskHog(t, s.dir)
	b := s.start(t, containers.Limits{DiskFree: floor})
	out, _, exit := b.command(t, containers.Command{Shell: hog, Timeout: 60 * time.Second})
	if exit.Reason != containers.ReasonDiskFull {
		t.Errorf("a hog of disk ends with %+v %s", exit, out)
	}
	b.ok(t, "rm -f fill*")
	b.usable(t)
}
