package record

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
)

// TestLanded checks the sentence of a merge, of each policy.
func TestLanded(t *testing.T) {
	merged := gitd.MergeResult{Commit: gitd.Hash(strings.Repeat("1", 40))}
	for _, tt := range []struct {
		landed Landed
		want   string
	}{
		{Landed{Into: "main", MergeResult: merged}, "merged into main at 1111111111"},
		{Landed{Into: "main", MergeResult: merged, Note: "run the tests"}, "merged into main at 1111111111; run the tests"},
		{Landed{Into: "main", MergeResult: merged, Policy: MergeHere, Alone: true},
			"merged into main at 1111111111, here alone; its upstream does not have it"},
		{Landed{Into: "main", MergeResult: merged, Alone: true, Upstream: "https://x"},
			"merged into main at 1111111111, here alone; https://x does not have it"},
		{Landed{Into: "main", MergeResult: merged, Policy: MergePush, Upstream: "https://x"},
			"merged into main at 1111111111, here and at https://x"},
		{Landed{Into: "main", MergeResult: gitd.MergeResult{UpToDate: true}, Policy: MergePush},
			"nothing to merge: main has all of it"},
		{Landed{Into: "main", MergeResult: gitd.MergeResult{Conflicts: []string{"a", "b"}}, Note: "x"},
			"conflict in a, b; nothing was changed"},
		{Landed{Into: "main", Policy: MergePull, Pull: &Pull{Number: 7, URL: "https://x/7"}},
			"opened pull request #7 into main: https://x/7; nothing is merged yet"},
		{Landed{Into: "main", Policy: MergePull, Pull: &Pull{Number: 7, URL: "https://x/7", Updated: true}},
			"updated pull request #7 into main: https://x/7; nothing is merged yet"},
	} {
		if got := tt.landed.String(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestRun checks the questions that a run answers of itself.
func TestRun(t *testing.T) {
	caller, err := RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	if name := (Run{Caller: caller, ID: "1"}).Name(); name != "run:a/1" {
		t.Errorf("name %s", name)
	}
	three := 3
	for _, tt := range []struct {
		name string
		run  Run
		want string // the answers that are yes, and the values
	}{
		{"new", Run{State: StateSubmitted, Command: "ls"}, "ls"},
		{"working", Run{State: StateRunning, Kind: KindExec, Command: strings.Repeat("x", 201)},
			strings.Repeat("x", 200) + "…"},
		{"complete", Run{State: StateComplete, Workflow: "w", Command: "ls"}, "ended, workflow w"},
		{"failed", Run{State: StateFailed, Task: &TaskCall{Name: "t"}, Exit: &three}, "ended, exit, task t"},
		{"a request", Run{Kind: KindRequest}, "passive, aside, "},
		{"a conversation", Run{Kind: KindConversation}, "passive, aside, "},
		{"a part of another", Run{Kind: KindWorkflow, Sub: true}, "aside, "},
		{"changed", Run{Start: "1", Head: "2"}, "changed, "},
		{"the same", Run{Start: "1", Head: "1"}, ""},
		{"no branch", Run{Head: "2"}, ""},
		{"no head", Run{Start: "1"}, ""},
		{"as it is", Run{Exec: &Command{NoSetup: true}}, "no setup, "},
		{"set up", Run{Exec: &Command{}, Task: &TaskCall{}}, "task "},
		{"a task as it is", Run{Task: &TaskCall{Name: "t", NoSetup: true}}, "no setup, task t"},
	} {
		var got strings.Builder
		for _, answer := range []struct {
			yes  bool
			name string
		}{{tt.run.Ended(), "ended"}, {tt.run.Passive(), "passive"}, {tt.run.Aside(), "aside"},
			{tt.run.Changed(), "changed"}, {tt.run.NoSetup(), "no setup"}, {tt.run.ExitCode() == 3, "exit"}} {
			if answer.yes {
				got.WriteString(answer.name + ", ")
			}
		}
		if got.WriteString(tt.run.Title()); got.String() != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got.String(), tt.want)
		}
	}
}

// TestTrigger checks by which trigger a run was asked for.
func TestTrigger(t *testing.T) {
	for _, tt := range []struct {
		run  Run
		want string
	}{
		{Run{}, ""},
		{Run{Origin: &Origin{Source: SourceTrigger, Session: TriggerSession("nightly")}}, "nightly"},
		{Run{Origin: &Origin{Source: "slack", Session: "slack:T:C:1"}}, ""},
		{Run{Origin: &Origin{Source: "slack", Session: "x"},
			Asker: gitd.Person{Email: "nightly" + TriggerMailbox}}, "nightly"},
		{Run{Asker: gitd.Person{Email: "ann@example.org"}}, ""},
	} {
		if got := tt.run.Trigger(); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.run.Origin, got, tt.want)
		}
	}
}

