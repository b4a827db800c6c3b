package dialogue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/executor/shell"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// stage journals the steps of a run, whose work is a function of the test.
type stage struct {
	d *Dialogue
	// play returns the result of a step. Nil means success.
	play func(info step.Info) (workflow.StepResult, error)
	// task is called when a check is about to run. Nil means success.
	task func(name string) error
	// tasks is the number of checks that were about to run.
	tasks int
}

func (s *stage) Once(_ context.Context, info step.Info, _ Do) (workflow.StepResult, error) {
	run := s.d.run
	if b := run.Beginning(info.ID); b.Done != nil {
		return b.Result()
	}
	run.Lock()
	if err := info.Hear(&info); err != nil {
		run.Unlock()
		return workflow.StepResult{}, err
	}
	err := run.EmitLocked(record.Event{Type: record.EventStepStarted, Step: info.ID, Kind: info.Kind, Command: info.Command,
		Data: record.Marshal(step.Started{ID: info.ID, Prompts: info.Prompts})}, false)
	run.Unlock()
	if err != nil {
		return workflow.StepResult{}, err
	}
	res := workflow.StepResult{OK: true}
	if s.play != nil {
		if res, err = s.play(info); err != nil {
			return res, err
		}
	}
	return res, s.end(info.ID, info.Kind, res)
}

// end journals the end of a step.
func (s *stage) end(id, kind string, res workflow.StepResult) error {
	return s.d.run.Emit(record.Event{Type: record.EventStepFinished, Step: id, Kind: kind, OK: &res.OK,
		Data: record.Marshal(record.StepResult{Result: res})}, false)
}

func (s *stage) Task(name string, _ json.RawMessage, _ time.Duration, _ *step.Info) (Do, error) {
	s.tasks++
	if s.task != nil {
		if err := s.task(name); err != nil {
			return nil, err
		}
	}
	return func(context.Context, *step.Work) (step.Outcome, error) { return step.Outcome{}, nil }, nil
}

// newConversation returns the conversation of a run with checks.
func newConversation(t *testing.T, checks ...string) (*conversation, *stage) {
	t.Helper()
	d := newDialogue(t, t.TempDir())
	t.Cleanup(d.run.End)
	log := slog.New(slog.DiscardHandler)
	d.run.Runner = &step.Runner{Context: t.Context(), Settings: &settings.Reader{}, Trees: &worktree.Store{}, Log: log, Now: time.Now}
	d.run.Target = d.run.Runner.NewTarget(d.run.Initial.Caller, repotest.NewRepo(t), "")
	d.all.Context, d.all.Shells, d.all.History = t.Context(), &shell.Shells{}, &history{}
	s := &stage{d: d}
	d.steps = s
	c := &conversation{d: d, run: d.run, ctx: t.Context(), a: agent.Agent{Name: "coder"}, checks: map[string]string{},
		checkups: addCheckups(nil, checks)}
	return c, s
}

// history has the earlier runs of tests.
type history struct {
	runs   []record.Run
	events map[string][]record.Event
	err    error
}

func (h *history) OfCaller(c record.Caller) (list []record.Run) {
	for _, r := range h.runs {
		if r.Caller == c {
			list = append(list, r)
		}
	}
	return list
}

func (h *history) Runs(context.Context, record.Filter) ([]record.Run, error) { return h.runs, h.err }

