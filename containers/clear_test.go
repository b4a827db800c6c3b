package containers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/containerstest"
	"github.com/ramus-dev/ramus/containers/layer"
)

// sluggish is a layer.Keeper that deletes nothing before it may.
type sluggish struct {
	layer.Keeper
	begun chan string // folders that it was given
	may   chan struct{}
}

func (k *sluggish) Remove(ctx context.Context, dir string) error {
	select {
	case k.begun <- dir:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-k.may:
		return layer.RemoveTree(dir)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Nobody waits for the deletion of what a container wrote: not who removes it, not who comes
// after it in its place, not who stops the server. The next process goes on with it, and
// counts it.
func TestFleetClearsLater(t *testing.T) {
	dir := t.TempDir()
	k := &sluggish{begun: make(chan string, 100), may: make(chan struct{})}
	change := func(f *containers.Fleet) { f.Keeper, f.Capacity = k, 1 }
	f := newFleet(t, dir, change)
	for _, key := range []string{"run:a", "run:b"} { // b has the place of a
		l := f.acquire(key)
		shell(t, l.Host, "mkdir -p deep/er && echo much > deep/er/file && chmod 0 deep")
		l.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := f.Remove(ctx, key)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := <-k.begun; filepath.Dir(got) != filepath.Join(dir, "fleet", "old") {
		t.Errorf("it deletes %s", got)
	}
	if cleared, waiting := f.Cleared(); cleared != 0 || waiting != 2 {
		t.Errorf("%d are deleted, %d wait", cleared, waiting)
	}
	f.close(true) // in the middle of the deletion

	close(k.may)
	f = newFleet(t, dir, change)
	f.await("the deletion of what an earlier process left", func() bool {
		cleared, waiting := f.Cleared()
		return cleared == 2 && waiting == 0
	})
}

// Where somebody else cannot delete a folder it is tried again, and the others are deleted.
func TestFleetClearsAgain(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		if err := os.MkdirAll(filepath.Join(dir, "fleet", "old", fmt.Sprint(i), "a"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	k := &refusing{fails: filepath.Join(dir, "fleet", "old", "1")}
	f := newFleet(t, dir, func(f *containers.Fleet) { f.Keeper = k })
	f.await("the deletion of the others",
		func() bool { cleared, waiting := f.Cleared(); return cleared == 2 && waiting == 1 })
	k.willing.Store(true)
	f.await("another try", func() bool {
		containers.Sweep(f.Fleet)
		_, waiting := f.Cleared()
		return waiting == 0
	})
}

type refusing struct {
	layer.Keeper
	fails   string
	willing atomic.Bool
}

func (k *refusing) Remove(_ context.Context, dir string) error {
	if dir == k.fails && !k.willing.Load() {
		return errors.New("not now")
	}
	return layer.RemoveTree(dir)
}

// dawdling is an engine that kills a container at once and then takes its time.
type dawdling struct {
	containerstest.Engine
	asked chan struct{} // a value for each removal
	may   chan struct{}
}

func (e *dawdling) Remove(ctx context.Context, id string) error {
	e.asked <- struct{}{}
	err := e.Engine.Remove(ctx, id)
	select {
	case <-e.may:
	case <-ctx.Done():
	}
	return err
}

// A place is free when nothing runs in it any more, even if the engine still has to delete files.
func TestFleetPlaceOfTheDead(t *testing.T) {
	e := &dawdling{asked: make(chan struct{}, 10), may: make(chan struct{})}
	f := newFleet(t, t.TempDir(), func(f *containers.Fleet) {
		e.Engine, f.Engine, f.Capacity = f.Engine.(containerstest.Engine), e, 1
	})
	f.acquire("run:a").Release()
	removed := make(chan error, 1)
	go func() { removed <- f.Remove(t.Context(), "run:a") }()
	<-e.asked // else it could be put to sleep for the next one, and nothing be there to remove
	f.acquire("run:b").Release()
	select {
	case err := <-removed:
		t.Errorf("the removal is over: %v", err)
	default:
	}
	close(e.may)
	if err := <-removed; err != nil {
		t.Error(err)
	}
}
