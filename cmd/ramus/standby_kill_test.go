package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/credential"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/signin"
)

// TestStandbyTakesOver kills a server under load, removes its data folder, and promotes its stand-by, which the next
// stand-by follows. With standby.sync nothing that was acknowledged is lost. Without it nothing is lost that was
// acknowledged before the moment whose state the stand-by shows. RAMUS_TEST=full makes 20 rounds instead of 3.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	rounds := 3
	if os.Getenv("RAMUS_TEST") == "full" {
		rounds = 20
	}
	w := newStandbyWorld(t)
	first := w.first()
	leader, lost := first, 0
	for round := range rounds {
		second := w.machine(round+1, round%3 != 2 && round+1 < rounds)
		second.followServer(leader, 1)
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
