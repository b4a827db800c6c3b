package gateway_test

import (
	"context"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/goroutines"
)

// rooms is a server with all its parts, in a temporary folder.
type rooms struct {
	*gateway.Server
	web, socket *httptest.Server
	local       *client.Client // uses the socket
}

// open opens rooms over the Sandbox. Without containers, the Sandbox cannot start any, so runs fail at once, which is
// enough for some tests.
func open(t *testing.T, withContainers bool, change func(*gateway.Server)) *rooms {
	t.Helper()
	return openWith(t, withContainers, nil, change)
}

// coder is a coding agent that prints its prompt.
var coder = map[string]agent.Agent{"coder": {Command: []string{"cat"}}}

// openWith is like open, with coding agents.
func openWith(t *testing.T, withContainers bool, agents map[string]agent.Agent, change func(*gateway.Server)) *rooms {
	t.Helper()
	return openExecutor(t, withContainers, func(x *executor.Executor) { x.Options.Agents = agents }, change)
}

// openExecutor is like open, with options of the executor. The options are set before the executor is opened. Nil
// means none.
func openExecutor(t *testing.T, withContainers bool, options func(*executor.Executor), change func(*gateway.Server)) *rooms {
	t.Helper()
	goroutines.Watch(t)
	// The path must be short, because sockets are below it.
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	engine := &sandbox.Engine{Dir: filepath.Join(dir, "sandbox")}
	if withContainers {
		engine.Runner = ramusBinary(t)
		if err := engine.Check(t.Context()); err != nil {
			t.Skipf("cannot run here: sandboxes: %v", err)
		}
	} else {
		engine.Bwrap = "/nonexistent/bwrap"
	}
	git := &gitd.Server{Root: filepath.Join(dir, "repos"), KeyFile: filepath.Join(dir, "key.pem")}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	x := &executor.Executor{Data: dir, Git: git, Fleet: &containers.Fleet{Engine: engine, Dir: filepath.Join(dir, "hosts")}}
	if options != nil {
		options(x)
	}
	if err := x.Open(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	s := &gateway.Server{Executor: x, Git: git, Version: "v0", Engine: engine.Name(),
		Links: &links.Signer{Key: []byte("0123456789abcdef0123456789abcdef")}, DeploySecret: "the secret of deploys"}
	if change != nil {
		change(s)
	}
	r := &rooms{Server: s, web: httptest.NewServer(s.Handler()), socket: httptest.NewUnstartedServer(s.LocalHandler())}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	r.socket.Listener.Close()
	r.socket.Listener = l
	r.socket.Start()
	r.local = client.Socket(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	})
	t.Cleanup(func() {
		s.Drain()
		r.local.Close()
		r.web.Client().CloseIdleConnections()
		r.web.Close()
		r.socket.Close()
		if s.Engineer != nil {
			if err := s.Engineer.Close(); err != nil {
				t.Error(err)
			}
		}
		if s.People != nil {
			if err := s.People.Actions.Close(); err != nil {
				t.Error(err)
			}
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
	return r
}

// withEngineer returns a change that adds an engineer to the server.
func withEngineer(t *testing.T) func(*gateway.Server) {
	return func(s *gateway.Server) {
		s.Engineer = &engineer.Engineer{Executor: s.Executor, Git: s.Git}
		if err := s.Engineer.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// failedRun returns the run of the caller run:subject in team/app, which failed, because there are no containers.
func (r *rooms) failedRun(t *testing.T) record.Run {
	t.Helper()
	subject, err := record.RunCaller("subject")
	if err != nil {
		t.Fatal(err)
	}
	run, err := r.local.Submit(t.Context(),
		record.Request{Caller: subject, Repo: "team/app", Command: &record.Command{Shell: "true"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range r.local.Events(t.Context(), run.Name(), 0) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return run
}

// repo creates a repository with one commit.
func (r *rooms) repo(t *testing.T, name string) {
	t.Helper()
	repo, err := r.Git.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	commit, err := repo.WriteCommit(t.Context(), gitd.NewCommit{
		Put:    []gitd.File{{Path: "README", Content: []byte("hello\n")}, {Path: "a/b", Content: []byte("b\n")}},
		Author: gitd.Person{Name: "A", Email: "a@example.org"}, Committer: gitd.Person{Name: "A", Email: "a@example.org"},
		When: time.Unix(1_700_000_000, 0), Message: "begin",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: commit}); err != nil {
		t.Fatal(err)
	}
}

// touch makes a file in the work trees of all containers, like a process in the container would.
func (r *rooms) touch(t *testing.T, name string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.Executor.Data, "hosts", "hosts", "*", "work"))
	if err != nil || len(found) == 0 {
		t.Fatalf("the work trees: %v %v", found, err)
	}
	for _, dir := range found {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// token signs a grant. A grant with scope write and without refs gets the refs of a new token.
func (r *rooms) token(t *testing.T, g gitd.Grant) string {
	t.Helper()
	if g.Expires.IsZero() {
		g.Expires = time.Now().Add(time.Hour)
	}
	if g.Write == nil && g.Has(gitd.ScopeWrite) {
		g.Write = []string{"refs/heads/*", "refs/tags/*"}
	}
	token, err := r.Git.Sign(g)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// bearer returns a client with a token.
func (r *rooms) bearer(t *testing.T, token string) *client.Client {
	c := client.New(r.web.URL, token)
	t.Cleanup(c.Close)
	return c
}

func dialUnix(path string) func(ctx context.Context, _, _ string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
}
