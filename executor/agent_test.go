package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// scripted returns the stand-in agent of the examples.
func scripted(t *testing.T) agent.Agent {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "examples", "agents", "scripted.sh"))
	if err != nil {
		t.Fatal(err)
	}
	command := []string{"sh", "-c", string(text), "scripted"}
	return agent.Agent{Command: command, Resume: append(command[:len(command):len(command)], "--resume"),
		State: []string{".scripted"}}
}

// withAgent gives the world one agent, "scripted".
func withAgent(t *testing.T, change func(*agent.Agent)) func(*executor.Executor) {
	a := scripted(t)
	if change != nil {
		change(&a)
	}
	return func(x *executor.Executor) { x.Options.Agents = map[string]agent.Agent{"scripted": a} }
}

// ask submits a prompt for an agent and returns the run.
func (w *world) ask(name, prompt string, files ...record.Attachment) record.Run {
	w.t.Helper()
	r, err := w.x.Submit(w.t.Context(), record.Request{Caller: caller(w.t, name), Repo: "demo",
		Agent: &record.AgentCall{Prompt: prompt, Files: files}, Asker: gitd.Person{Name: "Ada", Email: "ada@example.com"}})
	if err != nil {
		w.t.Fatalf("ask %q: %v", prompt, err)
	}
	return r
}

// ended waits for a run's end.
func (w *world) ended(run string) record.Run {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	for {
		for _, err := range w.x.Events(ctx, run, 0, true) {
			if err != nil {
				w.t.Fatal(err)
			}
		}
		r, err := w.x.Run(ctx, run)
		if err != nil {
			w.t.Fatal(err)
		}
		if r.Ended() {
			return r
		}
		if ctx.Err() != nil {
			w.t.Fatalf("%s has not ended: %s\n%s", run, r.State, w.journal(run))
		}
	}
}

// until waits for an event of a run, live output included.
func (w *world) until(run string, is func(record.Event) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	for e, err := range w.x.Events(ctx, run, 0, true) {
		if err != nil {
			w.t.Fatal(err)
		}
		if is(e) {
			return
		}
	}
	w.t.Fatalf("%s ended without what was waited for\n%s", run, w.journal(run))
}

func printed(text string) func(record.Event) bool {
	said := ""
	return func(e record.Event) bool {
		if e.Type == record.EventOutput {
			said += e.Message
		}
		return strings.Contains(said, text)
	}
}

