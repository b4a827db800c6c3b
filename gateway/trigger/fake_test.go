package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// fake is an executor in memory. Its runs end when ends says so.
type fake struct {
	mu    sync.Mutex // guards the fields below
	runs  map[string]record.Run
	order []string
	began map[string]record.Request
	moved chan struct{}
	// ends returns how a run ends that has begun. Nil means that runs go on.
	ends func(record.Request) (record.State, record.Reason, string)
	// down is the error of Begin, if it is set.
	down error
}

func newFake() *fake {
	return &fake{runs: map[string]record.Run{}, began: map[string]record.Request{}, moved: make(chan struct{})}
}

// fail sets the error of Begin.
func (f *fake) fail(err error) {
	f.mu.Lock()
	f.down = err
	f.mu.Unlock()
}

// endAs sets how runs end that begin from now on.
func (f *fake) endAs(ends func(record.Request) (record.State, record.Reason, string)) {
	f.mu.Lock()
	f.ends = ends
	f.mu.Unlock()
}

func (f *fake) put(r record.Run) record.Run {
	if _, known := f.runs[r.Name()]; !known {
		f.order = append(f.order, r.Name())
	}
	f.runs[r.Name()] = r
	close(f.moved)
	f.moved = make(chan struct{})
	return r
}

func (f *fake) Claim(_ context.Context, r record.Request) (record.Run, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run := record.Run{ID: r.Key, Caller: r.Caller, Kind: record.KindRequest, Repo: r.Repo, Base: r.Base,
		Origin: r.Origin, Asker: r.Asker, State: record.StateSubmitted}
	if have, known := f.runs[run.Name()]; known {
		return have, false, nil
	}
	return f.put(run), true, nil
}

func (f *fake) Begin(_ context.Context, name string, r record.Request) (record.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run := f.runs[name]
	if f.down != nil {
		return run, f.down
	}
	if _, twice := f.began[name]; twice {
		return run, nil
	}
	f.began[name] = r
	run.Kind, run.State = record.KindWorkflow, record.StateRunning
	if f.ends != nil {
		run.State, run.Reason, run.Error = f.ends(r)
	}
	return f.put(run), nil
}

func (f *fake) End(_ context.Context, name string, e executor.Ending) (record.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run := f.runs[name]
	run.State, run.Reason, run.Error, run.Output = record.StateComplete, e.Reason, e.Error, e.Output
	if e.Reason != "" {
		run.State = record.StateFailed
	}
	return f.put(run), nil
}

func (f *fake) Note(context.Context, string, record.Event) error { return nil }

func (f *fake) Tell(_ context.Context, name string, data json.RawMessage) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	run := f.runs[name]
	if !run.Ended() {
		return errors.New("told of a run that has not ended")
	}
	run.Told = &record.Told{Data: data}
	f.put(run)
	return nil
}

func (f *fake) Find(c record.Caller, id string) (record.Run, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run, ok := f.runs[record.Run{Caller: c, ID: id}.Name()]
	return run, ok
}

func (f *fake) Settled(ctx context.Context, c record.Caller, id string) (record.Run, error) {
	for {
		f.mu.Lock()
		run, moved := f.runs[record.Run{Caller: c, ID: id}.Name()], f.moved
		f.mu.Unlock()
		if run.Ended() || run.State == record.StateAwaitingReview {
			return run, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return run, context.Cause(ctx)
		}
	}
}

func (f *fake) Untold(context.Context) ([]record.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []record.Run
	for _, name := range f.order {
		if r := f.runs[name]; r.Told == nil {
			list = append(list, r)
		}
	}
	return list, nil
}

func (f *fake) Watch(ctx context.Context, _ string) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) { <-ctx.Done() }
}

// state sets the state of a run.
func (f *fake) state(name string, s record.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run := f.runs[name]
	run.State = s
	f.put(run)
}

// names returns the runs that were claimed, in order.
func (f *fake) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.order)
}

// settle waits until all runs are told.
func (f *fake) settle(t *testing.T) {
	t.Helper()
	for {
		f.mu.Lock()
		left, moved := 0, f.moved
		for _, r := range f.runs {
			if r.Told == nil {
				left++
			}
		}
		f.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-moved:
		case <-t.Context().Done():
			t.Fatal("runs are left")
		}
	}
}

// event returns the event of a run.
func (f *fake) event(t *testing.T, name string) (e Event) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := json.Unmarshal(f.runs[name].Origin.Event, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// complete ends every run well, and fails every one.
func complete(record.Request) (record.State, record.Reason, string) {
	return record.StateComplete, "", ""
}

func fails(record.Request) (record.State, record.Reason, string) {
	return record.StateFailed, record.ReasonCommandFailed, "the command ended with 1"
}

// open opens triggers over a fake.
func open(t *testing.T, x *fake, dir string, list ...Trigger) *Triggers {
	t.Helper()
	all := &Triggers{List: list, Executor: x, Branches: noBranches{}, Dir: dir}
	if err := all.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return all
}

type noBranches struct{}

func (noBranches) Tips(context.Context, string) (map[string]gitd.Hash, error) { return nil, nil }
func (noBranches) MadeBy(context.Context, string, gitd.Hash) (string, error)  { return "", nil }

func scheduled(t *testing.T, spec string) Trigger {
	t.Helper()
	s, err := ParseSchedule(spec, "")
	if err != nil {
		t.Fatal(err)
	}
	return Trigger{Name: "nightly", Repo: "app", Cron: s, Workflow: "test"}
}

// tasks is an engineer whose tasks end as they are told.
type tasks struct {
	mu   sync.Mutex // guards the fields below
	took []Task
	end  record.State
}

func (s *tasks) Submit(_ context.Context, t Task) (record.Task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.took, func(o Task) bool { return o.Key == t.Key }) {
		s.took = append(s.took, t)
	}
	return record.Task{ID: "0123456789abcdef"}, nil
}

func (s *tasks) Task(_ context.Context, id string) (record.Task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == "" {
		return record.Task{}, fmt.Errorf("task %s: %w", id, record.ErrNotFound)
	}
	return record.Task{ID: id, Status: s.end, Error: "no luck"}, nil
}
