package web

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// TestStoppedTerminal shows a terminal that was stopped. It has no reason without words, and nothing to try again.
func TestStoppedTerminal(t *testing.T) {
	m := talkMaker{sources: &talkSources{}, may: true}
	no := false
	turn := &conversation.Turn{Run: "run:x/1", Kind: record.KindTerminal, State: conversation.StateStopped}
	row := func(e conversation.Entry) talkRow {
		t.Helper()
		rows := m.entry(turn, &e)
		if len(rows) != 1 {
			t.Fatalf("%d rows", len(rows))
		}
		return rows[0]
	}
	if r := row(conversation.Entry{Kind: conversation.KindCommand, Command: "terminal 1", Reason: record.ReasonKilled,
		OK: &no}); r.Note != "stopped" {
		t.Errorf("%+v", r)
	}
	if r := row(conversation.Entry{Kind: conversation.KindCommand, Command: "make",
		Reason: "timeout"}); r.Note != "timeout" {
		t.Errorf("%+v", r)
	}
	if r := row(conversation.Entry{Kind: conversation.KindCheck, Command: "make", Text: "test",
		Reason: "timeout"}); r.Note != "timeout: test" {
		t.Errorf("%+v", r)
	}
	failure := conversation.Entry{Kind: conversation.KindFailure, Text: "x", Reason: string(record.ReasonCancelled)}
	if r := row(failure); r.Retries || r.Text != "The terminal was stopped. Its changes are committed." {
		t.Errorf("%+v", r)
	}
	turn.Kind = record.KindAgent
	if r := row(failure); !r.Retries || r.Text != "The run was stopped. Its changes are committed." {
		t.Errorf("%+v", r)
	}
}

// TestDecider shows the id of a person after a name that the person chose.
func TestDecider(t *testing.T) {
	for want, d := range map[string]record.Decision{
		"Ada":                         {Name: "Ada", By: "github:583231"},
		"ops":                         {By: "ops"},
		"slack:U04":                   {By: "slack:U04"},
		"Grace Hopper (slack:U04)":    {Name: "Grace\nHopper", By: "slack:U04"},
		"Ada (slack:U01) (slack:U04)": {Name: "Ada (slack:U01)", By: "slack:U04"},
		strings.Repeat("x", 99) + "… (slack:U04)": {Name: strings.Repeat("x", 200), By: "slack:U04"},
	} {
		if got := decider(d); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestDoing describes the run at work, also if a terminal was opened after its beginning.
func TestDoing(t *testing.T) {
	m := talkMaker{sources: &talkSources{}}
	agent := &conversation.Turn{Run: "run:x/1", Kind: record.KindAgent, Agent: "coder",
		State: conversation.StateWorking}
	shell := &conversation.Turn{Run: "run:x/2", Kind: record.KindTerminal, State: conversation.StateWorking}
	tr := conversation.Transcript{Turns: []*conversation.Turn{agent, shell}, Live: &conversation.Live{Run: "run:x/1"}}
	if got := m.doing(tr); got != "coder works" {
		t.Error(got)
	}
	agent.State = conversation.StateDone
	if got := m.doing(tr); got != "Checks run" {
		t.Error(got)
	}
	tr.Live.Run = "run:x/3" // of a window that does not have it
	if got := m.doing(tr); got != "A command works" {
		t.Error(got)
	}
}

// TestTypedSize counts the lines of a command that was typed, without those that an agent committed while it ran.
func TestTypedSize(t *testing.T) {
	git := repotest.NewServer(t)
	repo, err := git.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	person := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	var list []gitd.Hash
	for i := range 3 { // the base, the agent's commit, and that of the command
		c := gitd.NewCommit{Put: []gitd.File{{Path: fmt.Sprint(i), Content: []byte(strings.Repeat("x\n", 10-4*i))}},
			Author: person, Committer: person, When: time.Unix(1_700_000_000, 0), Message: "x"}
		if i > 0 {
			c.From, c.Parents = list[i-1], list[i-1:]
		}
		hash, err := repo.WriteCommit(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, hash)
	}
	caller, err := record.RunCaller("x")
	if err != nil {
		t.Fatal(err)
	}
	run := record.Run{ID: "1", Caller: caller, Repo: "app", Kind: record.KindTerminal}
	turn := &conversation.Turn{Run: run.Name(), Kind: run.Kind}
	m := talkMaker{ctx: t.Context(), sources: &talkSources{git: git}, runs: map[string]record.Run{run.Name(): run}}
	e := &conversation.Entry{Kind: conversation.KindCommand, Command: "make", Parent: list[0], Commit: list[2]}
	for range 2 { // the second one is remembered
		if got := m.entry(turn, e)[0].Size; got != "+2 −0" {
			t.Errorf("a command of the terminal changes %q", got)
		}
	}
	turn.Kind = record.KindAgent
	if got := m.entry(turn, e)[0].Size; got != "+8 −0" {
		t.Errorf("a turn changes %q", got)
	}
	if got := m.changeSize("app", "", list[0]); got != "" {
		t.Errorf("a commit without a parent changes %q", got)
	}
	merge, err := repo.WriteCommit(t.Context(), gitd.NewCommit{From: list[2], Parents: []gitd.Hash{list[0], list[2]},
		Author: person, Committer: person, When: time.Unix(1_700_000_000, 0), Message: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.changeSize("app", "", merge); got != "" {
		t.Errorf("a merge in a terminal changes %q", got)
	}
}

// TestWindowOfTurns shows as many turns as a page has room for, and says if more of them would not fit.
func TestWindowOfTurns(t *testing.T) {
	m := talkMaker{sources: &talkSources{}}
	for _, x := range []struct {
		turns, shown int
		full         bool
	}{{3, 3, false}, {20, 3, true}} {
		tr := &conversation.Transcript{}
		for i := range x.turns {
			turn := &conversation.Turn{ID: fmt.Sprint(i), Run: "run:x/1", Kind: record.KindAgent,
				State: conversation.StateDone}
			for n := range 100 {
				turn.Entries = append(turn.Entries, &conversation.Entry{ID: fmt.Sprint(n),
					Kind: conversation.KindCommand, Command: "make"})
			}
			tr.Turns = append(tr.Turns, turn)
		}
		rows, full := m.window(tr, false)
		if len(tr.Turns) != x.shown || full != x.full || len(rows) > maxRows || x.full && tr.Before != tr.Turns[0].ID {
			t.Errorf("%d turns: %d are shown, with %d rows, %v, and those before %q", x.turns, len(tr.Turns), len(rows),
				full, tr.Before)
		}
	}
}
