package executor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

func mention(t *testing.T, conv, key string) record.Request {
	t.Helper()
	c, err := record.ConvCaller(conv)
	if err != nil {
		t.Fatal(err)
	}
	return record.Request{Caller: c, Repo: "demo", Key: key, Asker: gitd.Person{Name: "ann"},
		Origin: &record.Origin{Source: "test", Session: "test:" + conv, Key: key, Event: json.RawMessage(`{"a":1}`)}}
}

func TestClaimOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var mu sync.Mutex
	first, names := 0, map[string]bool{}
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			run, fresh, err := w.x.Claim(t.Context(), mention(t, "c", "C1-1.1"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if _, known := w.x.Find(run.Caller, run.ID); !known {
				t.Error("a claimed run cannot be found")
			}
			if fresh {
				first++
			}
			names[run.Name()] = true
		})
	}
	wg.Wait()
	if first != 1 || len(names) != 1 || !names["conv:c/C1-1.1"] {
		t.Errorf("%d of 40 claims were first, for %v", first, names)
	}
	if refs := w.sh(w.data, "git -C repos/demo.git for-each-ref refs/heads/ramus"); refs != "" {
		t.Errorf("a claim made a branch: %s", refs)
	}
}

// TestBeginAfterKill begins a run whose branch a killed process made, but not the rest of the run's begin.
func TestBeginAfterKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	claim := mention(t, "c", "C1-1.1")
	run, _, err := w.x.Claim(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	w.sh(w.data, "git -C repos/demo.git branch "+run.Branch+" main")
	begun, err := w.x.Begin(t.Context(), run.Name(), record.Request{Command: &record.Command{Shell: "echo x > x"}})
	if err != nil {
		t.Fatal(err)
	}
	if begun, err = w.x.Settled(t.Context(), begun.Caller, begun.ID); err != nil ||
		begun.State != record.StateComplete || begun.Head == begun.Start {
		t.Errorf("%+v, %v", begun, err)
	}
}

