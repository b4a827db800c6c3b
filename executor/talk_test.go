package executor_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/dialogue"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

var bo = gitd.Person{Name: "Bo", Email: "bo@example.com", ID: "test:2"}

// TestACPQueue changes prompts that wait, over a restart of the server.
func TestACPQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withACP(nil))
	r := w.ask("conv:queue", "say one\nrun while ! [ -e go ]; do sleep 0.05; done; rm go")
	w.until(r.Name(), printed("one"))
	for _, key := range []string{"a", "b", "c", "d"} {
		if err := w.x.Prompts.Say(t.Context(), r.Name(), record.Prompt{Key: key, Text: "say " + key, By: bo}); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := w.x.Prompts.Unsay(t.Context(), r.Name(), "b", bo); err != nil || p.Text != "say b" {
		t.Errorf("%+v, %v", p, err)
	}
	for _, err := range []error{
		func() error { _, err := w.x.Prompts.Unsay(t.Context(), r.Name(), "b", bo); return err }(), // again
		w.x.Prompts.Say(t.Context(), r.Name(), record.Prompt{Key: "b", Text: "say b"}),             // its request came twice
		w.x.Prompts.Resay(t.Context(), r.Name(), "c", "say changed", bo),
		w.x.Prompts.Reorder(t.Context(), r.Name(), []string{"d", "a"}, bo),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	for _, err := range []error{
		func() error { _, err := w.x.Prompts.Unsay(t.Context(), r.Name(), record.FirstPrompt, bo); return err }(),
		w.x.Prompts.Resay(t.Context(), r.Name(), record.FirstPrompt, "x", bo),
		w.x.Prompts.Reorder(t.Context(), r.Name(), []string{record.FirstPrompt}, bo),
	} {
		if !errors.Is(err, record.ErrConflict) {
			t.Errorf("the first prompt was changed: %v", err)
		}
	}
	if err := w.x.Prompts.Resay(t.Context(), r.Name(), "z", "x", bo); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if err := w.x.Prompts.Resay(t.Context(), r.Name(), "c", " ", bo); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("%v", err)
	}
	w.stop(true)
	w.start()
	q, err := w.x.Queue(t.Context(), r.Name())
	if err != nil || len(q.Waiting()) != 3 || q.Heard != 1 {
		t.Fatalf("%+v, %v", q, err)
	}
	w.release(r, "go")
	r = w.ended(r.Name())
	out := w.stdout(r.Name(), "turn-2")
	d, a, c := strings.Index(out, "d\n"), strings.Index(out, "a\n"), strings.Index(out, "changed\n")
	if r.State != record.StateComplete || d < 0 || c < d || a < c || strings.Contains(out, "b\n") {
		t.Errorf("%s: %q\n%s", r.State, out, w.journal(r.Name()))
	}
	if _, err := w.x.Prompts.Unsay(t.Context(), r.Name(), "a", bo); !errors.Is(err, record.ErrConflict) {
		t.Errorf("the run is over: %v", err)
	}
	if list := r.Prompts(append(w.events(r.Name(), record.EventPrompt),
		w.events(r.Name(), record.EventQueue)...)); len(list) != 4 || list[1].Key != "d" || list[2].By != bo ||
		list[2].Text != "say changed" {
		t.Errorf("%+v", list)
	}
}

// TestACPInterrupt says something at once to an agent that cannot be steered, whose turn ends for it.
func TestACPInterrupt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withACP(nil))
	r := w.ask("conv:now", "write before.txt yes\nsay begun\nrun sleep 600\nwrite after.txt no")
	w.until(r.Name(), printed("begun"))
	if err := w.x.Prompts.Say(t.Context(), r.Name(), record.Prompt{Key: "later", Text: "say later"}); err != nil {
		t.Fatal(err)
	}
	how, err := w.x.Prompts.Steer(t.Context(), r.Name(), record.Prompt{Key: "now", Text: "say heard", By: bo})
	if err != nil || how != dialogue.Interrupted {
		t.Fatalf("%s, %v", how, err)
	}
	r = w.ended(r.Name())
	if r.State != record.StateComplete || r.Output["turns"] != float64(3) && r.Output["turns"] != 3 {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	if out := w.stdout(r.Name(), "turn-2"); !strings.Contains(out, "heard") || strings.Contains(out, "later") {
		t.Errorf("turn-2: %q", out)
	}
	if out := w.stdout(r.Name(), "turn-3"); !strings.Contains(out, "later") {
		t.Errorf("turn-3: %q", out)
	}
	if files := w.inRepo("ls-tree", "--name-only", r.Branch); !strings.Contains(files, "before.txt") ||
		strings.Contains(files, "after.txt") {
		t.Errorf("%s", files)
	}
	first := w.events(r.Name(), record.EventStepFinished)[0]
	if first.Reason != "stopped" || first.OK == nil || !*first.OK || first.Commit == "" {
		t.Errorf("%+v", first)
	}
	if again, err := w.x.Prompts.Steer(t.Context(), r.Name(),
		record.Prompt{Key: "now", Text: "say heard", By: bo}); err != nil || again != dialogue.Queued {
		t.Errorf("the request came twice: %s, %v", again, err)
	}
}

