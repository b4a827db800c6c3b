package executor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// submit starts a workflow and waits until it has ended or waits for a person.
func (w *world) submit(req record.Request) record.Run {
	w.t.Helper()
	if req.Repo == "" {
		req.Repo = "demo"
	}
	r, err := w.x.Submit(w.t.Context(), req)
	if err != nil {
		w.t.Fatalf("submit: %v", err)
	}
	return w.wait(r.Name())
}

func (w *world) wait(name string) record.Run {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	for _, err := range w.x.Events(ctx, name, 0, true) {
		if err != nil {
			w.t.Fatalf("follow %s: %v", name, err)
		}
	}
	for range 1000 {
		r, err := w.x.Run(w.t.Context(), name)
		if err != nil {
			w.t.Fatal(err)
		}
		if r.Ended() || r.State == record.StateAwaitingReview {
			return r
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("%s does not end", name)
	return record.Run{}
}

// journal renders a run's journal, a line an event that people care about.
func (w *world) journal(name string) string {
	w.t.Helper()
	var b strings.Builder
	for e, err := range w.x.Events(w.t.Context(), name, 0, false) {
		if err != nil {
			w.t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s %s", e.Type, e.Step, e.Command)
		if e.Exit != nil {
			fmt.Fprintf(&b, " exit=%d", *e.Exit)
		}
		fmt.Fprintf(&b, " %s %s %s\n", e.State, e.Reason, e.Message)
	}
	return b.String()
}

const linear = `
id: linear
nodes:
  - id: write
    run: echo one >>list.txt
  - id: look
    run: cat list.txt
  - id: more
    run: echo two >>list.txt
`

func TestWorkflow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.submit(record.Request{Workflow: linear})
	if r.State != record.StateComplete {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	if got := w.inRepo("log", "--format=%s", "main.."+r.Branch); got != "more: echo two >>list.txt\nwrite: echo one >>list.txt" {
		t.Errorf("log: %q", got)
	}
	if got := w.inRepo("show", r.Branch+":list.txt"); got != "one\ntwo" {
		t.Errorf("list.txt: %q", got)
	}
}

func TestWorkflowFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.submit(record.Request{Workflow: `
id: failing
nodes:
  - id: a
    run: echo x >x; exit 7
  - id: b
    run: echo never >never
`})
	if r.State != record.StateFailed || r.Reason != record.ReasonCommandFailed || r.Hint == "" {
		t.Fatalf("%+v", r)
	}
	if got := w.inRepo("log", "-1", "--format=%(trailers:key=Ramus-Exit,valueonly)", r.Branch); got != "7" {
		t.Errorf("the failing command's commit has the exit %q", got)
	}
	// A retry begins at the failed node with its input.
	again, err := w.x.Retry(t.Context(), r.Name(), gitd.Person{})
	if err != nil {
		t.Fatal(err)
	}
	again = w.wait(again.Name())
	if again.Parent != r.Name() || again.From != "a" || again.State != record.StateFailed || again.Branch != r.Branch {
		t.Fatalf("%+v", again)
	}
}

func TestMergeOnSuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.submit(record.Request{Workflow: "id: m\nrepo: {id: demo, base_branch: main, merge_on_success: true, merge_strategy: rebase}\nnodes:\n  - {id: a, run: echo x >x}\n"})
	if r.State != record.StateComplete || r.Merged == "" {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	if got := w.inRepo("show", "main:x"); got != "x" {
		t.Errorf("x on main: %q", got)
	}
	if got := w.inRepo("rev-parse", "main"); got != string(r.Merged) {
		t.Errorf("main is %s, merged %s", got, r.Merged)
	}
	// A conflict is a result that names the files and leaves both branches alone.
	c := w.submit(record.Request{Workflow: `
id: conflict
repo: {merge_on_success: true}
nodes:
  - {id: a, run: echo mine >greeting.txt}
  - {id: gate, human: {message: go on?}}
`})
	if c.State != record.StateAwaitingReview {
		t.Fatalf("%+v\n%s", c, w.journal(c.Name()))
	}
	w.exec("run:other", "echo theirs >greeting.txt")
	if _, err := w.x.Merge(t.Context(), "run:other", record.Merge{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.x.Decide(t.Context(), c.Name(), record.Decision{Approved: true, By: "Ada"}); err != nil {
		t.Fatal(err)
	}
	c = w.wait(c.Name())
	if c.Reason != record.ReasonMergeConflict || !strings.Contains(c.Error, "greeting.txt") {
		t.Fatalf("%+v", c)
	}
	if got := w.inRepo("show", "main:greeting.txt"); got != "theirs" {
		t.Errorf("main: %q", got)
	}
}

func TestGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const text = `
id: gated
nodes:
  - {id: a, run: echo a >a}
  - {id: ok, human: {message: "Is a fine?", allowed: [Ada]}}
  - {id: b, run: echo b >b}
`
	r := w.submit(record.Request{Workflow: text})
	if r.State != record.StateAwaitingReview || r.Gate == nil || r.Gate.Message != "Is a fine?" {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	// Other containers may be at work, because a base layer is made in one.
	if hosts := w.x.Fleet.List(t.Context(), r.Caller.String()); len(hosts) != 0 {
		t.Errorf("a waiting run holds containers: %+v", hosts)
	}
	// The run waits in its ref, so a restart loses nothing.
	w.stop(false)
	w.start()
	if _, err := w.x.Decide(t.Context(), r.Name(), record.Decision{Approved: true, By: "Eve"}); !errors.Is(err, gitd.ErrDenied) {
		t.Errorf("Eve may answer: %v", err)
	}
	if _, err := w.x.Decide(t.Context(), r.Name(), record.Decision{Approved: true, By: "Ada"}); err != nil {
		t.Fatal(err)
	}
	r = w.wait(r.Name())
	if r.State != record.StateComplete || w.inRepo("show", r.Branch+":b") != "b" {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	if _, err := w.x.Decide(t.Context(), r.Name(), record.Decision{Approved: true, By: "Ada"}); !errors.Is(err, record.ErrConflict) {
		t.Errorf("answered twice: %v", err)
	}
	// A rejection fails the run. Stopping a waiting run ends it, too.
	no := w.submit(record.Request{Workflow: text})
	if _, err := w.x.Decide(t.Context(), no.Name(), record.Decision{By: "Ada", Comment: "not yet"}); err != nil {
		t.Fatal(err)
	}
	if no = w.wait(no.Name()); no.Reason != record.ReasonRejected {
		t.Errorf("%+v", no)
	}
	stopped := w.submit(record.Request{Workflow: text})
	if err := w.x.Stop(t.Context(), stopped.Name(), gitd.Person{Name: "Ada"}); err != nil {
		t.Fatal(err)
	}
	if stopped = w.wait(stopped.Name()); stopped.Reason != record.ReasonCancelled {
		t.Errorf("%+v", stopped)
	}
	journal := strings.Split(strings.TrimSpace(w.journal(stopped.Name())), "\n")
	last := journal[max(len(journal)-2, 0):]
	if !strings.Contains(last[0], "stopped by Ada") || !strings.Contains(last[1], "failed cancelled") {
		t.Errorf("the journal ends with\n%s", strings.Join(last, "\n"))
	}
}

func TestSubWorkflows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	sub := map[string]string{
		"shared":   "id: shared\ninput:\n  word: {type: string, required: true}\nnodes:\n  - {id: s, run: \"echo {{input.word}} >shared.txt\", output: {word: result.stdout}}\n",
		"isolated": "id: isolated\nnodes:\n  - {id: i, run: echo i >isolated.txt}\n",
	}
	r := w.submit(record.Request{Sub: sub, Workflow: `
id: parent
nodes:
  - {id: a, run: echo a >a}
  - id: one
    kind: workflow
    implementation: {workflow_def_id: shared, inherit_branch: true, input: {word: "it's"}}
  - id: two
    kind: workflow
    implementation: {workflow_def_id: isolated, inherit_branch: false}
  - {id: look, run: ls}
`})
	if r.State != record.StateComplete {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	if got := w.inRepo("show", r.Branch+":shared.txt"); got != "it's" {
		t.Errorf("shared.txt: %q", got)
	}
	if got := w.inRepo("ls-tree", "--name-only", r.Branch); strings.Contains(got, "isolated.txt") {
		t.Errorf("the isolated work is on the parent's branch: %q", got)
	}
	if got := w.inRepo("show", r.Branch+"-two:isolated.txt"); got != "i" {
		t.Errorf("isolated.txt: %q", got)
	}
}

func TestFanOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.submit(record.Request{Workflow: `
id: fan
nodes:
  - {id: begin, run: echo begin >begin}
  - {id: part, run: "echo {{state.item}} >part-{{state.item}}", output: {made: "state.item"}}
  - {id: end, run: "ls >all"}
transitions:
  - {from: begin, to: part, fan_out: {over: "['x','y','z']", branch: true}}
  - {from: part, to: end, fan_in: {}}
`})
	if r.State != record.StateComplete {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	got := w.inRepo("show", r.Branch+":all")
	for _, want := range []string{"part-x", "part-y", "part-z", "begin"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
}

func TestResumeAtNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const text = `
id: resumable
input:
  code: {type: integer, default: 0}
nodes:
  - {id: a, run: echo a >>a}
  - {id: b, run: "echo b >>b; exit {{input.code}}"}
  - {id: c, run: echo c >>c}
`
	r := w.submit(record.Request{Workflow: text, Input: map[string]any{"code": 5}})
	if r.Reason != record.ReasonCommandFailed {
		t.Fatalf("%+v", r)
	}
	again := w.submit(record.Request{Workflow: text, From: "b", Input: map[string]any{"code": 0}})
	if again.State != record.StateComplete || again.Parent != r.Name() {
		t.Fatalf("%+v\n%s", again, w.journal(again.Name()))
	}
	for _, f := range []string{"a", "b", "c"} {
		if got := w.inRepo("show", again.Branch+":"+f); got != f {
			t.Errorf("%s: %q", f, got)
		}
	}
	if _, err := w.x.Submit(t.Context(), record.Request{Repo: "demo", Workflow: text, From: "nope"}); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("resumed at a node that is not there: %v", err)
	}
}

func TestTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.submit(record.Request{Task: &record.TaskCall{Name: "lib_write_file",
		Params: map[string]any{"path": "new/file.txt", "content": "hi"}}})
	if r.State != record.StateComplete || w.inRepo("show", r.Branch+":new/file.txt") != "hi" {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	r = w.submit(record.Request{Task: &record.TaskCall{Name: "lib_read_file",
		Params: map[string]any{"path": "../etc/passwd"}}})
	if r.State != record.StateFailed {
		t.Fatalf("%+v", r)
	}
	r = w.submit(record.Request{Caller: caller(t, "conv:talk"),
		Task: &record.TaskCall{Name: "lib_git_commit", Params: map[string]any{"message": "nothing yet"}}})
	if r.Kind != record.KindTask || !r.Ended() {
		t.Fatalf("%+v", r)
	}
}

type scriptedLLM struct{ answers []string }

func (s *scriptedLLM) Ask(_ context.Context, c workflow.LLMCall) (string, error) {
	if len(s.answers) == 0 {
		return "", errors.New("the model is out of answers")
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	return a, nil
}

func TestLLM(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(x *executor.Executor) { x.LLM = &scriptedLLM{answers: []string{`{"verdict":"good"}`}} })
	const text = `
id: judged
nodes:
  - {id: look, run: cat greeting.txt, output: {text: result.stdout}}
  - id: judge
    llm:
      prompt: "Is this good? {{state.text}}"
      schema: {type: object}
    output: {verdict: result.json.verdict}
  - {id: write, run: "echo {{state.verdict}} >verdict"}
`
	r := w.submit(record.Request{Workflow: text})
	if r.State != record.StateComplete || w.inRepo("show", r.Branch+":verdict") != "good" {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	if r = w.submit(record.Request{Workflow: text}); r.Reason != record.ReasonModel {
		t.Errorf("%+v", r)
	}
}
