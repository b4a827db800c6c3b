package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/remains"
	"github.com/ramus-dev/ramus/internal/standin/leasetest"
)

// replicaWorld is an installation of several servers, and the leases of a stand-in of a cluster.
type replicaWorld struct {
	t          *testing.T
	dir, bin   string
	leases     *leasetest.Server
	kubeconfig string
	env        []string // of all programs
	procs      map[string]*replicaServer
	token      string // of an administrator
}

// replicaServer is a process of one replica.
type replicaServer struct {
	cmd       *exec.Cmd
	logged    chan struct{}
	log       lockedBuffer
	url, ssh  string
	addresses chan string
}

func newReplicaWorld(t *testing.T) *replicaWorld {
	t.Helper()
	w := &replicaWorld{t: t, dir: t.TempDir(), bin: t.TempDir(), procs: map[string]*replicaServer{}}
	for dir := w.bin; dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := programs.Into(w.bin, "cmd/ramus"); err != nil {
		t.Fatal(err)
	}
	w.leases, w.kubeconfig = leasetest.New(), filepath.Join(w.dir, "kubeconfig")
	t.Cleanup(w.leases.Close)
	if err := w.leases.WriteKubeconfig(w.kubeconfig, "test"); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(w.dir, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("replica", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.env = append(os.Environ(), append(testWay(), "HOME="+w.dir, "GIT_CONFIG_NOSYSTEM=1", "NO_COLOR=1", "RAMUS_ENGINE=sandbox",
		"RAMUS_KUBERNETES_KUBECONFIG="+w.kubeconfig, "RAMUS_REPLICAS_SECRET_FILE="+secret, "RAMUS_REPLICAS_LEASE=3s",
		"RAMUS_LOG_LEVEL=debug", "GIT_TERMINAL_PROMPT=0")...)
	if err := os.WriteFile(filepath.Join(w.dir, ".gitconfig"), []byte("[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for name, s := range w.procs {
			_ = w.stop(name, syscall.SIGTERM)
			if t.Failed() {
				t.Logf("the log of %s:\n%s", name, s.log.text())
			}
		}
		for _, name := range []string{"ramus-0", "ramus-1", "ramus-2"} {
			if _, err := os.Stat(filepath.Join(w.data(name), "hosts")); err == nil {
				remains.KillContainers(w.data(name))
			}
		}
		remains.Check(t, w.dir)
	})
	return w
}

func (w *replicaWorld) data(name string) string { return filepath.Join(w.dir, name) }

var servingSSH = regexp.MustCompile(`msg="serving SSH" address=(\S+)`)

// begin starts a process of a replica, and does not wait for it.
func (w *replicaWorld) begin(name string, env ...string) *replicaServer {
	w.t.Helper()
	s := &replicaServer{logged: make(chan struct{}), addresses: make(chan string, 1)}
	s.cmd = exec.Command(filepath.Join(w.bin, "ramus"), "serve", "--listen", "127.0.0.1:0", "--ssh", "127.0.0.1:0", "--data", w.data(name))
	s.cmd.Dir, s.cmd.Env = w.dir, append(append([]string{}, w.env...), append(env, "RAMUS_REPLICAS_NAME="+name)...)
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(s.logged)
		defer close(s.addresses)
		lines := bufio.NewReader(stderr)
		for {
			line, err := lines.ReadString('\n')
			_, _ = s.log.Write([]byte(line))
			if m := servingSSH.FindStringSubmatch(line); m != nil {
				s.ssh = m[1]
			}
			if m := serving.FindStringSubmatch(line); m != nil {
				s.addresses <- "http://" + m[1]
			}
			if err != nil {
				return
			}
		}
	}()
	w.procs[name] = s
	return s
}

// start starts a process of a replica, and waits until it serves.
func (w *replicaWorld) start(name string, env ...string) *replicaServer {
	w.t.Helper()
	s := w.begin(name, env...)
	w.await(name)
	return s
}

func (w *replicaWorld) await(name string) {
	w.t.Helper()
	s := w.procs[name]
	select {
	case s.url = <-s.addresses:
	case <-time.After(time.Minute):
	}
	if s.url == "" {
		w.t.Fatalf("%s does not serve:\n%s", name, s.log.text())
	}
}

// stop ends a process of a replica.
func (w *replicaWorld) stop(name string, sig syscall.Signal) error {
	s := w.procs[name]
	if s == nil {
		return nil
	}
	delete(w.procs, name)
	_ = s.cmd.Process.Signal(sig)
	<-s.logged
	return s.cmd.Wait()
}

