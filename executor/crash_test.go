package executor_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/remains"
)

// crashWorkflow returns a workflow whose nodes append a line each. A command that ran
// twice, or was lost, is visible in the file.
func crashWorkflow(nodes int) string {
	var b strings.Builder
	b.WriteString("id: crash\nnodes:\n")
	for i := range nodes {
		fmt.Fprintf(&b, "  - {id: n%d, run: \"sleep 0.0%d; echo %d >>log; echo said %d\"}\n", i, i%5, i, i)
	}
	return b.String()
}

// crashChild runs the server that the crash test kills. It opens the data folder,
// claims the run unless it is claimed, and waits for its end.
func crashChild(dir string) error {
	git := &gitd.Server{Root: filepath.Join(dir, "repos")}
	ctx := context.Background()
	if err := git.Open(ctx); err != nil {
		return err
	}
	runner := os.Getenv("RAMUS_TEST_RUNNER")
	keeper, err := newKeeper(dir, runner)
	if err != nil {
		return err
	}
	if keeper != nil {
		defer keeper.Close()
	}
	x := &executor.Executor{Data: dir, Git: git, Options: executor.Options{Agents: crashAgents()},
		Fleet: &containers.Fleet{Dir: filepath.Join(dir, "fleet"), Keeper: keeper,
			Engine: &sandbox.Engine{Dir: filepath.Join(dir, "sandbox"), Runner: runner}}}
	if a, ok := x.Options.Agents["standin"]; ok {
		x.Fleet.Engine.(*sandbox.Engine).ReadOnly = []string{filepath.Dir(a.Command[0])}
	}
	if browser := os.Getenv("RAMUS_TEST_BROWSER"); browser != "" {
		x.Browser, x.Fleet.Engine.(*sandbox.Engine).Browser = &browse.Browser{}, browser
	}
	at, dies := os.LookupEnv("RAMUS_TEST_DIES")
	if dies {
		sends, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return err
		}
		x.Fleet.Engine = &mortal{Engine: x.Fleet.Engine.(*sandbox.Engine), sends: sends}
	}
	pair := os.Getenv("RAMUS_TEST_PAIR")
	if pair != "" {
		if err := dieInPair(git, x, pair); err != nil {
			return err
		}
	}
	if err := x.Open(ctx); err != nil {
		return err
	}
	fmt.Println("open")
	if pair != "" {
		return crashPair(ctx, x, pair)
	}
	if dies {
		return crashSaid(ctx, x, at)
	}
	c, err := record.ParseCaller("run:crash")
	if err != nil {
		return err
	}
	if os.Getenv("RAMUS_TEST_BROWSER") != "" {
		return crashLook(ctx, x, c)
	}
	if os.Getenv("RAMUS_TEST_SENTENCE") != "" {
		return crashSentence(ctx, x, c)
	}
	if changes := os.Getenv("RAMUS_TEST_QUEUE"); changes != "" {
		return crashQueue(ctx, x, c, changes)
	}
	nodes, _ := strconv.Atoi(os.Getenv("RAMUS_TEST_NODES"))
	if crashAgents() != nil {
		return crashTalk(ctx, x, c, nodes)
	}
	key := os.Getenv("RAMUS_TEST_KEY")
	if key == "" {
		key = "job"
	}
	r, err := x.Submit(ctx, record.Request{Key: key, Caller: c, Repo: "demo", Workflow: crashWorkflow(nodes)})
	if err != nil {
		return err
	}
	fmt.Println("claimed")
	if r, err = crashWait(ctx, x, r); err != nil {
		return err
	}
	fmt.Println("ended", r.State, r.Reason, r.Error)
	return x.Close(ctx, false)
}

// mortal is an engine that kills its server. It recognizes an agent's command by its
// size. After that command it lets that many more packets pass, and the server dies
// before the next. With -1 the server dies at once.
type mortal struct {
	*sandbox.Engine
	sends int64
	begun atomic.Bool
	sent  atomic.Int64
}

// commandSize is less than the packet of a command with a large environment, and more than any other.
const commandSize = 64 << 10

func (m *mortal) Dial(ctx context.Context, id string) (net.Conn, error) {
	conn, err := m.Engine.Dial(ctx, id)
	if err != nil {
		return nil, err
	}
	return &mortalConn{conn, m}, nil
}

