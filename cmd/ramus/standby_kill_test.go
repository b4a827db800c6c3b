package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/credential"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/internal/loopback"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/remains"
)

// TestStandbyTakesOver kills a server under load, removes its data folder, and promotes its stand-by, which the next
// stand-by follows. With standby.sync nothing that was acknowledged is lost. Without it nothing is lost that was
// acknowledged before the moment whose state the stand-by shows. RAMUS_TEST=full makes 20 rounds instead of 3.
func TestStandbyTakesOver(t *testing.T) {
	rounds := 3
	if os.Getenv("RAMUS_TEST") == "full" {
		rounds = 20
	}
	w := newStandbyWorld(t)
	first := w.machine(0, false)
	w.run(w.dir, "git", "init", "-q", "-b", "main", "up")
	w.run(filepath.Join(w.dir, "up"), "git", "commit", "-q", "--allow-empty", "-m", "begin")
	w.run(w.dir, w.bin, "repo", "import", "app", filepath.Join(w.dir, "up"), "--data", first.data)
	first.start("serve")
	made, err := first.local.NewToken(t.Context(), signin.NewToken{Subject: "standby", Scopes: []string{"admin"},
		Write: []string{"refs/heads/*"}, Delete: true})
	if err != nil {
		t.Fatal(err)
	}
	w.token = made.Token
	if err := os.WriteFile(filepath.Join(w.dir, "token"), []byte(w.token), 0o600); err != nil {
		t.Fatal(err)
	}
	leader, lost := first, 0
	for round := range rounds {
		second := w.machine(round+1, round%3 != 2 && round+1 < rounds)
		second.start("standby", "--of", leader.url, "--token-file", filepath.Join(w.dir, "token"))
		leader.follow()
		load := w.load(leader, round)
		moment := time.NewTimer(rand.N(500 * time.Millisecond))
		<-moment.C
		leader.kill()
		load.stop()
		st, err := second.local.Standby(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leader.destroy()

		out := w.run(w.dir, w.bin, "promote", "--data", second.data)
		if want := fmt.Sprintf("in epoch %d\n", round+2); !strings.HasSuffix(out, want) {
			t.Fatalf("promote prints %q, want %q at its end", out, want)
		}
		second.serving()
		lost += load.check(second, leader.sync, st.At)
		w.run(w.dir, "git", "-C", filepath.Join(second.data, "repos", "app.git"), "fsck", "--strict", "--no-dangling")
		t.Logf("round %d, sync %v: %d acknowledged, %.3f s behind, %d lost so far", round, leader.sync, len(load.acks),
			st.Lag, lost)
		leader = second
	}
	w.env = append(w.env, "RAMUS_URL="+first.url+","+leader.url, "RAMUS_TOKEN="+w.token)
	if out := w.run(w.dir, w.bin, "exec", "writer", "--", "cat file"); strings.TrimSpace(out) == "" {
		t.Error("a client with both addresses gets nothing")
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

// machine is a server or a stand-by.
type machine struct {
	w         *standbyWorld
	sync      bool
	data, url string
	local     *client.Client
	cmd       *exec.Cmd
	log       lockedBuffer
}

// machine makes the n-th machine.
func (w *standbyWorld) machine(n int, sync bool) *machine {
	addr := loopback.Address(w.t)
	m := &machine{w: w, sync: sync, data: filepath.Join(w.dir, fmt.Sprint("data", n)), url: "http://" + addr}
	if err := os.MkdirAll(m.data, 0o700); err != nil {
		w.t.Fatal(err)
	}
	config := fmt.Sprintf("listen: %s\nurl: %s\nengine: sandbox\nstandby: {allow: true, keys: true, sync: %v}\n", addr,
		m.url, m.sync)
	if err := os.WriteFile(filepath.Join(m.data, "ramus.yaml"), []byte(config), 0o600); err != nil {
		w.t.Fatal(err)
	}
	m.local = client.Socket(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, m.data) })
	w.t.Cleanup(func() {
		m.local.Close()
		if m.cmd != nil {
			_ = m.cmd.Process.Signal(os.Interrupt)
			if err := m.cmd.Wait(); err != nil {
				w.t.Errorf("%s: %v", m.data, err)
			}
			w.run(w.dir, w.bin, "ps", "--data", m.data) // ends the containers that the server left
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

// follow returns when a stand-by follows the server.
func (m *machine) follow() {
	m.w.t.Helper()
	m.until("no stand-by follows it", func() bool {
		st, err := m.local.Standby(m.w.t.Context())
		return err == nil && len(st.Standbys) == 1 && !st.Standbys[0].At.IsZero()
	})
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

// ack is something that a server has acknowledged.
type ack struct {
	at   time.Time
	what string
	// there returns an error if the acknowledged change is not at a server.
	there func(m *machine) error
}

// standbyLoad is clients that change a server until one of their requests fails.
type standbyLoad struct {
	w    *standbyWorld
	work sync.WaitGroup
	end  chan struct{}

	mu   sync.Mutex // guards the fields below
	acks []ack
	who  map[string]bool // the clients that got an answer
}

// load starts clients, and returns when each of them was answered.
func (w *standbyWorld) load(m *machine, round int) *standbyLoad {
	w.t.Helper()
	l := &standbyLoad{w: w, end: make(chan struct{}), who: make(map[string]bool)}
	remote := client.New(m.url, w.token)
	clients := map[string]func(n int) (what string, there func(*machine) error, err error){
		"pusher":  l.pusher(m, "topic", 0),
		"other":   l.pusher(m, "other", 1),
		"deleter": l.deleter(m),
		"writer":  l.runner(remote, "writer", round),
		"reader":  l.runner(remote, "reader", round),
		"revoker": l.revoker(remote),
		"sealer":  l.sealer(remote, round),
	}
	for name, work := range clients {
		l.work.Go(func() {
			for n := 0; ; n++ {
				what, there, err := work(n)
				if err != nil {
					select {
					case <-l.end:
					default:
						w.t.Errorf("%s: %v", name, err)
					}
					return
				}
				l.mu.Lock()
				l.acks = append(l.acks, ack{time.Now(), what, there})
				l.who[name] = true
				l.mu.Unlock()
			}
		})
	}
	m.until("a client gets no answer", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.who) == len(clients) || w.t.Failed()
	})
	close(l.end) // from now on errors are those of a server that is gone
	return l
}

// stop returns when all clients have ended, which they do when their server is gone.
func (l *standbyLoad) stop() { l.work.Wait() }

// check returns the number of changes that the new server does not have, and fails if one is among them that it has to
// have.
func (l *standbyLoad) check(m *machine, all bool, at time.Time) (lost int) {
	l.w.t.Helper()
	for _, a := range l.acks {
		err := a.there(m)
		if err == nil {
			continue
		}
		if lost++; all || a.at.Before(at) {
			l.w.t.Errorf("%s was acknowledged %s before the state of the stand-by, and is lost: %v", a.what,
				at.Sub(a.at), err)
		}
	}
	return lost
}

// pusher pushes commits to a branch, one or two at once.
func (l *standbyLoad) pusher(m *machine, branch string, more int) func(int) (string, func(*machine) error, error) {
	dir := filepath.Join(l.w.dir, "clone-"+branch)
	if _, err := os.Stat(dir); err != nil {
		l.w.run(l.w.dir, "git", "clone", "-q", filepath.Join(l.w.dir, "up"), dir)
	}
	return func(n int) (string, func(*machine) error, error) {
		specs := "HEAD:refs/heads/" + branch
		for i := range more { // git takes pushes of several refs
			specs += fmt.Sprintf(" HEAD:refs/heads/%s-%d", branch, i)
		}
		out, err := l.w.try(dir, "sh", "-ec", fmt.Sprintf("echo %d >file; git add file; git commit -qm %d; "+
			`git -c http.extraHeader="Authorization: Bearer $0" push -q %s/app.git %s; git rev-parse HEAD`, rand.Int(), n, m.url,
			specs), l.w.token)
		commit := strings.TrimSpace(out)
		if err != nil {
			return "", nil, fmt.Errorf("push: %w\n%s", err, out)
		}
		return "the commit " + commit, func(m *machine) error {
			out, err := l.w.try(filepath.Join(m.data, "repos", "app.git"), "git", "merge-base", "--is-ancestor", commit, branch)
			if err != nil {
				return fmt.Errorf("%w %s", err, out)
			}
			return nil
		}, nil
	}
}

// deleter makes branches and deletes them.
func (l *standbyLoad) deleter(m *machine) func(int) (string, func(*machine) error, error) {
	return func(n int) (string, func(*machine) error, error) {
		name := fmt.Sprintf("refs/heads/gone-%d", rand.Int())
		out, err := l.w.try(filepath.Join(l.w.dir, "up"), "sh", "-ec", fmt.Sprintf(
			`p="git -c http.extraHeader='Authorization: Bearer $0' push -q %s/app.git"; eval $p HEAD:%s; eval $p :%s`,
			m.url, name, name), l.w.token)
		if err != nil {
			return "", nil, fmt.Errorf("push: %w\n%s", err, out)
		}
		return "the end of " + name, func(m *machine) error {
			out, err := l.w.try(filepath.Join(m.data, "repos", "app.git"), "git", "for-each-ref", name)
			if err == nil && out != "" {
				err = errors.New(out)
			}
			return err
		}, nil
	}
}

// runner runs commands for a caller. Those of writer change the branch and make artifacts.
func (l *standbyLoad) runner(c *client.Client, caller string, round int) func(int) (string, func(*machine) error, error) {
	return func(n int) (string, func(*machine) error, error) {
		const zeros = 9_000_000
		text, script := fmt.Sprintf("%d %d\n", round, n), "true"
		var sum [sha256.Size]byte
		if caller == "writer" {
			script = fmt.Sprintf("printf '%%s\\n' '%s' | tee file >/artifacts/made", strings.TrimSpace(text))
			if n%8 == 1 { // large enough for the artifact store
				script += fmt.Sprintf("; head -c %d /dev/zero >>/artifacts/made", zeros)
				sum = sha256.Sum256(append([]byte(text), make([]byte, zeros)...))
			}
		}
		res, err := c.Exec(context.Background(), caller, gateway.ExecRequest{Repo: "app",
			Command: record.Command{Shell: script}}, client.ExecOptions{})
		if err != nil {
			return "", nil, err
		}
		return "the run " + res.Run, func(m *machine) error {
			r, err := m.local.Run(context.Background(), res.Run)
			if err == nil && r.State != record.StateComplete {
				err = fmt.Errorf("it is %s", r.State)
			}
			if err != nil || caller != "writer" {
				return err
			}
			if sum != [sha256.Size]byte{} {
				_, err = os.Stat(filepath.Join(m.data, "artifacts", "sha256", hex.EncodeToString(sum[:])))
			}
			if err == nil && res.Commit != "" {
				_, err = l.w.try(filepath.Join(m.data, "repos", "app.git"), "git", "merge-base", "--is-ancestor", string(res.Commit),
					"ramus/run-writer")
			}
			return err
		}, nil
	}
}

// revoker makes tokens and revokes them.
func (l *standbyLoad) revoker(c *client.Client) func(int) (string, func(*machine) error, error) {
	return func(int) (string, func(*machine) error, error) {
		t, err := c.NewToken(context.Background(), signin.NewToken{Subject: "x", Scopes: []string{"read"}})
		if err == nil {
			err = c.RevokeToken(context.Background(), t.Grant.ID)
		}
		if err != nil {
			return "", nil, err
		}
		return "the end of a token", func(m *machine) error {
			c := client.New(m.url, t.Token)
			defer c.Close()
			_, err := c.Repos(context.Background())
			if p := (*route.Problem)(nil); errors.As(err, &p) && p.Kind == route.KindUnauthorized {
				return nil
			}
			return fmt.Errorf("the revoked token gets %w", err)
		}, nil
	}
}

// sealer stores secrets.
func (l *standbyLoad) sealer(c *client.Client, round int) func(int) (string, func(*machine) error, error) {
	return func(n int) (string, func(*machine) error, error) {
		name := fmt.Sprintf("KEY_%d_%d", round, n)
		_, err := c.SetCredentials(context.Background(), credential.NewCredentials{Credentials: []credential.NewCredential{
			{Name: name, Value: "value of " + name, Hosts: []string{"example.org"}}}})
		if err != nil {
			return "", nil, err
		}
		return "the secret " + name, func(m *machine) error {
			list, err := m.local.Credentials(context.Background(), credential.Query{})
			for _, s := range list {
				if s.Name == name {
					return nil
				}
			}
			return errors.Join(errors.New("it is not listed"), err)
		}, nil
	}
}
