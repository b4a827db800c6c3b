package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/internal/loopback"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/remains"
)

// TestStandbyFences promotes a stand-by while its server works, and then two stand-bys at once. The servers before refuse
// all work, also after a restart. Of the two one stays.
func TestStandbyFences(t *testing.T) {
	t.Parallel()
	w := newStandbyWorld(t)
	a, b, c, d := w.first(), w.machine(1, false), w.machine(2, false), w.machine(3, false)
	b.followServer(a, 1)

	// Of two who promote one stand-by, one does so.
	if n := w.promote(b, b); n != 1 {
		t.Errorf("%d of two promoted a stand-by", n)
	}
	b.serving()
	a.fence("fenced 2")
	a.refuses("2")
	a.kill()
	a.start("serve")
	a.refuses("2")

	// The stand-by that was promoted is a server again when it is started as it was before.
	b.kill()
	b.start("standby", "--of", a.url, "--token-file", filepath.Join(w.dir, "token"))
	b.serving()
	b.until("it is not the server of its epoch", func() bool { return b.role() == "server 2" })

	// The one that comes back asks those that followed it.
	c.followServer(b, 1)
	d.followServer(b, 2)
	b.kill()
	if n := w.promote(c, d); n != 2 {
		t.Errorf("%d of two stand-bys were promoted", n)
	}
	c.serving()
	d.serving()
	b.start("serve")
	b.fence("fenced 3")
	c.until("both are servers", func() bool { return (c.role() == "fenced 3") != (d.role() == "fenced 3") })
	winner, other := c, d
	if c.role() == "fenced 3" {
		winner, other = d, c
	}
	other.fence("fenced 3")
	if got := winner.role(); got != "server 3" {
		t.Errorf("the other is %s", got)
	}
	w.env = append(w.env, "RAMUS_URL="+strings.Join([]string{a.url, b.url, other.url, winner.url}, ","), "RAMUS_TOKEN="+w.token)
	if out := w.run(w.dir, w.bin, "exec", "writer", "--repo", "app", "--", "echo works"); out != "works\n" {
		t.Errorf("a client with all addresses gets %q", out)
	}
}