// TestTask checks whether a task has ended, and for which caller it works.
func TestTask(t *testing.T) {
	other, err := RunCaller("b")
	if err != nil {
		t.Fatal(err)
	}
	for state, ended := range map[State]bool{StateSubmitted: false, StateRunning: false, StateAwaitingReview: false,
		StateAddressingComments: false, StateComplete: true, StateFailed: true} {
		if got := (Task{Status: state}).Ended(); got != ended {
			t.Errorf("%s: %v", state, got)
		}
	}
	if got := (Task{ID: "a"}).Caller().String(); got != "conv:a" {
		t.Errorf("%s", got)
	}
	if got := (Task{ID: "a", For: other}).Caller(); got != other {
		t.Errorf("%s", got)
	}
}

// TestFilter checks each field of a filter.
func TestFilter(t *testing.T) {
	caller, err := RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	r := Run{Caller: caller, Repo: "team/x", State: StateRunning}
	for _, tt := range []struct {
		name   string
		filter Filter
		want   bool
	}{
		{"none", Filter{}, true},
		{"repository", Filter{Repo: "team/x"}, true},
		{"another repository", Filter{Repo: "team"}, false},
		{"caller", Filter{Caller: "run:a"}, true},
		{"id", Filter{Caller: "a"}, true},
		{"another caller", Filter{Caller: "run:b"}, false},
		{"state", Filter{State: StateRunning}, true},
		{"another state", Filter{State: StateFailed}, false},
		{"live", Filter{Live: true}, true},
		{"kept", Filter{Keep: func(Run) bool { return true }}, true},
		{"not kept", Filter{Keep: func(Run) bool { return false }}, false},
		{"all", Filter{Repo: "team/x", Caller: "a", State: StateRunning, Live: true}, true},
		{"all but one", Filter{Repo: "team/x", Caller: "b", State: StateRunning, Live: true}, false},
	} {
		if got := tt.filter.Match(r); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	r.State = StateComplete
	if (Filter{Live: true}).Match(r) {
		t.Error("an ended run is live")
	}
}

// TestGate checks the people and the answers that a question accepts.
func TestGate(t *testing.T) {
	g := Gate{Allowed: []string{"U012", "slack:U034", ""},
		Options: []GateOption{{ID: "a", Name: "Yes"}, {ID: "b", Name: "No"}}}
	for by, want := range map[string]bool{"U012": true, "slack:U012": true, "slack:U034": true, "U034": false,
		"slack:U099": false, "slack:": false, "github:U012": false} {
		if got := g.Names(by); got != want {
			t.Errorf("%q: %v", by, got)
		}
		if got := g.Admits(by); got != want {
			t.Errorf("%q is admitted: %v", by, got)
		}
		if all := (*Gate)(nil).Admits(by) && (&Gate{}).Admits(by); !all {
			t.Errorf("%q is not admitted by a gate without a list", by)
		}
	}
	for id, want := range map[string]string{"a": "Yes", "b": "No", "c": "", "": ""} {
		if o, ok := g.Option(id); o.Name != want || ok != (want != "") {
			t.Errorf("%q: %+v, %v", id, o, ok)
		}
	}
	answered := &AnsweredError{Decision: Decision{Approved: true, Option: "a", By: "ann"}, At: time.Unix(1_700_000_000, 0)}
	if got := answered.Error(); got != `conflict: it was approved ("a") by ann at 2023-11-14T22:13:20Z` ||
		!errors.Is(answered, ErrConflict) {
		t.Error(got)
	}
	if got := (&AnsweredError{At: time.Unix(0, 0)}).Error(); got != "conflict: it was rejected by somebody at 1970-01-01T00:00:00Z" {
		t.Error(got)
	}
}

// TestReasons checks that each reason has a remedy, and which of them leave changes outside the branch.
func TestReasons(t *testing.T) {
	uncommitted := []Reason{ReasonConflict, ReasonNotCommitted, ReasonBranchGone}
	for _, r := range []Reason{ReasonCommandFailed, ReasonTimedOut, ReasonCancelled, ReasonRejected,
		ReasonMergeConflict, ReasonNotMerged, ReasonConflict, ReasonNotCommitted, ReasonBranchGone,
		ReasonContainerLost, ReasonUnavailable, ReasonDiskFull, ReasonOutOfMemory, ReasonInterrupted, ReasonBadInput,
		ReasonModel, ReasonBudget, ReasonEnvLost, ReasonSetupFailed, ReasonService, ReasonInternal} {
		if r.Hint() == "" {
			t.Errorf("%s has no hint", r)
		}
		if r.Uncommitted() != slices.Contains(uncommitted, r) {
			t.Errorf("%s: uncommitted %v", r, r.Uncommitted())
		}
	}
	if hint := Reason("").Hint(); hint != "" {
		t.Errorf("no reason: %q", hint)
	}
}

// TestEgressHint checks how refused hosts are named.
func TestEgressHint(t *testing.T) {
	for _, tt := range []struct{ refused, want string }{
		{"", ""},
		{"a.org", "a.org"},
		{"a.org:443 a.org:80 a.org", "a.org"},
		{"a.org:8443 a.org", "a.org:8443, a.org"},
		{"a b c", "a, b, c"},
		{"a b c d", "a, b, c, 1 more"},
		{"a b c d e a", "a, b, c, 2 more"},
	} {
		got := EgressHint(strings.Fields(tt.refused))
		if tt.want != "" {
			tt.want = "containers may not reach " + tt.want + ": "
		}
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%q: %q", tt.refused, got)
		}
	}
}

