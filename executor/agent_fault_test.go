package executor_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/remains"
)

// TestAgentEndsBadly ends an agent in each possible way. Its run has the reason, no process of
// the agent remains, and its work is committed.
func TestAgentEndsBadly(t *testing.T) {
	t.Parallel()
	const brief = 4 * time.Second // for its work before it hangs
	w := newWorld(t, func(x *executor.Executor) {
		withAgent(t, func(a *agent.Agent) { a.Output = 1 << 20 })(x)
		a := x.Options.Agents["scripted"]
		a.Timeout = brief
		x.Options.Agents["brief"] = a
	})
	for name, x := range map[string]struct {
		prompt string
		reason record.Reason
		text   string
	}{
		"hang":   {"hang", record.ReasonTimedOut, "took longer than " + brief.String()},
		"babble": {"babble", record.ReasonCommandFailed, "printed more than 1 MiB"},
		"die":    {"die", record.ReasonCommandFailed, "ended with 137"},
		"fail":   {"fail 7", record.ReasonCommandFailed, "ended with 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{t: t, engine: w.engine, data: w.data, git: w.git, x: w.x}
			agent := "scripted"
			if x.reason == record.ReasonTimedOut {
				agent = "brief"
			}
			r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "conv:"+name), Repo: "demo",
				Agent: &record.AgentCall{Name: agent, Prompt: "fork 98765\nwrite stands.txt " + name + "\n" + x.prompt}})
			if err != nil {
				t.Fatal(err)
			}
			r = w.ended(r.Name())
			if r.State != record.StateFailed || r.Reason != x.reason || !strings.Contains(r.Error, x.text) {
				t.Errorf("%s %s: %s\n%s", r.State, r.Reason, r.Error, w.journal(r.Name()))
			}
			if got := w.inRepo("show", "ramus/conv-"+name+":stands.txt"); got != name {
				t.Errorf("committed: %q", got)
			}
			if _, out, _ := w.exec("conv:"+name, "grep -l '9876[5]' /proc/[0-9]*/cmdline"); out != "" {
				t.Errorf("alive: %s", out)
			}
			if err := w.x.Prompts.Say(t.Context(), r.Name(), record.Prompt{Text: "hello?"}); !errors.Is(err, record.ErrConflict) {
				t.Errorf("said after the end: %v", err)
			}
		})
	}
}

// TestAgentOverRestart restarts the server during a turn. The turn continues, and the agent gets
// the earlier prompts.
func TestAgentOverRestart(t *testing.T) {
	t.Parallel()
	onEngines(t, agentOverRestart)
}

func agentOverRestart(t *testing.T, engine string) {
	w := newWorldOn(t, engine, withAgent(t, nil))
	r := w.ask("conv:restart", "say ready\nwait go\nwrite after.txt yes\nremember it")
	w.until(r.Name(), printed("ready"))
	say := func(key, text string) {
		t.Helper()
		if err := w.x.Prompts.Say(t.Context(), r.Name(), record.Prompt{Key: key, Text: text,
			Files: []record.Attachment{{Name: key + ".txt", Content: []byte("of " + key)}}}); err != nil {
			t.Fatal(err)
		}
	}
	say("before", "recall\nrun cat $RAMUS_FILES/before.txt")
	w.stop(true)
	if err := w.x.Prompts.Say(t.Context(), r.Name(), record.Prompt{Text: "nobody is there"}); !errors.Is(err, record.ErrClosed) {
		t.Errorf("said to a server that is closed: %v", err)
	}
	w.start()
	say("before", "recall")
	say("after", "run cat $RAMUS_FILES/after.txt")
	w.release(r, "go")
	r = w.ended(r.Name())
	if r.State != record.StateComplete || w.inRepo("show", r.Branch+":after.txt") != "yes" {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	if out := w.stdout(r.Name(), "turn-2"); !strings.HasPrefix(out, "it\nof before") || !strings.Contains(out, "of after") {
		t.Errorf("turn-2: %q", out)
	}
}

// TestAgentLost loses the container along with the server. The turn does not begin a second time
// by itself. After a retry the agent gets all prompts.
func TestAgentLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withAgent(t, nil))
	r := w.ask("conv:lost", "say ready\nwait go", record.Attachment{Name: "given.txt", Content: []byte("given")})
	w.until(r.Name(), printed("ready"))
	if err := w.x.Prompts.Say(t.Context(), r.Name(), record.Prompt{Key: "k", Text: "write said.txt more\nrun cat $RAMUS_FILES/*.txt",
		Files: []record.Attachment{{Name: "given.txt", Content: []byte("besides")}}}); err != nil {
		t.Fatal(err)
	}
	w.stop(true)
	remains.KillContainers(w.data)
	w.start()
	r = w.ended(r.Name())
	if r.State != record.StateFailed || r.Reason != record.ReasonInterrupted {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	again, err := w.x.Retry(t.Context(), r.Name(), r.Asker)
	if err != nil {
		t.Fatal(err)
	}
	w.until(again.Name(), printed("ready"))
	w.release(again, "go")
	again = w.ended(again.Name())
	if out := w.stdout(again.Name(), "turn-1"); again.State != record.StateComplete || !strings.Contains(out,
		"wrote said.txt\n") || !strings.Contains(out, "besides") || !strings.Contains(out, "given") {
		t.Errorf("%+v\n%s", again, out)
	}
}

