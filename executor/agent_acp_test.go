package executor_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/remains"
)

// withACP gives the world an agent of ProtocolACP that follows its prompt line by line.
func withACP(change func(*agent.Agent)) func(*executor.Executor) {
	a := agent.Agent{Protocol: agent.ProtocolACP, Command: []string{standinBinary},
		Env: []string{"ACP_STANDIN_SCRIPT=1"}, State: []string{".acp-standin"}}
	if change != nil {
		change(&a)
	}
	return func(x *executor.Executor) {
		x.Options.Agents = map[string]agent.Agent{"standin": a}
		x.Fleet.Engine.(*sandbox.Engine).ReadOnly = []string{filepath.Dir(standinBinary)}
	}
}

func TestACP(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withACP(nil))
	r := w.ended(w.ask("conv:spoken",
		"say hello there\nplan look | write\nwrite made.txt by an agent\nread made.txt\nrun ls sub; pwd; echo $RAMUS_FILES\nrun cat \"$RAMUS_FILES/note.txt\"",
		record.Attachment{Name: "../note.txt", Content: []byte("attached\n")}).Name())
	if r.State != record.StateComplete || r.Session == "" {
		t.Errorf("%+v\n%s", r, w.journal(r.Name()))
	}
	out := w.stdout(r.Name(), "turn-1")
	for _, want := range []string{"hello there\n", "by an agent\n", "/work\n", "attached\n", "done\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
	if got := w.inRepo("show", "ramus/conv-spoken:made.txt"); got != "by an agent" {
		t.Errorf("made.txt: %q", got)
	}
	if os.Getenv("RAMUS_SHOW") != "" {
		t.Log(w.journal(r.Name()))
	}
}

// TestACPPictures shows pictures to an agent that can look at them. The content of a file
// decides, not its name. Every agent finds the pictures as files.
func TestACPPictures(t *testing.T) {
	t.Parallel()
	picture := []byte("\x89PNG\r\n\x1a\nand so on")
	files := []record.Attachment{{Name: "page.txt", Type: "text/plain", Content: picture},
		{Name: "none.png", Type: "image/png", Content: []byte("<html>")},
		{Name: "large.png", Type: "image/png", Content: append(picture, make([]byte, 4_000_000)...)}}
	for name, can := range map[string]bool{"can": true, "cannot": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, withACP(func(a *agent.Agent) {
				if can {
					a.Env = append(a.Env, "ACP_STANDIN_IMAGES=1")
				}
			}))
			r := w.ended(w.ask("conv:"+name, "recall\nrun ls $RAMUS_FILES | sort", files...).Name())
			out := w.stdout(r.Name(), "turn-1")
			if n := strings.Count(out, "image: "); r.State != record.StateComplete || strings.Contains(out,
				fmt.Sprintf("image: image/png of %d bytes, <nil>", len(picture))) != can || n > 1 || (n == 1) != can {
				t.Errorf("%s\n%q", r.State, out)
			}
			if !strings.Contains(out, "large.png\nnone.png\npage.txt\n") {
				t.Errorf("the files are not there: %q", out)
			}
		})
	}
}

// agentEvents returns an agent's events of one kind.
func (w *world) agentEvents(run, kind string) (list []record.Event) {
	for _, e := range w.events(run, record.EventAgent) {
		if e.Kind == kind {
			list = append(list, e)
		}
	}
	return list
}

// completed waits for n finished tool calls of an agent.
func completed(n int) func(record.Event) bool {
	return func(e record.Event) bool {
		if e.Kind == "tool_call_update" && strings.Contains(e.Message, "completed") {
			n--
		}
		return n == 0
	}
}

