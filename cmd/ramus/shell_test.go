package main

import (
	"bytes"
	"cmp"
	"fmt"

	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/remains"
)

// typist is a person at `ramus shell`, with a server that is killed.
type typist struct {
	t       *testing.T
	binary  string
	dir     string
	env     []string
	listen  string // of the server; empty for any port
	server  *exec.Cmd
	serving chan struct{}
	shell   *exec.Cmd
	tty     *os.File

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

// prepare gives the person a data folder with the repository app and the text of a configuration. The container of a
// caller is removed at the end of the test.
func (p *typist) prepare(caller, config string) {
	p.t.Helper()
	if err := (&sandbox.Engine{Dir: p.t.TempDir(), Runner: p.binary}).Check(p.t.Context()); err != nil {
		p.t.Skipf("cannot run here: %v", err)
	}
	data := filepath.Join(p.dir, "data")
	p.env = append([]string{"PATH=" + filepath.Dir(p.binary) + ":" + os.Getenv("PATH"), "HOME=" + p.dir,
		"RAMUS_DATA=" + data,
		"TERM=xterm", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org", "TMPDIR=" + os.TempDir()}, testWay()...)
	p.t.Cleanup(func() {
		p.kill(syscall.SIGKILL)
		cmd := exec.Command(p.binary, "stop", caller)
		cmd.Dir, cmd.Env = p.dir, p.env
		_ = cmd.Run() // removes the container, if it is there
		remains.Check(p.t, data)
	})
	if config != "" {
		if err := os.MkdirAll(data, 0o755); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, "ramus.yaml"), []byte(config), 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	p.run("git", "init", "-q", "-b", "main", "up")
	p.run("git", "-C", "up", "commit", "-q", "--allow-empty", "-m", "begin")
	p.run(p.binary, "repo", "import", "app", "up")
}

func (p *typist) run(args ...string) string {
	p.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = p.dir, p.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// serve starts the server, and returns when it serves.
func (p *typist) serve() {
	p.t.Helper()
	p.server = exec.Command(p.binary, "serve", "--listen", cmp.Or(p.listen, "127.0.0.1:0"))
	p.server.Dir, p.server.Env = p.dir, p.env
	stderr, err := p.server.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.server.Start(); err != nil {
		p.t.Fatal(err)
	}
	up, over := make(chan struct{}), make(chan struct{})
	p.serving = over
	go func() {
		defer close(over)
		seen := false
		var log strings.Builder
		buf := make([]byte, 4<<10)
		for {
			n, err := stderr.Read(buf)
			log.Write(buf[:n])
			if !seen && strings.Contains(log.String(), `msg="serving HTTP"`) {
				seen = true
				close(up)
			}
			if err != nil {
				if strings.Contains(log.String(), "panic") {
					p.t.Errorf("the server's log:\n%s", log.String())
				}
				return
			}
		}
	}()
	select {
	case <-up:
	case <-time.After(time.Minute):
		p.t.Fatal("the server does not serve")
	}
}

func (p *typist) kill(sig syscall.Signal) {
	if p.server == nil {
		return
	}
	_ = p.server.Process.Signal(sig)
	<-p.serving
	_ = p.server.Wait()
	p.server = nil
}

// printed returns everything that the terminal has shown.
func (p *typist) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func (p *typist) until(what string, ok func(string) bool) {
	p.t.Helper()
	late := time.Now().Add(time.Minute)
	for !ok(p.printed()) {
		if time.Now().After(late) {
			p.t.Fatalf("%s:\n%q", what, p.printed())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (p *typist) typed(text string) {
	p.t.Helper()
	if _, err := p.tty.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

var connecting = regexp.MustCompile("\x1b\\]2;ramus: connecting again\x07")

// TestShellKilled kills the server again and again under an open terminal. No byte of output is lost or doubled, and every
// command that was typed is a commit. RAMUS_CRASHES is the number of kills.
func TestShellKilled(t *testing.T) {
	t.Parallel()
	kills := 3
	if n, err := strconv.Atoi(os.Getenv("RAMUS_CRASHES")); err == nil && n > 0 {
		kills = n
	}
	p := &typist{t: t, dir: t.TempDir()}
	bin := t.TempDir()
	for dir := bin; dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := programs.Into(bin, "cmd/ramus"); err != nil {
		t.Fatal(err)
	}
	p.binary = filepath.Join(bin, "ramus")
	p.prepare("killed", "")
	p.serve()

	p.shell = exec.Command(p.binary, "shell", "killed", "--repo", "app")
	p.shell.Dir, p.shell.Env = p.dir, p.env
	var err error
	if p.tty, err = pty.StartWithSize(p.shell, &pty.Winsize{Rows: 30, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	defer p.tty.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4<<10)
		for {
			n, err := p.tty.Read(buf)
			p.mu.Lock()
			p.out.Write(buf[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	const prompt = "\x1b]633;B\x07"
	p.until("the first prompt", func(out string) bool { return strings.Contains(out, prompt) })
	for n := range kills {
		// Its output goes on while there is no server.
		p.typed(fmt.Sprintf("echo line >>log; for i in $(seq 2000); do echo \"$i 字🙂 %d\"; done; echo did-$((%d))\r", n, n))
		p.until("the command is not at work", func(out string) bool {
			return strings.Contains(out, fmt.Sprintf("1 字🙂 %d\r\n", n))
		})
		time.Sleep(time.Duration(rnd.IntN(40)) * time.Millisecond)
		p.kill(syscall.SIGKILL)
		p.serve()
		p.until("the prompt after a kill", func(out string) bool {
			_, after, ok := strings.Cut(out, fmt.Sprintf("did-%d\r\n", n))
			return ok && strings.Contains(after, prompt)
		})
	}
	p.typed("exit 5\r")
	<-read
	if err := p.shell.Wait(); p.shell.ProcessState.ExitCode() != 5 {
		t.Errorf("ramus shell ended with %v", err)
	}
	repo := filepath.Join(p.dir, "data", "repos", "app.git")
	commits := strings.Split(p.run("git", "-C", repo, "log",
		"--format=%s|%(trailers:key=Ramus-Exit,valueonly,separator=%x2C)", "main..ramus/run-killed"), "\n")
	if len(commits) != kills {
		t.Errorf("%d commits for %d commands:\n%s", len(commits), kills, strings.Join(commits, "\n"))
	}
	if log := p.run("git", "-C", repo, "show", "ramus/run-killed:log"); strings.Count(log, "line") != kills {
		t.Errorf("the log has\n%s", log)
	}

	// The record of the run has every byte that the program printed, and the terminal showed just these.
	ref := p.run("git", "-C", repo, "for-each-ref", "--format=%(refname)", "refs/ramus/runs/run-killed")
	var kept string
	for name := range strings.Lines(p.run("git", "-C", repo, "ls-tree", "--name-only", ref, "output/")) {
		if name = strings.TrimSpace(name); strings.HasSuffix(name, "-shell_1.stdout") || strings.HasSuffix(name, "-shell-1.stdout") {
			kept = name
		}
	}
	show := exec.Command("git", "-C", repo, "show", ref+":"+kept)
	want, err := show.Output()
	if err != nil {
		t.Fatalf("%s %q: %v", ref, kept, err)
	}
	got := connecting.ReplaceAllString(p.printed(), "")
	if got != string(want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Errorf("%d bytes were shown, %d printed; they differ at %d: %.100q, %.100q", len(got), len(want), at,
			got[at:], want[at:])
	}
}
