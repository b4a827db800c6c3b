package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/search"
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
	cookie     string // of a session of the owner, for pages
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
		public, err := os.ReadFile(w.key + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(w.key+".authorized", append([]byte("ramus-shell "), public...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.env = append(os.Environ(), append(testWay(), "RAMUS_AUTHORIZED_KEYS="+w.key+".authorized", "HOME="+w.dir, "GIT_CONFIG_NOSYSTEM=1", "NO_COLOR=1", "RAMUS_ENGINE=sandbox",
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

var signInLink = regexp.MustCompile(`sign in at (http://\S+/auth/link\?code=\S+)`)

// signIn begins a session of the owner of the server.
func (w *replicaWorld) signIn(home *replicaServer) {
	w.t.Helper()
	link := signInLink.FindStringSubmatch(home.log.text())
	if link == nil {
		w.t.Fatalf("no link to sign in: %s", home.log.text())
	}
	once := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := once.Get(link[1])
	if err != nil {
		w.t.Fatal(err)
	}
	resp.Body.Close()
	for _, c := range resp.Cookies() {
		w.cookie = c.Name + "=" + c.Value
	}
	if w.cookie == "" {
		w.t.Fatalf("the link answers %s without a cookie", resp.Status)
	}
}

// authorize lets a request in, to pages by a session and to all else by a token.
func (w *replicaWorld) authorize(r *http.Request) {
	if w.cookie != "" && !strings.HasPrefix(r.URL.Path, "/api/") {
		r.Header.Set("Cookie", w.cookie)
		return
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
}

// get asks a replica.
func (w *replicaWorld) get(url string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.authorize(r)
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
		if _, err := exec.LookPath("ssh"); err == nil {
			w.sshInto(other, "otter")
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

// TestReplicasTogether looks at pages, searches and events of two servers at each of them, and at one while the other is away.
func TestReplicasTogether(t *testing.T) {
	if !sandboxed() {
		t.Skip("cannot run here: no sandbox")
	}
	t.Parallel()
	w := newTwoReplicas(t)
	w.ramus("ramus-1", "repo", "import", "tool", filepath.Join(w.dir, "work"))
	home, other := w.procs["ramus-0"], w.procs["ramus-1"]
	w.signIn(home)

	events := w.watch(home.url)
	w.ramus("ramus-0", "exec", "otter", "--repo", "app", "--", "echo grapefruit of app")
	w.ramus("ramus-1", "exec", "badger", "--repo", "tool", "--", "echo grapefruit of tool")
	for _, caller := range []string{"run:otter/", "run:badger/"} {
		if !events.has(caller) {
			t.Errorf("/api/watch has no event of %s", caller)
		}
	}
	for _, s := range []*replicaServer{home, other} {
		for path, want := range map[string][]string{
			"/dashboard":               {"run-otter", "run-badger"},
			"/workspaces":              {"run-otter", "run-badger"},
			"/workspaces/new":          {">app<", ">tool<"},
			"/repos":                   {"/repos/app", "/repos/tool"},
			"/search?q=grapefruit":     {"of app", "of tool", "run-otter", "run-badger"},
			"/api/search?q=grapefruit": {"of app", "of tool"},
			"/workspaces/run-otter":    {"otter"},
			"/workspaces/run-badger":   {"badger"},
		} {
			code, body := w.get(s.url + path)
			for _, text := range want {
				if code != 200 || !strings.Contains(body, text) {
					t.Errorf("%s at %s: %d, and %q is missing: %.3000s", path, s.url, code, text, body)
				}
			}
			if strings.Contains(body, "not complete") || strings.Contains(body, "missing_replicas") {
				t.Errorf("%s at %s names a replica that is away", path, s.url)
			}
		}
	}
	// The newest runs come first, and pages of an answer are those of the whole.
	if out := w.ramus("ramus-0", "search", "grapefruit"); strings.Index(out, "of tool") > strings.Index(out, "of app") {
		t.Errorf("the newest run is not first: %s", out)
	}
	var first, second search.Answer
	w.getJSON(home.url+"/api/search?q=grapefruit&max=1", &first)
	w.getJSON(home.url+"/api/search?q=grapefruit&max=1&after="+first.Next, &second)
	if len(first.Hits) == 0 || len(second.Hits) == 0 || first.Hits[0].Run == second.Hits[0].Run || first.Hits[0].Repo != "tool" {
		t.Errorf("the pages of an answer are %+v and %+v", first, second)
	}

	w.mcpTogether(home, other)
	w.linksTogether(home, other)

	// A list that is open wakes by the work of another replica, and so does the page of its workspace.
	list, page := w.follow(home.url, "/workspaces"), w.follow(home.url, "/workspaces/run-badger")
	list.await("run-badger")
	page.await("put")
	list.drop()
	page.drop()
	w.ramus("ramus-1", "exec", "badger", "--", "echo once more")
	list.await("At work")
	page.await("once more")

	// A replica that is away is named on pages, by the command line and in answers.
	_ = w.stop("ramus-1", syscall.SIGTERM)
	list.await("ramus-1 does not answer")
	if _, body := w.get(home.url + "/repos"); !strings.Contains(body, "ramus-1 does not answer") || !strings.Contains(body, "/repos/app") {
		t.Errorf("the page of repositories does not name the replica that is away: %s", body)
	}
	if _, body := w.get(home.url + "/api/search?q=grapefruit"); !strings.Contains(body, `"missing_replicas":["ramus-1"]`) {
		t.Errorf("the search does not name the replica that is away: %s", body)
	}
	for _, args := range [][]string{{"ps"}, {"repo", "list"}, {"search", "grapefruit"}} {
		out := w.ramus("ramus-0", args...)
		if strings.Count(out, "ramus: the answer is not complete: ramus-1 does not answer") != 1 {
			t.Errorf("ramus %s does not warn once: %s", strings.Join(args, " "), out)
		}
	}
	w.start("ramus-1")
	list.await(`"op":"drop","key":"lack"`)
}

// TestReplicaVolumeLost removes the volume of a replica, whose repositories come back from its last backup.
func TestReplicaVolumeLost(t *testing.T) {
	t.Parallel()
	w := newTwoReplicas(t)
	work, home := filepath.Join(w.dir, "work"), w.procs["ramus-0"].url
	for _, name := range []string{"kept", "changed"} {
		w.ramus("ramus-1", "repo", "import", name, work)
	}
	backups := filepath.Join(w.dir, "backups")
	w.ramus("ramus-1", "backup", filepath.Join(backups, "ramus-1"))
	w.mustGit(work, "push", "-q", home+"/changed.git", "HEAD:refs/heads/after")
	w.ramus("ramus-1", "repo", "import", "young", work)
	time.Sleep(1500 * time.Millisecond) // the lease names changes with its next renewal
	_ = w.stop("ramus-1", syscall.SIGKILL)
	remove := func() {
		if err := os.RemoveAll(w.data("ramus-1")); err != nil {
			t.Fatal(err)
		}
	}
	remove()

	// Without a backup nothing takes the place of what is lost.
	w.start("ramus-1")
	for _, s := range []string{home, w.procs["ramus-1"].url} {
		if out, err := w.git(work, "ls-remote", s+"/kept.git"); err == nil || !strings.Contains(out, "503") {
			t.Errorf("a lost repository at %s: %v %s", s, err, out)
		}
		if out, err := w.git(work, "push", "-q", s+"/kept.git", "HEAD:refs/heads/again"); err == nil {
			t.Errorf("an empty repository takes a push in place of a lost one at %s: %s", s, out)
		}
	}
	if out, err := w.tryRamus("ramus-1", "repo", "create", "kept"); err == nil || !strings.Contains(out, "lost with the volume of ramus-1") {
		t.Errorf("a repository was made in place of a lost one: %v %s", err, out)
	}
	if out := w.ramus("ramus-0", "replica", "list"); strings.Count(out, "lost: ") != 3 || !strings.Contains(out, "no backup has it") {
		t.Errorf("the replicas do not name what is lost: %s", out)
	}
	_ = w.stop("ramus-1", syscall.SIGTERM)
	remove()

	s := w.start("ramus-1", "RAMUS_REPLICAS_BACKUPS="+backups)
	for _, name := range []string{"kept", "changed"} {
		if out, err := w.git(work, "ls-remote", home+"/"+name+".git", "refs/heads/main"); err != nil || !strings.Contains(out, "main") {
			t.Errorf("%s was not restored: %v %s", name, err, out)
		}
	}
	if out, err := w.git(work, "ls-remote", home+"/young.git"); err == nil || !strings.Contains(out, "503") {
		t.Errorf("a repository that no backup has: %v %s", err, out)
	}
	want := []string{"lost: changed was restored on ramus-1 from the backup of ", "the last of them at ",
		"lost: young is lost with the volume of ramus-1, and no backup has it"}
	out := w.ramus("ramus-0", "replica", "list")
	for _, text := range want {
		if !strings.Contains(out, text) {
			t.Errorf("the replicas do not say %q: %s", text, out)
		}
	}
	if strings.Contains(out, "lost: kept") {
		t.Errorf("a repository that did not change after the backup counts as lost: %s", out)
	}
	if !strings.Contains(s.log.text(), "work was lost with the volume of this replica") {
		t.Error("the log does not name what is lost")
	}
	if out, _ := w.tryRamus("ramus-1", "doctor"); !strings.Contains(out, "young is lost") {
		t.Errorf("ramus doctor does not name what is lost: %s", out)
	}
	w.mustGit(work, "push", "-q", home+"/changed.git", "HEAD:refs/heads/goes-on")
	// Its name can be given up.
	w.ramus("ramus-1", "repo", "rm", "--yes", "young")
	w.ramus("ramus-0", "repo", "create", "young")
}

// getJSON asks a replica.
func (w *replicaWorld) getJSON(url string, v any) {
	w.t.Helper()
	code, body := w.get(url)
	if err := json.Unmarshal([]byte(body), v); err != nil || code != http.StatusOK {
		w.t.Errorf("%s: %d %s", url, code, body)
	}
}

// heard is a text that grows until the test ends.
type heard struct {
	t    *testing.T
	what string
	lockedBuffer
	from int // what await looks at begins here
}

// has waits for a text.
func (h *heard) has(text string) bool {
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(h.text()[h.from:], text) {
			return true
		}
	}
	return false
}

func (h *heard) await(text string) {
	h.t.Helper()
	if !h.has(text) {
		h.t.Errorf("%s has no %q: %s", h.what, text, h.text()[h.from:])
	}
}

// drop has await look at what comes from now on.
func (h *heard) drop() { h.from = len(h.text()) }

// watch follows all events at a replica.
func (w *replicaWorld) watch(url string) *heard {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url+"/api/watch", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	h := &heard{t: w.t, what: "the stream of events"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(h, resp.Body)
	}()
	w.t.Cleanup(func() { resp.Body.Close(); <-done })
	h.await("retry:") // it follows from here on
	return h
}

// follow follows a page at a replica, as its script does. It begins with a page that shows nothing.
func (w *replicaWorld) follow(url, path string) *heard {
	w.t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http")+"/live",
		http.Header{"Cookie": {w.cookie}, "Origin": {url}})
	if err != nil {
		w.t.Fatal(err)
	}
	h := &heard{t: w.t, what: "the page " + path}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			_, text, err := conn.ReadMessage()
			if err != nil {
				return
			}
			_, _ = h.Write(text)
		}
	}()
	w.t.Cleanup(func() { conn.Close(); <-done })
	if err := conn.WriteJSON(map[string]any{"sub": path, "have": map[string]string{}}); err != nil {
		w.t.Fatal(err)
	}
	return h
}

// sshInto runs commands, a terminal, SFTP and a forwarded port in the container of a caller, at a replica that does not own it.
func (w *replicaWorld) sshInto(at *replicaServer, caller string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	host, port, _ := net.SplitHostPort(at.ssh)
	config := filepath.Join(w.dir, "ssh_config")
	text := fmt.Sprintf("Host %s\n HostName %s\n Port %s\n User %s\n IdentityFile %s\n IdentitiesOnly yes\n BatchMode yes\n"+
		" StrictHostKeyChecking no\n UserKnownHostsFile %s\n LogLevel ERROR\n", caller, host, port, caller, w.key, filepath.Join(w.dir, "known_hosts"))
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	must(os.WriteFile(config, []byte(text), 0o600))
	ssh := func(program, stdin string, args ...string) (string, int) {
		cmd := exec.CommandContext(ctx, program, append([]string{"-F", config}, args...)...)
		cmd.Dir, cmd.Env, cmd.Stdin = w.dir, w.env, strings.NewReader(stdin)
		if slices.Contains(args, "-tt") { // a terminal ends with the end of its keys
			r, keys, err := os.Pipe()
			must(err)
			defer keys.Close()
			defer r.Close()
			_, err = io.WriteString(keys, stdin)
			must(err)
			cmd.Stdin = r
		}
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, x := range []struct {
		program, stdin string
		args           []string
		want           string
		code           int
	}{
		{"ssh", "", []string{caller, "echo to stderr >&2; echo out; exit 7"}, "out", 7},
		{"ssh", "from stdin\n", []string{caller, "cat >stdin.txt; wc -c <stdin.txt"}, "11", 0},
		{"ssh", "echo $((6*7)); exit 5\n", []string{"-tt", caller}, "42", 5},
		{"ssh", "", []string{"-tt", caller, "tty"}, "/dev/pts", 0},
		{"sftp", "put ssh_config sent.txt\nget stdin.txt got.txt\nls\n", []string{"-b", "-", caller}, "sent.txt", 0},
		{"scp", "", []string{caller + ":sent.txt", "back.txt"}, "", 0},
	} {
		if out, code := ssh(x.program, x.stdin, x.args...); code != x.code || !strings.Contains(out, x.want) {
			w.t.Errorf("%s %q: status %d, want %d; output %q, want %q", x.program, x.args, code, x.code, out, x.want)
		}
	}
	for name, want := range map[string]string{"got.txt": "from stdin\n", "back.txt": text} {
		if got, err := os.ReadFile(filepath.Join(w.dir, name)); err != nil || string(got) != want {
			w.t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	// Each command is a commit of the owner.
	if out := w.ramus("ramus-0", "log", caller); !strings.Contains(out, "cat >stdin.txt") || !strings.Contains(out, "exit 7") {
		w.t.Errorf("the log has not the commands: %s", out)
	}
	w.forwardPort(ctx, config, caller)
}

// forwardPort talks to a port in the container of a caller, by -W, which has the connection on stdin and stdout.
func (w *replicaWorld) forwardPort(ctx context.Context, config, caller string) {
	w.t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		w.t.Log("no python3 here, so no port is forwarded")
		return
	}
	w.ramus("ramus-0", "exec", caller, "--background", "--", "exec python3 -m http.server 5173 --bind 127.0.0.1")
	for try := 0; ; try++ {
		cmd := exec.CommandContext(ctx, "ssh", "-F", config, "-W", "127.0.0.1:5173", caller)
		cmd.Dir, cmd.Env, cmd.Stdin = w.dir, w.env, strings.NewReader("GET /stdin.txt HTTP/1.0\r\n\r\n")
		out, err := cmd.CombinedOutput()
		if err == nil && strings.Contains(string(out), "200 OK") && strings.HasSuffix(string(out), "from stdin\n") {
			break
		}
		if try > 100 || ctx.Err() != nil {
			w.t.Errorf("the forwarded port answers %q, %v", out, err)
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	out, err := w.try(ctx, w.dir, "ssh", "-F", config, "-W", "192.0.2.1:80", caller)
	if err == nil {
		w.t.Errorf("an address outside of the container is reached: %s", out)
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
		killed, process := make(chan struct{}), w.procs[victim].cmd.Process
		kill := sync.OnceFunc(func() {
			close(killed) // first, because the move ends with the process
			_ = process.Signal(syscall.SIGKILL)
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

// worker runs commands of a caller one after another, each until it is answered.
type worker struct {
	caller   string
	answered atomic.Int64
	maybe    []int // commands that failed or had no answer, which ran once or not at all
}

// work runs commands until ctx ends. The number of each command is a line of a file of the caller.
func (w *replicaWorld) work(ctx context.Context, k *worker) {
	for n := 0; ctx.Err() == nil; n++ {
		for {
			// A key makes a command one, however often it is asked for.
			out, err := w.tryRamus("ramus-0", "exec", k.caller, "--repo", "app", "--key", fmt.Sprint(k.caller, "-", n), "--",
				fmt.Sprintf("echo %d >>%s.txt; sleep 0.3", n, k.caller))
			if err == nil {
				k.answered.Add(1)
				break
			}
			if ctx.Err() != nil || endedBadly(out) {
				k.maybe = append(k.maybe, n)
				break
			}
		}
	}
}

// endedBadly reports whether the output of `ramus exec` says that its run is over although nobody knows the outcome of its
// command. Another try with the same key would have the same answer.
func endedBadly(out string) bool {
	return slices.ContainsFunc([]record.Reason{record.ReasonInterrupted, record.ReasonContainerLost}, func(r record.Reason) bool {
		return strings.Contains(out, "failed ("+string(r)+")")
	})
}

// goesOn waits until each caller has had a command that was answered, and returns the time that it took.
func (w *replicaWorld) goesOn(workers []*worker) time.Duration {
	w.t.Helper()
	begun := time.Now()
	for _, k := range workers {
		// The answer to a command that had ended before may still be on its way.
		for want := k.answered.Load() + 2; k.answered.Load() < want; time.Sleep(10 * time.Millisecond) {
			if time.Since(begun) > 2*time.Minute {
				w.t.Fatalf("%s does not work any more", k.caller)
			}
		}
	}
	return time.Since(begun)
}

// once fails if a command of a caller ran twice, or was answered and is not in the file.
func (w *replicaWorld) once(k *worker) {
	w.t.Helper()
	out := w.ramus("ramus-0", "exec", k.caller, "--", "cat "+k.caller+".txt")
	seen, twice := map[string]bool{}, 0
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); seen[line] {
			twice++
		}
		seen[line] = true
	}
	lost := 0
	for n := range int(k.answered.Load()) + len(k.maybe) {
		if !seen[strconv.Itoa(n)] && !slices.Contains(k.maybe, n) {
			lost++
		}
	}
	w.t.Logf("%s: %d commands were answered, %d have no good answer, %d lost, %d ran twice", k.caller, k.answered.Load(),
		len(k.maybe), lost, twice)
	if lost > 0 || twice > 0 {
		w.t.Errorf("%s: %d of %d commands are lost, %d ran twice:\n%s", k.caller, lost, k.answered.Load(), twice, out)
	}
}

// TestEndedBadly compares endedBadly with the errors of runs.
func TestEndedBadly(t *testing.T) {
	for reason, want := range map[record.Reason]bool{record.ReasonInterrupted: true, record.ReasonContainerLost: true,
		record.ReasonUnavailable: false} {
		err := &executor.RunError{Run: record.Run{Reason: reason, Error: "why"}}
		if got := endedBadly("ramus: " + err.Error()); got != want {
			t.Errorf("%q: %t", err, got)
		}
	}
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
	workers := []*worker{{caller: "otter"}}
	if !sandboxed() {
		workers = nil
	}
	for _, k := range workers {
		work.Go(func() { w.work(ctx, k) })
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
	w.goesOn(workers) // a worker that takes the end of a run for a try would ask for it again and again
	stop()
	work.Wait()
	t.Logf("killed %d times; served again after %v at most", kills, longest.Round(time.Millisecond))
	if longest > 30*time.Second {
		t.Errorf("the repository was away for %v", longest)
	}
	w.compare(p, home+"/app.git")
	w.mustGit(filepath.Join(w.data("ramus-1"), "repos", "app.git"), "fsck", "--strict")
	for _, k := range workers {
		w.once(k)
	}
}