// TestAgentContainerKilled kills the container of an agent at work. The run ends, and the next
// run has the agent's memory.
func TestAgentContainerKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withAgent(t, nil))
	w.ended(w.ask("conv:killed", "remember before\nwrite a.txt a").Name())
	r := w.ask("conv:killed", "say ready\nremember nothing\nwait go")
	w.until(r.Name(), printed("ready"))
	remains.KillContainers(w.data)
	if r = w.ended(r.Name()); r.Reason != record.ReasonContainerLost {
		t.Errorf("%+v", r)
	}
	r = w.ended(w.ask("conv:killed", "recall\nrun cat a.txt").Name())
	if out := w.stdout(r.Name(), "turn-1"); out != "before\na\ndone\n" {
		t.Errorf("%q\n%s", out, w.journal(r.Name()))
	}
}

// TestContainerLostAfterPush loses a command's container between the push of its work and the
// answer. The work is on the branch once.
func TestContainerLostAfterPush(t *testing.T) {
	t.Parallel()
	w := newPortableWorld(t)
	w.exec("run:pushed", "true")
	var box remains.Process
	for _, p := range remains.Of(w.data) {
		if p.Container != "" {
			box = p
		}
	}
	at := func() string {
		text, _ := os.ReadFile(filepath.Join(w.data, "repos", "demo.git", "refs", "heads", "ramus", "run-pushed"))
		return string(text)
	}
	before := at()
	r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "run:pushed"), Repo: "demo",
		Workflow: "id: once\nnodes:\n  - {id: one, run: echo once >>log}\n"})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); at() == before; {
		if time.Now().After(deadline) {
			t.Fatal("nothing was pushed")
		}
	}
	_ = syscall.Kill(box.PID, syscall.SIGKILL)
	r = w.ended(r.Name())
	if got := w.inRepo("show", r.Branch+":log"); r.State != record.StateComplete || got != "once" {
		t.Errorf("%s %s: %q\n%s", r.State, r.Error, got, w.journal(r.Name()))
	}
}

// makefile returns a prompt that makes a Makefile whose tests are a shell line.
func makefile(line string) string {
	return `run printf 'test:\n\t@` + line + `\n' >Makefile`
}

func TestAgentChecks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withAgent(t, func(a *agent.Agent) { a.Checks = []string{"lib_run_tests"} }))
	r := w.ended(w.ask("conv:red", makefile("echo broken; false")).Name())
	if r.State != record.StateFailed || r.Reason != record.ReasonCommandFailed || !strings.Contains(r.Error, "lib_run_tests") {
		t.Errorf("%s %s: %s", r.State, r.Reason, r.Error)
	}
	// The agent's failure comes first, and the checks still report on its work.
	r = w.ended(w.ask("conv:red", "fail 9").Name())
	if !strings.Contains(r.Error, "ended with 9") || fmt.Sprint(r.Output["checks"]) != "map[lib_run_tests:failed]" {
		t.Errorf("%s: %v", r.Error, r.Output)
	}

	// A request has checks of its own, each once.
	q := record.Request{Caller: caller(t, "conv:more"), Repo: "demo",
		Agent: &record.AgentCall{Prompt: makefile("true"), Checks: []string{"lib_run_tests", "lib_run_lint"}}}
	r, err := w.x.Submit(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range w.events(w.ended(r.Name()).Name(), record.EventStepFinished) {
		names = append(names, e.Step)
	}
	if got := strings.Join(names, " "); got != "turn-1 check-lib_run_tests check-lib_run_lint" {
		t.Error(got)
	}
	for _, bad := range [][]string{{"lib_nothing"}, slices.Repeat([]string{"lib_run_lint"}, 21)} {
		q.Caller, q.Agent = caller(t, "conv:bad"), &record.AgentCall{Prompt: "x", Checks: bad}
		if _, err := w.x.Submit(t.Context(), q); !errors.Is(err, record.ErrInvalid) {
			t.Errorf("%d checks: %v", len(bad), err)
		}
	}

	// A prompt that comes during the checks is a turn, and the checks run again.
	r = w.ask("conv:green", makefile("echo checking; until [ -e go ]; do sleep 0.05; done"))
	w.until(r.Name(), printed("checking"))
	if err := w.x.Prompts.Say(t.Context(), r.Name(), record.Prompt{Text: "write late.txt late"}); err != nil {
		t.Fatal(err)
	}
	w.release(r, "go")
	r = w.ended(r.Name())
	var steps []string
	for _, e := range w.events(r.Name(), record.EventStepFinished) {
		steps = append(steps, e.Step)
	}
	if got := strings.Join(steps, " "); r.State != record.StateComplete ||
		got != "turn-1 check-lib_run_tests turn-2 check-lib_run_tests#2" {
		t.Errorf("%s: %s\n%s", r.State, got, r.Error)
	}
}

