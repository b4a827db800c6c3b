package search

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestBounds checks that queries at their bounds are answered, and those above are not.
func TestBounds(t *testing.T) {
	w := newWorld(t, 1)
	w.add(0, KindOutput, strings.Repeat("needle\n", MaxHits+1))
	w.refresh()
	for _, x := range []struct {
		q    Query
		hits int
		ok   bool
	}{
		{Query{Words: "needle"}, DefaultHits, true},
		{Query{Words: "needle", Max: 1}, 1, true},
		{Query{Words: "needle", Max: MaxHits}, MaxHits, true},
		{Query{Words: "needle", Max: MaxHits + 1}, 0, false},
		{Query{Words: strings.Repeat("x", MaxQuery)}, 0, true},
		{Query{Words: strings.Repeat("x", MaxQuery+1)}, 0, false},
		{Query{Words: strings.Repeat("needle ", maxWords)}, DefaultHits, true},
		{Query{Words: strings.Repeat("needle ", maxWords+1)}, 0, false},
		{Query{Words: "nee"}, DefaultHits, true},
		{Query{Words: "ne"}, 0, false},
	} {
		x.q.Run = w.runs[0].Name()
		a, err := w.ix.Find(t.Context(), x.q, w.run)
		if x.ok != (err == nil) || !x.ok && !errors.Is(err, ErrQuery) || len(a.Hits) != x.hits || len(a.More) != min(x.hits, 1) {
			t.Errorf("%.20q, max %d: %d hits, more of %q, %v", x.q.Words, x.q.Max, len(a.Hits), a.More, err)
		}
	}
}

// TestPlace goes on from the places of times.
func TestPlace(t *testing.T) {
	w := newWorld(t, 3)
	for i := range w.runs {
		w.add(i, KindOutput, "needle")
	}
	w.refresh()
	all := []string{"r2 output:1 needle", "r1 output:1 needle", "r0 output:1 needle"}
	at := w.runs[1].CreatedAt
	for _, x := range []struct {
		time time.Time
		want []string
	}{
		{at.Add(time.Hour), all},
		{at, all[1:]},
		{at.Add(-1), all[2:]},
		{at.Add(-time.Hour), nil},
	} {
		place := PlaceOf(x.time)
		if got, ok := TimeOf(place); !ok || !got.Equal(x.time) && x.time.Unix() >= 0 {
			t.Errorf("the time of %s is %s, %t", x.time, got, ok)
		}
		w.want(Query{Words: "needle", After: place}, x.want...)
	}
	place := PlaceOf(at)
	for _, bad := range []string{"", "00", "x", place[2:], place + "00", place + "x", "x" + place} {
		if got, ok := TimeOf(bad); ok || !got.IsZero() {
			t.Errorf("the time of %q is %s, %t", bad, got, ok)
		}
	}
}

// reading is a source of one run.
type reading func(b *Builder) error

func (reading) Version(context.Context, record.Run) (string, error)      { return "1", nil }
func (f reading) Read(_ context.Context, _ record.Run, b *Builder) error { return f(b) }

// TestBatch searches a long run while it is read. Its text is written whenever there is enough of it, neither earlier nor
// at the end of the run only.
func TestBatch(t *testing.T) {
	w := newWorld(t, 1)
	rnd := rand.New(rand.NewPCG(5, 6))
	noise := func(n int) string { // does not become smaller
		text := make([]byte, n)
		for i := range text {
			text[i] = byte(' ' + rnd.IntN(95))
		}
		return string(text)
	}
	first, last := "r0 output:1 the first needle", "r0 output:1 the last needle"
	add := func(b *Builder, text string) error { return b.Add(Passage{Kind: KindOutput}, text) }
	err := w.ix.Refresh(t.Context(), w.runs, reading(func(b *Builder) error {
		err := errors.Join(add(b, "the first needle"), add(b, noise(batch/8)))
		w.want(Query{Words: "needle"})
		err = errors.Join(err, add(b, noise(batch)))
		w.want(Query{Words: "needle"}, first)
		return errors.Join(err, add(b, "the last needle"))
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.want(Query{Words: "needle"}, first, last)
	if got := w.find(Query{Words: "first needle"}); !slices.Equal(got, []string{first}) {
		t.Errorf("got %q", got)
	}
}
