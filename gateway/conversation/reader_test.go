package conversation

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
)

// TestReadWords reads a turn again after its agent has said more, while the journal has no new event.
func TestReadWords(t *testing.T) {
	s := newStory("one", "go on")
	s.turn(1, 1)
	f := NewFold(s.run)
	for _, more := range []string{"one", "", " two", " Größe", " three"} {
		s.say(more)
		if err := Read(t.Context(), s, f); err != nil {
			t.Fatal(err)
		}
		want := s.words[s.open]
		if got := f.Last().Entries[1]; got.Text != want || !got.Open || got.Span.To != int64(len(want)) {
			t.Errorf("after %q: got %s, want %q", more, encode(t, got), want)
		}
		if got := f.Have(); got.To != int64(len(want)) || got.Seq != s.open {
			t.Errorf("after %q: got the place %+v", more, got)
		}
	}
	if got := kinds(f.Last()); got != "prompt words" {
		t.Errorf("got %s, want one entry of words", got)
	}
}

// unread counts the reads of words, which all fail.
type unread struct {
	*story
	reads int
}

var errUnread = errors.New("the words cannot be read")

func (u *unread) Words(context.Context, string, string, int64, int64, int64) ([]byte, error) {
	u.reads++
	return nil, errUnread
}

// TestVoiceOutput takes words from live output, after the first three of "abcdef" were heard. It reads them from the
// output of the turn only if the event lacks some.
func TestVoiceOutput(t *testing.T) {
	const words = "abcdef"
	for name, x := range map[string]struct {
		kind    string
		span    *record.Span // Seq is relative to that of the turn
		message string
		want    string
		reads   bool
	}{
		"what follows":            {"stdout", &record.Span{From: 3, To: 6}, "def", "def", false},
		"what overlaps by a byte": {"stdout", &record.Span{From: 2, To: 6}, "cdef", "def", false},
		"what overlaps by all":    {"stdout", &record.Span{From: 0, To: 6}, "abcdef", "def", false},
		"what is known":           {"stdout", &record.Span{From: 0, To: 3}, "abc", "", false},
		"a gap":                   {"stdout", &record.Span{From: 4, To: 6}, "ef", "def", true},
		"another length":          {"stdout", &record.Span{From: 3, To: 6}, "d\ufffd", "def", true},
		"another stream":          {"stderr", &record.Span{From: 3, To: 6}, "def", "", false},
		"another turn":            {"stdout", &record.Span{Seq: 1, From: 3, To: 6}, "def", "", false},
		"no place":                {"stdout", nil, "def", "", false},
	} {
		s := newStory("one", "go on")
		s.turn(1, 1)
		s.say(words)
		e := record.Event{Type: record.EventOutput, Kind: x.kind, Message: x.message}
		if x.span != nil {
			e.Span = &record.Span{Seq: s.open + x.span.Seq, From: x.span.From, To: x.span.To}
		}
		from := Place{Run: s.run.Name(), Seq: s.open, Words: record.Span{Seq: s.open, To: 3}}
		broken := &unread{story: s}
		for _, journals := range []Journals{s, broken} {
			v, err := newVoice(t.Context(), journals, s.run, from)
			if err != nil {
				t.Fatal(err)
			}
			list, err := v.hear(t.Context(), e)
			if journals == broken && x.reads {
				if !errors.Is(err, errUnread) {
					t.Errorf("%s: got %v, want that words cannot be read", name, err)
				}
				continue
			}
			var got strings.Builder
			for _, u := range list {
				if u.raw["sessionUpdate"] != acp.UpdateMessage {
					t.Errorf("%s: got an update %v", name, u.raw)
				}
				got.WriteString(u.raw["content"].(map[string]any)["text"].(string))
			}
			if err != nil || got.String() != x.want || v.at.Words.To != int64(3+len(x.want)) {
				t.Errorf("%s: got %q and the place %+v, %v, want %q", name, got.String(), v.at.Words, err, x.want)
			}
		}
		if (broken.reads > 0) != x.reads {
			t.Errorf("%s: got %d reads, want some: %t", name, broken.reads, x.reads)
		}
	}
}

// TestFoldOutput has live output go on after "abc". A fold takes the new bytes from the event, unless it lacks some.
func TestFoldOutput(t *testing.T) {
	for name, x := range map[string]struct {
		from, to int64
		message  string
		want     string
		upto     int64
	}{
		"what follows":            {3, 6, "def", "abcdef", 6},
		"what overlaps by a byte": {2, 6, "cdef", "abcdef", 6},
		"what overlaps by all":    {0, 6, "abcdef", "abcdef", 6},
		"what is known":           {0, 3, "abc", "abc", 3},
		"a gap":                   {4, 6, "ef", "abc", 6},
		"another length":          {3, 6, "d\ufffd", "abc", 6},
	} {
		s := newStory("one", "go on")
		s.turn(1, 1)
		s.say("abc")
		f := whole(t, s)
		f.Apply(record.Event{Type: record.EventOutput, Kind: "stdout", Message: x.message,
			Span: &record.Span{Seq: s.open, From: x.from, To: x.to}})
		if got := f.Last().Entries[1]; got.Text != x.want || f.Have().To != x.upto {
			t.Errorf("%s: got %q up to byte %d, want %q up to %d", name, got.Text, f.Have().To, x.want, x.upto)
		}
	}
}
