package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
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
	key        string // of a person, for SSH
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
	w.key = filepath.Join(w.dir, "id")
	if _, err := exec.LookPath("ssh-keygen"); err == nil {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", w.key).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	w.env = append(os.Environ(), append(testWay(), "RAMUS_AUTHORIZED_KEYS="+w.key+".pub", "HOME="+w.dir, "GIT_CONFIG_NOSYSTEM=1", "NO_COLOR=1", "RAMUS_ENGINE=sandbox",
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
	t.Parallel()
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
	for _, name := range []string{"ramus-0", "ramus-1"} {
		if out := w.ramus(name, "repo", "list"); !strings.Contains(out, "app") || !strings.Contains(out, "tool") {
			t.Errorf("the repositories at %s: %s", name, out)
		}
	}
	w.sshByOther(work, home, other)
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

// sshByOther pushes by SSH to a replica that does not own the repository.
func (w *replicaWorld) sshByOther(work string, home, other *replicaServer) {
	w.t.Helper()
	if _, err := exec.LookPath("ssh"); err != nil {
		return
	}
	for _, s := range []struct {
		at   *replicaServer
		repo string
	}{{home, "tool"}, {other, "app"}} {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		out, err := w.try(ctx, work, "git", "-c", "core.sshCommand=ssh -F none -i "+w.key+" -o IdentitiesOnly=yes -o BatchMode=yes "+
			"-o StrictHostKeyChecking=no -o UserKnownHostsFile="+filepath.Join(w.dir, "known_hosts"),
			"push", "-q", "ssh://git@"+s.at.ssh+"/"+s.repo+".git", "HEAD:refs/heads/by-ssh")
		if err != nil {
			w.t.Errorf("a push by SSH to the replica that does not own %s: %v: %s", s.repo, err, out)
		}
		if got := w.mustGit(work, "ls-remote", s.at.url+"/"+s.repo+".git", "refs/heads/by-ssh"); !strings.Contains(got, "by-ssh") {
			w.t.Errorf("the push to %s by SSH is not there", s.repo)
		}
	}
}

// sandboxed reports whether commands run here.
func sandboxed() bool {
	_, err := exec.LookPath("bwrap")
	return err == nil
}

// pusher pushes commits to branches of its own until its context ends, and remembers those that were acknowledged.
type pusher struct {
	mu      sync.Mutex // guards the fields below
	acked   map[string]string
	refused int
	last    string
}

// push pushes commits of an author to a repository at the addresses that at returns.
func (w *replicaWorld) push(ctx context.Context, p *pusher, name, repo string, at func(n int) string) {
	dir := filepath.Join(w.dir, "push-"+name)
	if out, err := w.git(w.dir, "clone", "-q", filepath.Join(w.dir, "work"), dir); err != nil {
		w.t.Errorf("%s: %v\n%s", name, err, out)
		return
	}
	for n := 0; ctx.Err() == nil; n++ {
		if out, err := w.git(dir, "commit", "-q", "--allow-empty", "-m", fmt.Sprint(name, n)); err != nil {
			w.t.Errorf("%s: %v\n%s", name, err, out)
			return
		}
		tip, _ := w.git(dir, "rev-parse", "HEAD")
		branch := fmt.Sprintf("refs/heads/%s-%d", name, n)
		out, err := w.git(dir, "push", "-q", at(n)+"/"+repo+".git", "HEAD:"+branch)
		p.mu.Lock()
		if err == nil {
			p.acked[branch] = strings.TrimSpace(tip)
		} else {
			p.refused++
			p.last = out
		}
		p.mu.Unlock()
	}
}

// compare fails for branches that were acknowledged and are not there.
func (w *replicaWorld) compare(p *pusher, url string) {
	w.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	there := map[string]string{}
	for line := range strings.Lines(w.mustGit(w.dir, "ls-remote", url, "refs/heads/*")) {
		hash, ref, _ := strings.Cut(strings.TrimSpace(line), "\t")
		there[ref] = hash
	}
	lost := 0
	for branch, hash := range p.acked {
		if there[branch] != hash {
			lost++
		}
	}
	w.t.Logf("%d pushes were acknowledged, %d refused, %d lost; the last refusal: %.200s", len(p.acked), p.refused, lost, p.last)
	if lost > 0 || len(p.acked) == 0 {
		w.t.Errorf("%d of %d acknowledged pushes are lost", lost, len(p.acked))
	}
}

// newTwoReplicas starts a world of two replicas with the repository app at the first.
func newTwoReplicas(t *testing.T) *replicaWorld {
	t.Helper()
	w := newReplicaWorld(t)
	w.start("ramus-0")
	w.start("ramus-1")
	w.token = strings.TrimSpace(w.ramus("ramus-0", "token", "create", "--subject", "ada", "--repo", "*", "--scope", "admin"))
	w.mustGit(w.dir, "init", "-q", "work")
	w.mustGit(filepath.Join(w.dir, "work"), "commit", "-q", "--allow-empty", "-m", "begin")
	w.ramus("ramus-0", "repo", "import", "app", filepath.Join(w.dir, "work"))
	return w
}

// TestReplicaMove moves a repository to and fro while people push to it by both replicas.
func TestReplicaMove(t *testing.T) {
	t.Parallel()
	w := newTwoReplicas(t)
	if sandboxed() {
		w.ramus("ramus-0", "exec", "otter", "--repo", "app", "--", "echo one >a.txt; head -c 10000000 /dev/zero >/artifacts/large.bin")
	}
	urls := []string{w.procs["ramus-0"].url, w.procs["ramus-1"].url}
	ctx, stop := context.WithCancel(t.Context())
	p := &pusher{acked: map[string]string{}}
	var work sync.WaitGroup
	for i := range 3 {
		work.Go(func() { w.push(ctx, p, fmt.Sprint("p", i), "app", func(n int) string { return urls[(n+i)%2] }) })
	}
	moves := []string{"ramus-1", "ramus-0", "ramus-1"}
	for _, to := range moves {
		time.Sleep(500 * time.Millisecond)
		if out := w.ramus("ramus-1", "repo", "move", "app", "--to", to); !strings.Contains(out, "app is at "+to) {
			t.Errorf("the move says %q", out)
		} else {
			t.Log(strings.TrimSpace(out))
		}
	}
	stop()
	work.Wait()
	for _, url := range urls {
		w.compare(p, url+"/app.git")
	}
	if p.refused > 0 {
		t.Errorf("%d pushes were refused: %s", p.refused, p.last)
	}
	for name, there := range map[string]bool{"ramus-0": false, "ramus-1": true} {
		if _, err := os.Stat(filepath.Join(w.data(name), "repos", "app.git")); (err == nil) != there {
			t.Errorf("the copy of %s: %v", name, err)
		}
	}
	w.mustGit(filepath.Join(w.data("ramus-1"), "repos", "app.git"), "fsck", "--strict")
	if sandboxed() {
		if out := w.ramus("ramus-0", "exec", "otter", "--", "cat a.txt"); !strings.Contains(out, "one") {
			t.Errorf("the caller after the move: %s", out)
		}
		if out := w.ramus("ramus-0", "log", "otter"); strings.Count(out, "a.txt") != 2 {
			t.Errorf("its commands: %s", out)
		}
		if files, _ := filepath.Glob(filepath.Join(w.data("ramus-1"), "artifacts", "sha256", "*", "*")); len(files) == 0 {
			t.Error("its artifact did not go along")
		}
	}
	if out, err := w.tryRamus("ramus-0", "repo", "move", "app", "--to", "ramus-7"); err == nil {
		t.Errorf("a move to nobody: %s", out)
	}
	if out := w.ramus("ramus-0", "replica", "list"); !strings.Contains(out, "ramus-1  live") || !strings.Contains(out, "ramus-0  this one") {
		t.Errorf("the replicas are %s", out)
	}
}

// TestReplicaMoveKilled kills the one or the other replica at each step of a move that the cluster sees, while people push.
func TestReplicaMoveKilled(t *testing.T) {
	w := newTwoReplicas(t)
	var mu sync.Mutex // guards urls
	urls := []string{w.procs["ramus-0"].url, w.procs["ramus-1"].url}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p := &pusher{acked: map[string]string{}}
	var work sync.WaitGroup
	for i := range 2 {
		work.Go(func() {
			w.push(ctx, p, fmt.Sprint("p", i), "app", func(n int) string {
				mu.Lock()
				defer mu.Unlock()
				return urls[(n+i)%2]
			})
		})
	}
	path := "/apis/coordination.k8s.io/v1/namespaces/test/leases/ramus-repository-"
	for _, point := range []struct {
		name   string
		when   func(call func(*http.Request)) // has a function called for each request at the point
		method string
		source bool // the owner before is killed, and not the next one
	}{
		{"before the last copy, the source", w.after, http.MethodGet, true},
		{"before the last copy, the target", w.after, http.MethodGet, false},
		{"before the assignment, the source", w.before, http.MethodPut, true},
		{"before the assignment, the target", w.before, http.MethodPut, false},
		{"after the assignment, the source", w.after, http.MethodPut, true},
		{"after the assignment, the target", w.after, http.MethodPut, false},
	} {
		from, to := "ramus-0", "ramus-1"
		if owned := w.ramus("ramus-0", "replica", "list"); !ownsApp(owned, from) {
			from, to = to, from
		}
		victim := to
		if point.source {
			victim = from
		}
		killed := make(chan struct{})
		kill := sync.OnceFunc(func() {
			_ = w.procs[victim].cmd.Process.Signal(syscall.SIGKILL)
			close(killed)
		})
		point.when(func(r *http.Request) {
			if r.Method == point.method && strings.HasPrefix(r.URL.Path, path) {
				kill()
			}
		})
		_, _ = w.tryRamus(from, "repo", "move", "app", "--to", to)
		w.before(nil)
		select {
		case <-killed:
		default:
			t.Fatalf("%s: the move does not come to this point", point.name)
		}
		_ = w.stop(victim, syscall.SIGKILL)
		w.start(victim)
		mu.Lock()
		urls[strings.Index("01", victim[len(victim)-1:])] = w.procs[victim].url
		mu.Unlock()
		// The move is done, or can be done again.
		for try := 0; ; try++ {
			out, err := w.tryRamus("ramus-0", "repo", "move", "app", "--to", to)
			if err == nil || strings.Contains(out, "it is there") {
				break
			}
			if try > 20 {
				t.Fatalf("%s: %s", point.name, out)
			}
			time.Sleep(200 * time.Millisecond)
		}
		for _, url := range urls {
			w.compare(p, url+"/app.git")
		}
		for name, there := range map[string]bool{from: false, to: true} {
			is := func() bool {
				_, err := os.Stat(filepath.Join(w.data(name), "repos", "app.git"))
				return err == nil
			}
			for until := time.Now().Add(20 * time.Second); is() != there && time.Now().Before(until); { // discarded in the background
				time.Sleep(50 * time.Millisecond)
			}
			if is() != there {
				t.Errorf("%s: the copy of %s is there: %t", point.name, name, !there)
			}
		}
	}
	stop()
	work.Wait()
	for _, url := range urls {
		w.compare(p, url+"/app.git")
	}
	for _, name := range []string{"ramus-0", "ramus-1"} {
		if left, _ := filepath.Glob(filepath.Join(w.data(name), "outgoing", "*")); len(left) > 0 {
			t.Errorf("%s keeps %v", name, left)
		}
	}
}

// before has a function called before each request to the cluster, and after it once it is done. Nil calls none.
func (w *replicaWorld) before(call func(*http.Request)) {
	w.leases.After(nil)
	if call == nil {
		w.leases.Refuse(nil)
		return
	}
	w.leases.Refuse(func(r *http.Request) bool { call(r); return false })
}

func (w *replicaWorld) after(call func(*http.Request)) { w.leases.After(call) }

// ownsApp reports whether a list of replicas has a repository at a replica.
func ownsApp(list, replica string) bool {
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == replica {
			return !strings.Contains(line, " 0 repositories")
		}
	}
	return false
}