// TestACPSay gives prompts to an agent at work. The next turn is in the same process. A
// later run continues the session, also in a new container.
func TestACPSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withACP(nil))
	r := w.ask("conv:talk", "say one\nrun while ! [ -e go ]; do sleep 0.05; done; rm go")
	w.until(r.Name(), printed("one"))
	if err := w.x.Prompts.Say(t.Context(), r.Name(), record.Prompt{Text: "say two\nrecall"}); err != nil {
		t.Fatal(err)
	}
	w.release(r, "go")
	r = w.ended(r.Name())
	if r.State != record.StateComplete || r.Output["turns"] != float64(2) && r.Output["turns"] != 2 {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	if got := len(w.agentEvents(r.Name(), "session")); got != 1 {
		t.Errorf("%d processes for two turns\n%s", got, w.journal(r.Name()))
	}
	if out := w.stdout(r.Name(), "turn-2"); !strings.Contains(out, "recalled: say one") || strings.Contains(out, "one\ntwo") {
		t.Errorf("turn-2: %q", out)
	}

	// The container is removed. The session is restored with the agent's memory.
	if err := w.x.Stop(t.Context(), "conv:talk", record.Run{}.Asker); err != nil {
		t.Fatal(err)
	}
	second := w.ended(w.ask("conv:talk", "recall").Name())
	if out := w.stdout(second.Name(), "turn-1"); !strings.Contains(out, "say two") || !strings.HasPrefix(out, "recalled: ") {
		t.Errorf("what was said before is shown again, or lost: %q\n%s", out, w.journal(second.Name()))
	}
	if second.Session != r.Session {
		t.Errorf("session %q, then %q", r.Session, second.Session)
	}
}

// TestACPLabels keeps several sessions of a caller apart, and lists them.
func TestACPLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withACP(nil))
	ask := func(label, prompt string) record.Run {
		r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "conv:labels"), Repo: "demo",
			Agent: &record.AgentCall{Prompt: prompt, Session: label}})
		if err != nil {
			t.Fatal(err)
		}
		return w.ended(r.Name())
	}
	a, b := ask("a", "remember apples"), ask("b", "remember bananas\nfail on purpose")
	again := ask("a", "recall")
	if out := w.stdout(again.Name(), "turn-1"); !strings.Contains(out, "apples") || strings.Contains(out, "bananas") {
		t.Errorf("%q", out)
	}
	list, err := w.x.Sessions(t.Context(), "conv:labels")
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if s := list[0]; s.Label != "a" || s.ID != a.Session || s.Runs != 2 || s.State != record.SessionStopped || s.Last != again.Name() {
		t.Errorf("%+v", s)
	}
	if s := list[1]; s.Label != "b" || s.ID != b.Session || s.State != record.SessionError || !strings.Contains(s.Error, "on purpose") {
		t.Errorf("%+v", s)
	}
}

