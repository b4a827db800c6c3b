package containers_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/containers/proc"
)

// keeper is a layer.Keeper for those who bind by themselves.
type keeper struct {
	layer.Keeper
	mu      sync.Mutex
	removed []string // guarded by mu
}

func (k *keeper) Remove(_ context.Context, dir string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.removed = append(k.removed, dir)
	return layer.RemoveTree(dir)
}

func (k *keeper) Usage(context.Context, layer.Storage, int64) (layer.Usage, error) {
	return layer.Usage{}, nil
}

// salvaged records what a fleet salvages.
type salvaged struct {
	mu   sync.Mutex
	list []containers.Place // guarded by mu
}

func (s *salvaged) add(_ context.Context, p containers.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, p)
}

func (s *salvaged) places() []containers.Place {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// A work tree is bound from outside where that can be, and provisioned inside
// where it cannot; both are told, and kept over a restart.
func TestFleetBinds(t *testing.T) {
	for _, pool := range []int{0, 1} {
		t.Run(map[int]string{0: "NoPool", 1: "Pool"}[pool], func(t *testing.T) {
			dir := t.TempDir()
			kept := &keeper{}
			change := func(f *containers.Fleet) { f.Keeper, f.Pool = kept, pool }
			f := newFleet(t, dir, change)
			var warmed, provisioned atomic.Int32
			warm := func(context.Context, containers.Place) error { warmed.Add(1); return nil }
			provision := func(context.Context, *containers.Host) error { provisioned.Add(1); return nil }
			if err := f.Warm(t.Context(), containers.Request{Warm: warm}); err != nil {
				t.Fatal(err)
			}
			acquire := func(key string, bind func(context.Context, containers.Place) error) *containers.Lease {
				t.Helper()
				l, err := f.Acquire(t.Context(), containers.Request{
					Key: key, Labels: map[string]string{"of": key}, Warm: warm, Provision: provision, Bind: bind,
				})
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			l := acquire("run:bound", func(_ context.Context, p containers.Place) error {
				if warmed.Load() == 0 || p.Key != "run:bound" || p.Labels["of"] != "run:bound" || p.Host == nil || !filepath.IsAbs(p.Dir) {
					t.Errorf("it is to be bound to %+v", p)
				}
				if start, err := proc.Start(p.PID); err != nil || start != p.Start {
					t.Errorf("its process started at %d, %v; it says %d", start, err, p.Start)
				}
				return os.WriteFile(filepath.Join(p.Dir, "upper"), nil, 0o600)
			})
			if !l.Bound || l.Place == nil || !l.Fresh || l.Container.Key != "run:bound" ||
				l.Container.Labels["of"] != "run:bound" || provisioned.Load() != 0 {
				t.Errorf("%+v, provisioned %d times", l, provisioned.Load())
			}
			shell(t, l.Host, "true")
			l.Release()
			l = acquire("run:unable", func(context.Context, containers.Place) error { return layer.ErrUnable })
			if l.Bound || l.Place == nil || provisioned.Load() != 1 {
				t.Errorf("%+v, provisioned %d times", l, provisioned.Load())
			}
			l.Release()
			bad := errors.New("no such branch")
			if _, err := f.Acquire(t.Context(), containers.Request{Key: "run:bad",
				Bind: func(context.Context, containers.Place) error { return bad }}); !errors.Is(err, bad) {
				t.Errorf("it says %v", err)
			}
			f.close(true)

			f = newFleet(t, dir, change)
			for key, bound := range map[string]bool{"run:bound": true, "run:unable": false} {
				l, err := f.Adopt(t.Context(), containers.Request{Key: key})
				if err != nil || l == nil || l.Bound != bound || l.Fresh || l.Container.Key != key || l.Container.Labels["of"] != key {
					t.Fatalf("%s: %+v, %v", key, l, err)
				}
				if start, err := proc.Start(l.Place.PID); err != nil || start != l.Place.Start || l.Place.Host != l.Host {
					t.Errorf("%s: %+v, %v", key, l.Place, err)
				}
				l.Release()
			}
			f.close(false)
			for _, name := range []string{"engine", "fleet/hosts", "fleet/old"} {
				if left, err := os.ReadDir(filepath.Join(dir, name)); err != nil || len(left) != 0 {
					t.Errorf("left in %s: %v, %v", name, left, err)
				}
			}
			if len(kept.removed) < 3 {
				t.Errorf("the keeper removed %q", kept.removed)
			}
		})
	}
}

// What was bound to a container that is lost is salvaged before it is deleted, once;
// what was removed is not.
func TestFleetSalvages(t *testing.T) {
	dir := t.TempDir()
	var got salvaged
	change := func(f *containers.Fleet) { f.Keeper, f.Salvage = &keeper{}, got.add }
	f := newFleet(t, dir, change)
	bind := func(_ context.Context, p containers.Place) error {
		return os.WriteFile(filepath.Join(p.Dir, "upper"), []byte(p.Key), 0o600)
	}
	acquire := func(key string) *containers.Lease {
		t.Helper()
		l, err := f.Acquire(t.Context(), containers.Request{Key: key, Labels: map[string]string{"of": key}, Bind: bind})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	kill := func(l *containers.Lease) {
		killSandbox(t, filepath.Join(dir, "engine"), l.Host.Container().ID)
		<-l.Host.Done()
		l.Release()
	}
	acquire("run:removed").Release()
	if err := f.Remove(t.Context(), "run:removed"); err != nil {
		t.Fatal(err)
	}
	l := acquire("run:a")
	old := *l.Place
	kill(l)
	l = acquire("run:a")
	if list := got.places(); !l.Fresh || len(list) != 1 || list[0].Key != "run:a" || list[0].Dir != old.Dir ||
		list[0].Labels["of"] != "run:a" || list[0].Host != nil {
		t.Fatalf("fresh %v, salvaged %+v", l.Fresh, list)
	}
	// One that dies while nobody looks, and one that dies while ramus is away.
	kill(l)
	// The fleet's own sweep may be at it.
	f.await("the salvage of what died unseen", func() bool {
		containers.Sweep(f.Fleet)
		return len(got.places()) > 1
	})
	if list := got.places(); len(list) != 2 {
		t.Fatalf("salvaged %+v", list)
	}
	l = acquire("run:b")
	id := l.Host.Container().ID
	l.Release()
	f.close(true)
	killSandbox(t, filepath.Join(dir, "engine"), id)
	f = newFleet(t, dir, change)
	f.await("the salvage of what died meanwhile", func() bool { return len(got.places()) > 2 })
	if list := got.places(); len(list) != 3 || list[2].Key != "run:b" || list[2].Labels["of"] != "run:b" {
		t.Fatalf("salvaged %+v", list)
	}
	f.close(false)
	if left, err := os.ReadDir(filepath.Join(dir, "fleet", "hosts")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if list := got.places(); len(list) != 3 {
		t.Errorf("salvaged %+v", list)
	}
}

// What waits in the pool is given out once, counts for no caller's place, and is thrown
// away when it died, when the fleet ends, and when an earlier process left it.
func TestFleetPool(t *testing.T) {
	dir := t.TempDir()
	change := func(f *containers.Fleet) { f.Pool, f.Capacity = 2, 1 }
	f := newFleet(t, dir, change)
	request := containers.Request{Key: "run:a", Labels: map[string]string{"of": "a"}}
	full := func() {
		t.Helper()
		if err := f.Warm(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		f.await("a full pool", func() bool { ready, want := f.Pooled(); return ready == want })
	}
	pooled := func() []string {
		t.Helper()
		list, err := f.Engine.List(t.Context(), containers.Owner(f.Fleet))
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, c := range list {
			if c.Labels["ramus.pool"] != "" {
				ids = append(ids, c.ID)
			}
		}
		return ids
	}
	full()
	waiting := pooled()
	// Of other limits: it is not for this caller.
	other, err := f.Acquire(t.Context(), containers.Request{Key: "run:other", Limits: containers.Limits{PIDs: 99}})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(waiting, other.Host.Container().ID) {
		t.Error("a container of other limits was given out")
	}
	other.Release()
	if err := f.Remove(t.Context(), "run:other"); err != nil {
		t.Fatal(err)
	}
	f.await("the pool of the other kind", func() bool { ready, _ := f.Pooled(); return ready == 4 })

	l, err := f.Acquire(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if id := l.Host.Container().ID; !slices.Contains(waiting, id) || !l.Fresh || l.Container.Key != "run:a" ||
		l.Container.Labels["of"] != "a" {
		t.Errorf("%+v is not of the pool, %v", l, waiting)
	}
	shell(t, l.Host, "echo mine > mine")
	f.await("the engine to know whose it is", func() bool {
		list, err := f.Engine.List(t.Context(), containers.Owner(f.Fleet))
		return err == nil && slices.ContainsFunc(list,
			func(c containers.Container) bool { return c.Key == "run:a" && c.Labels["of"] == "a" })
	})
	l.Release()
	full()
	if err := f.Remove(t.Context(), "run:a"); err != nil {
		t.Fatal(err)
	}
	// All that wait die: the next caller gets one that lives.
	for _, id := range pooled() {
		killSandbox(t, filepath.Join(dir, "engine"), id)
		f.await("its end", func() bool {
			_, _, err := f.Engine.(containers.Processes).Process(t.Context(), id)
			return errors.Is(err, containers.ErrGone)
		})
	}
	l, err = f.Acquire(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	shell(t, l.Host, "test ! -e mine")
	l.Release()

	// After a crash those that nobody took are removed, and the caller's stays.
	full()
	before := pooled()
	crashed := f
	f = newFleet(t, dir, change)
	containers.Sweep(f.Fleet)
	f.await("the removal of what an earlier process left in its pool", func() bool {
		return !slices.ContainsFunc(pooled(), func(id string) bool { return slices.Contains(before, id) })
	})
	l, err = f.Adopt(t.Context(), request)
	if err != nil || l == nil || l.Container.Labels["of"] != "a" {
		t.Fatalf("%+v, %v", l, err)
	}
	l.Release()
	crashed.close(true)
	f.close(false)
	for _, name := range []string{"engine", "fleet/hosts", "fleet/old"} {
		if left, err := os.ReadDir(filepath.Join(dir, name)); err != nil || len(left) != 0 {
			t.Errorf("left in %s: %v, %v", name, left, err)
		}
	}
}

// What the pool cannot make keeps nobody from being served, and is tried again later.
func TestFleetPoolFails(t *testing.T) {
	f := newFleet(t, t.TempDir(), func(f *containers.Fleet) { f.Pool = 1 })
	bad := errors.New("no room")
	var fails atomic.Bool
	fails.Store(true)
	r := containers.Request{Key: "run:a", Warm: func(context.Context, containers.Place) error {
		if fails.Load() {
			return bad
		}
		return nil
	}}
	if err := f.Warm(t.Context(), r); !errors.Is(err, bad) {
		t.Errorf("it says %v", err)
	}
	if _, err := f.Acquire(t.Context(), r); !errors.Is(err, bad) {
		t.Errorf("it says %v", err)
	}
	fails.Store(false)
	l, err := f.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
	if ready, _ := f.Pooled(); ready != 0 {
		t.Error("it was tried again at once")
	}
	f.clock.Add(time.Minute)
	containers.Sweep(f.Fleet)
	if err := f.Warm(t.Context(), r); err != nil {
		t.Error(err)
	}
}

// Pools that nobody takes from are given up, but for those that were asked for ahead.
func TestFleetPoolLingers(t *testing.T) {
	f := newFleet(t, t.TempDir(), func(f *containers.Fleet) { f.Pool, f.SleepAfter = 1, 24*time.Hour })
	if err := f.Warm(t.Context(), containers.Request{}); err != nil {
		t.Fatal(err)
	}
	l, err := f.Acquire(t.Context(), containers.Request{Key: "run:a", Env: []string{"A=1"}})
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
	f.await("both pools", func() bool { ready, _ := f.Pooled(); return ready == 2 })
	f.clock.Add(2 * time.Hour)
	containers.Sweep(f.Fleet)
	if ready, want := f.Pooled(); ready != 1 || want != 1 {
		t.Errorf("%d of %d wait", ready, want)
	}
}
