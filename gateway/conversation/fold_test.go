package conversation

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// story is a run whose journal and words grow. It is the stand-in of an executor, cut after some events and bytes.
type story struct {
	run    record.Run
	events []record.Event
	words  map[int64]string // by the number of the beginning of the turn
	open   int64            // the turn that works
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newStory(id, prompt string) *story {
	c, err := record.ParseCaller("conv:told")
	if err != nil {
		panic(err)
	}
	s := &story{run: record.Run{ID: id, Caller: c, Kind: record.KindAgent, Repo: "app", Branch: c.Branch(),
		Agent: &record.AgentCall{Name: "standin", Prompt: prompt},
		Asker: gitd.Person{Name: "Ada", ID: "test:1"}, State: record.StateRunning, CreatedAt: start},
		words: map[int64]string{}}
	s.add(record.Event{Type: record.EventRunCreated})
	return s
}

func (s *story) add(e record.Event) int64 {
	e.Seq = int64(len(s.events) + 1)
	e.Time = start.Add(time.Duration(e.Seq) * time.Second)
	e.Words = int64(len(s.words[s.open]))
	s.events = append(s.events, e)
	return e.Seq
}

func (s *story) turn(n, heard int) {
	s.open = 0
	seq := s.add(record.Event{Type: record.EventStepStarted, Kind: string(record.KindAgent),
		Step: fmt.Sprintf("turn-%d", n), Command: "standin: x", Data: record.Marshal(map[string]int{"prompts": heard})})
	s.open = seq
	s.words[seq] = ""
}

func (s *story) say(words string) { s.words[s.open] += words }

func (s *story) agent(kind, message string, data any) {
	s.add(record.Event{Type: record.EventAgent, Kind: kind, Step: "turn-1", Message: message, Data: record.Marshal(data)})
}

func (s *story) endTurn(n int, reason string, ok bool) {
	exit := 0
	s.add(record.Event{Type: record.EventStepFinished, Kind: string(record.KindAgent), Step: fmt.Sprintf("turn-%d", n),
		OK: &ok, Exit: &exit, Reason: reason, Commit: "c0ffee", DurationMS: 1000})
}

func (s *story) prompt(p record.Prompt) {
	s.add(record.Event{Type: record.EventPrompt, Message: p.Text, Data: record.Marshal(p)})
}

func (s *story) end() {
	s.run.State = record.StateComplete
	s.add(record.Event{Type: record.EventRunState, State: record.StateComplete})
}

// told is a run with two turns, a tool, a plan, a question and its answer.
func told(id string) *story {
	s := newStory(id, "make it green")
	s.add(record.Event{Type: record.EventRunState, State: record.StateRunning})
	s.turn(1, 1)
	s.say("I look at *it*.\n\n")
	s.agent(acp.UpdatePlan, "0 of 2 done", map[string]any{"sessionUpdate": "plan",
		"entries": []acp.PlanItem{{Content: "look", Status: "in_progress"}, {Content: "write", Status: "pending"}}})
	s.agent(acp.UpdateTool, "read a.go", acp.Tool{ID: "t1", Title: "read a.go", Kind: "read", Status: "pending"})
	s.agent(acp.UpdateToolMore, "read a.go (completed)",
		acp.Tool{ID: "t1", Title: "read a.go", Kind: "read", Status: "completed"})
	s.say("Größe 漢字 \U0001F600: now I write.\n")
	s.prompt(record.Prompt{Key: "k2", Text: "and the docs", By: gitd.Person{Name: "Bo", ID: "test:2"}, From: "slack"})
	gate := record.Gate{Step: "turn-1/permission-1", Message: "The agent asks for permission: npm publish",
		Options: []record.GateOption{{ID: "once", Name: "Once", Allows: true}, {ID: "no", Name: "No"}}}
	s.add(record.Event{Type: record.EventGate, Step: gate.Step, Kind: "permission", Message: gate.Message,
		Data: record.Marshal(gate)})
	s.add(record.Event{Type: record.EventDecision, Step: gate.Step,
		Data: record.Marshal(record.Decision{Step: gate.Step, Approved: true, Option: "once", By: "ada"})})
	s.add(record.Event{Type: record.EventUsage,
		Data: record.Marshal(record.ModelCall{CostMicros: 210000, InputTokens: 10, OutputTokens: 5, Estimated: true})})
	s.say("Done.\n")
	s.endTurn(1, "", true)
	s.turn(2, 2)
	s.say("The docs too.\n")
	s.endTurn(2, "", true)
	s.open = 0
	s.add(record.Event{Type: record.EventCheck, Task: "lib_run_tests", Reason: "skipped", Message: "there are no tests"})
	s.end()
	return s
}

// OfCaller implements Journals.
func (s *story) OfCaller(record.Caller) []record.Run { return []record.Run{s.run} }

func (s *story) Run(context.Context, string) (record.Run, error) { return s.run, nil }

func (s *story) Events(_ context.Context, _ string, after int64, _ bool) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for _, e := range s.events {
			if e.Seq > after && !yield(e, nil) {
				return
			}
		}
	}
}

