package executor_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
	"golang.org/x/crypto/ssh"
)

// sentence takes the agent long enough that a server can end in the middle of it.
var sentence = "one two three " + strings.Repeat("and so on ", 20) + "to the end"

// sentencePrompt has the agent say the sentence and more, without any request to the server.
var sentencePrompt = "slowly 10 " + sentence + "\nthink twice\nplan look | write\nsay so"

// crashSentence gives an agent the prompt. The server dies in the middle of the sentence.
func crashSentence(ctx context.Context, x *executor.Executor, c record.Caller) error {
	r, err := x.Submit(ctx, record.Request{Key: "job", Caller: c, Repo: "demo",
		Agent: &record.AgentCall{Prompt: sentencePrompt}})
	if err != nil {
		return err
	}
	begun := printed("three")
	for e, err := range x.Events(ctx, r.Name(), 0, true) {
		if err != nil {
			return err
		}
		if begun(e) {
			die()
		}
	}
	return errors.New("the server lived")
}

// TestCrashInSentence ends the server in the middle of an agent's sentence. The agent ends its turn while no server is there. The next
// server records the rest, once, and does not send the prompt again.
func TestCrashInSentence(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{true, false} {
		name := map[bool]string{true: "killed", false: "closed"}[killed]
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, withACP(nil))
			run := "run:crash/job"
			if killed {
				w.stop(true)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, os.Args[0])
				cmd.Env = append(os.Environ(), "RAMUS_TEST_CRASH="+w.data, "RAMUS_TEST_RUNNER="+runnerBinary,
					"RAMUS_TEST_AGENT=acp:"+standinBinary, "RAMUS_TEST_SENTENCE=1")
				out, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("%v\n%s", err, out)
				}
			} else {
				run = w.ask("conv:sentence", sentencePrompt).Name()
				w.until(run, printed("three"))
				w.stop(true)
			}
			if stop := w.answer(); stop != "end_turn" {
				t.Fatalf("the agent ended its turn with %q", stop)
			}
			w.start()
			r := w.ended(run)
			if out := w.stdout(run, "turn-1"); r.State != record.StateComplete || out != sentence+"\nso\ndone\n" {
				t.Errorf("%s %s: %q\n%s", r.State, r.Error, out, w.journal(run))
			}
			for _, kind := range []string{"session", "prompt", "thought", "plan", "stop"} {
				if n := len(w.agentEvents(run, kind)); n != 1 {
					t.Errorf("%d events %q\n%s", n, kind, w.journal(run))
				}
			}
		})
	}
}

// answer waits until the agent in the only container has answered its prompt, while no server is there. It returns the stop reason.
func (w *world) answer() (stop string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	fleet := filepath.Join(w.data, "fleet")
	owner, err := containers.OwnerOf(fleet)
	must(err)
	key, err := os.ReadFile(filepath.Join(fleet, "client_key"))
	must(err)
	signer, err := ssh.ParsePrivateKey(key)
	must(err)
	engine := w.newEngine(slog.New(slog.DiscardHandler))
	defer engine.Close()
	list, err := engine.List(ctx, owner)
	must(err)
	for _, c := range list {
		if !c.Running {
			continue
		}
		h, err := (&containers.Dialer{Engine: engine, Signer: signer}).Dial(ctx, c.ID)
		must(err)
		defer h.Close()
		commands, err := h.Commands(ctx)
		must(err)
		for _, command := range commands {
			if !strings.Contains(command.Line, filepath.Base(standinBinary)) {
				continue
			}
			p, err := h.Attach(ctx, command.ID, 0, 0)
			must(err)
			output, to := io.Pipe()
			var copying sync.WaitGroup
			copying.Go(func() {
				_, err := p.Output(to, nil)
				to.CloseWithError(err)
			})
			stop, err = acp.Replay(output, func(acp.Update) {}, func() {})
			output.Close()
			cancel() // the agent goes on
			copying.Wait()
			must(err)
			return stop
		}
	}
	w.t.Fatalf("no agent in %d containers", len(list))
	return ""
}