func (h *history) Events(_ context.Context, run string, _ int64, _ bool) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for _, e := range h.events[run] {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// steps returns the steps that began, with the numbers of prompts that they heard.
func steps(d *Dialogue) (list []string) {
	for _, e := range d.run.Journalled() {
		if e.Type == record.EventStepStarted {
			list = append(list, fmt.Sprint(e.Step, " ", e.PromptsHeard()))
		}
	}
	return list
}

// TestLead has turns as long as there are prompts, and checks after the last one.
func TestLead(t *testing.T) {
	ended := func(s *stage, id string, ok bool) {
		if err := s.end(id, string(workflow.KindTask), workflow.StepResult{OK: ok}); err != nil {
			t.Error(err)
		}
	}
	say := func(d *Dialogue, key string, now bool) {
		if err := d.Say(record.Prompt{Key: key, Text: "say " + key, Now: now}); err != nil {
			t.Error(err)
		}
	}
	for _, x := range []struct {
		what    string
		begin   func(c *conversation, s *stage)
		want    string // the steps that the agent takes
		err     string
		bad     string // the checks
		checked int    // how often a check was about to run
	}{
		{"one prompt", func(_ *conversation, s *stage) { ended(s, "check-a", true) }, "turn-1 1", "", "map[a:passed]", 1},
		{"a check that fails", func(_ *conversation, s *stage) { ended(s, "check-a", false) }, "turn-1 1", "a check failed: a", "map[a:failed]", 1},
		{"prompts that wait are heard together", func(c *conversation, s *stage) {
			say(c.d, "1", false)
			say(c.d, "2", false)
			ended(s, "check-a", true)
		}, "turn-1 3", "", "map[a:passed]", 1},
		{"a prompt during a turn begins another one before the checks", func(c *conversation, s *stage) {
			s.play = func(info step.Info) (workflow.StepResult, error) {
				if info.ID == "turn-1" {
					say(c.d, "1", false)
				}
				return workflow.StepResult{OK: true}, nil
			}
			ended(s, "check-a#2", true)
		}, "turn-1 1, turn-2 2", "", "map[a:passed]", 1},
		{"a prompt during the checks has them run again", func(c *conversation, s *stage) {
			s.task = func(string) error {
				if len(steps(c.d)) == 1 {
					say(c.d, "1", false)
				}
				return nil
			}
			ended(s, "check-a", false)
			ended(s, "check-a#2", true)
		}, "turn-1 1, turn-2 2", "", "map[a:passed]", 2},
		{"checks that had begun come before the prompts", func(c *conversation, s *stage) {
			s.play = func(info step.Info) (workflow.StepResult, error) {
				if info.ID != "turn-1" {
					return workflow.StepResult{OK: true}, nil
				}
				say(c.d, "1", false)
				return workflow.StepResult{OK: true}, c.run.Emit(record.Event{Type: record.EventStepStarted, Step: "check-a"}, false)
			}
			ended(s, "check-a", false)
			ended(s, "check-a#2", true)
		}, "turn-1 1, check-a 0, turn-2 2", "", "map[a:passed]", 2},
		{"a turn that fails", func(c *conversation, s *stage) {
			s.play = func(step.Info) (workflow.StepResult, error) {
				say(c.d, "1", false)
				return workflow.StepResult{Error: "it broke"}, nil
			}
			ended(s, "check-a", true)
		}, "turn-1 1", "it broke", "map[a:passed]", 1},
		{"a turn that fails without words", func(c *conversation, s *stage) {
			s.play = func(step.Info) (workflow.StepResult, error) { return workflow.StepResult{}, nil }
			ended(s, "check-a", true)
		}, "turn-1 1", "the agent ended with 0", "map[a:passed]", 1},
		{"a turn that cannot run", func(c *conversation, s *stage) {
			s.play = func(step.Info) (workflow.StepResult, error) { return workflow.StepResult{}, io.ErrUnexpectedEOF }
		}, "turn-1 1", "unexpected EOF", "map[]", 0},
		{"a check that is not known", func(_ *conversation, s *stage) {
			s.task = func(name string) error { return fmt.Errorf("no task %s", name) }
			ended(s, "check-a", true)
		}, "turn-1 1", "no task a", "map[]", 1},
		{"a prompt that is taken back before its turn", func(c *conversation, s *stage) {
			say(c.d, "1", false)
			s.task = func(string) error {
				if len(steps(c.d)) == 1 {
					say(c.d, "2", false)
					if _, err := c.d.Unsay("2", gitd.Person{}); err != nil {
						t.Error(err)
					}
				}
				return nil
			}
			ended(s, "check-a", true)
		}, "turn-1 2", "", "map[a:passed]", 1},
	} {
		c, s := newConversation(t, "a")
		x.begin(c, s)
		err := c.lead(t.Context())
		if got := strings.Join(steps(c.d), ", "); got != x.want {
			t.Errorf("%s: got the steps %s, want %s", x.what, got, x.want)
		}
		if (err != nil) != (x.err != "") || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("%s: got %v, want %q", x.what, err, x.err)
		}
		if s.tasks != x.checked {
			t.Errorf("%s: got %d checks, want %d", x.what, s.tasks, x.checked)
		}
		if got := fmt.Sprint(c.checks); got != x.bad {
			t.Errorf("%s: got the checks %s, want %s", x.what, got, x.bad)
		}
	}
}