// stdout returns the standard output of a step.
func (w *world) stdout(run, step string) string {
	w.t.Helper()
	out, err := w.x.Output(w.t.Context(), run, step, "stdout")
	if err != nil {
		w.t.Fatal(err)
	}
	defer out.Close()
	text, err := io.ReadAll(out)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

func (w *world) events(run, kind string) (list []record.Event) {
	w.t.Helper()
	for e, err := range w.x.Events(w.t.Context(), run, 0, false) {
		if err != nil {
			w.t.Fatal(err)
		}
		if e.Type == kind {
			list = append(list, e)
		}
	}
	return list
}

func TestAgent(t *testing.T) {
	t.Parallel()
	onEngines(t, testAgent)
}

func testAgent(t *testing.T, engine string) {
	w := newWorldOn(t, engine, withAgent(t, func(a *agent.Agent) {
		a.Checks = []string{"lib_run_tests", "lib_run_lint"}
		a.Env = []string{"COLOUR=green"}
	}))
	r := w.ended(w.ask("conv:happy",
		"write made.txt by an agent\nrun printf 'test:\\n\\t@echo all is well\\n' >Makefile\nrun echo $COLOUR\nrun cat \"$RAMUS_FILES/note.txt\"\nremember the milk",
		record.Attachment{Name: "../note.txt", Content: []byte("attached\n")}).Name())
	if r.State != record.StateComplete {
		t.Errorf("%+v", r)
	}
	out := w.stdout(r.Name(), "turn-1")
	for _, want := range []string{"wrote made.txt\n", "green\n", "attached\n", "heard: Files that were given along:\n",
		"/note.txt\n", "done\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
	if got := w.inRepo("show", "ramus/conv-happy:made.txt"); got != "by an agent" {
		t.Errorf("made.txt: %q", got)
	}
	log := w.inRepo("log", "--format=%s|%an|%(trailers:key=Ramus-Step,valueonly)", "ramus/conv-happy")
	if !strings.Contains(log, "write made.txt by an agent|Ada|turn-1") {
		t.Errorf("log: %s", log)
	}
	if checks := w.events(r.Name(), record.EventStepFinished); len(checks) != 3 ||
		checks[1].Step != "check-lib_run_tests" || checks[2].Step != "check-lib_run_lint" {
		t.Errorf("steps: %s", w.journal(r.Name()))
	}
	if skipped := w.events(r.Name(), record.EventCheck); len(skipped) != 1 || skipped[0].Task != "lib_run_lint" ||
		skipped[0].Step != "check-lib_run_lint" {
		t.Errorf("skipped checks: %+v", skipped)
	}
	if got := w.inRepo("show", "refs/ramus/runs/conv-happy/"+r.ID+":files/0/note.txt"); got != "attached" {
		t.Errorf("the file in the run's ref: %q", got)
	}
	if got := w.inRepo("show", "refs/ramus/state/conv-happy:scripted/.scripted/session"); !strings.Contains(got, "remember: the milk") {
		t.Errorf("the agent's memory: %q", got)
	}
	// No state is lost with the container or with the index.
	w.stop(false)
	if err := os.Remove(filepath.Join(w.data, "index.db")); err != nil {
		t.Fatal(err)
	}
	w.start()
	again := w.ended(w.ask("conv:happy", "recall\nremember the bread\nrun cat made.txt").Name())
	if out := w.stdout(again.Name(), "turn-1"); again.State != record.StateComplete || out != "the milk\nby an agent\ndone\n" {
		t.Errorf("%+v\n%s", again, out)
	}
	if got := w.inRepo("show", "refs/ramus/state/conv-happy:scripted/.scripted/session"); !strings.Contains(got,
		"the milk") || !strings.Contains(got, "the bread") {
		t.Errorf("the agent's memory: %q", got)
	}
}

// TestSay gives prompts to an agent at work. They are its next turn. A prompt with the
// same key counts once.
func TestSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withAgent(t, nil))
	r := w.ask("conv:talk", "say one\nwait go\nremember first")
	w.until(r.Name(), printed("one"))
	say := func(key, text string) {
		t.Helper()
		if err := w.x.Prompts.Say(t.Context(), r.Name(), record.Prompt{Key: key, Text: text, By: gitd.Person{Name: "Grace"},
			Files: []record.Attachment{{Name: "a.txt", Content: []byte(key)}}}); err != nil {
			t.Fatal(err)
		}
	}
	say("k1", "recall\nfiles")
	say("k2", "write two.txt")
	say("k1", "recall")
	w.release(r, "go")
	r = w.ended(r.Name())
	if r.State != record.StateComplete {
		t.Fatalf("%+v", r)
	}
	out := w.stdout(r.Name(), "turn-2")
	if !strings.HasPrefix(out, "first\na-2.txt\na.txt\nwrote two.txt\n") {
		t.Errorf("turn-2: %q", out)
	}
	said := w.events(r.Name(), record.EventPrompt)
	var p record.Prompt
	if len(said) != 2 || json.Unmarshal(said[0].Data, &p) != nil || p.By.Name != "Grace" || len(p.Files) != 1 {
		t.Errorf("prompts: %+v", said)
	}
	say("k2", "write two.txt") // the answer was lost, and the prompt is sent again
	if err := w.x.Prompts.Say(t.Context(), r.Name(), record.Prompt{Key: "k3", Text: "too late"}); !errors.Is(err, record.ErrConflict) {
		t.Errorf("said after the end: %v", err)
	}
	res, _, _ := w.exec("conv:talk", "true")
	if err := w.x.Prompts.Say(t.Context(), res.Run, record.Prompt{Text: "x"}); !errors.Is(err, record.ErrConflict) {
		t.Errorf("said to a command: %v", err)
	}
}

// release makes a file in the work tree of a run that waits for it.
func (w *world) release(r record.Run, name string) {
	w.t.Helper()
	if err := w.x.Touch(w.t.Context(), r.Caller.String(), name); err != nil {
		w.t.Fatal(err)
	}
}

