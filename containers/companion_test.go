package containers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
)

// companions acquires containers next to that of a lease.
func (f *fleet) companions(of *containers.Lease, keys ...string) []*containers.Lease {
	f.t.Helper()
	leases, err := f.AcquireCompanions(f.t.Context(), of, requests(keys...))
	if err != nil {
		f.t.Fatal(err)
	}
	return leases
}

func requests(keys ...string) []containers.Request {
	var list []containers.Request
	for _, key := range keys {
		list = append(list, containers.Request{Key: key, Limits: containers.Limits{Memory: 64 << 20, PIDs: 64}})
	}
	return list
}

// TestCompanions has containers next to others. They take no slot, do not fall asleep, and end with the other container.
func TestCompanions(t *testing.T) {
	f := newFleet(t, t.TempDir(), func(f *containers.Fleet) { f.Capacity, f.Companions = 1, 3 })
	task := f.acquire("run:a")
	leases := f.companions(task, "service:a:db", "service:a:cache")
	if out := shell(t, leases[1].Host, "echo works"); out != "works" {
		t.Errorf("it says %q", out)
	}
	if again := f.companions(task, "service:a:db"); again[0].Host != leases[0].Host {
		t.Error("another container for the same key")
	}
	if _, err := f.AcquireCompanions(t.Context(), task, requests("1", "2", "3", "4")); !errors.Is(err, containers.ErrBusy) {
		t.Errorf("more than there may be: %v", err)
	}
	for _, l := range leases {
		l.Release()
	}
	task.Release()
	if n := f.Room(); n != 0 {
		t.Errorf("room for %d", n)
	}
	// The other caller gets the only slot. What is next to the first one goes with it.
	other := f.acquire("run:b")
	f.await("the end of the services",
		func() bool { return f.state("service:a:db") == "none" && f.state("service:a:cache") == "none" })
	if _, err := f.AcquireCompanions(t.Context(), task, requests("service:a:db")); !errors.Is(err, containers.ErrGone) {
		t.Errorf("next to a container that is gone: %v", err)
	}
	f.companions(other, "service:b:db")
	if err := f.Remove(t.Context(), "run:b"); err != nil {
		t.Fatal(err)
	}
	if s := f.state("service:b:db"); s != "none" {
		t.Errorf("after the removal it is %s", s)
	}
}

// TestCompanionMakesRoom checks that an idle container is stopped for a caller that wants services.
func TestCompanionMakesRoom(t *testing.T) {
	f := newFleet(t, t.TempDir(), func(f *containers.Fleet) { f.Capacity, f.Companions = 4, 1 })
	idle := f.acquire("run:a")
	f.companions(idle, "service:a:db")
	busy := f.acquire("run:b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.AcquireCompanions(ctx, busy, requests("service:b:db")); !errors.Is(err, context.Canceled) {
		t.Errorf("with all in use: %v", err)
	}
	idle.Release()
	f.companions(busy, "service:b:db")
	if s := f.state("run:a"); s != "none" {
		t.Errorf("the idle container is %s", s)
	}
}

// TestCompanionTakenOver has a new process find both containers, or only the one that is next to the other.
func TestCompanionTakenOver(t *testing.T) {
	dir := t.TempDir()
	first := newFleet(t, dir, nil)
	task := first.acquire("run:a")
	host := first.companions(task, "service:a:db")[0].Host
	if _, err := host.Start(t.Context(), containers.Command{ID: "service", Shell: "sleep 1000", Background: true}); err != nil {
		t.Fatal(err)
	}
	first.companions(first.acquire("run:b"), "service:b:db")
	first.close(true)
	if err := first.Engine.Remove(t.Context(), idOf(t, first, "run:b")); err != nil {
		t.Fatal(err)
	}

	second := newFleet(t, dir, func(f *containers.Fleet) { f.SleepAfter = time.Second })
	if s := second.state("service:b:db"); s != "none" {
		t.Errorf("next to a container that is gone: %s", s)
	}
	task = second.acquire("run:a")
	host = second.companions(task, "service:a:db")[0].Host
	commands, err := host.Commands(t.Context())
	if err != nil || len(commands) != 1 || !commands[0].Running {
		t.Errorf("its program: %+v, %v", commands, err)
	}
	task.Release()
	second.clock.Add(time.Minute)
	second.await("the sleep of both",
		func() bool { return second.state("run:a") == "none" && second.state("service:a:db") == "none" })
}

// idOf returns the engine's id of a container that a closed fleet has left.
func idOf(t *testing.T, f *fleet, key string) string {
	t.Helper()
	owner, err := containers.OwnerOf(f.Dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := f.Engine.List(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if strings.TrimSpace(c.Key) == key {
			return c.ID
		}
	}
	t.Fatalf("no container of %s: %+v", key, list)
	return ""
}
