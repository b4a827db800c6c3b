package conversation

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/dialogue"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
)

// speaker is an executor whose runs hear prompts, or refuse them.
type speaker struct {
	Executor
	Prompts
	runs      []record.Run
	queues    map[string]record.Queue // by the name of the run; of others there is none
	refuses   error
	said      []string
	submitted []record.Request
}

func (s *speaker) OfCaller(record.Caller) []record.Run { return s.runs }

func (s *speaker) Say(_ context.Context, run string, _ record.Prompt) error {
	s.said = append(s.said, "say "+run)
	return s.refuses
}

func (s *speaker) Steer(_ context.Context, run string, _ record.Prompt) (string, error) {
	s.said = append(s.said, "steer "+run)
	return dialogue.Steered, s.refuses
}

func (s *speaker) Queue(_ context.Context, run string) (record.Queue, error) {
	q, ok := s.queues[run]
	if !ok {
		return q, record.ErrNotFound
	}
	return q, nil
}

func (s *speaker) Submit(_ context.Context, r record.Request) (record.Run, error) {
	s.submitted = append(s.submitted, r)
	return record.Run{ID: r.Key, Caller: r.Caller}, nil
}

// runsOnly is an executor for lookups that has no runs.
type runsOnly struct{ lookup.Executor }

func (runsOnly) OfCaller(record.Caller) []record.Run { return nil }

