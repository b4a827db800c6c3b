package replay

import (
	"errors"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// step returns the events of one step.
func step(began, ended record.Event) []record.Event {
	zero := 0
	began.Type, ended.Type, began.Step, ended.Step = record.EventStepStarted, record.EventStepFinished, "s", "s"
	if ended.Exit == nil && ended.Reason == "" {
		ended.Exit = &zero
	}
	if began.Parent == "" && began.Message == "" {
		began.Parent = "1"
	}
	return []record.Event{began, ended}
}

// TestCommands reads commands of all kinds. Each is run again, or says why it is not.
func TestCommands(t *testing.T) {
	caller, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	flow := record.Run{ID: "r", Caller: caller, Kind: record.KindWorkflow}
	exec := func(c record.Command) record.Run { return record.Run{Caller: caller, Kind: record.KindExec, Exec: &c} }
	for _, x := range []struct {
		name  string
		run   record.Run
		began record.Event
		ended record.Event
		why   string // a part; empty if it is run again
	}{
		{"shell", flow, record.Event{Kind: "shell", Command: "make"}, record.Event{}, ""},
		{"long", flow, record.Event{Kind: "shell", Command: strings.Repeat("x", maxLine)}, record.Event{}, "too long"},
		{"task", flow, record.Event{Kind: "task", Task: "lib_read_file", Command: `lib_read_file {"path":"f"}`}, record.Event{}, ""},
		{"cut", flow, record.Event{Kind: "task", Task: "lib_read_file", Command: `lib_read_file {"path":`}, record.Event{}, "parameters"},
		{"task without a name", flow, record.Event{Kind: "task", Command: "x"}, record.Event{}, "not recorded"},
		{"agent", flow, record.Event{Kind: "agent"}, record.Event{}, "turn of an agent"},
		{"terminal", flow, record.Event{Kind: "terminal", Command: "ls"}, record.Event{}, "typed"},
		{"no parent", flow, record.Event{Kind: "shell", Command: "x", Message: "x"}, record.Event{}, "not recorded"},
		{"several", flow, record.Event{Kind: "shell", Command: "x", With: []record.Move{{Repo: "b"}}}, record.Event{}, "several"},
		{"no exit", flow, record.Event{Kind: "shell", Command: "x"}, record.Event{Reason: "lost"}, "no exit status"},
		{"secrets", record.Run{Caller: caller, Kind: record.KindWorkflow, Secrets: []string{"KEY"}},
			record.Event{Kind: "shell", Command: "x"}, record.Event{}, "secrets"},
		{"reused", flow, record.Event{Kind: "shell", Command: "x"}, record.Event{Reused: &record.Reused{Run: "run:b/1"}}, "that of run:b/1"},
		{"exec", exec(record.Command{Args: []string{"a b"}}), record.Event{Kind: "shell", Command: "'a b'"}, record.Event{}, ""},
		{"background", exec(record.Command{Shell: "x", Background: true}), record.Event{Kind: "shell", Command: "x"}, record.Event{}, "background"},
		{"variables", exec(record.Command{Shell: "x", Env: []string{"K"}}), record.Event{Kind: "shell", Command: "x"}, record.Event{}, "variables"},
		{"setup", exec(record.Command{Shell: "x", Setup: true}), record.Event{Kind: "shell", Command: "x"}, record.Event{}, "for good"},
	} {
		list, err := Commands(x.run, step(x.began, x.ended))
		if err != nil || len(list) != 1 {
			t.Fatal(x.name, list, err)
		}
		c := list[0]
		if x.why == "" && c.Why != "" || !strings.Contains(c.Why, x.why) || c.Why == "" && (c.shell == nil) == (c.task == nil) {
			t.Errorf("%s: %+v", x.name, c)
		}
	}
	list, err := Commands(exec(record.Command{Args: []string{"a b"}}), step(record.Event{Kind: "shell", Command: "'a b'"}, record.Event{}))
	if err != nil || len(list[0].shell.Args) != 1 {
		t.Error("the arguments are those of the request:", list, err)
	}
	if _, err := Commands(flow, step(record.Event{Kind: "human"}, record.Event{})); !errors.Is(err, record.ErrInvalid) {
		t.Error("a run without commands:", err)
	}
	var many []record.Event
	for range MaxCommands + 1 {
		many = append(many, step(record.Event{Kind: "shell", Command: "x"}, record.Event{})...)
	}
	if _, err := Commands(flow, many); !errors.Is(err, gitd.ErrTooLarge) {
		t.Error("too many commands:", err)
	}
}

// TestChoose leaves the other commands out.
func TestChoose(t *testing.T) {
	all := []Command{{Step: "a"}, {Step: "b"}}
	list, err := Choose(all, []string{"b"})
	if err != nil || list[0].Why != notAsked || list[1].Why != "" || all[0].Why != "" {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := Choose(all, []string{"c"}); !errors.Is(err, record.ErrNotFound) {
		t.Error(err)
	}
}