// TestPrompts checks which events hold prompts.
func TestPrompts(t *testing.T) {
	if p, ok := promptEvent(Prompt{Key: "a", Text: "x"}).Prompt(); !ok || p.Key != "a" || p.Text != "x" {
		t.Errorf("%+v, %v", p, ok)
	}
	for name, e := range map[string]Event{"another type": {Type: EventNote, Data: Marshal(Prompt{Key: "a"})},
		"no data": {Type: EventPrompt}, "damaged": {Type: EventPrompt, Data: []byte("[")}} {
		if p, ok := e.Prompt(); ok {
			t.Errorf("%s: %+v", name, p)
		}
	}
	heard := turnEvent(3)
	if n := heard.PromptsHeard(); n != 3 {
		t.Errorf("%d", n)
	}
	for name, change := range map[string]func(*Event){
		"no start":     func(e *Event) { e.Type = EventStepFinished },
		"another kind": func(e *Event) { e.Kind = string(KindExec) }, "damaged": func(e *Event) { e.Data = []byte("[") },
	} {
		e := heard
		change(&e)
		if n := e.PromptsHeard(); n != 0 {
			t.Errorf("%s: %d", name, n)
		}
	}
}

// TestEnvNames checks that the values of variables are left out.
func TestEnvNames(t *testing.T) {
	if got := (Command{Env: []string{"A=secret", "B", "C=a=b"}}).EnvNames(); got != "A, B, C" {
		t.Errorf("%q", got)
	}
}
