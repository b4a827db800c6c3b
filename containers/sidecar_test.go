package containers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ramus-dev/ramus/containers"
)

// stage is an engine without containers, whose sidecars end when they are told to.
type stage struct {
	containers.Engine
	fails error         // of List, until it is nil
	end   chan struct{} // ends one sidecar a value

	mu    sync.Mutex // guards the below
	on    []string   // keys of those that run
	most  int
	swept []string // owners
}

func (e *stage) Name() string { return "stage" }

func (e *stage) List(context.Context, string) ([]containers.Container, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return nil, e.fails
}

func (e *stage) SweepSidecars(_ context.Context, owner string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.swept = append(e.swept, owner)
	return nil
}

func (e *stage) RunSidecar(ctx context.Context, id string, s containers.Sidecar) (containers.SidecarExit, error) {
	name := s.Key + " of " + s.Owner
	e.mu.Lock()
	e.on = append(e.on, name)
	e.most = max(e.most, len(e.on))
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.on = slices.DeleteFunc(e.on, func(s string) bool { return s == name })
		e.mu.Unlock()
	}()
	select {
	case <-e.end:
		return containers.SidecarExit{Image: id}, nil
	case <-ctx.Done():
		return containers.SidecarExit{}, context.Cause(ctx)
	}
}

func (e *stage) running() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.on, ", ")
}

func stageFleet(t *testing.T, e *stage) (f *containers.Fleet, running func(keys ...string)) {
	t.Helper()
	e.end = make(chan struct{})
	f = &containers.Fleet{Engine: e, Dir: t.TempDir(), Sidecars: 1}
	if err := f.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f, func(keys ...string) {
		t.Helper()
		synctest.Wait()
		for i := range keys {
			keys[i] += " of " + containers.Owner(f)
		}
		if got, want := e.running(), strings.Join(keys, ", "); got != want {
			t.Errorf("%q runs, not %q", got, want)
		}
	}
}

func TestFleetSidecarsInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &stage{}
		f, running := stageFleet(t, e)
		var all sync.WaitGroup
		start := func(ctx context.Context, s containers.Sidecar, want error) {
			all.Go(func() {
				exit, err := f.RunSidecar(ctx, "id", s)
				if !errors.Is(err, want) || err == nil && exit.Image != "id" {
					t.Errorf("%s: %+v, %v", s.Key, exit, err)
				}
			})
			synctest.Wait()
		}
		left := errors.New("left")
		leaving, leave := context.WithCancelCause(t.Context())
		start(t.Context(), containers.Sidecar{Key: "first", Owner: "pretended"}, nil)
		start(leaving, containers.Sidecar{Key: "leaves"}, left)
		start(t.Context(), containers.Sidecar{Key: "second"}, nil)
		start(t.Context(), containers.Sidecar{Key: "third"}, nil)
		running("first")
		leave(left)
		e.end <- struct{}{}
		running("second")
		e.end <- struct{}{}
		running("third")
		start(t.Context(), containers.Sidecar{Key: "at once", Unqueued: true}, nil)
		running("third", "at once")
		e.end <- struct{}{}
		e.end <- struct{}{}
		all.Wait()
		if e.most != 2 {
			t.Errorf("%d ran at once", e.most)
		}
		if len(e.swept) != 1 || e.swept[0] != containers.Owner(f) {
			t.Errorf("swept were those of %q", e.swept)
		}
		if err := f.Close(t.Context(), false); err != nil {
			t.Error(err)
		}
	})
}

func TestFleetCloseEndsSidecars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &stage{}
		f, running := stageFleet(t, e)
		var all sync.WaitGroup
		for _, key := range []string{"runs", "waits"} {
			all.Go(func() {
				if exit, err := f.RunSidecar(t.Context(), "id", containers.Sidecar{Key: key}); err == nil {
					t.Errorf("%s: %+v", key, exit)
				}
			})
			synctest.Wait()
		}
		running("runs")
		if err := f.Close(t.Context(), true); err != nil {
			t.Error(err)
		}
		if got := e.running(); got != "" {
			t.Errorf("Close returned, and %s runs", got)
		}
		all.Wait()
		if _, err := f.RunSidecar(t.Context(), "id", containers.Sidecar{Key: "late"}); err == nil {
			t.Error("a closed fleet runs one")
		}
	})
}

// An engine that answers late is swept when it does, and sidecars wait for that.
func TestFleetSidecarsAwaitEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &stage{fails: containers.ErrUnavailable}
		f, running := stageFleet(t, e)
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := f.RunSidecar(t.Context(), "id", containers.Sidecar{Key: "early"}); err != nil {
				t.Error(err)
			}
		})
		running()
		e.mu.Lock()
		e.fails = nil
		e.mu.Unlock()
		time.Sleep(5 * time.Second) // the fleet looks again meanwhile
		running("early")
		e.end <- struct{}{}
		all.Wait()
		if len(e.swept) != 1 {
			t.Errorf("swept %d times", len(e.swept))
		}
		if err := f.Close(t.Context(), false); err != nil {
			t.Error(err)
		}
	})
}

func TestSidecarBounds(t *testing.T) {
	l := containers.Sidecar{}.Bounds()
	if l.Memory != 1<<30 || l.CPUs != 2 || l.PIDs != 256 || l.Tmp != 512<<20 {
		t.Errorf("%+v", l)
	}
	l = containers.Sidecar{Limits: containers.Limits{Memory: 100, CPUs: 1, PIDs: 3, Tmp: 99}}.Bounds()
	if l.Memory != 100 || l.CPUs != 1 || l.PIDs != 3 || l.Tmp != 50 {
		t.Errorf("%+v", l)
	}
}
