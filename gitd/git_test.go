package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestChildEnvironment: nothing of the server's own reaches git, and no
// configuration but ours.
func TestChildEnvironment(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[ramus]\n\tfrom = home\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRepo(t)
	t.Setenv("HOME", home)
	t.Setenv("GIT_DIR", home)
	t.Setenv("GIT_CONFIG_PARAMETERS", "'ramus.from=parameters'")
	t.Setenv("RAMUS_SECRET", "secret")
	for _, kv := range (child{repo: r.Dir()}).environ() {
		if strings.Contains(kv, "secret") || strings.HasPrefix(kv, "HOME="+home) {
			t.Error(kv)
		}
	}
	if out, err := r.output(t.Context(), "config", "--get", "ramus.from"); exitCode(err) != 1 {
		t.Errorf("%q %v", out, err)
	}
	out, err := r.server.output(t.Context(), child{repo: r.Dir(), config: []string{"ramus.a=b=c", "core.fsync=none"}, args: []string{"config", "--get", "ramus.a"}})
	if string(out) != "b=c\n" || err != nil {
		t.Errorf("%q %v", out, err)
	}
	for key, want := range map[string]string{"core.fsync": "all", "core.hookspath": "/dev/null", "protocol.allow": "never", "gc.auto": "0"} {
		if out, err := r.output(t.Context(), "config", "--get", key); string(out) != want+"\n" || err != nil {
			t.Errorf("%s = %q, %v", key, out, err)
		}
	}
}

func TestChildErrors(t *testing.T) {
	r := newRepo(t)
	_, err := r.output(t.Context(), "cat-file", "blob", strings.Repeat("1", 40))
	if exitCode(err) != 128 || !strings.Contains(err.Error(), "git cat-file: exit status 128: ") {
		t.Error(err)
	}
	if exitCode(nil) != -1 || exitCode(io.EOF) != -1 {
		t.Error("an exit code without a child")
	}
	tail := &tail{max: 10}
	io.WriteString(tail, strings.Repeat("x", 100)+"\x1b[1m\nend\r\n\xff")
	if got := tail.String(); len(got) > 20 || strings.ContainsAny(got, "\x1b\n\r") || !strings.Contains(got, "end") {
		t.Errorf("%q", got)
	}
}

// TestChildEnds: with its context, with its group, within its limits.
func TestChildEnds(t *testing.T) {
	r := newRepo(t)
	s := r.server
	ctx, cancel := context.WithCancelCause(t.Context())
	block, hold, err := os.Pipe() // nothing ever comes
	if err != nil {
		t.Fatal(err)
	}
	defer block.Close()
	defer hold.Close()
	reason := errors.New("no longer wanted")
	p, err := s.start(ctx, child{repo: r.Dir(), args: []string{"cat-file", "--batch"}, in: block})
	if err != nil {
		t.Fatal(err)
	}
	cancel(reason)
	if err := p.wait(); !errors.Is(err, reason) {
		t.Error(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	p, err = s.start(t.Context(), child{repo: r.Dir(), args: []string{"cat-file", "--batch"}, in: read, cpu: 1500 * time.Millisecond, memory: 1 << 30, file: 12345})
	if err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.cmd.Process.Pid))
	if err != nil {
		t.Error(err)
	}
	have := strings.Join(strings.Fields(string(limits)), " ")
	for _, want := range []string{"Max cpu time 2 2 seconds", "Max address space 1073741824 1073741824 bytes", "Max file size 12345 12345 bytes", "Max core file size 0 0 bytes"} {
		if !strings.Contains(have, want) {
			t.Errorf("no %q in\n%s", want, limits)
		}
	}
	write.Close()
	if err := p.wait(); err != nil {
		t.Error(err)
	}
}

// TestNothingStays: Close leaves no goroutine, no process and no open file.
func TestNothingStays(t *testing.T) {
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("cannot run here: no /proc:", err)
		}
		return len(list)
	}
	// Warm up what Go itself keeps.
	use := func() {
		s := &Server{Root: t.TempDir()}
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := s.Create(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			commit(t, r, "main", "One", "a", "1")
			commit(t, r, "work", "One", "b", "1")
			if err := r.Maintain(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := r.ReadFile(t.Context(), "main", "a", 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Log(t.Context(), "main", LogOptions{}); !errors.Is(err, errClosed) {
			t.Error("used after Close:", err)
		}
	}
	use()
	goroutines, open := runtime.NumGoroutine(), files()
	for range 3 {
		use()
	}
	within(time.Minute, func() bool { return runtime.NumGoroutine() <= goroutines && files() <= open })
	if n := runtime.NumGoroutine(); n > goroutines {
		var b bytes.Buffer
		buf := make([]byte, 1<<20)
		b.Write(buf[:runtime.Stack(buf, true)])
		t.Errorf("%d goroutines became %d\n%s", goroutines, n, b.String())
	}
	if n := files(); n > open {
		t.Errorf("%d open files became %d", open, n)
	}
	if left := children(t, "update-ref"); len(left) > 0 {
		t.Error("processes stay:", left)
	}
}