func (s *story) EventsFrom(ctx context.Context, run string, after int64, _ record.Span) iter.Seq2[record.Event, error] {
	return s.Events(ctx, run, after, true)
}

func (s *story) Words(_ context.Context, _, _ string, seq, from, to int64) ([]byte, error) {
	words := s.words[seq]
	from, to = min(from, int64(len(words))), min(to, int64(len(words)))
	return []byte(words[from:to]), nil
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// whole folds a story at once.
func whole(t *testing.T, s *story) *Fold {
	t.Helper()
	r := s.run
	r.State = record.StateSubmitted
	f := NewFold(r)
	if err := Read(t.Context(), s, f); err != nil {
		t.Fatal(err)
	}
	return f
}

func kinds(turn *Turn) string {
	var names []string
	for _, e := range turn.Entries {
		name := string(e.Kind)
		if e.Folded {
			name = "(" + name + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func TestFold(t *testing.T) {
	f := whole(t, told("one"))
	if len(f.Turns) != 2 {
		t.Fatalf("%s", encode(t, f.Turns))
	}
	one, two := f.Turns[0], f.Turns[1]
	if got := kinds(one); got != "prompt (words) (plan) (tool) (words) question words (commit)" {
		t.Errorf("turn 1: %s\n%s", got, encode(t, one))
	}
	if got := kinds(two); got != "prompt words (commit) check end" {
		t.Errorf("turn 2: %s\n%s", got, encode(t, two))
	}
	if got := one.Capsule.Worked(); got != "Worked 8 s · 1 tool · 1 commit · ~0.21 $" {
		t.Errorf("%s", got)
	}
	if w := one.Entries[6]; w.Text != "Done.\n" || w.ID != "one/3.51" || w.Open {
		t.Errorf("%s", encode(t, w))
	}
	if q := one.Entries[5]; q.Decision == nil || q.Decision.Option != "once" || q.Decided.IsZero() || len(q.Gate.Options) != 2 {
		t.Errorf("%s", encode(t, q))
	}
	if p := two.Entries[0]; p.By.ID != "test:2" || p.From != "slack" || p.Key != "k2" || p.ID != "one/7" {
		t.Errorf("%s", encode(t, p))
	}
}

// TestDeadQuestion folds journals of servers that were killed while an agent asked. The question is closed when another
// process of the agent begins or asks, or when the run ends, and answers reach the question that is open.
func TestDeadQuestion(t *testing.T) {
	ask := func(s *story, n int) {
		gate := record.Gate{Step: fmt.Sprintf("turn-1/permission-%d", n), Message: "may I?"}
		s.add(record.Event{Type: record.EventGate, Step: gate.Step, Kind: "permission", Message: gate.Message,
			Data: record.Marshal(gate)})
	}
	answer := func(s *story, n int) {
		step := fmt.Sprintf("turn-1/permission-%d", n)
		s.add(record.Event{Type: record.EventDecision, Step: step, Kind: "permission",
			Data: record.Marshal(record.Decision{Step: step, Approved: true, By: "ada"})})
	}
	for name, c := range map[string]struct {
		tell  func(s *story)
		want  string // the persons of the decisions
		state State
	}{
		"open":    {func(*story) {}, "-", StateAsking},
		"session": {func(s *story) { s.agent("session", "s-1", nil) }, "ramus", StateWorking},
		"begins":  {func(s *story) { s.turn(1, 1) }, "ramus", StateWorking},
		"asks":    {func(s *story) { ask(s, 2) }, "ramus -", StateAsking},
		"again":   {func(s *story) { ask(s, 2); answer(s, 2) }, "ramus ada", StateWorking},
		"same":    {func(s *story) { ask(s, 1); answer(s, 1) }, "ramus ada", StateWorking}, // a journal of an earlier version
		"ends":    {func(s *story) { s.endTurn(1, "", true); s.end() }, "ramus", StateDone},
		"answer":  {func(s *story) { answer(s, 1); s.agent("session", "s-1", nil); s.end() }, "ada", StateDone},
	} {
		s := newStory("one", "ask me")
		s.turn(1, 1)
		ask(s, 1)
		c.tell(s)
		turn := whole(t, s).Turns[0]
		var by []string
		for _, e := range turn.Entries {
			switch {
			case e.Kind != KindQuestion:
			case e.Decision == nil:
				by = append(by, "-")
			default:
				by = append(by, e.Decision.By)
				if e.Decided.IsZero() || *e.OK != e.Decision.Approved ||
					!e.Decision.Approved && e.Decision.Comment == "" {
					t.Errorf("%s: %s", name, encode(t, e))
				}
			}
		}
		if got := strings.Join(by, " "); got != c.want || turn.State != c.state {
			t.Errorf("%s: %q and %s\n%s", name, got, turn.State, encode(t, turn))
		}
	}
	// A gate of a workflow is open until its run ends.
	s := newStory("two", "")
	s.run.Kind, s.run.Agent = record.KindWorkflow, nil
	s.add(record.Event{Type: record.EventGate, Step: "review", Data: record.Marshal(record.Gate{Step: "review"})})
	s.add(record.Event{Type: record.EventRunState, State: record.StateAwaitingReview})
	if q := whole(t, s).Turns[0].Entries[0]; q.Kind != KindQuestion || q.Decision != nil {
		t.Errorf("%s", encode(t, q))
	}
	s.add(record.Event{Type: record.EventRunState, State: record.StateFailed, Reason: string(record.ReasonCancelled)})
	if q := whole(t, s).Turns[0].Entries[0]; q.Decision == nil || q.Decision.Comment != "the run has ended" {
		t.Errorf("%s", encode(t, q))
	}
}

// TestEnds has the state of a turn follow that of its run, unless the turn was over before.
func TestEnds(t *testing.T) {
	failed := func(reason record.Reason) func(*story) {
		return func(s *story) {
			s.open = 0
			s.add(record.Event{Type: record.EventRunState, State: record.StateFailed, Reason: string(reason), Message: "why"})
		}
	}
	for name, x := range map[string]struct {
		over  bool
		shell bool // the run has no agent
		tell  func(*story)
		want  State
		kinds string
	}{
		"it fails":                       {false, false, failed(""), StateFailed, "prompt failure"},
		"it fails after its turn":        {true, false, failed(""), StateDone, "prompt failure"},
		"it is stopped":                  {false, false, failed(record.ReasonCancelled), StateStopped, "prompt failure"},
		"it is stopped after its turn":   {true, false, failed(record.ReasonCancelled), StateStopped, "prompt failure"},
		"it is complete":                 {false, false, (*story).end, StateDone, "prompt end"},
		"a command fails":                {false, true, failed(""), StateFailed, "failure"},
		"a command fails after its turn": {true, true, failed(""), StateFailed, "failure"},
	} {
		s := newStory("one", "do it")
		if x.shell {
			s.run.Kind, s.run.Agent = record.KindExec, nil
		}
		s.turn(1, 1)
		if x.over {
			s.endTurn(1, "", true)
		}
		x.tell(s)
		turns := whole(t, s).Turns
		last := turns[len(turns)-1]
		got := kinds(last)
		if last.State != x.want || !strings.HasSuffix(got, x.kinds[strings.LastIndexByte(x.kinds, ' ')+1:]) {
			t.Errorf("%s: %s, %q, want %s", name, last.State, got, x.want)
		}
	}
}

// TestFollowed follows a story that is cut at random places, in live output too. The result is the one of the whole.
func TestFollowed(t *testing.T) {
	s := told("one")
	want := encode(t, whole(t, s).Turns)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		run := s.run
		run.State = record.StateSubmitted
		f := NewFold(run)
		said := map[int64]int64{}
		var open int64
		for _, e := range s.events {
			// Live output comes before the event, in pieces, some of which are lost or come twice.
			for r.IntN(3) > 0 && open > 0 && said[open] < e.Words {
				from := max(0, said[open]-int64(r.IntN(4)))
				to := min(e.Words, said[open]+1+int64(r.IntN(20)))
				said[open] = to
				if r.IntN(5) == 0 {
					continue // lost
				}
				f.Apply(record.Event{Type: record.EventOutput, Kind: "stdout", Message: s.words[open][from:to],
					Span: &record.Span{Seq: open, From: from, To: to}})
				if r.IntN(2) == 0 {
					if err := f.Fill(t.Context(), s); err != nil {
						t.Fatal(err)
					}
				}
			}
			if e.Type == record.EventStepStarted {
				open = e.Seq
			}
			f.Apply(e)
			if r.IntN(4) == 0 {
				f.Apply(e) // it came twice
			}
		}
		if err := f.Fill(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if got := encode(t, f.Turns); got != want {
			t.Fatalf("seed %d\n got %s\nwant %s", seed, got, want)
		}
	}
}

// TestVoice reconnects at random places in the words of an agent. The updates lose and double nothing.
func TestVoice(t *testing.T) {
	s := told("one")
	all := func(r *rand.Rand) (words string, others []string) {
		var place Place
		for {
			v, err := newVoice(t.Context(), s, s.run, place)
			if err != nil {
				t.Fatal(err)
			}
			cut := false
			for _, e := range s.events {
				list, err := v.hear(t.Context(), e)
				if err != nil {
					t.Fatal(err)
				}
				for _, u := range list {
					if u.raw["sessionUpdate"] == acp.UpdateMessage {
						words += u.raw["content"].(map[string]any)["text"].(string)
					} else {
						others = append(others, fmt.Sprint(u.raw["sessionUpdate"], " ", u.place.Seq))
					}
				}
				place = v.at
				if r != nil && r.IntN(5) == 0 {
					cut = true
					break
				}
			}
			if !cut {
				return words, others
			}
		}
	}
	words, others := all(nil)
	want := ""
	for _, e := range s.events {
		want += s.words[e.Seq]
	}
	if words != want {
		t.Fatalf("%q, want %q", words, want)
	}
	for seed := range uint64(100) {
		got, more := all(rand.New(rand.NewPCG(seed, 3)))
		if got != words || strings.Join(more, "\n") != strings.Join(others, "\n") {
			t.Fatalf("seed %d: %q\n%v, want\n%v", seed, got, more, others)
		}
	}
}

// stories are several runs of one caller.
type stories []*story

func (l stories) OfCaller(record.Caller) (list []record.Run) {
	for _, s := range l {
		list = append(list, s.run)
	}
	return list
}

func (l stories) find(name string) *story {
	for _, s := range l {
		if s.run.Name() == name {
			return s
		}
	}
	return nil
}

func (l stories) Run(_ context.Context, name string) (record.Run, error) {
	return l.find(name).run, nil
}

func (l stories) Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error] {
	return l.find(run).Events(ctx, run, after, follow)
}

func (l stories) EventsFrom(ctx context.Context, run string, after int64, have record.Span) iter.Seq2[record.Event, error] {
	return l.find(run).EventsFrom(ctx, run, after, have)
}

func (l stories) Words(ctx context.Context, run, step string, seq, from, to int64) ([]byte, error) {
	return l.find(run).Words(ctx, run, step, seq, from, to)
}

// TestWindows reads a conversation in windows of each size, forwards and backwards, and around each entry.
func TestWindows(t *testing.T) {
	var l stories
	for i := range 5 {
		l = append(l, told(fmt.Sprintf("run-%d", i)))
	}
	at := newStory("run-live", "go on")
	at.turn(1, 1)
	at.say("half a sen")
	at.prompt(record.Prompt{Key: "w", Text: "later"})
	l = append(l, at)
	c := at.run.Caller
	open := func(w Window) Transcript {
		t.Helper()
		tr, err := Open(t.Context(), l, c, w)
		if err != nil {
			t.Fatalf("%+v: %v", w, err)
		}
		return tr
	}
	var ids []string
	for _, turn := range open(Window{}).Turns {
		ids = append(ids, turn.ID)
	}
	if len(ids) != 11 {
		t.Fatalf("%v", ids)
	}
	end := open(Window{Turns: 2})
	if end.Live == nil || end.Live.Run != at.run.Name() || end.Live.Seq != 3 || len(end.Waiting) != 1 ||
		end.Waiting[0].Text != "later" || end.Before == "" || end.After != "" {
		t.Errorf("%s", encode(t, end))
	}
	for n := 1; n <= 12; n++ {
		var back []string
		for w := (Window{Turns: n}); ; {
			tr := open(w)
			var part []string
			for _, turn := range tr.Turns {
				part = append(part, turn.ID)
			}
			back = append(part, back...)
			if tr.Before == "" {
				break
			}
			w = Window{Turns: n, Before: tr.Before}
		}
		if fmt.Sprint(back) != fmt.Sprint(ids) {
			t.Fatalf("backwards by %d: %v", n, back)
		}
		forth := []string{ids[0]}
		for after := ids[0]; after != ""; {
			tr := open(Window{Turns: n, After: after})
			for _, turn := range tr.Turns {
				forth = append(forth, turn.ID)
			}
			after = tr.After
		}
		if fmt.Sprint(forth) != fmt.Sprint(ids) {
			t.Fatalf("forwards by %d: %v", n, forth)
		}
		for _, turn := range open(Window{}).Turns {
			for _, e := range turn.Entries {
				found := false
				for _, near := range open(Window{Turns: n, Around: e.ID}).Turns {
					found = found || near.ID == turn.ID
				}
				if !found {
					t.Fatalf("around %s by %d: its turn is missing", e.ID, n)
				}
			}
		}
	}
	for _, id := range []string{"x", "run-0/99", "/", "run-0/", "nobody/1"} {
		if _, err := Open(t.Context(), l, c, Window{Around: id}); err == nil {
			t.Errorf("%q was found", id)
		}
	}
}

// FuzzFold folds journals that hold anything.
func FuzzFold(f *testing.F) {
	for _, e := range told("one").events {
		f.Add(e.Type, e.Kind, e.Step, e.Message, []byte(e.Data), e.Words)
	}
	f.Fuzz(func(t *testing.T, kind, sub, step, message string, data []byte, words int64) {
		s := told("one")
		fold := NewFold(s.run)
		for _, e := range s.events {
			fold.Apply(record.Event{Seq: e.Seq, Time: e.Time, Type: kind, Kind: sub, Step: step, Message: message,
				Data: data, Words: words % (1 << 40),
				Span: &record.Span{Seq: 3, From: words % 100, To: words % (1 << 40)}})
			e.Seq += 1000
			fold.Apply(e)
		}
		if _, err := json.Marshal(fold.Turns); err != nil && json.Valid(data) {
			t.Fatal(err)
		}
	})
}