// TestSkipping has a check that found nothing to run not fail, and leaves every other outcome as it is.
func TestSkipping(t *testing.T) {
	for _, x := range []struct {
		fault, err error
		ok         bool
		reason     string
	}{{tasks.ErrNoWay, nil, true, reasonSkipped}, {io.EOF, nil, false, ""}, {nil, nil, false, ""}, {tasks.ErrNoWay, io.EOF, false, ""}} {
		o, err := skipping(func(context.Context, *step.Work) (step.Outcome, error) {
			return step.Outcome{Fault: x.fault}, x.err
		})(t.Context(), nil)
		if !errors.Is(err, x.err) || o.Result.OK != x.ok || o.Exit.Reason != x.reason {
			t.Errorf("%v, %v: got %t, %q, %v, want %t, %q", x.fault, x.err, o.Result.OK, o.Exit.Reason, err, x.ok, x.reason)
		}
	}
}

// TestPlan asks a person about the plan, and gives the plan to the next turn if the person approves.
func TestPlan(t *testing.T) {
	for _, x := range []struct {
		what   string
		stdout string
		turn   error
		answer record.Decision
		failed string
		want   string // in the prompt after it
	}{
		{"approved", "first this", nil, record.Decision{Approved: true, By: "ada", Comment: "be quick"}, "",
			"first this\n\nRemarks of the person who approved it: be quick"},
		{"refused", "first this", nil, record.Decision{By: "ada", Comment: "no"}, "ada did not approve the plan: no", ""},
		{"no plan", " \n", nil, record.Decision{}, "the agent ended its turn without a plan", ""},
		{"no turn", "", io.ErrUnexpectedEOF, record.Decision{}, "", ""},
	} {
		c, s := newConversation(t)
		// The server was restarted after the plan, so its container is gone.
		if err := c.run.Emit(record.Event{Type: record.EventStepStarted, Step: "turn-1"}, false); err != nil {
			t.Fatal(err)
		}
		s.play = func(info step.Info) (workflow.StepResult, error) {
			if info.ID != planStep || !info.Discard {
				t.Errorf("%s: got the step %+v, want that of a plan", x.what, info)
			}
			return workflow.StepResult{OK: true, Output: map[string]any{"stdout": x.stdout}}, x.turn
		}
		type result struct{ failed, err error }
		done := make(chan result, 1)
		ctx, cancel := context.WithCancel(t.Context())
		f := c.run.Follow(0, record.Span{})
		go func() {
			failed, err := c.plan(ctx)
			done <- result{failed, err}
			cancel()
		}()
		for e := range f.Events(ctx) {
			if e.Type == record.EventGate {
				if !strings.Contains(e.Message, x.stdout) {
					t.Errorf("%s: got the question %q, want the plan in it", x.what, e.Message)
				}
				if err := c.d.Decide(x.answer); err != nil {
					t.Error(err)
				}
				break
			}
		}
		got := <-done
		cancel()
		if !errors.Is(got.err, x.turn) || (got.failed != nil) != (x.failed != "") || got.failed != nil && got.failed.Error() != x.failed {
			t.Errorf("%s: got %v, %v, want %q, %v", x.what, got.failed, got.err, x.failed, x.turn)
		}
		if !strings.HasSuffix(c.planned, x.want) || (c.planned != "") != (x.want != "") {
			t.Errorf("%s: got %q, want %q at its end", x.what, c.planned, x.want)
		}
	}
}