// TestStandbyPauses stops a stand-by for a while. With standby.sync the work of its server waits, and goes on with it.
func TestStandbyPauses(t *testing.T) {
	t.Parallel()
	w := newStandbyWorld(t)
	a, b := w.first(), w.machine(1, false)
	b.followServer(a, 1)
	a.kill()
	config := filepath.Join(a.data, "ramus.yaml")
	text, err := os.ReadFile(config)
	if err == nil {
		err = os.WriteFile(config, []byte(strings.Replace(string(text), "sync: false", "sync: true, wait: 2m", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.start("serve")
	remote := client.New(a.url, w.token)
	defer remote.Close()
	var done atomic.Int64
	var working sync.WaitGroup
	for i := range 3 {
		working.Go(func() {
			for range 5 {
				_, err := remote.Exec(t.Context(), fmt.Sprint("caller-", i), gateway.ExecRequest{Repo: "app",
					Command: record.Command{Shell: "date +%N >>file"}}, client.ExecOptions{})
				if err != nil {
					t.Error(err)
				}
				done.Add(1)
			}
		})
	}
	a.until("it does no work", func() bool { return done.Load() > 2 })
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	a.until("nothing waits", func() bool {
		st, err := a.local.Standby(t.Context())
		return err == nil && st.Standbys[0].Pending > 0 || done.Load() == 15
	})
	waited := done.Load()
	if err := b.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	working.Wait()
	t.Logf("%d of 15 commands had ended when the stand-by paused", waited)
	w.run(w.dir, "git", "-C", filepath.Join(a.data, "repos", "app.git"), "fsck", "--strict", "--no-dangling")
}

// promote promotes stand-bys at once, and returns how many were.
func (w *standbyWorld) promote(list ...*machine) (n int) {
	w.t.Helper()
	var work sync.WaitGroup
	ok := make([]bool, len(list))
	for i, m := range list {
		work.Go(func() {
			out, err := w.try(w.dir, w.bin, "promote", "--data", m.data)
			if ok[i] = err == nil; !ok[i] {
				w.t.Logf("promote: %v %s", err, out)
			}
		})
	}
	work.Wait()
	for _, is := range ok {
		if is {
			n++
		}
	}
	return n
}

// fence returns when another server took the place of the machine.
func (m *machine) fence(role string) {
	m.w.t.Helper()
	m.until("it is not fenced", func() bool { return m.role() == role })
	m.fenced = true
}

// refuses tests that the machine refuses all work because of an epoch.
func (m *machine) refuses(epoch string) {
	m.w.t.Helper()
	text := "another one began epoch " + epoch
	for what, script := range map[string]string{
		"push":  `git -C "$1"/up -c http.extraHeader="Authorization: Bearer $2" push "$3"/app.git HEAD:refs/heads/x`,
		"exec":  `RAMUS_URL="$3" RAMUS_TOKEN="$2" "$4" exec x --repo app -- true`,
		"run":   `echo '{id: x, repo: {id: app}, nodes: [{id: a, run: true}]}' > "$1"/x.yaml; RAMUS_DATA="$5" "$4" run "$1"/x.yaml`,
		"token": `RAMUS_DATA="$5" "$4" token create --subject x --repo app --scope read`,
		"mcp":   `curl -sS "$3"/mcp -H "Authorization: Bearer $2" -d '{}'; false`,
		"ssh": `GIT_SSH_COMMAND="ssh -F /dev/null -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i $1/key" ` +
			`git -C "$1"/up push "ssh://git@$6/app.git" HEAD:refs/heads/x`,
		"chat": `curl -sS "$3"/slack/events -d '{}'; false`,
	} {
		out, err := m.w.try(m.w.dir, "sh", "-c", script, "sh", m.w.dir, m.w.token, m.url, m.w.bin, m.data,
			m.ssh)
		if err == nil || !strings.Contains(out, text) {
			m.w.t.Errorf("%s at a fenced server: %v\n%s", what, err, out)
		}
	}
}

// standbyWorld has machines, each with a data folder.
type standbyWorld struct {
	t        *testing.T
	dir, bin string
	env      []string
	token    string
}

func newStandbyWorld(t *testing.T) *standbyWorld {
	w := &standbyWorld{t: t, dir: t.TempDir()}
	if err := programs.Into(filepath.Join(w.dir, "bin"), "cmd/ramus"); err != nil {
		t.Fatal(err)
	}
	w.bin = filepath.Join(w.dir, "bin", "ramus")
	engine := &sandbox.Engine{Dir: t.TempDir(), Runner: w.bin}
	if err := engine.Check(t.Context()); err != nil {
		t.Skipf("cannot run here: sandboxes: %v", err)
	}
	t.Cleanup(func() { remains.Check(t, w.dir) })
	w.env = append(os.Environ(), append(testWay(), "HOME="+w.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada",
		"GIT_COMMITTER_EMAIL=ada@example.org")...)
	return w
}

func (w *standbyWorld) run(dir, name string, args ...string) string {
	w.t.Helper()
	out, err := w.try(dir, name, args...)
	if err != nil {
		w.t.Fatalf("%s %q: %v\n%s", filepath.Base(name), args, err, out)
	}
	return out
}

func (w *standbyWorld) try(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, w.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// first starts a server with a repository.
func (w *standbyWorld) first() *machine {
	w.t.Helper()
	m := w.machine(0, false)
	w.run(w.dir, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key")
	w.run(w.dir, "git", "init", "-q", "-b", "main", "up")
	w.run(filepath.Join(w.dir, "up"), "git", "commit", "-q", "--allow-empty", "-m", "begin")
	w.run(w.dir, w.bin, "repo", "import", "app", filepath.Join(w.dir, "up"), "--data", m.data)
	m.start("serve")
	made, err := m.local.NewToken(w.t.Context(), signin.NewToken{Subject: "standby", Scopes: []string{"admin"},
		Write: []string{"refs/heads/*"}, Delete: true})
	if err != nil {
		w.t.Fatal(err)
	}
	w.token = made.Token
	if err := os.WriteFile(filepath.Join(w.dir, "token"), []byte(w.token), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return m
}

// machine is a server or a stand-by.
type machine struct {
	w         *standbyWorld
	sync      bool
	fenced    bool // another one took its place
	data, url string
	ssh       string // address
	local     *client.Client
	cmd       *exec.Cmd
	log       lockedBuffer
}

// machine makes the n-th machine.
func (w *standbyWorld) machine(n int, sync bool) *machine {
	addr := loopback.Address(w.t)
	m := &machine{w: w, sync: sync, data: filepath.Join(w.dir, fmt.Sprint("data", n)), url: "http://" + addr,
		ssh: loopback.Address(w.t)}
	if err := os.MkdirAll(m.data, 0o700); err != nil {
		w.t.Fatal(err)
	}
	config := fmt.Sprintf("listen: %s\nssh_listen: %s\nurl: %s\nengine: sandbox\nstandby: {allow: true, keys: true, sync: %v}\n", addr,
		m.ssh, m.url, m.sync)
	if err := os.WriteFile(filepath.Join(m.data, "ramus.yaml"), []byte(config), 0o600); err != nil {
		w.t.Fatal(err)
	}
	m.local = client.Socket(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, m.data) })
	w.t.Cleanup(func() {
		m.local.Close()
		if m.cmd != nil {
			_ = m.cmd.Process.Signal(os.Interrupt)
			if err := m.cmd.Wait(); (err != nil) != m.fenced {
				w.t.Errorf("%s ends with %v", m.data, err)
			}
			if _, err := w.try(w.dir, w.bin, "ps", "--data", m.data); err != nil { // ends the containers that the server left
				remains.KillContainers(m.data)
			}
		}
		if w.t.Failed() {
			w.t.Logf("the log of %s:\n%s", m.data, m.log.text())
		}
	})
	return m
}

// start starts the machine's process, and returns when it answers.
func (m *machine) start(args ...string) {
	m.w.t.Helper()
	m.cmd = exec.Command(m.w.bin, append(args, "--data", m.data)...)
	m.cmd.Env, m.cmd.Stderr = m.w.env, &m.log
	if err := m.cmd.Start(); err != nil {
		m.w.t.Fatal(err)
	}
	m.until("it does not answer", func() bool {
		_, err := m.local.Standby(m.w.t.Context())
		return err == nil
	})
}

func (m *machine) until(what string, done func() bool) {
	m.w.t.Helper()
	for until := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			m.w.t.Fatalf("%s: %s", m.data, what)
		}
	}
}

// followServer starts a stand-by, and returns when n stand-bys follow the server.
func (m *machine) followServer(leader *machine, n int) {
	m.w.t.Helper()
	m.start("standby", "--of", leader.url, "--token-file", filepath.Join(m.w.dir, "token"))
	leader.until("no stand-by follows it", func() bool {
		st, err := leader.local.Standby(m.w.t.Context())
		here := 0
		for _, s := range st.Standbys {
			if !s.At.IsZero() {
				here++
			}
		}
		return err == nil && here == n
	})
}

// role returns the role of the machine, and the number of its epoch.
func (m *machine) role() string {
	c := client.New(m.url, "")
	defer c.Close()
	h, err := c.Health(m.w.t.Context())
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %d", h.Role, h.Epoch)
}

// serving returns when a promoted stand-by serves.
func (m *machine) serving() {
	m.w.t.Helper()
	m.until("it does not serve", func() bool {
		c := client.New(m.url, "")
		defer c.Close()
		h, err := c.Health(m.w.t.Context())
		return err == nil && h.Role == "server"
	})
}

func (m *machine) kill() {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait() // it was killed
	m.cmd = nil
}

// destroy removes all of the machine that is left.
func (m *machine) destroy() {
	m.w.t.Helper()
	remains.KillContainers(m.data)
	m.until("its folder stays", func() bool { return os.RemoveAll(m.data) == nil })
}
