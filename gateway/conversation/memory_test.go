package conversation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestMemory reads a run again and again while it works. Each time it is as if its journal was read from the beginning.
// A fold that was read does not change any more, because a page may still be made of it.
func TestMemory(t *testing.T) {
	all := told("one")
	for _, ahead := range []int64{0, 1, 5} { // bytes that the agent has said since the last event
		var m Memory
		open := int64(0)
		var last *Fold
		before := ""
		for n, e := range all.events {
			now := &story{run: all.run, events: all.events[:n+1], words: map[int64]string{}}
			now.run.State = record.StateSubmitted
			switch e.Type {
			case record.EventStepStarted:
				open = e.Seq
			case record.EventStepFinished:
				open = 0
			}
			for seq, words := range all.words {
				if seq == open { // the next event knows of these words
					words = words[:min(all.events[n+1].Words, e.Words+ahead)]
				}
				now.words[seq] = words
			}
			var f *Fold
			for range 2 { // the words of a turn that begins are read the next time
				var err error
				if f, err = m.read(t.Context(), now, now.run); err != nil {
					t.Fatal(err)
				}
				if last != nil && encode(t, last.Turns) != before {
					t.Fatalf("event %d, %d bytes ahead: an earlier fold is now %s, was %s", n, ahead, encode(t, last.Turns), before)
				}
				last, before = f, encode(t, f.Turns)
			}
			if got, want := encode(t, f.Turns), encode(t, whole(t, now).Turns); got != want {
				t.Fatalf("event %d, %d bytes ahead\n got %s\nwant %s", n, ahead, got, want)
			}
		}
	}
}

// TestBlocks renders words that grow. A block before the last stays as it is, and none is lost.
func TestBlocks(t *testing.T) {
	var m Memory
	r := told("one").run
	text := "# One\n\ntwo *three* é\n\n- four\n- five\n\nsix"
	before := ""
	for n := 1; n <= len(text); n++ {
		closed, _ := m.Blocks(r, &Entry{ID: "one/1", Text: text[:n], Open: true})
		if got := fmt.Sprint(closed); !strings.HasPrefix(strings.TrimSuffix(got, "]"), strings.TrimSuffix(before, "]")) {
			t.Fatalf("%d bytes: %s does not begin with %s", n, got, before)
		} else {
			before = got
		}
	}
	for range 2 {
		closed, open := m.Blocks(r, &Entry{ID: "one/1", Text: text})
		if got := fmt.Sprint(closed); open != "" || strings.Count(got, "six") != 1 || !strings.Contains(got, "<h3>One</h3>") ||
			!strings.Contains(got, "<em>three</em> é") {
			t.Errorf("%s, open %q", got, open)
		}
	}
	if closed, _ := m.Blocks(r, &Entry{ID: "one/1", Text: "other"}); len(closed) != 1 || closed[0] != "<p>other</p>\n" {
		t.Errorf("another text: %q", closed)
	}
}
