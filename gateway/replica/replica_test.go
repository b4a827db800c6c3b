package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/standin/leasetest"
)

// world has replicas in one process, and the leases of a stand-in of a cluster.
type world struct {
	t      *testing.T
	leases *leasetest.Server
	config *kube.Config
	dir    string // of the keys of SSH
}

// member is a replica.
type member struct {
	*Front
	t       *testing.T
	public  *httptest.Server
	ssh     string       // the address of SSH
	answers atomic.Int64 // of its own
}

var ada = gitd.Person{Name: "Ada", Email: "ada@example.org"}

func newWorld(t *testing.T) *world {
	w := &world{t: t, leases: leasetest.New(), dir: t.TempDir()}
	t.Cleanup(w.leases.Close)
	path := filepath.Join(w.dir, "kubeconfig")
	err := w.leases.WriteKubeconfig(path, "test")
	if err == nil {
		w.config, err = kube.Load(path, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// open opens a replica with a data folder of its own.
func (w *world) open(name string) *member {
	t := w.t
	t.Helper()
	dir, err := os.MkdirTemp("", "replica") // a short path, because sockets are below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kube.New(*w.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	group := &ownership.Cluster{Client: client, Namespace: "test", Group: "ramus", Name: name, Data: dir,
		URL: "https://" + inner.Addr().String(), Shared: []string{gitd.PeopleRepo}, Log: log}
	if err := group.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = group.Close(context.Background()) })
	git := &gitd.Server{Root: filepath.Join(dir, "repos"), KeyFile: filepath.Join(dir, "key.pem"), Log: log,
		HostKeyFile: filepath.Join(w.dir, "host.pem"), AuthorizedKeys: filepath.Join(w.dir, name+".keys"),
		Duty: group.Check, Settle: group.Check, Claim: group.Claim, Dropped: group.Drop}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	engine := &sandbox.Engine{Dir: filepath.Join(dir, "sandbox"), Bwrap: "/nonexistent/bwrap"}
	x := &executor.Executor{Data: dir, Git: git, Fleet: &containers.Fleet{Engine: engine, Dir: filepath.Join(dir, "hosts")}}
	if err := x.Open(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	m := &member{t: t, Front: &Front{Group: group, Executor: x, Git: git, Home: "ramus-0", Keys: filepath.Join(dir, "keys"),
		Secret: []byte(strings.Repeat("replica", 8)), Patience: 5 * time.Second, Log: log}}
	if err := m.Open(); err != nil {
		t.Fatal(err)
	}
	git.PassSSH = m.PassSSH
	shell, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.ssh = shell.Addr().String()
	serving, stop := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		if err := git.ServeSSH(serving, shell); err != nil {
			t.Error(err)
		}
	})
	said := func(c *route.Call) error {
		m.answers.Add(1)
		return c.Reply(name)
	}
	mux := &route.Mux{Elsewhere: m.Elsewhere}
	admin := &route.Who{Subject: "ada", Repo: "*", Scopes: []string{gitd.ScopeAdmin}}
	table := []route.Route{
		{Method: "GET", Pattern: "/api/repos/{repo}", Access: route.AccessAdmin, Handle: said},
		{Method: "POST", Pattern: "/api/repos/{repo}/sync", Access: route.AccessAdmin, Unlogged: true, Handle: said},
		{Method: "GET", Pattern: "/api/repos", Access: route.AccessAdmin, Handle: func(c *route.Call) error {
			repos, err := git.Repos(c.R.Context())
			list := []map[string]string{{"name": "shared"}}
			for _, r := range repos {
				list = append(list, map[string]string{"name": r.Name()})
			}
			if err != nil {
				return err
			}
			return c.Reply(list)
		}},
		{Method: "GET", Pattern: "/api/workspaces", Access: route.AccessAdmin, Handle: func(c *route.Call) error {
			return c.Reply(m.workspaces(c.R.URL.Query().Get("after"), c.R.URL.Query().Get("max")))
		}},
		{Method: "GET", Pattern: "/api/callers/{caller}", Access: route.AccessAdmin, Handle: said},
		{Method: "GET", Pattern: "/api/tournaments/{tournament}", Access: route.AccessAdmin, Handle: said},
		{Method: "GET", Pattern: "/shared/{share}/{token}", Access: route.AccessAdmin, Handle: said},
	}
	m.public = httptest.NewServer(mux.Handler(table, admin))
	between := httptest.NewUnstartedServer(m.Inner(m.public.Config.Handler, m.public.Config.Handler))
	between.Listener.Close()
	between.Listener, between.TLS = inner, m.TLS()
	between.StartTLS()
	t.Cleanup(func() {
		stop()
		served.Wait()
		m.public.Close()
		between.CloseClientConnections()
		m.Front.Close()
		between.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(x.Close(ctx, false), engine.Close(), git.Close()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// create makes a repository with one commit.
func (m *member) create(name string) {
	m.t.Helper()
	if _, err := m.Git.Create(m.t.Context(), name); err != nil {
		m.t.Fatal(err)
	}
	m.commit(name, "refs/heads/main")
}

// commit makes a branch with a commit of its own.
func (m *member) commit(name, ref string) {
	m.t.Helper()
	repo, err := m.Git.Repo(name)
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.Command("git", "-C", filepath.Join(m.Executor.Data, "repos", name+".git"), "commit-tree", "-m", ref,
		"4b825dc642cb6eb9a060e54bf8d69288fbee4904")
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada",
		"GIT_COMMITTER_EMAIL=ada@example.org")
	cmd.Stderr = m.t.Output()
	if exec.Command("git", "-C", cmd.Args[2], "hash-object", "-w", "-t", "tree", "/dev/null").Run() != nil {
		m.t.Fatal("no tree")
	}
	out, err := cmd.Output()
	if err == nil {
		err = repo.Update(m.t.Context(), gitd.RefUpdate{Name: ref, New: gitd.Hash(strings.TrimSpace(string(out)))})
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// has fails unless the replica serves a repository, or does not.
func (m *member) has(name string, want bool) {
	m.t.Helper()
	if _, err := m.Git.Repo(name); (err == nil) != want {
		m.t.Errorf("%s has %s: %v", m.Group.Name, name, err)
	}
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%s does not happen", what)
		}
	}
}

func (m *member) knows(repo, owner string) {
	m.t.Helper()
	await(m.t, "the news of "+repo, func() bool { r, ok := m.Group.Find(repo); return ok && r.Name == owner })
}

// ask sends a request to the public address of the replica, and returns the name of the one that answered.
func (m *member) asked(method, path string) string {
	m.t.Helper()
	r, err := http.NewRequestWithContext(m.t.Context(), method, m.public.URL+path, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return strings.Trim(strings.TrimSpace(string(b)), `"`)
}

// TestMove moves a repository to and fro, and has both replicas answer for it.
func TestMove(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("ramus-0"), w.open("ramus-1")
	a.create("app")
	for i, step := range []struct{ from, to *member }{{a, b}, {b, a}, {a, b}} {
		step.from.commit("app", fmt.Sprintf("refs/heads/n%d", i))
		if _, err := step.from.Move(t.Context(), "app", step.to.Group.Name, ada); err != nil {
			t.Fatal(err)
		}
		step.from.has("app", false)
		step.to.has("app", true)
		repo, _ := step.to.Git.Repo("app")
		if _, err := repo.Resolve(t.Context(), fmt.Sprintf("refs/heads/n%d", i)); err != nil {
			t.Errorf("a branch was lost: %v", err)
		}
		step.from.knows("app", step.to.Group.Name)
		for _, m := range []*member{a, b} {
			if got := m.asked("GET", "/api/repos/app"); got != step.to.Group.Name {
				t.Errorf("%s is answered by %q", m.Group.Name, got)
			}
		}
	}
	for _, m := range []*member{a, b} {
		for _, folder := range []string{incoming, outgoing} {
			if left, _ := os.ReadDir(filepath.Join(m.Executor.Data, folder)); len(left) > 0 {
				t.Errorf("%s keeps %v", m.Group.Name, left)
			}
		}
	}
}

// TestMoveDuringPush moves a repository while git receives a push that did not pass the gate, as those of containers. The push
// ends without an acknowledgement, and holds nothing up.
func TestMoveDuringPush(t *testing.T) {
	w := newWorld(t)
	a, _ := w.open("ramus-0"), w.open("ramus-1")
	a.create("app")
	received, frozen := make(chan struct{}), make(chan struct{})
	settle, once := a.Git.Settle, sync.Once{}
	a.Git.Settle = func(ctx context.Context, repo string) error {
		once.Do(func() {
			close(received)
			<-frozen
		})
		return settle(ctx, repo)
	}
	freeze := sync.OnceFunc(func() { close(frozen) })
	w.leases.After(func(r *http.Request) { // the move reads the assignment when the repository is frozen
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "-repository-") {
			freeze()
		}
	})
	token, err := a.Git.Sign(gitd.Grant{Subject: "ada", Repo: "*", Scopes: []string{gitd.ScopeRead, gitd.ScopeWrite}, Write: []string{"refs/heads/*"}, Expires: time.Now().Add(time.Hour)})
	must(t, err)
	direct := httptest.NewServer(a.Git.Handler())
	t.Cleanup(direct.Close)
	pushed := make(chan error, 1)
	go func() { // two refs, which git receives
		cmd := exec.Command("git", "-C", a.place("app"), "-c", "http.extraHeader=Authorization: Bearer "+token, "push", "-q",
			direct.URL+"/app.git", "refs/heads/main:refs/heads/x", "refs/heads/main:refs/heads/y")
		out, err := cmd.CombinedOutput()
		t.Logf("the push says %s", out)
		pushed <- err
	}()
	select {
	case <-received:
	case err := <-pushed:
		t.Fatalf("the push ended: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	moved := make(chan error, 1)
	go func() {
		_, err := a.Move(ctx, "app", "ramus-1", ada)
		moved <- err
	}()
	select {
	case err := <-moved:
		must(t, err)
	case <-ctx.Done():
		t.Fatal("the move and the push wait for each other")
	}
	if err := <-pushed; err == nil {
		t.Error("a push was acknowledged by the owner before")
	}
}

// copyTo sends a complete copy of a repository, and returns its name.
func (m *member) copyTo(to *member, repo, id string) {
	m.t.Helper()
	r, err := m.Git.Repo(repo)
	dir := filepath.Join(m.t.TempDir(), "copy")
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		_, err = r.Copy(m.t.Context(), dir, nil)
	}
	target, _ := m.Group.Named(to.Group.Name)
	if err == nil {
		err = m.send(m.t.Context(), target, copying{repo, dir, id, true, true}, map[string]bool{})
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// give assigns a repository to another replica, and forgets it here.
func (m *member) give(to *member, repo, id string) {
	m.t.Helper()
	thaw, err := m.Group.Freeze(m.t.Context(), repo)
	if err == nil {
		defer thaw()
		err = m.Group.Give(m.t.Context(), repo, to.Group.Name, id)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

const copyID = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// TestInstallAgain installs copies where a process was killed at each of its steps.
func TestInstallAgain(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("ramus-0"), w.open("ramus-1")
	for name, state := range map[string]func(repo, dir, mark string){
		"given":   func(string, string, string) {},
		"adopted": func(repo, dir, _ string) { must(t, os.Rename(dir, b.place(repo))) },
		"listed": func(repo, dir, _ string) {
			must(t, os.Rename(dir, b.place(repo)))
			must(t, b.Executor.Repos.TakeOver(t.Context(), repo))
		},
		"older": func(repo, _, _ string) { // it could not discard its own the last time
			must(t, exec.Command("git", "init", "-q", "--bare", b.place(repo)).Run())
		},
	} {
		a.create(name)
		dir, mark := b.staged(name, copyID)
		b.taking.Lock() // nothing else installs it meanwhile
		a.copyTo(b, name, copyID)
		a.give(b, name, copyID)
		state(name, dir, mark)
		b.taking.Unlock()
		// The next process.
		if err := b.Install(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b.has(name, true)
		repo, err := b.Git.Repo(name)
		if err == nil {
			_, err = repo.Resolve(t.Context(), "refs/heads/main")
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(mark); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the copy is kept: %v", name, err)
		}
		must(t, b.install(t.Context(), name, copyID)) // and again
	}
	if aside, _ := os.ReadDir(filepath.Join(b.Executor.Data, "moved")); len(aside) != 1 {
		t.Errorf("put aside: %v", aside)
	}
}

// place is the folder of a repository.
func (m *member) place(repo string) string {
	return filepath.Join(m.Executor.Data, "repos", repo+".git")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestStagedCopy keeps a complete copy over a restart until the assignment comes, and removes it when that does not come.
func TestStagedCopy(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("ramus-0"), w.open("ramus-1")
	a.create("app")
	a.copyTo(b, "app", copyID)
	half, _ := b.staged("app", strings.Repeat("B", 26))
	must(t, os.Mkdir(half, 0o755))
	must(t, b.Install(t.Context()))
	if _, err := os.Stat(half); err == nil {
		t.Error("half a copy is kept")
	}
	b.has("app", false)
	a.give(b, "app", copyID)
	await(t, "the use of the copy", func() bool { _, err := b.Git.Repo("app"); return err == nil })

	a.create("other")
	a.copyTo(b, "other", copyID)
	dir, mark := b.staged("other", copyID)
	old := time.Now().Add(-2 * stagedFor)
	must(t, os.Chtimes(mark, old, old))
	must(t, b.Install(t.Context()))
	await(t, "the end of the copy", func() bool { _, err := os.Stat(dir); return err != nil })
	b.has("other", false)
	// A copy that no assignment names is never used, also if the replica owns a repository of that name later.
	a.copyTo(b, "other", strings.Repeat("C", 26))
	must(t, a.Git.Remove(t.Context(), "other"))
	b.create("other")
	b.commit("other", "refs/heads/own")
	must(t, b.Install(t.Context()))
	repo, err := b.Git.Repo("other")
	if err == nil {
		_, err = repo.Resolve(t.Context(), "refs/heads/own")
	}
	if err != nil {
		t.Errorf("a copy took the place of a newer repository: %v", err)
	}
}

// TestSlowCopy takes one repository while the sender of another one says nothing.
func TestSlowCopy(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("ramus-0"), w.open("ramus-1")
	a.create("app")
	silent, in := io.Pipe()
	target, _ := a.Group.Named("ramus-1")
	sent := make(chan error, 1)
	go func() {
		sent <- a.ask(t.Context(), target, http.MethodPost, "/replica/take?repo=slow&first=1&id="+strings.Repeat("S", 26), silent, nil)
	}()
	dir, _ := b.staged("slow", strings.Repeat("S", 26))
	await(t, "the begin of the slow copy", func() bool { _, err := os.Stat(dir); return err == nil })
	moved := make(chan error, 1)
	go func() {
		_, err := a.Move(t.Context(), "app", "ramus-1", ada)
		moved <- err
	}()
	select {
	case err := <-moved:
		must(t, err)
	case <-time.After(15 * time.Second):
		t.Error("a move waits for a sender that says nothing")
	}
	in.CloseWithError(io.ErrUnexpectedEOF)
	if <-sent == nil {
		t.Error("a copy that ended early was taken")
	}
}

// TestMisdirected repeats a request without a body that came to the earlier owner.
func TestMisdirected(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.open("ramus-0"), w.open("ramus-1"), w.open("ramus-2")
	b.create("app")
	a.knows("app", "ramus-1")
	// The watch of the first does not tell it of the move.
	w.leases.EndWatches()
	w.leases.Refuse(func(r *http.Request) bool { return r.URL.Query().Has("labelSelector") })
	if _, err := b.Move(t.Context(), "app", "ramus-2", ada); err != nil {
		t.Fatal(err)
	}
	if got := a.asked("POST", "/api/repos/app/sync"); got != "ramus-2" || c.answers.Load() != 1 {
		t.Errorf("a request for a repository that moved is answered by %q", got)
	}
}

// TestUnknownNames bounds the questions for names that strangers invent.
func TestUnknownNames(t *testing.T) {
	w := newWorld(t)
	a := w.open("ramus-0")
	var asked atomic.Int64
	peer := w.open("ramus-1")
	peer.public.Config.Handler = nil
	await(t, "the news of the peer", func() bool { r, ok := a.Group.Named("ramus-1"); return ok && r.URL != "" })
	before, begun := w.leases.Requests(http.MethodGet), time.Now()
	for i := range 2000 {
		a.isHere(t.Context(), fmt.Sprintf("invented-%d", i))
	}
	seconds := int(time.Since(begun)/time.Second) + 1
	if got := w.leases.Requests(http.MethodGet) - before; got > (10+seconds)*looksMost+50 {
		t.Errorf("%d questions to the cluster for 2000 invented names", got)
	}
	for i := range 3000 {
		if a.places.find(t.Context(), a.Front, gather.Work{Caller: fmt.Sprintf("invented-%d", i)}) == "" {
			asked.Add(1)
		}
	}
	a.places.mu.Lock()
	missed := len(a.places.missed)
	a.places.mu.Unlock()
	if most := (10 + int(time.Since(begun)/time.Second) + 1) * asksMost; missed > most {
		t.Errorf("%d questions to the other replicas for 3000 invented names, at most %d", missed, most)
	}
	// The same name is asked for once.
	a.places.init()
	for range 50 {
		a.places.find(t.Context(), a.Front, gather.Work{Caller: "absent"})
	}
	if left := a.places.asks.Tokens(); left < 10*asksMost-15 {
		t.Errorf("one name was asked for %v times", 10*asksMost-left)
	}
}

// TestLaterKeys fetches a key that a later version of the home has, and leaves those that are there.
func TestLaterKeys(t *testing.T) {
	w := newWorld(t)
	home, other := w.open("ramus-0"), w.open("ramus-1")
	write := func(dir, name, text string) {
		must(t, os.MkdirAll(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write(home.Keys, firstKey, "one")
	must(t, other.FetchKeys(t.Context(), other.Keys))
	write(home.Keys, "later.key", "two")
	write(other.Keys, "own.key", "three")
	must(t, other.FetchKeys(t.Context(), other.Keys))
	for name, want := range map[string]string{firstKey: "one", "later.key": "two", "own.key": "three"} {
		if got, err := os.ReadFile(filepath.Join(other.Keys, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
}

// TestRoom has the home order the machine for which a container of another replica waits.
func TestRoom(t *testing.T) {
	w := newWorld(t)
	home, other := w.open("ramus-0"), w.open("ramus-1")
	var ordered atomic.Int64
	home.Order = func() string { ordered.Add(1); return "no node has room; one is ordered" }
	if got := other.Room(); !strings.Contains(got, "ramus-0, which orders nodes") {
		t.Errorf("at first: %q", got)
	}
	await(t, "the answer of the home", func() bool { return other.Room() == "no node has room; one is ordered" })
	for range 100 {
		other.Room()
	}
	if n := ordered.Load(); n > 5 {
		t.Errorf("the home was asked %d times", n)
	}
}

// TestSSH has each replica serve git by SSH for the repositories of the other one, also while one moves.
func TestSSH(t *testing.T) {
	for _, program := range []string{"ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("cannot run here: there is no " + program)
		}
	}
	w := newWorld(t)
	key := filepath.Join(w.dir, "id")
	must(t, exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", key).Run())
	public, err := os.ReadFile(key + ".pub")
	must(t, err)
	for _, name := range []string{"ramus-0", "ramus-1"} {
		must(t, os.WriteFile(filepath.Join(w.dir, name+".keys"), public, 0o600))
	}
	a, b := w.open("ramus-0"), w.open("ramus-1")
	a.create("app")
	b.knows("app", "ramus-0")
	git := func(args ...string) (string, error) {
		cmd := exec.Command("git", append([]string{"-c", "user.name=Ada", "-c", "user.email=ada@example.org"}, args...)...)
		cmd.Dir = w.dir
		cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=", "GIT_SSH_COMMAND=ssh -F none -i "+key+
			" -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile="+filepath.Join(w.dir, "known"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	url := func(m *member, repo string) string { return "ssh://ada@" + m.ssh + "/" + repo + ".git" }
	if out, err := git("clone", "-q", url(b, "app"), "work"); err != nil {
		t.Fatalf("a clone by the other replica: %v: %s", err, out)
	}
	push := func(m *member, branch string) (string, error) {
		if out, err := git("-C", "work", "commit", "-q", "--allow-empty", "-m", branch); err != nil {
			t.Fatal(out)
		}
		return git("-C", "work", "push", "-q", url(m, "app"), "HEAD:refs/heads/"+branch)
	}
	if out, err := push(b, "by-b"); err != nil {
		t.Fatalf("a push by the other replica: %v: %s", err, out)
	}
	repo, _ := a.Git.Repo("app")
	if _, err := repo.Resolve(t.Context(), "refs/heads/by-b"); err != nil {
		t.Errorf("the push is not at the owner: %v", err)
	}

	// Pushes by SSH count in the gate of a move, and none is refused.
	ctx, cancel := context.WithCancel(t.Context())
	pushed := 0
	var pushing sync.WaitGroup
	pushing.Go(func() {
		for ; ctx.Err() == nil; pushed++ {
			if out, err := push([]*member{a, b}[pushed%2], fmt.Sprintf("n%d", pushed)); err != nil {
				t.Errorf("push %d while the repository moves: %v: %s", pushed, err, out)
			}
		}
	})
	at := []*member{a, b}
	for i := range 3 {
		time.Sleep(100 * time.Millisecond)
		if _, err := at[i%2].Move(t.Context(), "app", at[(i+1)%2].Group.Name, ada); err != nil {
			t.Error(err)
		}
	}
	cancel()
	pushing.Wait()
	if repo, err = b.Git.Repo("app"); err != nil {
		t.Fatal(err)
	}
	for i := range pushed {
		if _, err := repo.Resolve(t.Context(), fmt.Sprintf("refs/heads/n%d", i)); err != nil {
			t.Errorf("push %d was acknowledged and is lost", i)
		}
	}
	t.Logf("%d pushes by SSH during three moves", pushed)

	// The owner looks for the key itself, and refuses one that it does not know.
	must(t, os.WriteFile(filepath.Join(w.dir, "ramus-1.keys"), nil, 0o600))
	if out, err := git("ls-remote", url(a, "app")); err == nil {
		t.Errorf("a key that the owner does not know: %s", out)
	}
	a.knows("app", "ramus-1")
}

// workspaces is a page of ten workspaces of the replica.
func (m *member) workspaces(after, most string) any {
	size, err := strconv.Atoi(most)
	if err != nil {
		size = 50
	}
	list, next := []map[string]any{}, ""
	begun := after == ""
	for i := range 10 {
		id := fmt.Sprintf("%s-%d", m.Group.Name, i)
		if !begun {
			begun = id == after
			continue
		}
		if len(list) == size {
			next = fmt.Sprint(list[size-1]["id"])
			break
		}
		created := time.Unix(1_700_000_000, 0).Add(-time.Duration(i) * time.Minute)
		list = append(list, map[string]any{"id": id, "last_run": map[string]any{"caller": "run:x", "id": id, "created_at": created}})
	}
	return map[string]any{"workspaces": list, "next": next}
}

// TestLists has each replica list the items of all.
func TestLists(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("ramus-0"), w.open("ramus-1")
	a.create("zebra")
	b.create("app")
	await(t, "the news of the replicas", func() bool { return len(a.Group.Replicas()) == 2 && len(b.Group.Replicas()) == 2 })
	for _, m := range []*member{a, b} {
		if got := m.asked("GET", "/api/repos"); got != `[{"name":"app"},{"name":"shared"},{"name":"zebra"}]` {
			t.Errorf("%s lists %s", m.Group.Name, got)
		}
		// Pages have each workspace once.
		seen, next, pages := map[string]int{}, "", 0
		for {
			var page struct {
				Workspaces []struct{ ID string }
				Next       string
			}
			body := m.asked("GET", "/api/workspaces?max=3&after="+url.QueryEscape(next))
			must(t, json.Unmarshal([]byte(body), &page))
			for _, s := range page.Workspaces {
				seen[s.ID]++
			}
			if pages++; len(page.Workspaces) > 3 || pages > 20 {
				t.Fatalf("page %d: %s", pages, body)
			}
			if next = page.Next; next == "" {
				break
			}
		}
		if len(seen) != 20 || pages != 7 {
			t.Errorf("%s lists %d workspaces on %d pages: %v", m.Group.Name, len(seen), pages, seen)
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s is listed %d times", id, n)
			}
		}
	}
	if got := a.asked("GET", "/api/workspaces?after=nonsense"); !strings.Contains(got, "not the next of a page") {
		t.Errorf("a cursor of nobody: %s", got)
	}
	// A replica that does not answer is named.
	_ = b.Group.Close(t.Context())
	await(t, "the end of the replica", func() bool { r, _ := a.Group.Named("ramus-1"); return r.URL == "" })
	resp, err := http.Get(a.public.URL + "/api/repos")
	must(t, err)
	defer resp.Body.Close()
	if got := gather.Missing(resp.Header); resp.StatusCode != 200 || !slices.Equal(got, []string{"ramus-1"}) {
		t.Errorf("%d, missing %q", resp.StatusCode, got)
	}
}

// TestWorkOfOwner finds tournaments and links at the replica that has their repository.
func TestWorkOfOwner(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("ramus-0"), w.open("ramus-1")
	b.create("app")
	of := func(want string) func(string) string {
		return func(name string) string {
			if name == want {
				return "app"
			}
			return ""
		}
	}
	b.Tournament = func(_ context.Context, name string) string { return of("spring")(name) }
	b.Link = of("id")
	a.knows("app", "ramus-1")
	for _, m := range []*member{a, b} {
		for path, want := range map[string]string{
			"/api/tournaments/spring": "ramus-1", "/shared/id/token": "ramus-1",
			"/api/tournaments/none": m.Group.Name, "/shared/none/token": m.Group.Name,
		} {
			if got := m.asked("GET", path); got != want {
				t.Errorf("%s at %s is answered by %s, not by %s", path, m.Group.Name, got, want)
			}
		}
	}
	if h := a.PassTo("ramus-0", false); h != nil {
		t.Error("a request for this replica is passed on")
	}
	if h := a.PassTo("ramus-9", false); h != nil {
		t.Error("a request for a replica that nobody is is passed on")
	}
}

// shelf is a Keeper of the names of callers.
type shelf struct {
	mu    sync.Mutex
	names []string
	err   error
}

func (s *shelf) Pack(repo string, _ []record.Caller) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		return nil, nil
	}
	return json.Marshal(append(s.names, repo))
}

func (s *shelf) Unpack(_ context.Context, packed json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.err, json.Unmarshal(packed, &s.names))
}

// TestMoveTakesRecords moves records along with a repository, and moves nothing if they cannot be kept.
func TestMoveTakesRecords(t *testing.T) {
	w := newWorld(t)
	a, b := w.open("ramus-0"), w.open("ramus-1")
	mine, theirs := &shelf{names: []string{"one"}}, &shelf{err: errors.New("no room")}
	a.Keepers, b.Keepers = map[string]Keeper{"names": mine}, map[string]Keeper{"names": theirs}
	a.create("app")
	b.knows("app", "ramus-0")
	if _, err := a.Move(t.Context(), "app", "ramus-1", ada); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Fatalf("a move without its records: %v", err)
	}
	a.has("app", true)
	theirs.err = nil
	if _, err := a.Move(t.Context(), "app", "ramus-1", ada); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(theirs.names, []string{"one", "app"}) {
		t.Errorf("the records are %q", theirs.names)
	}
}
