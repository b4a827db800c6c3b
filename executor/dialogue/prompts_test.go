package dialogue

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/runs"
	"github.com/ramus-dev/ramus/executor/runs/runstest"
	"github.com/ramus-dev/ramus/gitd"
)

// newPrompts returns prompts of the agent's run "1", and its dialogue. The dialogue is found until over is true.
func newPrompts(t *testing.T, over *bool) (*Prompts, *Dialogue) {
	t.Helper()
	d := newDialogue(t, t.TempDir())
	t.Cleanup(d.run.End)
	ix, _, err := index.Open(filepath.Join(t.TempDir(), "index.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ix.Close() })
	command := d.run.Initial
	command.ID, command.Kind, command.Agent = "command", record.KindExec, nil
	if err := ix.Put(d.run.Initial, command); err != nil {
		t.Fatal(err)
	}
	return &Prompts{
		Runs: &runs.Reader{Context: t.Context(), Index: ix, Folder: &live.Folder{Dir: t.TempDir(), Now: time.Now},
			Live: runstest.AtWork{d.run.Initial.Name(): d.run.Run}},
		At: func(_ record.Caller, id string) *Dialogue {
			if *over || id != d.run.Initial.ID {
				return nil
			}
			return d
		},
		Open:      func() error { return nil },
		Dialogues: d.all,
	}, d
}

// TestPrompts finds the dialogue of a run by its name, and refuses prompts that are wrong or come too late.
func TestPrompts(t *testing.T) {
	over := false
	ps, d := newPrompts(t, &over)
	r, by := d.run.Initial, gitd.Person{Name: "Ada"}
	for _, p := range []record.Prompt{{Key: "one", Text: "say one"}, {Key: "one", Text: "say one"}, {Text: "say two"},
		{Key: strings.Repeat("k", 200), Text: "say three"}} {
		if err := ps.Say(t.Context(), r.Name(), p); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if got, want := texts(d)[1:], []string{"say one", "say two", "say three"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, x := range []struct {
		run  string
		p    record.Prompt
		want error
	}{
		{r.Name(), record.Prompt{Text: " "}, record.ErrInvalid},
		{r.Name(), record.Prompt{Key: record.FirstPrompt, Text: "a"}, record.ErrInvalid},
		{r.Name(), record.Prompt{Key: strings.Repeat("k", 201), Text: "a"}, record.ErrInvalid},
		{"run:none/1", record.Prompt{Text: "a"}, record.ErrNotFound},
		{r.Caller.String() + "/command", record.Prompt{Text: "a"}, record.ErrConflict},
	} {
		if err := ps.Say(t.Context(), x.run, x.p); !errors.Is(err, x.want) || !strings.Contains(err.Error(), "cannot speak to "+x.run) {
			t.Errorf("%s, key %.10q: got %v, want %v", x.run, x.p.Key, err, x.want)
		}
	}
	if how, err := ps.Steer(t.Context(), r.Name(), record.Prompt{Key: "now", Text: "say now"}); err != nil || how != Queued {
		t.Errorf("steer: got %q, %v, want %q", how, err, Queued)
	}
	if err := errors.Join(ps.Resay(t.Context(), r.Name(), "one", "say more", by),
		ps.Reorder(t.Context(), r.Name(), []string{strings.Repeat("k", 200), "one"}, by)); err != nil {
		t.Error(err)
	}
	if p, err := ps.Unsay(t.Context(), r.Name(), "now", by); err != nil || p.Text != "say now" {
		t.Errorf("unsay: got %+v, %v", p, err)
	}
	if got, want := texts(d)[1:], []string{"say three", "say two", "say more"}; !slices.Equal(got, want) {
		t.Errorf("after changes: got %q, want %q", got, want)
	}
	if _, err := ps.StopTurn(t.Context(), r.Name(), by); !errors.Is(err, record.ErrConflict) {
		t.Errorf("no turn: got %v, want %v", err, record.ErrConflict)
	}
	for _, turn := range []bool{false, true} {
		if d.talk = nil; turn {
			d.talk = &talk{step: "turn-1"}
		}
		if got := ps.InTurn(r); got != turn || ps.CanSteer(r) {
			t.Errorf("in a turn: got %t, want %t", got, turn)
		}
	}

	over = true
	if ps.InTurn(r) || ps.CanSteer(r) {
		t.Error("a run that is over is in a turn")
	}
	if err := ps.Say(t.Context(), r.Name(), record.Prompt{Key: "one", Text: "say one"}); err != nil {
		t.Errorf("a prompt that the run had: %v", err)
	}
	for what, do := range map[string]func() error{
		"say":     func() error { return ps.Say(t.Context(), r.Name(), record.Prompt{Key: "late", Text: "a"}) },
		"unsay":   func() error { _, err := ps.Unsay(t.Context(), r.Name(), "one", by); return err },
		"resay":   func() error { return ps.Resay(t.Context(), r.Name(), "one", "a", by) },
		"reorder": func() error { return ps.Reorder(t.Context(), r.Name(), []string{"one"}, by) },
		"stop":    func() error { _, err := ps.StopTurn(t.Context(), r.Name(), by); return err },
	} {
		if err := do(); !errors.Is(err, ErrOver) {
			t.Errorf("%s to a run that is over: got %v, want %v", what, err, ErrOver)
		}
	}
	ps.Open = func() error { return io.ErrClosedPipe }
	if err := ps.Say(t.Context(), r.Name(), record.Prompt{Key: "one", Text: "a"}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a server that closes: got %v, want %v", err, io.ErrClosedPipe)
	}
}
