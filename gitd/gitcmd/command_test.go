package gitcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
)

// TestChildEnvironment checks that git sees nothing of the server's environment and no
// configuration of others.
func TestChildEnvironment(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[ramus]\n\tfrom = home\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRepository(t)
	t.Setenv("HOME", home)
	t.Setenv("GIT_DIR", home)
	t.Setenv("GIT_CONFIG_PARAMETERS", "'ramus.from=parameters'")
	t.Setenv("RAMUS_SECRET", "secret")
	for _, kv := range (Command{Repo: r}).environ() {
		if strings.Contains(kv, "secret") || strings.HasPrefix(kv, "HOME="+home) {
			t.Error(kv)
		}
	}
	if out, err := output(t, r, "config", "--get", "ramus.from"); ExitCode(err) != 1 {
		t.Errorf("%q %v", out, err)
	}
	out, err := new(Runner).Output(t.Context(), Command{Repo: r, Config: []string{"ramus.a=b=c", "core.fsync=none"},
		Args: []string{"config", "--get", "ramus.a"}})
	if string(out) != "b=c\n" || err != nil {
		t.Errorf("%q %v", out, err)
	}
	for key, want := range map[string]string{"core.fsync": "all", "core.hookspath": "/dev/null",
		"protocol.allow": "never", "gc.auto": "0"} {
		if out, err := output(t, r, "config", "--get", key); string(out) != want+"\n" || err != nil {
			t.Errorf("%s = %q, %v", key, out, err)
		}
	}
}

func TestChildErrors(t *testing.T) {
	r := newRepository(t)
	_, err := output(t, r, "cat-file", "blob", strings.Repeat("1", 40))
	if ExitCode(err) != 128 || !strings.Contains(err.Error(), "git cat-file: exit status 128: ") {
		t.Error(err)
	}
	if ExitCode(nil) != -1 || ExitCode(io.EOF) != -1 {
		t.Error("an exit code without a child")
	}
	tail := &Tail{Max: 10}
	io.WriteString(tail, strings.Repeat("x", 100)+"\x1b[1m\nend\r\n\xff")
	if got := tail.String(); len(got) > 20 || strings.ContainsAny(got, "\x1b\n\r") || !strings.Contains(got, "end") {
		t.Errorf("%q", got)
	}
}

// TestChildEnds checks that a child ends with its context and has its limits.
func TestChildEnds(t *testing.T) {
	r := newRepository(t)
	s := new(Runner)
	ctx, cancel := context.WithCancelCause(t.Context())
	block, hold, err := os.Pipe() // nothing is ever written to it
	if err != nil {
		t.Fatal(err)
	}
	defer block.Close()
	defer hold.Close()
	reason := errors.New("no longer wanted")
	p, err := s.Start(ctx, Command{Repo: r, Args: []string{"cat-file", "--batch"}, In: block})
	if err != nil {
		t.Fatal(err)
	}
	cancel(reason)
	if err := p.Wait(); !errors.Is(err, reason) {
		t.Error(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	p, err = s.Start(t.Context(), Command{Repo: r, Args: []string{"cat-file", "--batch"}, In: read,
		CPU: 1500 * time.Millisecond, Memory: 1 << 30, File: 12345})
	if err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.cmd.Process.Pid))
	if err != nil {
		t.Error(err)
	}
	have := strings.Join(strings.Fields(string(limits)), " ")
	for _, want := range []string{"Max cpu time 2 2 seconds", "Max address space 1073741824 1073741824 bytes",
		"Max file size 12345 12345 bytes", "Max core file size 0 0 bytes"} {
		if !strings.Contains(have, want) {
			t.Errorf("no %q in\n%s", want, limits)
		}
	}
	write.Close()
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

// newRepository returns the folder of a new bare repository.
func newRepository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	gittest.Run(t, dir, "init", "-q", "--bare")
	return dir
}

// output runs git in a repository.
func output(t *testing.T, dir string, args ...string) ([]byte, error) {
	t.Helper()
	return new(Runner).Output(t.Context(), Command{Repo: dir, Args: args})
}

// TestGroup checks that Close ends all work, waits for it and admits no more.
func TestGroup(t *testing.T) {
	var g Group
	ctx, done, err := g.Enter(t.Context())
	if err != nil || ctx.Err() != nil || g.Err() != nil {
		t.Fatal(err, ctx.Err(), g.Err())
	}
	other, cancel := context.WithCancel(t.Context())
	second, doneSecond, err := g.Enter(other)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-second.Done()
	doneSecond()
	if ctx.Err() != nil {
		t.Error("the end of one ended another")
	}
	closed := make(chan struct{})
	go func() {
		g.Close()
		close(closed)
	}()
	<-ctx.Done()
	if cause := context.Cause(ctx); cause != ErrClosed {
		t.Error(cause)
	}
	select {
	case <-closed:
		t.Error("Close did not wait")
	default:
	}
	done()
	<-closed
	if _, _, err := g.Enter(t.Context()); !errors.Is(err, ErrClosed) || !errors.Is(g.Err(), ErrClosed) {
		t.Error(err, g.Err())
	}
	if _, _, err := new(Group).Enter(other); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	g.Close()
}

// TestRunner checks a runner's counters, and that Close ends its children.
func TestRunner(t *testing.T) {
	var r Runner
	dir := newRepository(t)
	block, hold, err := os.Pipe() // nothing is ever written to it
	if err != nil {
		t.Fatal(err)
	}
	defer block.Close()
	defer hold.Close()
	p, err := r.Start(t.Context(), Command{Repo: dir, Args: []string{"cat-file", "--batch"}, In: block})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- p.Wait() }()
	r.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) || ExitCode(err) != -1 {
		t.Error(err)
	}
	if _, err := r.Output(t.Context(), Command{Repo: dir, Args: []string{"version"}}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if n := r.Started(); n != 1 {
		t.Errorf("%d children were started", n)
	}
}

// TestBuffer checks the exact limit of a buffer.
func TestBuffer(t *testing.T) {
	full := 0
	b := &Buffer{Max: 5, Full: func() { full++ }}
	if n, err := b.Write([]byte("12345")); n != 5 || err != nil || full != 0 {
		t.Error(n, err, full)
	}
	if n, err := b.Write([]byte("6")); n != 0 || !errors.Is(err, object.ErrTooLarge) || full != 1 || b.buf.String() != "12345" {
		t.Error(n, err, full, b.buf.String())
	}
}
