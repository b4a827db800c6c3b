package conversation

import (
	"context"
	"iter"

	"github.com/ramus-dev/ramus/executor/record"
)

// maxWords bounds the text of one entry of words, in bytes. The output of the turn has the rest.
const maxWords = 1 << 20

// Journals is the part of the executor that transcripts are read from.
type Journals interface {
	// OfCaller returns the runs of a caller, the oldest first.
	OfCaller(caller record.Caller) []record.Run
	Run(ctx context.Context, name string) (record.Run, error)
	Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error]
	EventsFrom(ctx context.Context, run string, after int64, have record.Span) iter.Seq2[record.Event, error]
	Words(ctx context.Context, run, step string, seq, from, to int64) ([]byte, error)
}

// Read applies all events of a run that its journal has, and reads the agent's words up to now.
func Read(ctx context.Context, x Journals, f *Fold) error {
	// The words are read first. Those that are read come before the events that the journal gets from then on.
	at, step := f.Have(), f.Last().Step
	var now []byte
	if at.Seq > 0 && !f.Run.Ended() && !f.Last().Over() {
		var err error
		if now, err = x.Words(ctx, f.Run.Name(), step, at.Seq, at.To, at.To+maxWords); err != nil {
			return err
		}
	}
	first := at.Seq == 0
	for e, err := range x.Events(ctx, f.Run.Name(), f.Seq(), false) {
		if err != nil {
			return err
		}
		f.Apply(e)
	}
	if to := at.To + int64(len(now)); at.Seq > 0 && f.Have().Seq == at.Seq && to > f.said && !f.Last().Over() {
		f.extend(to, string(now[int64(len(now))-(to-f.said):]))
	}
	if err := f.Fill(ctx, x); err != nil {
		return err
	}
	if first && f.Have().Seq > 0 && !f.Last().Over() {
		return Read(ctx, x, f) // the turn was not known before
	}
	return nil
}

// Have returns the place in the words of the last turn to which the fold has them.
func (f *Fold) Have() record.Span {
	return record.Span{Seq: f.Last().seq, To: f.said}
}

// Fill reads the words that entries lack.
func (f *Fold) Fill(ctx context.Context, x Journals) error {
	for _, t := range f.Turns {
		for _, entry := range t.Entries {
			if entry.Kind != KindWords || entry.Span == nil {
				continue
			}
			size := min(entry.Span.To-entry.Span.From, maxWords)
			have := int64(len(entry.Text))
			if have >= size || entry.filled == entry.Span.To {
				continue
			}
			more, err := x.Words(ctx, t.Run, t.Step, entry.Span.Seq, entry.Span.From+have, entry.Span.From+size)
			if err != nil {
				return err
			}
			entry.Text += string(more)
			entry.filled = entry.Span.To
			f.changed[entry] = true
		}
	}
	return nil
}