// TestFit takes as many waiting prompts into a turn as fit, and gives those that are said at once a turn of their own.
func TestFit(t *testing.T) {
	big := strings.Repeat("x", maxTurnText-2)
	for _, x := range []struct {
		what    string
		heard   int
		prompts []record.Prompt
		want    int
	}{
		{"none", 1, []record.Prompt{{}}, 1},
		{"all", 0, []record.Prompt{{Text: "a"}, {Text: "b"}, {Text: "c"}}, 3},
		{"one of the largest size", 0, []record.Prompt{{Text: big}, {Text: ""}}, 1},
		{"a larger one alone", 0, []record.Prompt{{Text: big + "xx"}, {Text: "b"}}, 1},
		{"two of the largest size together", 0, []record.Prompt{{Text: big[:len(big)-4]}, {Text: "bc"}, {Text: "d"}}, 2},
		{"at once before others", 1, []record.Prompt{{}, {Now: true}, {Now: true}, {}}, 3},
		{"others before at once", 1, []record.Prompt{{}, {}, {Now: true}, {}}, 3},
		{"the one that was heard last", 1, []record.Prompt{{Now: true}, {}, {}}, 3},
	} {
		if got := new(conversation).fit(record.Queue{Prompts: x.prompts, Heard: x.heard}); got != x.want {
			t.Errorf("%s: got %d, want %d", x.what, got, x.want)
		}
	}
}

// TestHurry steers an agent that takes words into its turn, and interrupts any other.
func TestHurry(t *testing.T) {
	takes := func(taken bool, err error) func(context.Context, string) (bool, error) {
		return func(context.Context, string) (bool, error) { return taken, err }
	}
	for _, x := range []struct {
		what  string
		talk  *talk
		files bool
		key   string
		want  string
		ended bool
	}{
		{"no turn", nil, false, "1", Queued, false},
		{"an agent without steering", &talk{step: "turn-1"}, false, "1", Interrupted, true},
		{"words that are taken", &talk{step: "turn-1", steer: takes(true, nil)}, false, "1", Steered, false},
		{"words that are taken twice", &talk{step: "turn-1", steer: takes(true, nil)}, false, "none", Steered, false},
		{"words that come too late", &talk{step: "turn-1", steer: takes(false, nil)}, false, "1", Interrupted, true},
		{"an error", &talk{step: "turn-1", steer: takes(true, io.EOF)}, false, "1", Interrupted, true},
		{"files", &talk{step: "turn-1", steer: takes(true, nil)}, true, "1", Interrupted, true},
		{"a prompt that was heard meanwhile", &talk{step: "turn-1"}, false, "none", Queued, false},
	} {
		d := newDialogue(t, t.TempDir())
		if err := d.Say(record.Prompt{Key: "1", Text: "now", Now: true}); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancelCause(t.Context())
		if x.talk != nil {
			x.talk.end = end
		}
		d.talk = x.talk
		if got, want := d.InTurn(), x.talk != nil; got != want {
			t.Errorf("%s: in a turn: got %t, want %t", x.what, got, want)
		}
		if got, want := d.CanSteer(), x.talk != nil && x.talk.steer != nil; got != want {
			t.Errorf("%s: can steer: got %t, want %t", x.what, got, want)
		}
		p := record.Prompt{Key: x.key, Text: "now"}
		if x.files {
			p.Files = make([]record.Attachment, 1)
		}
		how, err := d.Hurry(t.Context(), p)
		if ended := errors.Is(context.Cause(ctx), errInterrupted); err != nil || how != x.want || ended != x.ended || d.interrupted("turn-1") != x.ended {
			t.Errorf("%s: got %s, ended %t, %v, want %s, %t", x.what, how, ended, err, x.want, x.ended)
		}
		if got, want := len(texts(d)), 2; x.want == Steered && x.key == "1" {
			if got != 0 {
				t.Errorf("%s: %d prompts wait, want 0", x.what, got)
			}
		} else if got != want {
			t.Errorf("%s: %d prompts wait, want %d", x.what, got, want)
		}
		end(nil)
		d.run.End()
	}
}