// TestReindexWithClaims claims runs while the index is rebuilt. The new index has them,
// in its file too, and none is claimed twice.
func TestReindexWithClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const claims = 20
	var wg sync.WaitGroup
	for i := range claims {
		for range 2 {
			wg.Go(func() {
				if _, _, err := w.x.Claim(t.Context(), mention(t, "c", fmt.Sprintf("C1-1.%d", i))); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for range 5 {
		wg.Go(func() {
			if _, err := w.x.Reindex(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, when := range []string{"at once", "by the next server"} {
		if untold, err := w.x.Untold(t.Context()); err != nil || len(untold) != claims {
			t.Errorf("%d of %d claims are found %s, %v", len(untold), claims, when, err)
		}
		w.stop(true)
		w.start()
	}
}

func TestBeginGivesAClaimItsWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	claimed, _, err := w.x.Claim(t.Context(), mention(t, "c", "C1-1.1"))
	if err != nil {
		t.Fatal(err)
	}
	if claimed.Kind != record.KindRequest || claimed.State != record.StateSubmitted {
		t.Errorf("claimed: %+v", claimed)
	}
	if err := w.x.Note(t.Context(), claimed.Name(),
		record.Event{Type: record.EventPolicy, Message: "container", Reason: "why"}); err != nil {
		t.Fatal(err)
	}
	// The claim survives, and only its claimer begins it.
	w.stop(true)
	w.start()
	untold, err := w.x.Untold(t.Context())
	if err != nil || len(untold) != 1 || untold[0].Name() != claimed.Name() {
		t.Fatalf("untold after a restart: %v %v", untold, err)
	}
	run, err := w.x.Begin(t.Context(), claimed.Name(), record.Request{Command: &record.Command{Shell: "echo one > a.txt"}})
	if err != nil {
		t.Fatal(err)
	}
	if run.Kind != record.KindExec || run.ID != claimed.ID || run.Origin == nil {
		t.Errorf("begun: %+v", run)
	}
	again, err := w.x.Begin(t.Context(), claimed.Name(), record.Request{Command: &record.Command{Shell: "echo two > a.txt"}})
	if err != nil || again.Name() != run.Name() || again.Command != run.Command {
		t.Errorf("a second beginning: %+v %v", again, err)
	}
	run = w.wait(run.Name())
	if run.State != record.StateComplete {
		t.Fatalf("%+v", run)
	}
	var types []string
	for e, err := range w.x.Events(t.Context(), run.Name(), 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, e.Type)
	}
	if types[0] != record.EventPolicy || !slices.Contains(types, record.EventRunCreated) {
		t.Errorf("journal: %v", types)
	}
	if err := w.x.Tell(t.Context(), run.Name(), json.RawMessage(`{"ts":"5"}`)); err != nil {
		t.Fatal(err)
	}
	if err := w.x.Tell(t.Context(), run.Name(), json.RawMessage(`{"ts":"6"}`)); err != nil {
		t.Fatal(err)
	}
	// The ref, and not only the index, records that the origin knows.
	w.stop(true)
	w.start()
	if _, err := w.x.Reindex(t.Context()); err != nil {
		t.Fatal(err)
	}
	run, err = w.x.Run(t.Context(), run.Name())
	if err != nil || run.Told == nil || string(run.Told.Data) != `{"ts":"5"}` {
		t.Errorf("told: %+v %v", run.Told, err)
	}
	if untold, _ := w.x.Untold(t.Context()); len(untold) != 0 {
		t.Errorf("untold: %v", untold)
	}
}

func TestEndOfARequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for i, e := range []executor.Ending{
		{Output: map[string]any{"answer": "a"}},
		{Reason: record.ReasonBadInput, Error: "no such workflow"},
	} {
		claimed, _, err := w.x.Claim(t.Context(), mention(t, "c", fmt.Sprintf("C1-1.%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		run, err := w.x.End(t.Context(), claimed.Name(), e)
		if err != nil {
			t.Fatal(err)
		}
		if !run.Ended() || run.Reason != e.Reason {
			t.Errorf("%+v", run)
		}
		m, err := w.x.Manifest(t.Context(), run.Name())
		if err != nil || m.State != run.State {
			t.Errorf("%+v %v", m, err)
		}
		if err := w.x.Note(t.Context(), run.Name(), record.Event{Type: record.EventNote}); !errors.Is(err, record.ErrConflict) {
			t.Errorf("a note after the end: %v", err)
		}
		if _, err := w.x.Retry(t.Context(), run.Name(), gitd.Person{}); !errors.Is(err, record.ErrConflict) {
			t.Errorf("an answer as a run to be retried: %v", err)
		}
	}
	claimed, _, err := w.x.Claim(t.Context(), mention(t, "c", "C1-2.1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.x.Stop(t.Context(), claimed.Name(), gitd.Person{Name: "bob"}); err != nil {
		t.Fatal(err)
	}
	if run, _ := w.x.Run(t.Context(), claimed.Name()); run.Reason != record.ReasonCancelled {
		t.Errorf("%+v", run)
	}
}

// TestStopWhileItBegins stops a run while it begins. In either order the run ends, and
// no stopped work is done afterwards.
func TestStopWhileItBegins(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for i := range 12 {
		claimed, _, err := w.x.Claim(t.Context(), mention(t, "c", fmt.Sprintf("C1-1.%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := w.x.Begin(t.Context(), claimed.Name(), record.Request{Command: &record.Command{Shell: "sleep 300"}}); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := w.x.Stop(t.Context(), claimed.Name(), gitd.Person{Name: "bob"}); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			err := w.x.Note(t.Context(), claimed.Name(), record.Event{Type: record.EventNote, Message: "a note"})
			if err != nil && !errors.Is(err, record.ErrConflict) {
				t.Error(err)
			}
		})
		wg.Wait()
		run, err := w.x.Settled(t.Context(), claimed.Caller, claimed.ID)
		if err != nil || run.Reason != record.ReasonCancelled {
			t.Fatalf("%+v %v", run, err)
		}
		if _, err := w.x.Manifest(t.Context(), run.Name()); err != nil {
			t.Error(err)
		}
	}
}
