package conversation

import (
	"errors"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
)

// TestPromptBounds attaches as many files, and as many bytes, as a prompt may have, and one more of each.
func TestPromptBounds(t *testing.T) {
	files := func(sizes ...int) (list []file) {
		for _, n := range sizes {
			list = append(list, file{Name: "a", Content: make([]byte, n)})
		}
		return list
	}
	for _, test := range []struct {
		name  string
		files []file
		kind  route.Kind
	}{
		{"no files", nil, ""},
		{"most files", make([]file, MaxFiles), ""},
		{"a file more", make([]file, MaxFiles+1), route.KindTooLarge},
		{"most bytes", files(MaxUpload-1, 1), ""},
		{"a byte more", files(MaxUpload, 1), route.KindTooLarge},
		{"half a picture", []file{{Name: "a.png", Content: pictures(t)["image/png"][:30]}}, route.KindInvalid},
	} {
		said, err := newPrompt{Text: "x", Key: "k", Files: test.files}.prompt(new(route.Call))
		var p *route.Problem
		switch {
		case test.kind == "" && (err != nil || len(said.Files) != len(test.files) || said.Key != "k"):
			t.Errorf("%s: %d files, %v", test.name, len(said.Files), err)
		case test.kind != "" && (!errors.As(err, &p) || p.Kind != test.kind):
			t.Errorf("%s: %v, want %s", test.name, err, test.kind)
		}
	}
}

func TestOver(t *testing.T) {
	for state, want := range map[State]bool{StateWaiting: false, StateWorking: false, StateAsking: false, StateDone: true,
		StateStopped: true, StateFailed: true} {
		if got := (&Turn{State: state}).Over(); got != want {
			t.Errorf("%s is over: %v", state, got)
		}
	}
}

// TestOutputOfOthers keeps out of an agent's words all output that is not theirs.
func TestOutputOfOthers(t *testing.T) {
	s := newStory("one", "x")
	s.turn(1, 1)
	s.say("half")
	f := whole(t, s)
	want := encode(t, f.Turns)
	span := func(seq, from, to int64) *record.Span { return &record.Span{Seq: seq, From: from, To: to} }
	for name, e := range map[string]record.Event{
		"standard error":  {Kind: "stderr", Message: "more", Span: span(s.open, 4, 8)},
		"no place":        {Kind: "stdout", Message: "more"},
		"another turn":    {Kind: "stdout", Message: "more", Span: span(s.open+1, 4, 8)},
		"known bytes":     {Kind: "stdout", Message: "half", Span: span(s.open, 0, 4)},
		"known in a part": {Kind: "stdout", Message: "al", Span: span(s.open, 1, 3)},
	} {
		e.Type = record.EventOutput
		f.Apply(e)
		if got := encode(t, f.Turns); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	f.Apply(record.Event{Type: record.EventOutput, Kind: "stdout", Message: "lf way", Span: span(s.open, 2, 8)})
	entries := f.Last().Entries
	if w := entries[len(entries)-1]; w.Text != "half way" {
		t.Errorf("the words are %q", w.Text)
	}
}