// TestSayAtTheEnd gives prompts to a run that ends. Each is either taken by the agent or
// refused, never both, never neither.
func TestSayAtTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withAgent(t, nil))
	for round := range 2 {
		r := w.ask(fmt.Sprintf("conv:race-%d", round), "say hello\nwait go")
		w.until(r.Name(), printed("hello"))
		var taken []string
		for i := 0; ; i++ {
			if i == 1 { // the first is certain to be in time
				w.release(r, "go")
			}
			text := fmt.Sprintf("say word-%d", i)
			err := w.x.Prompts.Say(t.Context(), r.Name(), record.Prompt{Text: text})
			if errors.Is(err, record.ErrConflict) {
				if strings.Contains(err.Error(), "wait for its agent already") {
					continue
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			taken = append(taken, fmt.Sprintf("word-%d\n", i))
			if i > 40 {
				w.until(r.Name(), func(e record.Event) bool {
					return e.Type == record.EventRunState && e.State == record.StateComplete
				})
			}
		}
		r = w.ended(r.Name())
		said := ""
		for _, e := range w.events(r.Name(), record.EventStepFinished) {
			said += w.stdout(r.Name(), e.Step)
		}
		for _, word := range taken {
			if strings.Count(said, word) != 1 {
				t.Errorf("%q was taken and heard %d times", word, strings.Count(said, word))
			}
		}
		if len(taken) == 0 || r.State != record.StateComplete {
			t.Errorf("%d prompts were taken: %+v", len(taken), r)
		}
	}
}

func TestAgentRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withAgent(t, func(a *agent.Agent) { a.Argument = true }))
	for want, call := range map[string]record.AgentCall{
		`agent "other"; known are scripted`: {Name: "other", Prompt: "x"},
		"it is empty":                       {Prompt: " \n"},
		"at most 114688 can be given":       {Prompt: strings.Repeat("x", 120<<10)},
		"NUL byte":                          {Prompt: "a\x00b"},
		"at most 32":                        {Prompt: "x", Files: make([]record.Attachment, 33)},
		"at most 64 can be given":           {Prompt: "x", Files: []record.Attachment{{Content: make([]byte, 65<<20)}}},
	} {
		_, err := w.x.Submit(t.Context(), record.Request{Repo: "demo", Agent: &call})
		if !errors.Is(err, record.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// A prompt that is passed as an argument is never an option, because there is no
	// session to resume.
	r := w.ended(w.ask("conv:argument", "--resume").Name())
	if out := w.stdout(r.Name(), "turn-1"); r.State != record.StateComplete || out != "done\n" {
		t.Errorf("%s %s: %q", r.State, r.Error, out)
	}
}

// TestSayInLine gives a prompt to a run that waits in line. It is a part of the first
// turn. A container can neither see nor fetch the memory of agents.
func TestSayInLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withAgent(t, func(a *agent.Agent) {
		a.State = nil
		a.Resume = []string{"sh", "-c", "echo resumed; cat"}
	}))
	first := w.ask("conv:line", "say ready\nwait go\nremember something")
	w.until(first.Name(), printed("ready"))
	second := w.ask("conv:line", "asked first")
	if err := w.x.Prompts.Say(t.Context(), second.Name(), record.Prompt{Text: "said in line"}); err != nil {
		t.Fatal(err)
	}
	w.release(first, "go")
	w.ended(first.Name())
	// An agent without a memory is resumed if it has ended a turn for the caller.
	second = w.ended(second.Name())
	if out := w.stdout(second.Name(), "turn-1"); out != "resumed\nasked first\n\nsaid in line\n" {
		t.Errorf("%q", out)
	}
}

func TestAgentMemoryIsHidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withAgent(t, nil))
	w.ended(w.ask("conv:hidden", "remember the word").Name())
	secret := w.inRepo("rev-parse", "refs/ramus/state/conv-hidden")
	for _, name := range []string{"conv:hidden", "conv:other"} {
		_, out, errs := w.exec(name,
			"git ls-remote origin; git fetch origin refs/ramus/state/conv-hidden && echo fetched; git fetch origin "+
				secret+" && echo fetched")
		if strings.Contains(out, "refs/ramus/state") || strings.Contains(out, "fetched") || !strings.Contains(out, "refs/heads/main") {
			t.Errorf("%s: %s\n%s", name, out, errs)
		}
	}
}