// TestACPPermission answers an agent's requests for permission by its policy.
func TestACPPermission(t *testing.T) {
	t.Parallel()
	const prompt = "write made.txt something\nrun echo ran >ran.txt"
	asks := func(a *agent.Agent) { a.Env = append(a.Env, "ACP_STANDIN_ASK=edit,execute") }
	made := func(w *world, run record.Run) string { return w.inRepo("ls-tree", "--name-only", run.Branch) }
	t.Run("allow", func(t *testing.T) {
		w := newWorld(t, withACP(asks))
		r := w.ended(w.ask("conv:p", prompt).Name())
		if got := made(w, r); !strings.Contains(got, "made.txt") || !strings.Contains(got, "ran.txt") ||
			len(w.agentEvents(r.Name(), "permission")) != 2 {
			t.Errorf("%s\n%s", got, w.journal(r.Name()))
		}
	})
	t.Run("deny", func(t *testing.T) {
		w := newWorld(t, withACP(func(a *agent.Agent) {
			asks(a)
			a.Permission, a.Allow = agent.PermissionDeny, []string{"edit"}
		}))
		r := w.ended(w.ask("conv:p", prompt).Name())
		if got := made(w, r); !strings.Contains(got, "made.txt") || strings.Contains(got, "ran.txt") {
			t.Errorf("%s\n%s", got, w.journal(r.Name()))
		}
	})
	t.Run("ask", func(t *testing.T) {
		w := newWorld(t, withACP(func(a *agent.Agent) {
			asks(a)
			a.Permission, a.Allow = agent.PermissionAsk, []string{"edit"}
		}))
		for _, yes := range []bool{true, false} {
			r := w.ask("conv:p", "run echo ran >>ran.txt")
			w.until(r.Name(), func(e record.Event) bool { return e.Type == record.EventGate })
			now, err := w.x.Run(t.Context(), r.Name())
			if err != nil || now.Gate == nil || now.State != record.StateRunning || !strings.Contains(now.Gate.Message, "echo ran") {
				t.Fatalf("%+v, %v", now, err)
			}
			if _, err := w.x.Decide(t.Context(), r.Name(),
				record.Decision{Step: "turn-1/permission-9", Approved: true}); !errors.Is(err, record.ErrConflict) {
				t.Errorf("another question was answered: %v", err)
			}
			if _, err := w.x.Decide(t.Context(), r.Name(), record.Decision{Step: now.Gate.Step, Approved: yes, By: "ada"}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.x.Decide(t.Context(), r.Name(), record.Decision{Approved: true}); !errors.Is(err, record.ErrConflict) {
				t.Errorf("it was answered twice: %v", err)
			}
			r = w.ended(r.Name())
			if r.State != record.StateComplete || r.Gate != nil {
				t.Errorf("%+v", r)
			}
			if d := w.events(r.Name(), record.EventDecision); len(d) != 1 || !strings.Contains(string(d[0].Data), `"by":"ada"`) {
				t.Errorf("%+v", d)
			}
		}
		if got := w.inRepo("show", "ramus/conv-p:ran.txt"); got != "ran" {
			t.Errorf("ran.txt: %q", got)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		w := newWorld(t, withACP(func(a *agent.Agent) { asks(a); a.Permission = agent.PermissionAsk }))
		r := w.ask("conv:p", "run echo ran >ran.txt")
		w.until(r.Name(), func(e record.Event) bool { return e.Type == record.EventGate })
		if err := w.x.Stop(t.Context(), r.Name(), record.Run{}.Asker); err != nil {
			t.Fatal(err)
		}
		if r = w.ended(r.Name()); r.Reason != record.ReasonCancelled || r.Gate != nil ||
			len(w.events(r.Name(), record.EventDecision)) != 1 {
			t.Errorf("%+v\n%s", r, w.journal(r.Name()))
		}
	})
	t.Run("nobody", func(t *testing.T) {
		w := newWorld(t, func(x *executor.Executor) {
			withACP(func(a *agent.Agent) { asks(a); a.Permission = agent.PermissionAsk })(x)
			x.SetPatience(0, time.Millisecond)
		})
		r := w.ended(w.ask("conv:p", "run echo ran >ran.txt").Name())
		if got := made(w, r); r.State != record.StateComplete || strings.Contains(got, "ran.txt") {
			t.Errorf("%s\n%s", got, w.journal(r.Name()))
		}
	})
}

// TestACPStop stops an agent that ends its turn on request, and one that does not. The
// work of both is committed.
func TestACPStop(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"hang", "deaf"} {
		t.Run(verb, func(t *testing.T) {
			w := newWorld(t, func(x *executor.Executor) {
				withACP(nil)(x)
				x.SetPatience(100*time.Millisecond, 0)
			})
			r := w.ask("conv:stop", "write made.txt half\n"+verb)
			w.until(r.Name(), printed(map[string]string{"hang": "hanging", "deaf": "deaf"}[verb]))
			if err := w.x.Stop(t.Context(), r.Name(), record.Run{}.Asker); err != nil {
				t.Fatal(err)
			}
			r = w.ended(r.Name())
			if r.State != record.StateFailed || r.Reason != record.ReasonCancelled {
				t.Errorf("%+v", r)
			}
			if got := w.inRepo("show", "ramus/conv-stop:made.txt"); got != "half" {
				t.Errorf("made.txt: %q", got)
			}
			next := w.ended(w.ask("conv:stop", "recall").Name())
			if out := w.stdout(next.Name(), "turn-1"); next.State != record.StateComplete || !strings.Contains(out, verb) {
				t.Errorf("%q\n%s", out, w.journal(next.Name()))
			}
		})
	}
}

// TestACPEndings has agents fail in all ways.
func TestACPEndings(t *testing.T) {
	t.Parallel()
	shell := func(line string) func(*agent.Agent) {
		return func(a *agent.Agent) { a.Command = []string{"sh", "-c", line} }
	}
	endings := map[string]struct {
		prompt string
		change func(*agent.Agent)
		reason record.Reason
		words  string
	}{
		"time": {"write made.txt x\nhang", func(a *agent.Agent) { a.Timeout = 10 * time.Second },
			record.ReasonTimedOut, "took longer than 10s"},
		"exit":    {"write made.txt x\nexit 3", nil, record.ReasonCommandFailed, "exit code 3"},
		"tokens":  {"write made.txt x\nstop max_tokens", nil, record.ReasonCommandFailed, "may not write more"},
		"refusal": {"write made.txt x\nstop refusal", nil, record.ReasonCommandFailed, "refused to go on"},
		"error":   {"write made.txt x\nfail with these words", nil, record.ReasonCommandFailed, "with these words"},
		"babble": {"write made.txt x\nflood 5000", func(a *agent.Agent) { a.Output = 64 << 10 },
			record.ReasonCommandFailed, "printed more than"},
		"absent": {"anything", func(a *agent.Agent) { a.Command = []string{"no-such-agent"} },
			record.ReasonCommandFailed, "exit code 127"},
		"talkative": {"anything", shell("echo usage: agent; echo what is wrong >&2; exit 2"),
			record.ReasonCommandFailed, "what is wrong"},
		"endless": {"anything", shell("head -c 9000000 /dev/zero; sleep 600"), record.ReasonCommandFailed,
			"more than 8 MiB"},
		"mode": {"anything", func(a *agent.Agent) { a.Mode = "plan" }, record.ReasonCommandFailed, "mode to plan"},
	}
	w := newWorld(t, func(x *executor.Executor) {
		withACP(nil)(x)
		x.SetPatience(time.Second, 0)
		for name, c := range endings {
			a := x.Options.Agents["standin"]
			if c.change != nil {
				c.change(&a)
			}
			a.Name, x.Options.Agents[name] = name, a
		}
	})
	runs := map[string]record.Run{}
	for name, c := range endings {
		r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "conv:"+name), Repo: "demo",
			Agent: &record.AgentCall{Name: name, Prompt: c.prompt}})
		if err != nil {
			t.Fatal(err)
		}
		runs[name] = r
	}
	for name, c := range endings {
		r := w.ended(runs[name].Name())
		if r.State != record.StateFailed || r.Reason != c.reason || !strings.Contains(r.Error, c.words) {
			t.Errorf("%s: %s %s %q\n%s", name, r.State, r.Reason, r.Error, w.journal(r.Name()))
		}
		if strings.HasPrefix(c.prompt, "write") && w.inRepo("show", r.Branch+":made.txt") != "x" {
			t.Errorf("%s: what it did is not committed", name)
		}
	}
}

