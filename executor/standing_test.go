package executor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// TestStanding amends a conversation from several goroutines at once. Its ref has all amendments, in
// order, also without the index.
func TestStanding(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ctx := t.Context()
	req := record.Request{Key: "task", Caller: caller(t, "conv:abc"), Repo: "demo",
		Asker: gitd.Person{Name: "Ada", Email: "ada@example.com"}}
	r, fresh, err := w.x.Stand(ctx, req, json.RawMessage(`{"n":0}`))
	if err != nil || !fresh || r.State != record.StateSubmitted || r.Kind != record.KindConversation {
		t.Fatalf("%+v, %v, %v", r, fresh, err)
	}
	if again, fresh, err := w.x.Stand(ctx, req, json.RawMessage(`{"n":1}`)); err != nil || fresh || string(again.Record) != `{"n":0}` {
		t.Fatalf("a second claim: %+v, %v, %v", again, fresh, err)
	}
	const writers, each = 4, 5
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range each {
				for {
					last := int64(len(events(t, w, r.Name())))
					_, err := w.x.Amend(ctx, r.Name(), last, executor.Amendment{Events: []record.Event{
						{Type: record.EventNote, Message: fmt.Sprintf("%d.%d", i, n)},
						{Type: record.EventNote, Message: "and"}}})
					if err == nil {
						break
					}
					if !errors.Is(err, record.ErrConflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	got, err := w.x.Amend(ctx, r.Name(), -1, executor.Amendment{State: record.StateFailed,
		Reason: record.ReasonCancelled, Error: "enough", Record: json.RawMessage(`{"n":2}`)})
	if err != nil || !got.Ended() || got.EndedAt.IsZero() {
		t.Fatalf("%+v, %v", got, err)
	}
	if got, err = w.x.Amend(ctx, r.Name(), -1, executor.Amendment{State: record.StateRunning}); err != nil ||
		got.Ended() || !got.EndedAt.IsZero() {
		t.Fatalf("taken up again: %+v, %v", got, err)
	}
	check := func() {
		t.Helper()
		list := events(t, w, r.Name())
		if len(list) != 2*writers*each+2 {
			t.Fatalf("%d events", len(list))
		}
		for i, e := range list {
			if e.Seq != int64(i+1) || i < 2*writers*each && (i%2 == 1) != (e.Message == "and") {
				t.Errorf("event %d: %+v", i, e)
			}
		}
		standing := w.x.Standing()
		var rec struct{ N int }
		if len(standing) != 1 || json.Unmarshal(standing[0].Record, &rec) != nil || rec.N != 2 || standing[0].State != record.StateRunning {
			t.Errorf("%+v", standing)
		}
	}
	check()
	w.stop(false)
	if err := os.Remove(filepath.Join(w.data, "index.db")); err != nil {
		t.Fatal(err)
	}
	w.start()
	check()
	if text := w.inRepo("show", "refs/ramus/runs/conv-abc/task:run.json"); !strings.Contains(text, `"kind": "conversation"`) {
		t.Error(text)
	}
	if _, err := w.x.Retry(ctx, r.Name(), gitd.Person{}); !errors.Is(err, record.ErrConflict) {
		t.Errorf("retried: %v", err)
	}
}

// TestStandingFull fills a journal. Its run can end nevertheless, and record that its origin knows.
func TestStandingFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ctx := t.Context()
	r, _, err := w.x.Stand(ctx, record.Request{Key: "task", Caller: caller(t, "conv:abc"), Repo: "demo"},
		json.RawMessage(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	note := func(size int) record.Event {
		return record.Event{Type: record.EventNote, Message: strings.Repeat("words ", size/6)}
	}
	if _, err = w.x.Amend(ctx, r.Name(), -1, executor.Amendment{Events: []record.Event{note(5 << 20)}}); !errors.Is(err,
		record.ErrInvalid) {
		t.Errorf("an event that could not be read again: %v", err)
	}
	if _, err = w.x.Amend(ctx, r.Name(), -1,
		executor.Amendment{Events: []record.Event{note(3 << 20), note(3 << 20), note(2<<20 - 4<<10)}}); err != nil {
		t.Fatal(err)
	}
	if _, err = w.x.Amend(ctx, r.Name(), -1, executor.Amendment{Events: []record.Event{note(8 << 10)}}); !errors.Is(err,
		record.ErrFull) || !errors.Is(err, record.ErrConflict) {
		t.Errorf("%v", err)
	}
	if _, err = w.x.Amend(ctx, r.Name(), -1,
		executor.Amendment{Events: []record.Event{note(8 << 10)}, State: record.StateFailed}); err != nil {
		t.Error(err)
	}
	if _, err = w.x.Amend(ctx, r.Name(), -1, executor.Amendment{Events: []record.Event{note(8 << 10)}}); err != nil {
		t.Error(err)
	}
	if _, err = w.x.Amend(ctx, r.Name(), -1, executor.Amendment{State: record.StateRunning}); !errors.Is(err, record.ErrFull) {
		t.Errorf("taken up again: %v", err)
	}
}

func events(t *testing.T, w *world, run string) (list []record.Event) {
	t.Helper()
	for e, err := range w.x.Events(t.Context(), run, 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}
