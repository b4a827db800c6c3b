package conversation

import (
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestClone has the words of a turn go on while somebody reads a clone. The race detector sees a value that both have.
func TestClone(t *testing.T) {
	f := NewFold(record.Run{Kind: record.KindAgent})
	f.Turns = []*Turn{{Kind: record.KindAgent, seq: 1}}
	f.extend(3, "one")
	c := f.clone()
	read := make(chan record.Span)
	go func() { read <- *c.Turns[0].Entries[0].Span }()
	f.extend(6, "two")
	if got := <-read; got != (record.Span{Seq: 1, To: 3}) || c.Turns[0].Entries[0].Text != "one" {
		t.Errorf("the clone has %+v %q", got, c.Turns[0].Entries[0].Text)
	}
	if got := *f.Turns[0].Entries[0].Span; got.To != 6 || f.words.Text != "onetwo" {
		t.Errorf("the fold has %+v %q", got, f.words.Text)
	}
}