// TestAgentHostileMemory has a container put links into its agent's memory. None is followed.
func TestAgentHostileMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withAgent(t, func(a *agent.Agent) { a.State = []string{".scripted", "more/deep", "link"} }))
	r := w.ended(w.ask("conv:hostile", strings.Join([]string{
		`run ln -s /etc/passwd ~/.scripted/passwd; ln -s / ~/link; ln -s /etc ~/.scripted/etc`,
		`run mkfifo ~/.scripted/fifo; mkdir -p ~/.scripted/.git/hooks ~/more/deep; echo x >~/.scripted/.git/config`,
		`run echo x >~/.scripted/"$(printf 'a\nb')"; echo x >~/.scripted/'..x'; echo x >~/.scripted/.GITMODULES; echo kept >~/more/deep/file; chmod 700 ~/more/deep/file`,
		`run echo x >~/.scripted/closed; chmod 0 ~/.scripted/closed; truncate -s 1T ~/.scripted/large || truncate -s 1G ~/.scripted/large`,
	}, "\n")).Name())
	if r.State != record.StateComplete {
		t.Fatalf("%+v", r)
	}
	tree := w.inRepo("ls-tree", "-r", "--full-tree", "refs/ramus/state/conv-hostile")
	for _, bad := range []string{"passwd", "etc", "fifo", ".git", "GITMODULES", "large", "120000", "closed"} {
		if strings.Contains(tree, bad) {
			t.Errorf("%s in\n%s", bad, tree)
		}
	}
	if !strings.Contains(tree, "100755 blob") || !strings.Contains(tree, "scripted/more/deep/file") ||
		!strings.Contains(tree, "scripted/.scripted/session") {
		t.Error(tree)
	}
	said := w.events(r.Name(), record.EventNote)
	if len(said) != 1 || !strings.Contains(said[0].Message, "were left out") {
		t.Errorf("notes: %+v", said)
	}
	w.stop(false)
	w.start()
	r = w.ended(w.ask("conv:hostile", `run cat ~/more/deep/file; test -x ~/more/deep/file && echo executable`).Name())
	if out := w.stdout(r.Name(), "turn-1"); out != "kept\nexecutable\ndone\n" {
		t.Errorf("%q", out)
	}
}

// TestAgentImage gives an agent its own image, although the caller's container has another.
func TestAgentImage(t *testing.T) {
	t.Parallel()
	image := fmt.Sprintf("ramus/agent-test:%d", os.Getpid())
	if out, err := exec.Command("docker", "tag", "ramus/task:latest", image).CombinedOutput(); err != nil {
		t.Skipf("cannot run here: docker tag: %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", "--no-prune", image).Run() })
	w := newWorldOn(t, "docker", withAgent(t, func(a *agent.Agent) { a.Image = image }))
	res, _, _ := w.exec("conv:image", "touch /cache/mark")
	first, err := w.x.Run(t.Context(), res.Run)
	if err != nil || !strings.HasPrefix(first.Image, "ramus/task") {
		t.Errorf("image %q, %v", first.Image, err)
	}
	r := w.ended(w.ask("conv:image", "run ls /cache/mark").Name())
	m, err := w.x.Manifest(t.Context(), r.Name())
	if err != nil || !strings.HasPrefix(r.Image, "ramus/agent-test") || m.Image != r.Image {
		t.Errorf("image %q, manifest %q, %v", r.Image, m.Image, err)
	}
	if out := w.stdout(r.Name(), "turn-1"); strings.HasPrefix(out, "/cache/mark") {
		t.Errorf("the old container: %q", out)
	}
	// Other commands run in the container that exists.
	w.exec("conv:image", "touch /cache/mark")
	r = w.ended(w.ask("conv:image", "run ls /cache/mark").Name())
	if out := w.stdout(r.Name(), "turn-1"); !strings.HasPrefix(out, "/cache/mark") {
		t.Errorf("a new container: %q", out)
	}
}
