package web

import (
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/conversation"
)

// TestStoppedTerminal shows a terminal that was stopped. It has no reason without words, and nothing to try again.
func TestStoppedTerminal(t *testing.T) {
	m := talkMaker{api: &API{}, may: true}
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
	if r := row(conversation.Entry{Kind: conversation.KindCommand, Command: "terminal 1", Reason: "killed", OK: &no}); r.Note != "stopped" {
		t.Errorf("%+v", r)
	}
	if r := row(conversation.Entry{Kind: conversation.KindCommand, Command: "make", Reason: "timeout"}); r.Note != "timeout" {
		t.Errorf("%+v", r)
	}
	if r := row(conversation.Entry{Kind: conversation.KindCheck, Command: "make", Text: "test", Reason: "timeout"}); r.Note != "timeout: test" {
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

// TestDoing describes the run at work, also if a terminal was opened after its beginning.
func TestDoing(t *testing.T) {
	m := talkMaker{api: &API{}}
	agent := &conversation.Turn{Run: "run:x/1", Kind: record.KindAgent, Agent: "coder", State: conversation.StateWorking}
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
