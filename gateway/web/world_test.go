package web_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/tournament"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gateway/files"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/webbuild/bundle"
)

// ada is an administrator.
var ada = route.Who{Subject: "github:1", Repo: "*", Scopes: []string{gitd.ScopeAdmin}, Write: []string{"refs/heads/*"},
	Name: "Ada", Email: "ada@example.org"}

// world is a server of pages without containers, so that runs fail at once.
type world struct {
	t       *testing.T
	git     *gitd.Server
	x       *executor.Executor
	server  *httptest.Server
	who     route.Who
	handler atomic.Pointer[http.Handler]
	mux     *route.Mux
	table   []route.Route
	api     *web.API
	shared  string       // a folder that containers see; empty if there are none
	bases   int          // manifests of the base of app
	later   atomic.Int64 // nanoseconds by which the clock of the pages is ahead
}

// become has later requests come from who. Browsers may have requests at work.
func (w *world) become(who route.Who) {
	w.who = who
	h := w.mux.Handler(w.table, &who)
	w.handler.Store(&h)
}

// open opens a world whose requests come from who.
func open(t *testing.T, who route.Who, change func(*web.API)) *world {
	t.Helper()
	return openWith(t, who, nil, change)
}

// openWith opens a world whose executor, and with it the engine, may be others.
func openWith(t *testing.T, who route.Who, with func(*executor.Executor, *sandbox.Engine), change func(*web.API)) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "web") // a short path, because sockets are below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	engine := &sandbox.Engine{Dir: filepath.Join(dir, "sandbox"), Bwrap: "/nonexistent/bwrap"}
	git := &gitd.Server{Root: filepath.Join(dir, "repos"), KeyFile: filepath.Join(dir, "key.pem")}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	x := &executor.Executor{Data: dir, Git: git, Fleet: &containers.Fleet{Engine: engine, Dir: filepath.Join(dir, "hosts")},
		Options: executor.Options{Agents: map[string]agent.Agent{"coder": {Command: []string{"cat"}}}}}
	if with != nil {
		with(x, engine)
	}
	if err := x.Open(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	tasks := &engineer.Engineer{Executor: x, Git: git}
	if err := tasks.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	find := &lookup.Lookup{Executor: x, Git: git}
	signer := &links.Signer{Key: []byte("0123456789abcdef0123456789abcdef")}
	places := &workspace.Workspaces{Executor: x, Find: find, Git: git}
	api := &web.API{Executor: x, Git: git, Find: find, Workspaces: places, Engineer: tasks,
		Past:     &past.API{Executor: x, Git: git, Find: find, Branches: &radar.Radar{}, Now: time.Now},
		Evidence: &evidence.API{Executor: x, Programs: &x.Programs, Find: find, Links: signer, Now: time.Now},
		Files:    &files.API{Mover: &x.Files, Workspaces: places, Git: git},
		Live:     &live.API{Hub: &live.Hub{}, Watch: x}}
	w := &world{t: t, git: git, x: x, api: api}
	api.Now = func() time.Time { return time.Now().Add(time.Duration(w.later.Load())) }
	api.Machines = &workspace.Machines{Stats: x.Stats, Engine: "sandbox", Version: "v1", Workspaces: places, Now: time.Now}
	api.Comments = comment.NewComments(x, &conversation.Talk{Executor: x, Prompts: &x.Prompts, Find: find}, find, x.Bot, time.Now)
	if change != nil {
		change(api)
	}
	mux := &route.Mux{Links: signer, Page: api.Problem, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))}
	w.mux, w.table = mux, append(api.Routes(), (&workspace.API{Workspaces: places}).Routes()...)
	w.become(who)
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		(*w.handler.Load()).ServeHTTP(rw, r)
	}))
	w.server.Listener = &cutter{Listener: w.server.Listener}
	w.server.Start()
	t.Cleanup(func() {
		mux.Drain()
		api.Close()
		w.server.Close()
		if err := tasks.Close(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := x.Close(ctx, false); err != nil {
			t.Error(err)
		}
		if err := git.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// cutter is a listener that can cut all its connections.
type cutter struct {
	net.Listener
	mu    sync.Mutex // guards conns
	conns []net.Conn
}

func (c *cutter) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.mu.Lock()
		c.conns = append(c.conns, conn)
		c.mu.Unlock()
	}
	return conn, err
}

// drop cuts all connections.
func (w *world) drop() {
	c := w.server.Listener.(*cutter)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
}

// built has the assets as `make web` makes them.
func built(t *testing.T) *web.Assets {
	t.Helper()
	out, err := bundle.Build(".")
	if err != nil {
		t.Fatal(err)
	}
	return webtest.Assets(t, out.Files)
}

// repo creates a repository with one commit.
func (w *world) repo(name string) {
	w.t.Helper()
	r, err := w.git.Create(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	person := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	commit, err := r.WriteCommit(w.t.Context(),
		gitd.NewCommit{Put: []gitd.File{{Path: "README", Content: []byte("hello\n")}},
			Author: person, Committer: person, When: time.Unix(1_700_000_000, 0), Message: "Begin"})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := r.Update(w.t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: commit}); err != nil {
		w.t.Fatal(err)
	}
}

// run submits a request for the caller of a name, and waits for its end.
func (w *world) run(name string, r record.Request) record.Run {
	w.t.Helper()
	run := w.begin(name, r)
	run, err := w.x.Settled(w.t.Context(), run.Caller, run.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// begin submits a request for the caller of a name.
func (w *world) begin(name string, r record.Request) record.Run {
	w.t.Helper()
	caller, err := record.RunCaller(name)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Caller, r.Repo, r.Asker = caller, "app", gitd.Person{Name: "Ada", Email: "ada@example.org"}
	run, err := w.x.Submit(w.t.Context(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// tournament has three entries, of which the last one did not begin. A model has an opinion. of is the caller that they are
// forked from.
func (w *world) tournament(name, of string) {
	w.t.Helper()
	repo, err := w.git.Repo("app")
	if err != nil {
		w.t.Fatal(err)
	}
	at, err := repo.Resolve(w.t.Context(), "refs/heads/main")
	if err != nil {
		w.t.Fatal(err)
	}
	book := &tournament.Book{Bot: gitd.Person{Name: "ramus", Email: "ramus@example.org"}, Now: time.Now}
	p := tournament.Plan{Name: name, Repo: "app", Base: "main", Of: of, At: at, Task: "x", Time: time.Unix(1_700_000_000, 0)}
	if err := p.SetEntries([]string{"coder"}, 3); err != nil {
		w.t.Fatal(err)
	}
	if err := book.Make(w.t.Context(), repo, p); err != nil {
		w.t.Fatal(err)
	}
	for _, e := range p.Entries[:2] {
		w.run(e.Caller.ID(), record.Request{Agent: &record.AgentCall{Prompt: "x"}})
	}
	_, err = book.Change(w.t.Context(), repo, name, func(r *tournament.Record) error {
		r.Begun, r.Entries[2].Refused = true, "there is a caller <b>cup-3</b> already"
		s, err := tournament.Look(w.t.Context(), repo, w.x, *r)
		if err != nil {
			return err
		}
		of := ""
		for _, e := range r.Entries {
			for _, p := range s.Places {
				if p.Caller == e.Caller {
					of += p.Caller.ID() + "@" + string(p.Head) + " "
				}
			}
		}
		r.Opinion = &tournament.Opinion{Of: of, Order: []record.Caller{r.Entries[1].Caller}, Words: "<script>alert(1)</script> is " + strings.Repeat("long ", 60)}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// asks is a workflow that waits for a person.
const asks = "id: release\nrepo: {id: app}\nnodes:\n  - id: ask\n    human: Publish <b>version 2</b>?\n"

// fill puts n rows into each list, and one of each kind.
func (w *world) fill(n int) {
	w.t.Helper()
	w.repo("app")
	w.run("brave-otter", record.Request{Command: &record.Command{Shell: "go test ./... # <script>alert(1)</script>"}})
	w.run("calm-heron", record.Request{Workflow: asks})
	w.run("deft-ibis", record.Request{Agent: &record.AgentCall{Prompt: "Round to two digits & say <why>\nin the README."}})
	for i := range n {
		w.run(fmt.Sprintf("row-%d", i),
			record.Request{Command: &record.Command{Shell: fmt.Sprintf("echo %d %s", i, strings.Repeat("long ", i%40))}})
		if i < 20 {
			w.repo(fmt.Sprintf("library-%d", i))
		}
	}
}

// get returns the status and the body of a page.
func (w *world) get(path string) (int, http.Header, string) {
	w.t.Helper()
	return w.do("GET", path, nil)
}

// post sends a form. The answer is not followed.
func (w *world) post(path string, form url.Values) (int, http.Header, string) {
	w.t.Helper()
	return w.do("POST", path, form)
}

func (w *world) do(method, path string, form url.Values) (int, http.Header, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	if _, err := fmt.Fprint(&b, readAll(w.t, resp)); err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, b.String()
}

// paths are the pages of a world that was filled with n rows; -1 is an empty world.
func paths(n int) []string {
	list := []string{"/", "/dashboard", "/workspaces", "/workspaces?state=running", "/workspaces/new", "/tasks",
		"/repos", "/nodes", "/nodes/local", "/settings",
		"/workspaces/run-nobody", "/workspaces?state=odd"}
	if n < 0 {
		return list
	}
	return append(list, "/workspaces/run-brave-otter", "/workspaces/run-brave-otter?pane=shell",
		"/workspaces/run-brave-otter?pane=preview", "/workspaces/run-brave-otter?pane=files",
		"/workspaces/run-deft-ibis?pane=activity", "/workspaces/run-calm-heron", "/workspaces/run-brave-otter/runs/RUN",
		"/workspaces/run-brave-otter/timeline", "/workspaces/run-brave-otter/changes",
		"/workspaces/run-calm-heron/runs/RUN",
		"/workspaces/run-deft-ibis/runs/RUN", "/repos/app", "/repos/app/files", "/repos/app/log", "/repos/app/branches",
		"/repos/app/radar", "/repos/app/bases", "/workspaces/new?from=run-brave-otter", "/workspaces?q=otter",
		"/search", "/search?q=otter", "/search?q=no")
}

// path returns a path of paths with the id of a run.
func (w *world) path(path string) string {
	if !strings.HasSuffix(path, "/RUN") {
		return path
	}
	caller, _ := workspace.CallerOf(strings.Split(path, "/")[2])
	return strings.TrimSuffix(path, "RUN") + w.x.OfCaller(caller)[0].ID
}
