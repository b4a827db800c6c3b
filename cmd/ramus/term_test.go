package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/web/webtest"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/webbuild/bundle"
)

// desk is a person with Chromium, at the page of a workspace.
type desk struct {
	*typist
	tab    *webtest.Page
	repo   string
	cable  *cable
	typedN int // commands that were typed at the prompt
	wrote  int // those of them that changed a file, so that they are commits
	seen   int // those of them that are no longer on the screen
}

const (
	shellPath = "/workspaces/run-typed?pane=shell"
	// rterm is the terminals of the page, and xterm the screen that is shown.
	rterm = `document.querySelector('r-term')`
	xterm = rterm + `.active.screen.term`
)

// sit starts a server and Chromium, signs in, and shows the page of a workspace.
func sit(t *testing.T) *desk {
	t.Helper()
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	d := &desk{typist: &typist{t: t, dir: t.TempDir(), listen: freeAddress(t)}}
	browser := webtest.Start(t)
	d.binary = buildWithPages(t)
	d.prepare("typed", "")
	d.serve()
	d.run(d.binary, "exec", "typed", "--repo", "app", "--", "true")
	d.repo = filepath.Join(d.dir, "data", "repos", "app.git")
	d.cable = lay(t, d.listen)
	d.tab = browser.Open(nil)
	d.tab.Look(1440, 900, "dark")
	link := regexp.MustCompile(`http\S+`).FindString(d.run(d.binary, "open"))
	d.tab.Go(strings.Replace(link, d.listen, d.cable.address, 1))
	d.tab.Go("http://" + d.cable.address + shellPath)
	return d
}

// open opens a terminal.
func (d *desk) open() {
	d.t.Helper()
	d.tab.Wait(rterm + `.dataset.state === 'none' && !document.querySelector('[data-part=open]').disabled`)
	d.shot("no-terminal")
	d.tab.Eval(`document.querySelector('[data-part=open]').click()`, nil)
	d.prompt(0)
	d.tab.Wait(`document.activeElement.matches('.xterm-helper-textarea')`)
}

// prompt waits for the prompt after n commands.
func (d *desk) prompt(n int) {
	d.t.Helper()
	d.tab.Wait(fmt.Sprintf(`%s.dataset.state === 'open' && (%s.text().match(/typed:\/work\$/g) || []).length > %d`, rterm, rterm, n-d.seen))
}

// command types a command that changes files, and waits for its commit and for the next prompt.
func (d *desk) command(command string) {
	d.t.Helper()
	d.tab.Type(command + "\r")
	d.done(true)
}

// done waits for the end of the command that was typed last. If it changed files, it is a commit.
func (d *desk) done(changed bool) {
	d.t.Helper()
	d.typedN++
	d.prompt(d.typedN)
	if changed {
		d.wrote++
		d.committed()
	}
}

// commits returns the number of commits of the workspace.
func (d *desk) commits() int {
	d.t.Helper()
	n, err := strconv.Atoi(d.git("rev-list", "--count", "--glob=refs/heads/ramus/run-typed*", "--not", "main"))
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

func (d *desk) git(args ...string) string {
	d.t.Helper()
	return d.typist.run(append([]string{"git", "-C", d.repo}, args...)...)
}

// committed waits until every command that changed files is a commit.
func (d *desk) committed() {
	d.t.Helper()
	for late := time.Now().Add(time.Minute); d.commits() != d.wrote; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(late) {
			d.t.Fatalf("%d commits, want %d", d.commits(), d.wrote)
		}
	}
}

// text returns the text of the terminal.
func (d *desk) text() string {
	d.t.Helper()
	var s string
	d.tab.Eval(rterm+`.text()`, &s)
	return s
}

// shot writes a picture, if RAMUS_SHOTS is set.
func (d *desk) shot(name string) {
	d.t.Helper()
	if dir := os.Getenv("RAMUS_SHOTS"); dir != "" {
		d.tab.Shot(filepath.Join(dir, "terminal-"+name+".png"), false)
	}
}

// faultless fails if a script failed or the policy was violated.
func (d *desk) faultless() {
	d.t.Helper()
	if faults := d.tab.Faults(); len(faults) > 0 {
		d.t.Error(faults)
	}
}

// TestTerminalInBrowser has a person sign in with Chromium, open a terminal, and type three commands, which are three
// commits. The server is killed and starts again, and the page goes on by itself. A reload shows the same screen.
func TestTerminalInBrowser(t *testing.T) {
	t.Parallel()
	d := sit(t)
	d.open()
	for _, command := range []string{"echo one > a", "echo '字🙂' | tee b", "mkdir d && echo three > d/c"} {
		d.command(command)
	}
	d.tab.Wait(`document.querySelector('[data-part=status]').textContent.includes('exit 0')`)

	d.kill(syscall.SIGKILL)
	d.tab.Wait(rterm + `.dataset.state === 'away' && document.querySelector('[data-part=words]').textContent.includes('No connection')`)
	d.tab.Type("echo lost > lost\r") // is not sent later
	d.shot("away")
	d.serve()
	d.prompt(3)
	d.command("echo four > e")
	if before := d.text(); strings.Contains(before, "lost") || strings.Count(before, "echo one") != 1 {
		t.Errorf("the screen is\n%s", before)
	}
	d.shot("1440-dark")
	d.faultless()

	d.tab.Look(390, 844, "light")
	d.tab.Go("http://" + d.cable.address + shellPath)
	d.prompt(4)
	if after := d.text(); !strings.Contains(after, "echo '字🙂' | tee b") {
		t.Errorf("after a reload the screen is\n%s", after)
	}
	d.tab.Wait(`document.querySelector('.term-keys').getClientRects().length`)
	d.shot("390-light")
	d.faultless()
	if got := d.git("ls-tree", "-r", "--name-only", "ramus/run-typed"); got != "a\nb\nd/c\ne" {
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
	if err := programs.Build(program, "github.com/ramus-dev/ramus/cmd/ramus", "-tags", "ramusweb", "-overlay", list); err != nil {
		t.Fatal(err)
	}
	return program
}
