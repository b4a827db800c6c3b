package executor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/goroutines"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/remains"
)

// runnerBinary is the path of the static ramus that is process 1 in the tests'
// containers.
var runnerBinary string

// standinBinary is an agent of ProtocolACP, in a folder of its own that sandboxes may
// see.
var standinBinary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if dir := os.Getenv("RAMUS_TEST_CRASH"); dir != "" {
		if err := crashChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, "crash child:", err)
			return 1
		}
		return 0
	}
	dir, err := os.MkdirTemp("", "ramus-executor-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	runnerBinary, standinBinary = filepath.Join(dir, "ramus"), filepath.Join(dir, "agents", "acp-standin")
	for binary, pkg := range map[string]string{runnerBinary: "cmd/ramus", standinBinary: "internal/standin/acp-standin"} {
		if err := programs.Into(filepath.Dir(binary), pkg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// world is an executor over a repository called "demo", on the Sandbox engine by default.
type world struct {
	t      *testing.T
	engine string // "sandbox" or "docker"
	data   string
	git    *gitd.Server
	x      *executor.Executor
	keeper layer.Keeper // nil if git clones inside
	opts   func(*executor.Executor)
}

func newWorld(t *testing.T, opts func(*executor.Executor)) *world {
	t.Helper()
	return newWorldOn(t, "sandbox", opts)
}

// onEngines runs a test on every engine.
func onEngines(t *testing.T, test func(t *testing.T, engine string)) {
	for _, engine := range []string{"sandbox", "docker"} {
		t.Run(engine, func(t *testing.T) { test(t, engine) })
	}
}

func newWorldOn(t *testing.T, engine string, opts func(*executor.Executor)) *world {
	t.Helper()
	w := &world{t: t, engine: engine, data: t.TempDir(), opts: opts}
	goroutines.Watch(t)
	t.Cleanup(func() {
		w.stop(false)
		w.check()
		remains.Check(t, w.data)
	})
	w.start()
	src := filepath.Join(t.TempDir(), "src")
	w.sh(t.TempDir(), `git init -q -b main `+src+` && cd `+src+` && git config user.name T && git config user.email t@example.com && git config receive.denyCurrentBranch ignore &&
		printf 'hello\n' >greeting.txt && mkdir sub && printf 'a\n' >sub/a && printf '*.log\n' >.gitignore && git add -A && git commit -qm first`)
	if _, err := w.git.Import(t.Context(), "demo", src, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) start() {
	w.t.Helper()
	level := slog.LevelWarn
	log := slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: level}))
	w.git = &gitd.Server{Root: filepath.Join(w.data, "repos"), Log: log}
	if err := w.git.Open(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	w.x = &executor.Executor{
		Data: w.data, Git: w.git, Log: log,
		Fleet: &containers.Fleet{Dir: filepath.Join(w.data, "fleet"), Log: log, Capacity: 32,
			Engine: w.newEngine(log)},
	}
	var err error
	if w.keeper, err = newKeeper(w.data, runnerBinary); err != nil {
		w.t.Fatalf("work trees as RAMUS_WORK_TREE says: %v", err)
	}
	w.x.Fleet.Keeper = w.keeper
	if w.opts != nil {
		w.opts(w.x)
	}
	if err := w.x.Fleet.Engine.Check(context.Background()); err != nil {
		w.t.Skipf("cannot run here: %v", err)
	}
	if err := w.x.Open(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

// newKeeper returns a keeper that binds work trees from outside. RAMUS_WORK_TREE is root,
// helper or portable. If it is not set, newKeeper takes the best way that works here. Nil
// means that git clones inside.
func newKeeper(data, runner string) (layer.Keeper, error) {
	ctx := context.Background()
	switch want := os.Getenv("RAMUS_WORK_TREE"); want {
	case "portable":
		return nil, nil
	case "helper":
		owner, err := containers.OwnerOf(filepath.Join(data, "fleet"))
		if err != nil {
			return nil, err
		}
		engine := &docker.Engine{Runner: runner}
		keeper := &lifted{layer.NewHelper(data, docker.Lift{Engine: engine, Owner: owner}), engine}
		if err := keeper.Check(ctx); err != nil {
			return nil, errors.Join(err, keeper.Close())
		}
		return keeper, nil
	default:
		keeper := layer.NewLocal(data)
		err := keeper.Check(ctx)
		if err != nil && want == "" {
			return nil, nil
		}
		return keeper, err
	}
}

// lifted is a Helper with an engine of its own.
type lifted struct {
	*layer.Helper
	engine *docker.Engine
}

func (l *lifted) Close() error { return errors.Join(l.Helper.Close(), l.engine.Close()) }

func (w *world) newEngine(log *slog.Logger) containers.Engine {
	if w.engine == "docker" {
		return &docker.Engine{Runner: runnerBinary, Log: log}
	}
	return &sandbox.Engine{Dir: filepath.Join(w.data, "sandbox"), Runner: runnerBinary, Log: log}
}

func (w *world) stop(keep bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if w.x == nil { // the engine cannot run here, so start gave up
		return
	}
	if err := w.x.Close(ctx, keep); err != nil {
		w.t.Errorf("close: %v", err)
	}
	if w.keeper != nil {
		if err := w.keeper.Close(); err != nil {
			w.t.Errorf("close the keeper of work trees: %v", err)
		}
	}
	if err := w.x.Fleet.Engine.Close(); err != nil {
		w.t.Errorf("close engine: %v", err)
	}
	if err := w.git.Close(); err != nil {
		w.t.Errorf("close git: %v", err)
	}
}

// check verifies the whole store at the end of every test.
func (w *world) check() {
	w.t.Helper()
	repos, _ := filepath.Glob(filepath.Join(w.data, "repos", "*.git"))
	for _, repo := range repos {
		if out, err := exec.Command("git", "-C", repo, "fsck", "--strict", "--no-dangling").CombinedOutput(); err != nil {
			w.t.Errorf("git fsck: %v\n%s", err, out)
		}
	}
	owner, err := os.ReadFile(filepath.Join(w.data, "fleet", "owner"))
	if err != nil {
		w.t.Errorf("the fleet's owner: %v", err)
		return
	}
	engine := w.newEngine(slog.New(slog.DiscardHandler))
	live, err := engine.List(context.Background(), strings.TrimSpace(string(owner)))
	if err != nil || len(live) > 0 {
		w.t.Errorf("%d containers left, %v", len(live), err)
	}
	if err := engine.Close(); err != nil {
		w.t.Errorf("close engine: %v", err)
	}
}

// layer makes a base layer for the first caller. It does nothing without a Keeper.
func (w *world) layer() {
	w.t.Helper()
	if w.x.Fleet.Keeper == nil {
		return
	}
	if err := w.x.MakeLayer(w.t.Context(), "demo", "main"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) sh(dir, script string) string {
	w.t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// inRepo runs git in the served repository.
func (w *world) inRepo(args ...string) string {
	w.t.Helper()
	out, err := exec.Command("git",
		append([]string{"-C", filepath.Join(w.data, "repos", "demo.git")}, args...)...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func caller(t *testing.T, s string) record.Caller {
	t.Helper()
	c, err := record.ParseCaller(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// exec runs a shell line for a caller.
func (w *world) exec(name, line string) (record.Result, string, string) {
	w.t.Helper()
	var stdout, stderr bytes.Buffer
	res, err := w.x.Exec(w.t.Context(), record.Request{Caller: caller(w.t, name), Repo: "demo",
		Command: &record.Command{Shell: line}, Asker: gitd.Person{Name: "Ada", Email: "ada@example.com"}}, &stdout, &stderr)
	if err != nil {
		w.t.Fatalf("exec %q: %v", line, err)
	}
	return res, stdout.String(), stderr.String()
}

func TestExecCommits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	res, out, errs := w.exec("run:one", "echo out; echo err >&2; echo more >>greeting.txt; exit 3")
	if res.ExitCode != 3 || out != "out\n" || errs != "err\n" || res.Commit == "" {
		t.Fatalf("result %+v, stdout %q, stderr %q", res, out, errs)
	}
	if got := w.inRepo("show", "ramus/run-one:greeting.txt"); got != "hello\nmore" {
		t.Errorf("greeting.txt on the branch: %q", got)
	}
	trailers := w.inRepo("log", "-1", "--format=%(trailers)%an <%ae> %cn", "ramus/run-one")
	for _, want := range []string{"Ramus-Caller: run:one", "Ramus-Step: exec", "Ramus-Exit: 3", "Ada <ada@example.com> ramus"} {
		if !strings.Contains(trailers, want) {
			t.Errorf("no %q in %q", want, trailers)
		}
	}
	res, out, _ = w.exec("run:one", "cat greeting.txt")
	if res.Commit != "" || out != "hello\nmore\n" {
		t.Errorf("second command: %+v, %q", res, out)
	}
	runs, err := w.x.Runs(t.Context(), record.Filter{})
	if err != nil || len(runs) != 2 {
		t.Fatalf("runs: %v, %v", runs, err)
	}
	if w.inRepo("show", "refs/ramus/runs/run-one/"+runs[0].ID+":evidence/manifest.json") == "" {
		t.Error("no manifest")
	}
}

// TestFollowInTheMiddle follows a command at work. A new follower also gets the earlier
// output. A follower that knows of the command already does not get that output again.
func TestFollowInTheMiddle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "run:printing"), Repo: "demo",
		Command: &record.Command{Shell: "echo early; echo faults >&2; until [ -e go ]; do sleep 0.05; done; rm go; echo late"}})
	if err != nil {
		t.Fatal(err)
	}
	w.until(r.Name(), printed("faults"))
	w.until(r.Name(), printed("early"))
	began := w.events(r.Name(), record.EventStepStarted)[0].Seq
	follow := func(after int64, heard func(said string)) (said string) {
		for e, err := range w.x.Events(t.Context(), r.Name(), after, true) {
			if err != nil {
				t.Error(err)
			}
			if e.Type == record.EventOutput {
				said += e.Kind + ": " + e.Message
				heard(said)
			}
		}
		return said
	}
	var again string
	var group sync.WaitGroup
	group.Go(func() { again = follow(began, func(string) {}) })
	released := false
	said := follow(began-1, func(said string) {
		if !released && strings.Count(said, "\n") == 2 {
			released = true
			w.release(r, "go")
		}
	})
	group.Wait()
	if said != "stdout: early\nstderr: faults\nstdout: late\n" || strings.Contains(again, "early") {
		t.Errorf("from the middle %q, and again %q", said, again)
	}
}