type mortalConn struct {
	net.Conn
	m *mortal
}

func (c *mortalConn) Write(p []byte) (int, error) {
	if c.m.begun.Load() && c.m.sent.Add(1) > c.m.sends {
		die()
	}
	n, err := c.Conn.Write(p)
	if len(p) > commandSize {
		if c.m.begun.Store(true); c.m.sends < 0 {
			die()
		}
	}
	return n, err
}

// die ends the process as SIGKILL from outside does.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// crashSaid gives a prompt to an agent. The server dies when the agent's command
// begins.
func crashSaid(ctx context.Context, x *executor.Executor, at string) error {
	a := x.Options.Agents["scripted"]
	a.Env = append(a.Env, "LARGE="+strings.Repeat("x", commandSize))
	x.Options.Agents["scripted"] = a
	c, err := record.ParseCaller("run:dies" + at)
	if err != nil {
		return err
	}
	r, err := x.Submit(ctx, record.Request{Key: "job", Caller: c, Repo: "demo",
		Agent: &record.AgentCall{Prompt: "append log once\nrecall\nremember it"}})
	if err != nil {
		return err
	}
	if r, err = crashWait(ctx, x, r); err != nil {
		return err
	}
	return fmt.Errorf("the server lived: %s %s", r.State, r.Error)
}

// TestCrashInPrompt kills the server at each moment of the transfer of a prompt to an
// agent. The next server ends an agent with a part of the prompt and begins again. It
// waits for an agent with the whole prompt.
func TestCrashInPrompt(t *testing.T) {
	t.Parallel()
	agent := withAgent(t, func(a *agent.Agent) { a.Timeout = 30 * time.Second })
	w := newWorld(t, agent)
	for at, want := range []struct {
		moment string
		begins int
	}{
		{"before the command is known to have begun", 2},
		{"before the prompt", 2},
		{"before its end", 2},
		{"before the end of its channel", 1},
	} {
		w.stop(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), "RAMUS_TEST_CRASH="+w.data, "RAMUS_TEST_RUNNER="+runnerBinary,
			"RAMUS_TEST_AGENT="+scripted(t).Command[2], "RAMUS_TEST_DIES="+strconv.Itoa(at-1))
		out, err := cmd.CombinedOutput()
		cancel()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%s: %v\n%s", want.moment, err, out)
		}
		w.start()
		r := w.ended("run:dies" + strconv.Itoa(at-1) + "/job")
		if got := w.inRepo("show", r.Branch+":log"); r.State != record.StateComplete || got != "once" {
			t.Errorf("%s: %s %s, log %q\n%s", want.moment, r.State, r.Error, got, w.journal(r.Name()))
		}
		if out := w.stdout(r.Name(), "turn-1"); out != "added to log\ndone\n" {
			t.Errorf("%s: %q", want.moment, out)
		}
		if begins := len(w.events(r.Name(), record.EventStepStarted)); begins != want.begins {
			t.Errorf("%s: begun %d times, not %d\n%s", want.moment, begins, want.begins, w.journal(r.Name()))
		}
	}
}