// TestStopTurn takes back the prompts that wait and ends the turn. An interruption counts until the step begins again.
func TestStopTurn(t *testing.T) {
	c, s := newConversation(t)
	s.play = func(info step.Info) (workflow.StepResult, error) {
		ctx, end := context.WithCancelCause(t.Context())
		c.d.talk = &talk{step: info.ID, end: end}
		for _, key := range []string{"1", "2"} {
			if err := c.d.Say(record.Prompt{Key: key, Text: "say " + key}); err != nil {
				t.Error(err)
			}
		}
		back, err := c.d.StopTurn(gitd.Person{Name: "Ada"})
		if err != nil || len(back) != 2 || back[0].Key != "1" || back[1].Key != "2" {
			t.Errorf("got back %+v, %v, want both prompts", back, err)
		}
		if !errors.Is(context.Cause(ctx), errInterrupted) || !c.d.interrupted(info.ID) || c.d.interrupted("turn-2") {
			t.Errorf("the turn did not end by an interruption: %v", context.Cause(ctx))
		}
		c.d.talk = nil
		return workflow.StepResult{OK: true}, nil
	}
	if err := c.lead(t.Context()); err != nil {
		t.Error(err)
	}
	if got := steps(c.d); !slices.Equal(got, []string{"turn-1 1"}) {
		t.Errorf("got the steps %q, want one turn", got)
	}
	if err := c.run.Emit(record.Event{Type: record.EventStepStarted, Step: "turn-1"}, false); err != nil {
		t.Fatal(err)
	}
	if c.d.interrupted("turn-1") {
		t.Error("an interruption counts after the step began again")
	}
}

// TestOverMeanwhile finds out from the journal whether a turn ended before the server was restarted.
func TestOverMeanwhile(t *testing.T) {
	begin := record.Event{Type: record.EventStepStarted, Step: "turn-1"}
	stop := record.Event{Type: record.EventAgent, Kind: agent.KindStop, Step: "turn-1", Message: "end_turn"}
	for _, x := range []struct {
		what   string
		again  bool
		events []record.Event
		stop   string
		over   bool
	}{
		{"no restart", false, []record.Event{begin, stop}, "", false},
		{"ended", true, []record.Event{begin, stop}, "end_turn", true},
		{"at work", true, []record.Event{begin}, "", false},
		{"begun again", true, []record.Event{begin, stop, begin}, "", false},
		{"ended in another step", true, []record.Event{begin, {Type: record.EventAgent, Kind: agent.KindStop, Step: "plan"}}, "", false},
		{"interrupted", true, []record.Event{begin, {Type: record.EventInterrupt, Step: "turn-1"}}, "cancelled", true},
	} {
		c, _ := newConversation(t)
		for _, e := range x.events {
			if err := c.run.Emit(e, false); err != nil {
				t.Fatal(err)
			}
		}
		w := &step.Work{Run: c.run, Again: x.again, Info: step.Info{ID: "turn-1"}}
		got, over, err := (&turn{conversation: c, id: "turn-1"}).overMeanwhile(w)
		if err != nil || got != x.stop || over != x.over {
			t.Errorf("%s: got %q, %t, %v, want %q, %t", x.what, got, over, err, x.stop, x.over)
		}
	}
}