// TestACPSteer says something at once to an agent that takes it into its turn.
func TestACPSteer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withACP(func(a *agent.Agent) { a.Env = append(a.Env, "ACP_STANDIN_STEER=1") }))
	r := w.ask("conv:steer", "say begun\nrun while ! [ -e go ]; do sleep 0.05; done; rm go\nwrite after.txt no")
	w.until(r.Name(), printed("begun"))
	how, err := w.x.Prompts.Steer(t.Context(), r.Name(),
		record.Prompt{Key: "now", Text: "say steered\nwrite steered.txt yes", By: bo})
	if err != nil || how != dialogue.Steered {
		t.Fatalf("%s, %v", how, err)
	}
	w.release(r, "go")
	r = w.ended(r.Name())
	if r.State != record.StateComplete || r.Output["turns"] != float64(1) && r.Output["turns"] != 1 {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	if files := w.inRepo("ls-tree", "--name-only", r.Branch); !strings.Contains(files, "steered.txt") ||
		strings.Contains(files, "after.txt") {
		t.Errorf("%s", files)
	}
	if q := r.Queue(w.all(r.Name())); q.Heard != 2 || len(q.Waiting()) != 0 {
		t.Errorf("%+v", q)
	}
}

// all returns the journal of a run.
func (w *world) all(run string) (list []record.Event) {
	w.t.Helper()
	for e, err := range w.x.Events(w.t.Context(), run, 0, false) {
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// TestStopTurn ends a turn and not the run. The prompts that wait come back.
func TestStopTurn(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*executor.Executor){"acp": withACP(nil), "text": withAgent(t, nil)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, change)
			r := w.ask("conv:stop", "say begun\nwrite before.txt yes\nsay so\nwait never\nrun sleep 600")
			w.until(r.Name(), printed("so\n"))
			if err := w.x.Prompts.Say(t.Context(), r.Name(), record.Prompt{Key: "later", Text: "say later"}); err != nil {
				t.Fatal(err)
			}
			back, err := w.x.Prompts.StopTurn(t.Context(), r.Name(), bo)
			if err != nil || len(back) != 1 || back[0].Text != "say later" {
				t.Fatalf("%+v, %v", back, err)
			}
			r = w.ended(r.Name())
			if r.State != record.StateComplete || !strings.Contains(w.inRepo("ls-tree", "--name-only", r.Branch), "before.txt") {
				t.Errorf("%+v\n%s", r, w.journal(r.Name()))
			}
			if _, err := w.x.Prompts.StopTurn(t.Context(), r.Name(), bo); !errors.Is(err, record.ErrConflict) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestInterruptTakenUp restarts the server just after a turn was interrupted.
func TestInterruptTakenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(x *executor.Executor) {
		withACP(nil)(x)
		x.SetPatience(time.Second, 0)
	})
	r := w.ask("conv:taken", "say begun\ndeaf")
	w.until(r.Name(), printed("deaf"))
	if _, err := w.x.Prompts.Steer(t.Context(), r.Name(), record.Prompt{Text: "say heard", By: bo}); err != nil {
		t.Fatal(err)
	}
	w.stop(true)
	w.start()
	if r = w.ended(r.Name()); r.State != record.StateComplete || !strings.Contains(w.stdout(r.Name(), "turn-2"), "heard") {
		t.Errorf("%+v\n%s", r, w.journal(r.Name()))
	}
}

// TestWords cuts the connection of a reader at random bytes of an agent's words, and restarts the server in the middle of a sentence.
// The reader loses and doubles nothing.
func TestWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withACP(nil))
	words := strings.Repeat("Größe 漢字 \U0001F600 und so weiter ", 12)
	r := w.ask("conv:words", "say first\nslowly 3 "+words+"\nthink so\nslowly 3 "+words+"\nsay end")
	var said []byte
	var seq, after int64
	step := ""
	restarts := 0
	for round := 0; ; round++ {
		left := 1 + rand.IntN(200)
		ended := true
		ctx, cancel := context.WithCancel(t.Context())
		for e, err := range w.x.EventsFrom(ctx, r.Name(), after, record.Span{Seq: seq, To: int64(len(said))}) {
			if err != nil {
				t.Fatal(err)
			}
			upto := e.Words
			if e.Type == record.EventOutput && e.Kind == "stdout" {
				upto = e.Span.To
				if e.Span.From <= int64(len(said)) && e.Span.To > int64(len(said)) {
					said = append(said, e.Message[int64(len(said))-e.Span.From:]...)
				}
			}
			if e.Type == record.EventStepStarted && e.Kind == string(record.KindAgent) {
				seq, step = e.Seq, e.Step
			}
			if upto > int64(len(said)) && step != "" {
				more, err := w.x.Words(ctx, r.Name(), step, seq, int64(len(said)), upto)
				if err != nil {
					t.Fatal(err)
				}
				said = append(said, more...)
			}
			after = max(after, e.Seq)
			if left -= max(1, len(e.Message)); left < 0 {
				ended = false
				break
			}
		}
		cancel()
		if restarts == 0 && len(said) > 200 {
			restarts++
			w.stop(true)
			w.start()
			continue
		}
		if ended {
			break
		}
	}
	if done := w.ended(r.Name()); done.State != record.StateComplete {
		t.Fatalf("%+v\n%s", done, w.journal(r.Name()))
	}
	if whole := w.stdout(r.Name(), "turn-1"); string(said) != whole || !strings.Contains(whole, "end\ndone\n") {
		t.Errorf("read %d bytes, said %d\nread %q\nsaid %q", len(said), len(whole), said, whole)
	}
}