// TestACPFlood has an agent send a flood of updates. The journal stays small, and the
// turn continues.
func TestACPFlood(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withACP(nil))
	r := w.ended(w.ask("conv:flood", "flood 3000\nwrite made.txt x\nprint no message at all\nthink so\nsay end").Name())
	if r.State != record.StateComplete {
		t.Fatalf("%+v", r)
	}
	if n := len(w.events(r.Name(), record.EventAgent)); n > 2010 || len(w.agentEvents(r.Name(), "flooding")) != 1 {
		t.Errorf("%d events", n)
	}
	if out := w.stdout(r.Name(), "turn-1"); !strings.HasSuffix(out, "end\ndone\n") {
		t.Errorf("%q", out)
	}
}

// TestACPFiles requests files that the agent may not have.
func TestACPFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withACP(nil))
	r := w.ended(w.ask("conv:files", strings.Join([]string{
		"read /etc/passwd", "read " + containers.WorkDir + "/../etc/passwd", "read nowhere", "read sub",
		"run mkfifo pipe; ln -s /etc/passwd link; chmod 755 sub/a",
		"read link", "write /etc/x y", "write new/folder/file deep", "write sub/a changed", "run stat -c %a sub/a",
		"run exit 7", "read new/folder/file"}, "\n")).Name())
	out := w.stdout(r.Name(), "turn-1")
	if strings.Contains(out, "root:") || !strings.Contains(out, "755\n") || !strings.Contains(out, "(exit code 7)") ||
		!strings.HasSuffix(out, "deep\ndone\n") {
		t.Errorf("%s", out)
	}
}

