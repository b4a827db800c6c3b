package docker_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/containerstest"
	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/containers/proc"
)

// later keeps back what a fleet does in the background.
type later struct {
	*docker.Engine
	gate chan struct{} // nil: nothing is kept back
}

func (e *later) wait(ctx context.Context) {
	if e.gate == nil {
		return
	}
	select {
	case <-e.gate:
	case <-ctx.Done():
	}
}

func (e *later) Start(ctx context.Context, s containers.Spec) (containers.Container, error) {
	e.wait(ctx)
	return e.Engine.Start(ctx, s)
}

func (e *later) Assign(ctx context.Context, id, key string, labels map[string]string) error {
	e.wait(ctx)
	return e.Engine.Assign(ctx, id, key, labels)
}

func (e *later) Remove(ctx context.Context, id string) error {
	e.wait(ctx)
	return e.Engine.Remove(ctx, id)
}

// folders is a layer.Keeper that binds nothing.
type folders struct{ layer.Keeper }

func (folders) Remove(_ context.Context, dir string) error { return layer.RemoveTree(dir) }

func (folders) Usage(context.Context, layer.Storage, int64) (layer.Usage, error) {
	return layer.Usage{}, nil
}

// From the pool to a bound lease and its first command, and from the death of a
// container to the next one's, the engine is asked nothing. It learns the caller's name
// afterwards; a later process knows whose the container is all the same.
func TestPoolAsksNothing(t *testing.T) {
	e := newEngine(t, built.runner)
	spec, _ := newSpec(t)
	dir := filepath.Join(filepath.Dir(spec.Dir), "fleet")
	engine := &later{Engine: e}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "owner"), []byte(spec.Owner), 0o600); err != nil {
		t.Fatal(err)
	}
	lost := make(chan string, 1)
	open := func() *containers.Fleet {
		f := &containers.Fleet{
			Engine: engine, Dir: dir, Pool: 2, Keeper: folders{},
			Salvage: func(_ context.Context, p containers.Place) { lost <- p.Key },
		}
		if err := f.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		return f
	}
	closed := func(f *containers.Fleet, keep bool) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := f.Close(ctx, keep); err != nil {
			t.Error(err)
		}
	}
	f := open()
	defer func() { closed(f, false) }()
	if err := f.Warm(t.Context(), containers.Request{}); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	engine.gate = gate
	before := e.Requests()
	acquire := func() *containers.Lease {
		t.Helper()
		l, err := f.Acquire(t.Context(), containers.Request{
			Key: "run:bound", Labels: map[string]string{"team": "red"},
			Bind: func(_ context.Context, p containers.Place) error {
				if start, err := proc.Start(p.PID); err != nil || start != p.Start {
					t.Errorf("it is to be bound in process %d, that started at %d, not %d; %v", p.PID, start, p.Start, err)
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if said, exit := run(t, l.Host, containers.Command{Shell: "echo hello"}); said != "hello\n" || exit.Code != 0 || !l.Bound {
			t.Errorf("%q, %+v; %+v", said, exit, l)
		}
		return l
	}
	l := acquire()
	if err := unix.Kill(l.Place.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-l.Host.Done()
	dead := l.Host.Container().ID
	l.Release()
	if l = acquire(); l.Host.Container().ID == dead || <-lost != "run:bound" {
		t.Error("a dead container was given out")
	}
	if n := e.Requests() - before; n != 0 {
		t.Errorf("the engine was asked %d times", n)
	}
	close(gate)
	if err := f.Warm(t.Context(), containers.Request{}); err != nil { // full again
		t.Fatal(err)
	}
	api := newAPI(t)
	id := l.Host.Container().ID
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		c, err := api.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(c.Container.Name, "/container-run-bound-") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is still named %s", c.Container.Name)
		}
	}
	l.Release()

	id = l.Host.Container().ID
	closed(f, true)
	list, err := e.List(t.Context(), spec.Owner)
	if err != nil || len(list) != 1 || list[0].ID != id {
		t.Errorf("kept: %+v, %v", list, err)
	}
	f = open()
	l, err = f.Adopt(t.Context(), containers.Request{Key: "run:bound"})
	if err != nil || l == nil || l.Host.Container().ID != id || !l.Bound || l.Container.Key != "run:bound" ||
		l.Container.Labels["team"] != "red" {
		t.Fatalf("%+v, %v", l, err)
	}
	l.Release()
}

func TestCallers(t *testing.T) {
	program, err := built.runner()
	if err != nil {
		t.Fatal(err)
	}
	containerstest.Callers(t, &docker.Engine{Runner: program},
		func(root string) layer.Keeper { return layer.NewLocal(root) })
}

func TestDisk(t *testing.T) {
	program, err := built.runner()
	if err != nil {
		t.Fatal(err)
	}
	engine := &docker.Engine{Runner: program}
	defer engine.Close()
	containerstest.Disk(t, engine, func(root string) layer.Keeper { return layer.NewLocal(root) })
}
