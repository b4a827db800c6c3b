package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
	"github.com/ramus-dev/ramus/internal/remains"
	"github.com/ramus-dev/ramus/internal/webbuild/bundle"
)

// TestTerminalInBrowser has a person sign in with Chromium, open a terminal, and type three commands, which are three
// commits. The server is killed and starts again, and the page goes on by itself. A reload shows the same screen.
func TestTerminalInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	p := &typist{t: t, dir: t.TempDir(), listen: freeAddress(t)}
	browser := webtest.Start(t)
	p.binary = buildWithPages(t)
	if err := (&sandbox.Engine{Dir: t.TempDir(), Runner: p.binary}).Check(t.Context()); err != nil {
		t.Skipf("cannot run here: %v", err)
	}
	data := filepath.Join(p.dir, "data")
	p.env = append([]string{"PATH=" + filepath.Dir(p.binary) + ":" + os.Getenv("PATH"), "HOME=" + p.dir, "RAMUS_DATA=" + data,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada",
		"GIT_COMMITTER_EMAIL=ada@example.org", "TMPDIR=" + os.TempDir()}, testWay()...)
	t.Cleanup(func() {
		p.kill(syscall.SIGKILL)
		cmd := exec.Command(p.binary, "stop", "typed")
		cmd.Dir, cmd.Env = p.dir, p.env
		_ = cmd.Run() // removes the container, if it is there
		remains.Check(t, data)
	})
	p.run("git", "init", "-q", "-b", "main", "up")
	p.run("git", "-C", "up", "commit", "-q", "--allow-empty", "-m", "begin")
	p.run(p.binary, "repo", "import", "app", "up")
	p.serve()
	p.run(p.binary, "exec", "typed", "--repo", "app", "--", "true")
	repo := filepath.Join(data, "repos", "app.git")
	commits := func() []string {
		return strings.Fields(p.run("git", "-C", repo, "rev-list", "--glob=refs/heads/ramus/run-typed*", "--not", "main"))
	}
	committed := func(n int) {
		t.Helper()
		for late := time.Now().Add(time.Minute); len(commits()) != n; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("%d commits, want %d", len(commits()), n)
			}
		}
	}

	tab := browser.Open(nil)
	tab.Look(1440, 900, "dark")
	tab.Go(regexp.MustCompile(`http\S+`).FindString(p.run(p.binary, "open")))
	const shell = "/workspaces/run-typed?pane=shell"
	tab.Go("http://" + p.listen + shell)
	const term = `document.querySelector('r-term')`
	tab.Wait(term + `.dataset.state === 'none' && !document.querySelector('[data-part=open]').disabled`)
	tab.Eval(`document.querySelector('[data-part=open]').click()`, nil)
	prompt := func(n int) { // waits for the prompt after n commands
		t.Helper()
		tab.Wait(fmt.Sprintf(`%s.dataset.state === 'open' && (%s.text().match(/typed:\/work\$/g) || []).length > %d`, term, term, n))
	}
	prompt(0)
	tab.Wait(`document.activeElement.matches('.xterm-helper-textarea')`)
	for n, command := range []string{"echo one > a", "echo '字🙂' | tee b", "mkdir d && echo three > d/c"} {
		tab.Type(command + "\r")
		committed(n + 1)
		prompt(n + 1)
	}
	tab.Wait(`document.querySelector('[data-part=status]').textContent.includes('exit 0')`)

	p.kill(syscall.SIGKILL)
	tab.Wait(term + `.dataset.state === 'away' && document.querySelector('[data-part=words]').textContent.includes('No connection')`)
	tab.Type("echo lost > lost\r") // is not sent later
	p.serve()
	prompt(3)
	tab.Type("echo four > e\r")
	committed(4)
	prompt(4)
	var before, after string
	tab.Eval(term+`.text()`, &before)
	if strings.Contains(before, "lost") || strings.Count(before, "echo one") != 1 {
		t.Errorf("the screen is\n%s", before)
	}
	if dir := os.Getenv("RAMUS_SHOTS"); dir != "" {
		tab.Shot(filepath.Join(dir, "terminal-1440-dark.png"), false)
	}
	if faults := tab.Faults(); len(faults) > 0 {
		t.Error(faults)
	}

	tab.Look(390, 844, "light")
	tab.Go("http://" + p.listen + shell)
	prompt(4)
	tab.Eval(term+`.text()`, &after)
	if !strings.Contains(after, "echo '字🙂' | tee b") {
		t.Errorf("after a reload the screen is\n%s", after)
	}
	tab.Wait(`document.querySelector('.term-keys').getClientRects().length`)
	if dir := os.Getenv("RAMUS_SHOTS"); dir != "" {
		tab.Shot(filepath.Join(dir, "terminal-390-light.png"), false)
	}
	if faults := tab.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
	if got := p.run("git", "-C", repo, "ls-tree", "-r", "--name-only", "ramus/run-typed"); got != "a\nb\nd/c\ne" {
		t.Errorf("the branch has %q", got)
	}
}

// freeAddress returns an address of this machine at which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// buildWithPages builds the program with the scripts of its pages. The checkout stays as it is.
func buildWithPages(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out, err := bundle.Build(filepath.Join(root, "gateway", "web"))
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Manifest.Missing) > 0 {
		if os.Getenv("CI") == "true" {
			t.Fatalf("not built: %v", out.Manifest.Missing)
		}
		t.Skip("cannot run here: `npm ci` in gateway/web brings xterm")
	}
	dir := t.TempDir()
	for up := dir; up != os.TempDir() && len(up) > 1; up = filepath.Dir(up) { // containers run as another user
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	old, _ := filepath.Glob(filepath.Join(root, "gateway", "web", "dist", "*"))
	for _, name := range old {
		overlay.Replace[name] = "" // it does not exist
	}
	for name, b := range out.Files {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(root, "gateway", "web", "dist", name)] = file
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "ramus")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "ramusweb", "-overlay", list, "-o", program,
		"github.com/ramus-dev/ramus/cmd/ramus")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return program
}