// TestSay brings a prompt to the agent at work, or begins a run with it.
func TestSay(t *testing.T) {
	caller, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	run := func(id, agent, session string, state record.State, change ...func(*record.Run)) record.Run {
		r := record.Run{ID: id, Caller: caller, State: state, Agent: &record.AgentCall{Name: agent, Session: session}}
		for _, f := range change {
			f(&r)
		}
		return r
	}
	works := run("works", "coder", "", record.StateRunning)
	waiting := record.Queue{Prompts: []record.Prompt{{Key: "first"}, {Key: "other"}}, Heard: 1}
	heard := record.Queue{Prompts: []record.Prompt{{Key: "first"}}, Heard: 1}
	conflict := fmt.Errorf("it ends: %w", record.ErrConflict)
	away := errors.New("the disk is gone")
	for name, x := range map[string]struct {
		runs    []record.Run
		queue   *record.Queue // of run:a/works
		refuses error
		now, is bool   // said at once; a run that is new
		want    string // of the calls
		how     string
		err     error
	}{
		"no run":                     {how: "begun"},
		"at work":                    {runs: []record.Run{works}, want: "say run:a/works", how: dialogue.Queued},
		"at once":                    {runs: []record.Run{works}, now: true, want: "steer run:a/works", how: dialogue.Steered},
		"a new run":                  {runs: []record.Run{works}, is: true, how: "begun"},
		"another agent":              {runs: []record.Run{run("works", "other", "", record.StateRunning)}, how: "begun"},
		"another session":            {runs: []record.Run{run("works", "coder", "docs", record.StateRunning)}, how: "begun"},
		"no agent":                   {runs: []record.Run{{ID: "works", Caller: caller}}, how: "begun"},
		"a sub-workflow":             {runs: []record.Run{run("works", "coder", "", record.StateRunning, func(r *record.Run) { r.Sub = true })}, how: "begun"},
		"others after it":            {runs: []record.Run{works, run("b", "other", "", record.StateRunning), {ID: "c", Caller: caller}}, want: "say run:a/works", how: dialogue.Queued},
		"the last of two":            {runs: []record.Run{run("old", "coder", "", record.StateComplete), works}, want: "say run:a/works", how: dialogue.Queued},
		"ended":                      {runs: []record.Run{run("works", "coder", "", record.StateComplete)}, refuses: conflict, want: "say run:a/works", how: "begun"},
		"about to end":               {runs: []record.Run{works}, refuses: conflict, queue: &heard, want: "say run:a/works", how: "begun"},
		"full":                       {runs: []record.Run{works}, refuses: conflict, queue: &waiting, want: "say run:a/works", err: record.ErrConflict},
		"of a run that is not there": {runs: []record.Run{works}, refuses: conflict, want: "say run:a/works", err: record.ErrConflict},
		"broken":                     {runs: []record.Run{run("works", "coder", "", record.StateComplete)}, refuses: away, want: "say run:a/works", err: away},
		"the same key":               {runs: []record.Run{run(RunOf("key"), "coder", "", record.StateRunning)}, how: "begun"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &speaker{runs: x.runs, refuses: x.refuses, queues: map[string]record.Queue{}}
			if x.queue != nil {
				s.queues[works.Name()] = *x.queue
			}
			k := &Talk{Executor: s, Prompts: s, Find: &lookup.Lookup{Executor: runsOnly{}}}
			said, err := k.Say(t.Context(), route.Who{Subject: "admin", Repo: "*", Scopes: []string{"*"}}, Saying{Caller: caller, Agent: "coder",
				Prompt: record.Prompt{Key: "key", Text: "x", Now: x.now}, New: x.is})
			if !errors.Is(err, x.err) || strings.Join(s.said, ", ") != x.want || said.How != x.how || err == nil && said.Key != "key" {
				t.Errorf("%+v, %q, %v", said, s.said, err)
			}
			begins := x.how == "begun" && name != "the same key"
			if (len(s.submitted) == 1) != begins || begins && (said.Run != "run:a/"+RunOf("key") || s.submitted[0].Agent.Prompt != "x") {
				t.Errorf("%+v", s.submitted)
			}
		})
	}
	// Without a key, each prompt is another one.
	k := &Talk{Executor: &speaker{}, Prompts: &speaker{}, Find: &lookup.Lookup{Executor: runsOnly{}}}
	say := func() Said {
		t.Helper()
		said, err := k.Say(t.Context(), route.Who{Repo: "*"}, Saying{Caller: caller, Agent: "coder", Prompt: record.Prompt{Text: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	if one, two := say(), say(); one.Key == "" || one.Key == two.Key || one.Run == two.Run {
		t.Errorf("%+v, %+v", one, two)
	}
}

// TestSent finds the run that has a prompt among the last ones.
func TestSent(t *testing.T) {
	caller, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	agent := &record.AgentCall{Name: "coder"}
	s := &speaker{queues: map[string]record.Queue{"run:a/one": {Prompts: []record.Prompt{{Key: "k1"}}}}, runs: []record.Run{{ID: RunOf("k0"), Caller: caller},
		{ID: "one", Caller: caller, Agent: agent}, {ID: "removed", Caller: caller, Agent: agent}, {ID: "command", Caller: caller}, {ID: RunOf("k2"), Caller: caller}}}
	for key, want := range map[string]Said{"k0": {}, "k1": {Run: "run:a/one", Key: "k1", How: dialogue.Queued},
		"k2": {Run: "run:a/" + RunOf("k2"), Key: "k2", How: "begun"}, "none": {}} {
		said, ok, err := (&Talk{Executor: s, Prompts: s}).Sent(t.Context(), caller, key, 4)
		if err != nil || said != want || ok != (want.Run != "") {
			t.Errorf("%s: %+v, %t, %v", key, said, ok, err)
		}
	}
}

// TestPromptBounds takes as many files, and as many bytes, as are possible.
func TestPromptBounds(t *testing.T) {
	c := &route.Call{R: httptest.NewRequest("POST", "/", nil), Who: route.Who{Subject: "ada", Name: "Ada", Email: "ada@example.org"}}
	files := func(n, size int) newPrompt {
		return newPrompt{Text: "x", Files: slices.Repeat([]file{{Name: "f", Type: "text/plain", Content: make([]byte, size)}}, n)}
	}
	for name, x := range map[string]struct {
		p    newPrompt
		kind route.Kind // "" if it is taken
	}{
		"no file":        {files(0, 0), ""},
		"all files":      {files(MaxFiles, 1), ""},
		"one more":       {files(MaxFiles+1, 1), route.KindTooLarge},
		"all bytes":      {files(2, MaxUpload/2), ""},
		"one byte more":  {files(1, MaxUpload+1), route.KindTooLarge},
		"a broken image": {newPrompt{Files: []file{{Content: []byte("\x89PNG\r\n\x1a\n\x00")}}}, route.KindInvalid},
	} {
		said, err := x.p.prompt(c)
		var p *route.Problem
		if x.kind == "" && (err != nil || len(said.Files) != len(x.p.Files) || said.By.Name != "Ada" || said.From != "api") ||
			x.kind != "" && (!errors.As(err, &p) || p.Kind != x.kind) {
			t.Errorf("%s: %d files, %v", name, len(said.Files), err)
		}
	}
}

// TestRunsOf leaves out the runs of other sessions, and those that are a part of others.
func TestRunsOf(t *testing.T) {
	agent := func(name, session string) *record.AgentCall { return &record.AgentCall{Name: name, Session: session} }
	l := runList{runs: []record.Run{{ID: "a", Agent: agent("coder", "")}, {ID: "b", Agent: agent("coder", "docs")}, {ID: "c", Agent: agent("other", "")}, {ID: "d"},
		{ID: "e", Sub: true, Agent: agent("coder", "")}, {ID: "f", Kind: record.KindConversation}}}
	for want, w := range map[string]Window{"abcd": {}, "a": {Agent: "coder"}, "b": {Agent: "coder", Session: "docs"}, "c": {Agent: "other"}, "": {Agent: "none"}} {
		got := ""
		for _, r := range runsOf(l, record.Caller{}, w) {
			got += r.ID
		}
		if got != want {
			t.Errorf("%+v: %s, want %s", w, got, want)
		}
	}
}

// TestCutID cuts the id of an entry into that of its run and a number.
func TestCutID(t *testing.T) {
	for id, want := range map[string][2]string{"one/3": {"one", "3"}, "a/b/3.51": {"a/b", "3.51"}, "": {}, "one": {}, "one/": {}, "/3": {}} {
		if run, number, ok := cutID(id); run != want[0] || number != want[1] || ok != (want[0] != "") {
			t.Errorf("%q: %q, %q, %t", id, run, number, ok)
		}
	}
}

// runList has runs, and nothing in their journals.
type runList struct {
	Journals // for the methods that no test calls
	runs     []record.Run
}

func (l runList) OfCaller(record.Caller) []record.Run { return l.runs }