// TestKnows finds an earlier run of the same caller in which the same agent ended a turn.
func TestKnows(t *testing.T) {
	c, _ := newConversation(t)
	own := c.run.Initial
	yes, no := true, false
	before := own
	before.ID = "0"
	other, none := before, before
	other.Agent, none.Agent = &record.AgentCall{Name: "other"}, nil
	end := record.Event{Type: record.EventStepFinished, Kind: string(record.KindAgent), OK: &yes}
	failed, check := end, end
	failed.OK, check.Kind = &no, string(workflow.KindTask)
	for _, x := range []struct {
		what   string
		run    record.Run
		events []record.Event
		want   bool
	}{
		{"a turn", before, []record.Event{failed, end}, true},
		{"a turn that failed", before, []record.Event{failed}, false},
		{"a check", before, []record.Event{check}, false},
		{"the run itself", own, []record.Event{end}, false},
		{"another agent", other, []record.Event{end}, false},
		{"no agent", none, []record.Event{end}, false},
	} {
		c.d.all.History = &history{runs: []record.Run{x.run}, events: map[string][]record.Event{x.run.Name(): x.events}}
		if got, err := c.d.all.knows(t.Context(), own); err != nil || got != x.want {
			t.Errorf("%s: got %t, %v, want %t", x.what, got, err, x.want)
		}
	}
	c.d.all.History = &history{err: io.ErrUnexpectedEOF}
	if _, err := c.d.all.knows(t.Context(), own); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an index that cannot be read: got %v, want %v", err, io.ErrUnexpectedEOF)
	}
}

// TestResumes continues the work of an earlier turn if the agent can, and if there was one.
func TestResumes(t *testing.T) {
	c, _ := newConversation(t)
	yes := true
	before := c.run.Initial
	before.ID = "0"
	earlier := &history{runs: []record.Run{before}, events: map[string][]record.Event{
		before.Name(): {{Type: record.EventStepFinished, Kind: string(record.KindAgent), OK: &yes}}}}
	resume, state := []string{"coder", "--continue"}, []string{".coder"}
	for _, x := range []struct {
		what            string
		resume, state   []string
		first, restored bool
		history         *history
		want            bool
	}{
		{"the first turn", resume, nil, true, false, &history{}, false},
		{"the second turn", resume, nil, false, false, &history{}, true},
		{"a memory", resume, state, true, true, &history{}, true},
		{"no memory where there could be one", resume, state, true, false, earlier, false},
		{"an earlier run", resume, nil, true, false, earlier, true},
		{"an agent that cannot", nil, nil, false, true, earlier, false},
	} {
		c.a.Resume, c.a.State, c.d.all.History = x.resume, x.state, x.history
		got, err := (&turn{conversation: c, first: x.first}).resumes(t.Context(), x.restored)
		if err != nil || got != x.want {
			t.Errorf("%s: got %t, %v, want %t", x.what, got, err, x.want)
		}
	}
	c.d.all.History = &history{err: io.ErrUnexpectedEOF}
	c.a.Resume, c.a.State = resume, nil
	if _, err := (&turn{conversation: c, first: true}).resumes(t.Context(), false); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an index that cannot be read: got %v, want %v", err, io.ErrUnexpectedEOF)
	}
}

// TestCommand passes the prompt to an agent as its standard input or as its last argument.
func TestCommand(t *testing.T) {
	for _, x := range []struct {
		what               string
		argument, planning bool
		resume             bool
		prompt             string
		args               []string
		stdin              string
	}{
		{"standard input", false, false, false, "-say", []string{"coder", "new"}, "-say\n"},
		{"argument", true, false, false, "say", []string{"coder", "new", "say"}, ""},
		{"argument like an option", true, false, false, "-say", []string{"coder", "new", " -say"}, ""},
		{"continued", true, false, true, "say", []string{"coder", "--continue", "say"}, ""},
		{"planning", false, true, true, "say", []string{"coder", "--continue"}, "say\n"},
	} {
		c, _ := newConversation(t)
		c.a.Command, c.a.Resume = append(make([]string, 0, 8), "coder", "new"), append(make([]string, 0, 8), "coder", "--continue")
		c.a.Argument, c.a.Timeout = x.argument, time.Minute
		got := (&turn{conversation: c, planning: x.planning}).command("turn-1", x.prompt, x.resume, false)
		stdin := ""
		if got.Stdin != nil {
			text, err := io.ReadAll(got.Stdin)
			if err != nil {
				t.Fatal(err)
			}
			stdin = string(text)
		}
		if !slices.Equal(got.Args, x.args) || stdin != x.stdin || got.ID != "turn-1" || got.Timeout != time.Minute {
			t.Errorf("%s: got %s %q with %q after %s", x.what, got.ID, got.Args, stdin, got.Timeout)
		}
		if slices.Contains(got.Env, planEnv) != x.planning {
			t.Errorf("%s: got the environment %q", x.what, got.Env)
		}
		if shared := c.a.Command[:3]; shared[2] != "" {
			t.Errorf("%s: the agent's own command has the prompt", x.what)
		}
	}
}