// ramus runs a command at the unix socket of a replica.
func (w *replicaWorld) ramus(name string, args ...string) string {
	w.t.Helper()
	out, err := w.tryRamus(name, args...)
	if err != nil {
		w.t.Fatalf("ramus %s at %s: %v\n%s", strings.Join(args, " "), name, err, out)
	}
	return out
}

func (w *replicaWorld) tryRamus(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.bin, "ramus"), args...)
	cmd.Dir, cmd.Env = w.dir, append(append([]string{}, w.env...), "RAMUS_DATA="+w.data(name))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (w *replicaWorld) try(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, w.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// git runs git in a folder with the token.
func (w *replicaWorld) git(dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	return w.try(ctx, dir, "git", append([]string{"-c", "http.extraHeader=Authorization: Bearer " + w.token}, args...)...)
}

func (w *replicaWorld) mustGit(dir string, args ...string) string {
	w.t.Helper()
	out, err := w.git(dir, args...)
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// get asks a replica.
func (w *replicaWorld) get(url string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// TestReplicas has two servers answer as one.
func TestReplicas(t *testing.T) {
	w := newReplicaWorld(t)
	home := w.start("ramus-0")
	other := w.start("ramus-1")
	out := w.ramus("ramus-0", "token", "create", "--subject", "ada", "--repo", "*", "--scope", "admin", "--delete")
	w.token = strings.TrimSpace(out)

	w.mustGit(w.dir, "init", "-q", "work")
	work := filepath.Join(w.dir, "work")
	w.mustGit(work, "commit", "-q", "--allow-empty", "-m", "begin")
	w.ramus("ramus-0", "repo", "import", "app", work)
	w.ramus("ramus-1", "repo", "import", "tool", work)

	// Each serves both.
	for _, s := range []*replicaServer{home, other} {
		for _, repo := range []string{"app", "tool"} {
			branch := "topic-" + s.url[len(s.url)-4:]
			w.mustGit(work, "push", "-q", s.url+"/"+repo+".git", "HEAD:refs/heads/"+branch)
			if got := w.mustGit(work, "ls-remote", s.url+"/"+repo+".git", "refs/heads/"+branch); !strings.Contains(got, branch) {
				t.Errorf("%s at %s has %q", repo, s.url, got)
			}
			if code, body := w.get(s.url + "/api/repos/" + repo); code != 200 || !strings.Contains(body, `"`+repo+`"`) {
				t.Errorf("%s at %s: %d %s", repo, s.url, code, body)
			}
		}
	}
	if !strings.Contains(other.log.text(), "via=ramus-0") || !strings.Contains(other.log.text(), "client=127.0.0.1:") {
		t.Error("the log of the owner does not name the client and the replica that passed its request on")
	}
	// A name is free in the whole installation, or nowhere.
	if out, err := w.tryRamus("ramus-1", "repo", "create", "app"); err == nil {
		t.Errorf("a second repository app was made: %s", out)
	} else if !strings.Contains(out, "ramus-0") {
		t.Errorf("the refusal of a name is %q", out)
	}

	if sandboxed() {
		if out := w.ramus("ramus-1", "exec", "otter", "--repo", "app", "--", "echo one >a.txt; echo done"); !strings.Contains(out, "done") {
			t.Errorf("a command by another replica: %s", out)
		}
		if out := w.ramus("ramus-1", "log", "otter"); !strings.Contains(out, "echo one") {
			t.Errorf("the log by another replica: %s", out)
		}
		if out := w.ramus("ramus-0", "diff", "otter", "--stat"); !strings.Contains(out, "a.txt") {
			t.Errorf("the owner's diff: %s", out)
		}
	}

	// A process that loses the lease acknowledges nothing, and ends.
	if err := w.leases.Steal("test", "ramus-replica-ramus-1", "somebody"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-other.logged:
	case <-time.After(20 * time.Second):
		t.Fatal("a process that lost its lease goes on")
	}
	if err := w.stop("ramus-1", syscall.SIGTERM); err == nil {
		t.Error("a process that lost its lease ended well")
	}
	if !strings.Contains(other.log.text(), "lost the lease") {
		t.Errorf("its log does not say why it ended:\n%s", other.log.text())
	}
	if _, err := w.git(work, "push", "-q", other.url+"/tool.git", "HEAD:refs/heads/late"); err == nil {
		t.Error("it took a push")
	}
}

// sandboxed reports whether commands run here.
func sandboxed() bool {
	_, err := exec.LookPath("bwrap")
	return err == nil
}