// TestACPLost removes the container during a turn. None of the turn's work is on the
// branch. So the prompt is sent again in a new container, and is done once.
func TestACPLost(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart=", restart), func(t *testing.T) {
			w := newWorld(t, withACP(nil))
			w.ended(w.ask("conv:lost", "remember the milk").Name())
			r := w.ask("conv:lost", "recall\nappend log once\nrun while ! [ -e go ]; do sleep 0.05; done")
			w.until(r.Name(), completed(1))
			if restart {
				w.stop(true)
			}
			remains.KillContainers(w.data)
			if restart {
				w.start()
			}
			w.until(r.Name(), completed(2)) // in the new container
			w.release(r, "go")
			r = w.ended(r.Name())
			if r.State != record.StateComplete {
				t.Errorf("%+v\n%s", r, w.journal(r.Name()))
			}
			if got := w.inRepo("show", "ramus/conv-lost:log"); got != "once" {
				t.Errorf("log: %q", got)
			}
			if out := w.stdout(r.Name(), "turn-1"); !strings.Contains(out, "milk") {
				t.Errorf("%q", out)
			}
		})
	}
}

// TestACPTakenUp restarts the server in the middle of a turn. Another process continues
// the session in the same work tree, and its prompt notes that.
func TestACPTakenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withACP(nil))
	r := w.ask("conv:again", "append log once\nrun while ! [ -e go ]; do sleep 0.05; done\nrecall")
	w.until(r.Name(), completed(1))
	w.stop(true)
	w.start()
	w.release(r, "go")
	r = w.ended(r.Name())
	if r.State != record.StateComplete || len(w.events(r.Name(), record.EventStepStarted)) != 1 ||
		len(w.agentEvents(r.Name(), "session")) != 2 {
		t.Errorf("%+v\n%s", r, w.journal(r.Name()))
	}
	if got := w.inRepo("show", "ramus/conv-again:log"); got != "once\nonce" {
		t.Errorf("log: %q", got)
	}
	if out := w.stdout(r.Name(), "turn-1"); !strings.Contains(out, "interrupted in the middle") {
		t.Errorf("%q", out)
	}
	if _, out, _ := w.exec("conv:again", "grep -l acp-stan[d]in /proc/[0-9]*/cmdline"); out != "" {
		t.Errorf("alive: %s", out)
	}
}

// TestACPServers gives an agent the MCP server at its door, by HTTP or by a command.
func TestACPServers(t *testing.T) {
	t.Parallel()
	for want, env := range map[string]string{"http http://127.0.0.1:7070/mcp": "ACP_STANDIN_NO_HTTP=",
		"stdio /ramus mcp": "ACP_STANDIN_NO_HTTP=1"} {
		t.Run(env, func(t *testing.T) {
			w := newWorld(t, func(x *executor.Executor) {
				withACP(func(a *agent.Agent) { a.Env = append(a.Env, env) })(x)
				x.Door = map[string]func(executor.Visitor) http.Handler{"/mcp": func(executor.Visitor) http.Handler { return http.NotFoundHandler() }}
			})
			r := w.ended(w.ask("conv:mcp", "servers").Name())
			if out := w.stdout(r.Name(), "turn-1"); !strings.Contains(out, want+"\n") {
				t.Errorf("no %q in %q", want, out)
			}
		})
	}
}

// TestACPFork forks a caller. Its agent continues with a copy of the session.
func TestACPFork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withACP(nil))
	first := w.ended(w.ask("conv:tree", "remember apples").Name())
	r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "conv:twig"),
		Fork: &record.Fork{Of: "conv:tree"}, Agent: &record.AgentCall{Prompt: "recall"}})
	if err != nil {
		t.Fatal(err)
	}
	r = w.ended(r.Name())
	if out := w.stdout(r.Name(), "turn-1"); r.Session != first.Session || !strings.Contains(out, "apples") {
		t.Errorf("%q in %q\n%s", out, r.Session, w.journal(r.Name()))
	}
}