// TestInputOverRestart restarts the server during a command whose input comes from a
// client. The client is gone with the server. The command continues, because nobody
// could begin it again, and it may not need more input.
func TestInputOverRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	c := caller(t, "run:input")
	in, to := io.Pipe()
	defer to.Close() // closed after the server ends, because the input has no end
	r, err := w.x.Submit(t.Context(), record.Request{Key: "job", Caller: c, Repo: "demo", Command: &record.Command{Stdin: in,
		Shell: "read -r line; echo $line; until [ -e go ]; do sleep 0.05; done; rm go; echo went on"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(to, "heard\n"); err != nil {
		t.Fatal(err)
	}
	w.until(r.Name(), printed("heard"))
	w.stop(true)
	w.start()
	w.release(r, "go")
	r = w.ended(r.Name())
	if out := w.stdout(r.Name(), "exec"); r.State != record.StateComplete || out != "heard\nwent on\n" {
		t.Errorf("%s %s: %q\n%s", r.State, r.Error, out, w.journal(r.Name()))
	}
}

func crashWait(ctx context.Context, x *executor.Executor, r record.Run) (_ record.Run, err error) {
	for !r.Ended() {
		for _, err := range x.Events(ctx, r.Name(), 0, true) {
			if err != nil {
				return r, err
			}
		}
		time.Sleep(5 * time.Millisecond)
		if r, err = x.Run(ctx, r.Name()); err != nil {
			return r, err
		}
	}
	return r, nil
}

func crashAgents() map[string]agent.Agent {
	script := os.Getenv("RAMUS_TEST_AGENT")
	if script == "" {
		return nil
	}
	if binary, ok := strings.CutPrefix(script, "acp:"); ok {
		return map[string]agent.Agent{"standin": {Protocol: agent.ProtocolACP, Command: []string{binary},
			Env: []string{"ACP_STANDIN_SCRIPT=1"}, State: []string{".acp-standin"}}}
	}
	return map[string]agent.Agent{"scripted": {Command: []string{"sh", "-c", script, "scripted"},
		Resume: []string{"sh", "-c", script, "scripted", "--resume"}, State: []string{".scripted"}}}
}

// crashTalk gives an agent words in order. They go to the run that is at work or, if it
// takes no more, to a new one.
func crashTalk(ctx context.Context, x *executor.Executor, c record.Caller, words int) error {
	r, err := x.Submit(ctx, record.Request{Key: "job", Caller: c, Repo: "demo",
		Agent: &record.AgentCall{Prompt: "remember nothing"}})
	if err != nil {
		return err
	}
	runs := []record.Run{r}
	for i := range words {
		key, text := fmt.Sprintf("word-%d", i), fmt.Sprintf("append log %d", i)
		own, begun := x.Find(c, key)
		if !begun {
			err := x.Prompts.Say(ctx, r.Name(), record.Prompt{Key: key, Text: text})
			if err == nil {
				fmt.Println("said", i)
				continue
			}
			if !errors.Is(err, record.ErrConflict) {
				return err
			}
			if own, err = x.Submit(ctx,
				record.Request{Key: key, Caller: c, Repo: "demo", Agent: &record.AgentCall{Prompt: text}}); err != nil {
				return err
			}
		}
		r = own
		runs = append(runs, r)
	}
	for i := range runs {
		if r, err = crashWait(ctx, x, runs[i]); err != nil {
			return err
		}
		if r.State != record.StateComplete {
			break
		}
	}
	fmt.Println("ended", r.State, r.Reason, r.Error)
	return x.Close(ctx, false)
}

// TestCrashTalk kills the server at random moments while a client gives words to an
// agent. Each accepted word is done once, in order.
func TestCrashTalk(t *testing.T) {
	t.Parallel()
	crash(t, scripted(t).Command[2], 10)
}

// TestCrashACP does the same with an agent of ProtocolACP. If the server was killed
// during a turn, the turn's prompt is sent again. So the agent may get its words twice,
// but none is lost, and the work of all of them is in the work tree.
func TestCrashACP(t *testing.T) {
	t.Parallel()
	crash(t, "acp:"+standinBinary, 10)
}

// TestCrash kills the server, and sometimes the containers with it, at random moments
// until the run has ended. The branch then has every command once, in order.
// RAMUS_CRASHES is the number of runs. Each is killed a dozen times.
func TestCrash(t *testing.T) {
	t.Parallel()
	crash(t, "", 12)
}

// crash runs a workflow of that many nodes. With an agent's script it gives the agent
// that many words instead. Only the server is killed then, because a turn that is lost
// with its container does not begin twice.
func crash(t *testing.T, agent string, nodes int) {
	rounds := 2
	if n, err := strconv.Atoi(os.Getenv("RAMUS_CRASHES")); err == nil {
		rounds = n
	}
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("RAMUS_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range rounds {
		// Each round has a world of its own, which is checked before the next round.
		t.Run("round", func(t *testing.T) { crashRound(t, rnd, agent, nodes) })
	}
}

func crashRound(t *testing.T, rnd *rand.Rand, agent string, nodes int) {
	w := newWorld(t, nil)
	w.layer()
	w.stop(false)
	kills := 0
	for {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "RAMUS_TEST_CRASH="+w.data, "RAMUS_TEST_RUNNER="+runnerBinary,
			"RAMUS_TEST_NODES="+strconv.Itoa(nodes),
			"RAMUS_TEST_AGENT="+agent)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		// A process that hangs prints its goroutines.
		stuck := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
		if !lines.Scan() || lines.Text() != "open" {
			t.Fatalf("the server did not open after %d kills: %q", kills, lines.Text())
		}
		ended := ""
		window := 1200
		if agent != "" {
			window = 400 // a turn is quick
		}
		timer := time.AfterFunc(time.Duration(rnd.IntN(window))*time.Millisecond, func() {
			if kills < 25 {
				_ = cmd.Process.Kill()
			}
		})
		for lines.Scan() {
			if rest, ok := strings.CutPrefix(lines.Text(), "ended "); ok {
				ended = rest
			}
		}
		_, _ = io.Copy(io.Discard, out)
		timer.Stop()
		stuck.Stop()
		_ = cmd.Wait()
		if ended != "" {
			if !strings.HasPrefix(ended, "complete") {
				t.Fatalf("after %d kills the run ended as %s", kills, ended)
			}
			break
		}
		kills++
		if agent == "" && rnd.IntN(3) == 0 {
			remains.KillContainers(w.data)
		}
	}
	w.start()
	got := strings.Fields(w.inRepo("show", "ramus/run-crash:log"))
	if strings.HasPrefix(agent, "acp:") {
		seen := map[string]bool{}
		got = slices.DeleteFunc(got, func(word string) bool {
			again := seen[word]
			seen[word] = true
			return again
		})
	}
	if len(got) != nodes {
		t.Errorf("%d kills: log is %v\n%s", kills, got, w.journal("run:crash/job"))
	}
	for i, s := range got {
		if s != strconv.Itoa(i) {
			t.Errorf("%d kills: log is %v", kills, got)
			break
		}
	}
	t.Logf("complete after %d kills", kills)
}

// TestStoppedAsTakenUp stops a run before the next server has found its command. The
// run ends like other stopped runs. No process of the command remains, and its work is
// committed.
func TestStoppedAsTakenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const long = "echo x >made; echo out; sleep 98123"
	sub := map[string]string{"w": "id: w\nnodes:\n  - {id: one, run: " + strconv.Quote(long) + "}\n"}
	parent := func(inherit bool) string {
		return fmt.Sprintf("id: p\nnodes:\n  - {id: n, kind: workflow, implementation: {workflow_def_id: w, inherit_branch: %t}}\n", inherit)
	}
	type stopped struct {
		req         record.Request
		child, line string // the sub-workflow and its command line, if it does the work
		run         record.Run
	}
	all := map[string]*stopped{
		"command":  {req: record.Request{Command: &record.Command{Shell: long}}},
		"workflow": {req: record.Request{Workflow: sub["w"]}},
		"shared":   {req: record.Request{Workflow: parent(true), Sub: sub}, child: ".n"},
		"isolated": {req: record.Request{Workflow: parent(false), Sub: sub}, child: ".n", line: "-n"},
	}
	for name, s := range all {
		s.req.Repo, s.req.Caller = "demo", caller(t, "run:stopped-"+name)
		var err error
		if s.run, err = w.x.Submit(t.Context(), s.req); err != nil {
			t.Fatal(err)
		}
		at := s.run.Caller.String() + s.line + "/" + s.run.ID + s.child
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			if r, err := w.x.Run(t.Context(), at); err == nil && r.State == record.StateRunning {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s does not run", at)
			}
		}
		w.until(at, printed("out"))
	}
	w.stop(true)
	w.start()
	for _, s := range all {
		if err := w.x.Stop(t.Context(), s.run.Name(), gitd.Person{Name: "Ada", Email: "ada@example.com"}); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range all {
		r := w.ended(s.run.Name())
		if r.State != record.StateFailed || r.Reason != record.ReasonCancelled {
			t.Errorf("%s: %s %s: %s", name, r.State, r.Reason, r.Error)
		}
		if got := w.inRepo("show", r.Branch+s.line+":made"); got != "x" {
			t.Errorf("%s: committed: %q\n%s", name, got, w.journal(r.Name()))
		}
		if _, out, _ := w.exec(r.Caller.String()+s.line, "grep -l '9812[3]' /proc/[0-9]*/cmdline"); out != "" {
			t.Errorf("%s: alive: %s", name, out)
		}
	}
}