// TestReplicaKilled kills the owner of a repository again and again while people push and work by the other replica.
func TestReplicaKilled(t *testing.T) {
	t.Parallel()
	w := newTwoReplicas(t)
	w.ramus("ramus-0", "repo", "move", "app", "--to", "ramus-1") // so that the home stays
	home := w.procs["ramus-0"].url
	kills := 3
	if os.Getenv("RAMUS_TEST") == "full" {
		kills = 20
	}
	ctx, stop := context.WithCancel(t.Context())
	p := &pusher{acked: map[string]string{}}
	var work sync.WaitGroup
	for i := range 2 {
		work.Go(func() { w.push(ctx, p, fmt.Sprint("p", i), "app", func(int) string { return home }) })
	}
	commands := 0
	if sandboxed() {
		work.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				// A key makes a command one, however often it is asked for.
				for ctx.Err() == nil {
					out, err := w.tryRamus("ramus-0", "exec", "otter", "--repo", "app", "--key", fmt.Sprint("k", n), "--", fmt.Sprintf("echo %d >>all.txt", n))
					if err == nil {
						commands++
						break
					}
					if strings.Contains(out, "was interrupted") || strings.Contains(out, "container was lost") {
						break
					}
				}
			}
		})
	}
	var longest time.Duration
	for range kills {
		time.Sleep(700 * time.Millisecond)
		_ = w.stop("ramus-1", syscall.SIGKILL)
		begun := time.Now()
		w.start("ramus-1")
		for {
			if _, err := w.git(w.dir, "ls-remote", home+"/app.git"); err == nil {
				break
			}
		}
		longest = max(longest, time.Since(begun))
	}
	stop()
	work.Wait()
	t.Logf("killed %d times; served again after %v at most; %d commands", kills, longest.Round(time.Millisecond), commands)
	if longest > 30*time.Second {
		t.Errorf("the repository was away for %v", longest)
	}
	w.compare(p, home+"/app.git")
	w.mustGit(filepath.Join(w.data("ramus-1"), "repos", "app.git"), "fsck", "--strict")
	if sandboxed() {
		out := w.ramus("ramus-0", "exec", "otter", "--", "cat all.txt")
		seen := map[string]int{}
		for line := range strings.Lines(out) {
			seen[strings.TrimSpace(line)]++
		}
		for line, n := range seen {
			if n > 1 {
				t.Errorf("the command %s was run %d times", line, n)
			}
		}
		if len(seen) < commands {
			t.Errorf("%d commands were answered, and %d are in the file", commands, len(seen))
		}
	}
}