// TestExitOf returns the exit code of a turn from the first reason for its end.
func TestExitOf(t *testing.T) {
	for _, x := range []struct {
		what       string
		cause, err error
		code       int
		reason     string
	}{
		{"ended", nil, nil, 0, ""},
		{"refused", nil, io.EOF, 1, ""},
		{"interrupted", errInterrupted, io.EOF, 0, ""},
		{"too long", errTurnTimeout, io.EOF, 124, containers.ReasonTimeout},
		{"printed too much", errBabble, io.EOF, 143, containers.ReasonKilled},
		{"cancelled", context.Canceled, nil, 143, containers.ReasonKilled},
	} {
		if code, reason := exitOf(x.cause, x.err); code != x.code || reason != x.reason {
			t.Errorf("%s: got %d %q, want %d %q", x.what, code, reason, x.code, x.reason)
		}
	}
}

// TestFormerSession finds the session of the run, of the caller's last run, or of the callers that it was forked from.
func TestFormerSession(t *testing.T) {
	caller := func(depth int) record.Caller {
		c, err := record.RunCaller(fmt.Sprintf("fork%d", depth))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	// chain returns the runs of a caller that was forked many times. The first has a session.
	chain := func(own record.Run, forks int) (runs []record.Run) {
		c := own.Caller
		for i := range forks {
			runs = append(runs, record.Run{Caller: c, ID: "1", Fork: &record.Fork{Of: caller(i).String()}})
			c = caller(i)
		}
		return append(runs, record.Run{Caller: c, ID: "1", Kind: record.KindAgent, Agent: &record.AgentCall{Name: "coder"}, Session: "first"})
	}
	for _, x := range []struct {
		what string
		runs func(own record.Run) []record.Run
		own  string // the session of the run itself
		want string
	}{
		{"none", func(record.Run) []record.Run { return nil }, "", ""},
		{"its own", func(own record.Run) []record.Run { return chain(own, 0) }, "own", "own"},
		{"of the last run", func(own record.Run) []record.Run { return chain(own, 0) }, "", "first"},
		{"of a fork", func(own record.Run) []record.Run { return chain(own, 1) }, "", "first"},
		{"of the most forks", func(own record.Run) []record.Run { return chain(own, record.MaxForks) }, "", "first"},
		{"of more forks", func(own record.Run) []record.Run { return chain(own, record.MaxForks+1) }, "", ""},
		{"of another agent", func(own record.Run) []record.Run {
			runs := chain(own, 0)
			runs[0].Agent = &record.AgentCall{Name: "other"}
			return runs
		}, "", ""},
		{"of another label", func(own record.Run) []record.Run {
			runs := chain(own, 0)
			runs[0].Agent = &record.AgentCall{Name: "coder", Session: "review"}
			return runs
		}, "", ""},
		{"of a fork with a wrong name", func(own record.Run) []record.Run {
			return []record.Run{{Caller: own.Caller, ID: "1", Fork: &record.Fork{Of: "no caller"}}}
		}, "", ""},
	} {
		c, _ := newConversation(t)
		c.d.all.History = &history{runs: x.runs(c.run.Initial)}
		if x.own != "" {
			if err := c.run.Emit(record.Event{Type: record.EventAgent, Kind: agent.KindSession, Message: x.own}, true); err != nil {
				t.Fatal(err)
			}
		}
		if got := (&turn{conversation: c}).formerSession(); got != x.want {
			t.Errorf("%s: got %q, want %q", x.what, got, x.want)
		}
	}
}
