package containers_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/containerstest"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/internal/clocktest"
)

// fleet is a fleet over sandboxes that records its events.
type fleet struct {
	*containers.Fleet
	t     *testing.T
	clock *clocktest.Clock
	mu    sync.Mutex
	seen  []string // "what key"; guarded by mu
}

func newFleet(t *testing.T, dir string, change func(*containers.Fleet)) *fleet {
	t.Helper()
	sandbox := &sandbox.Engine{Dir: filepath.Join(dir, "engine")}
	if err := sandbox.Check(t.Context()); err != nil {
		t.Skipf("cannot run here: engine sandbox: %v", err)
	}
	f := &fleet{t: t, clock: clocktest.At(time.Now())}
	f.Fleet = &containers.Fleet{
		Engine: sandbox, Dir: filepath.Join(dir, "fleet"), Now: f.clock.Now,
		Event: func(e containers.FleetEvent) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen = append(f.seen, e.What+" "+e.Key)
		},
	}
	if change != nil {
		change(f.Fleet)
	}
	if err := f.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.close(false) })
	return f
}

func (f *fleet) close(keep bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := f.Close(ctx, keep); err != nil {
		f.t.Error(err)
	}
}

func (f *fleet) events() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// await waits for something that another goroutine is about to do.
func (f *fleet) await(what string, done func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if done() {
			return
		}
	}
	f.t.Fatalf("never: %s; events: %v; list: %+v", what, f.events(), f.List(context.Background()))
}

func (f *fleet) acquire(key string) *containers.Lease {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	l, err := f.Acquire(ctx, containers.Request{Key: key})
	if err != nil {
		f.t.Fatal(err)
	}
	return l
}

func (f *fleet) state(key string) string {
	for _, s := range f.List(context.Background()) {
		if s.Key == key {
			return s.State
		}
	}
	return "none"
}

func shell(t *testing.T, h *containers.Host, script string) string {
	t.Helper()
	p, err := h.Start(t.Context(), containers.Command{ID: rand.Text(), Shell: script})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	exit, err := p.Output(&out, nil)
	if err != nil || exit.Code != 0 {
		t.Fatalf("%s: %+v, %v, %q", script, exit, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

// One container a key, however many ask at once; provisioned once; fresh to one.
func TestFleetStartsOnce(t *testing.T) {
	f := newFleet(t, t.TempDir(), nil)
	var provisioned, fresh atomic.Int32
	ids := make([]string, 10)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			l, err := f.Acquire(t.Context(),
				containers.Request{Key: "run:a", Provision: func(ctx context.Context, h *containers.Host) error {
					provisioned.Add(1)
					return nil
				}})
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Release()
			defer l.Release()
			if l.Fresh {
				fresh.Add(1)
			}
			ids[i] = l.Host.Container().ID
		})
	}
	group.Wait()
	if provisioned.Load() != 1 || fresh.Load() != 1 || len(slices.Compact(ids)) != 1 || ids[0] == "" {
		t.Errorf("provisioned %d times, fresh %d times, ids %v", provisioned.Load(), fresh.Load(), ids)
	}
	if got := f.state("run:a"); got != "idle" {
		t.Errorf("it is %s", got)
	}
}

func TestFleetKeepsWarm(t *testing.T) {
	f := newFleet(t, t.TempDir(), nil)
	l := f.acquire("run:a")
	shell(t, l.Host, "echo 1 > /tmp/kept")
	if got := f.state("run:a"); got != "busy" {
		t.Errorf("it is %s", got)
	}
	l.Release()
	l = f.acquire("run:a")
	defer l.Release()
	if l.Fresh || shell(t, l.Host, "cat /tmp/kept") != "1" {
		t.Error("it is another container")
	}
	if got := f.events(); !slices.Equal(got, []string{"started run:a", "warm run:a"}) {
		t.Errorf("events: %v", got)
	}
}

// TestFleetEventsInOrder uses a container while the listener still has the event of its start.
func TestFleetEventsInOrder(t *testing.T) {
	f := newFleet(t, t.TempDir(), func(f *containers.Fleet) {
		note := f.Event
		f.Event = func(e containers.FleetEvent) {
			if e.What == "started" {
				time.Sleep(200 * time.Millisecond)
			}
			note(e)
		}
	})
	f.acquire("run:a").Release()
	if got := f.events(); !slices.Equal(got, []string{"started run:a"}) {
		t.Errorf("events after the first use: %v", got)
	}
	if err := f.Remove(t.Context(), "run:a"); err != nil {
		t.Error(err)
	}
	if got := f.events(); len(got) != 2 || got[0] != "started run:a" {
		t.Errorf("events: %v", got)
	}
}

func TestFleetDoor(t *testing.T) {
	f := newFleet(t, t.TempDir(), nil)
	ask := `bash -c 'exec 3<>/dev/tcp/127.0.0.1/7070 && printf "GET / HTTP/1.0\r\n\r\n" >&3 && tail -n 1 <&3'`
	for _, say := range []string{"first", "second"} {
		l, err := f.Acquire(t.Context(),
			containers.Request{Key: "run:a", Door: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, say)
			})})
		if err != nil {
			t.Fatal(err)
		}
		if got := shell(t, l.Host, ask); got != say {
			t.Errorf("the door says %q, not %q", got, say)
		}
		l.Release()
	}
}

// Idle hosts go to sleep, unless something still runs in them.
func TestFleetSleeps(t *testing.T) {
	f := newFleet(t, t.TempDir(), func(f *containers.Fleet) { f.SleepAfter = 10 * time.Minute })
	idle, live, leased := f.acquire("run:idle"), f.acquire("run:live"), f.acquire("run:leased")
	id := rand.Text()
	if _, err := live.Host.Start(t.Context(), containers.Command{ID: id, Shell: "sleep 600", Background: true}); err != nil {
		t.Fatal(err)
	}
	idle.Release()
	live.Release()
	f.clock.Add(9 * time.Minute)
	containers.Sweep(f.Fleet)
	if got := f.state("run:idle"); got != "idle" {
		t.Errorf("after nine minutes it is %s", got)
	}
	f.clock.Add(2 * time.Minute)
	containers.Sweep(f.Fleet)
	for key, want := range map[string]string{"run:idle": "none", "run:live": "idle", "run:leased": "busy"} {
		if got := f.state(key); got != want {
			t.Errorf("%s is %s, not %s", key, got, want)
		}
	}
	for _, s := range f.List(t.Context()) {
		if s.Key == "run:live" && s.Live != 1 {
			t.Errorf("live processes: %+v", s)
		}
	}
	if list := f.List(t.Context(), "run:live", "run:nobody"); len(list) != 1 || list[0].Key != "run:live" || list[0].Live != 1 {
		t.Errorf("the list of one key: %+v", list)
	}
	if err := live.Host.Kill(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	f.await("the end of the background process", func() bool {
		c, err := live.Host.Commands(t.Context())
		return err == nil && len(c) == 1 && !c[0].Running
	})
	f.clock.Add(11 * time.Minute)
	containers.Sweep(f.Fleet)
	if got := f.state("run:live"); got != "none" {
		t.Errorf("with nothing live it is %s", got)
	}
	leased.Release()
	// The next command finds a new one.
	if l := f.acquire("run:idle"); !l.Fresh {
		t.Error("it did not sleep")
	} else {
		l.Release()
	}
}

func TestFleetQueue(t *testing.T) {
	f := newFleet(t, t.TempDir(), func(f *containers.Fleet) { f.Capacity, f.Queue = 2, 3 })
	a, b := f.acquire("run:a"), f.acquire("run:b")
	type arrival struct {
		key   string
		lease *containers.Lease
		err   error
	}
	arrived := make(chan arrival)
	var mu sync.Mutex
	places := map[string][]int{}
	wait := func(ctx context.Context, key string) {
		go func() {
			l, err := f.Acquire(ctx, containers.Request{Key: key, Waiting: func(place int, _ string) {
				mu.Lock()
				defer mu.Unlock()
				places[key] = append(places[key], place)
			}})
			arrived <- arrival{key, l, err}
		}()
		f.await(key+" in line", func() bool { return f.state(key) == "queued" })
	}
	// A request that was not told its place in time is told only the last one.
	stood := func(key string, want ...int) {
		t.Helper()
		f.await(fmt.Sprintf("%s at %v", key, want), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(places[key], want)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait(t.Context(), "run:c")
	wait(ctx, "run:d")
	wait(t.Context(), "run:e")
	if _, err := f.Acquire(t.Context(), containers.Request{Key: "run:f"}); !errors.Is(err, containers.ErrBusy) {
		t.Errorf("the line is full, and it says %v", err)
	}
	var line []string
	for _, s := range f.List(t.Context()) {
		if s.State == "queued" {
			line = append(line, fmt.Sprint(s.Place, s.Key))
		}
	}
	if !slices.Equal(line, []string{"1run:c", "2run:d", "3run:e"}) {
		t.Errorf("the line is %v", line)
	}
	cancel()
	if got := <-arrived; got.key != "run:d" || !errors.Is(got.err, context.Canceled) {
		t.Errorf("%+v", got)
	}
	stood("run:e", 3, 2)
	// A host that falls idle makes room at once; the first in line takes its place.
	b.Release()
	c := <-arrived
	if c.key != "run:c" || c.err != nil || !c.lease.Fresh {
		t.Fatalf("%+v", c)
	}
	stood("run:e", 3, 2, 1)
	// A live background process keeps its host.
	if _, err := c.lease.Host.Start(t.Context(), containers.Command{ID: "live", Shell: "sleep 600", Background: true}); err != nil {
		t.Fatal(err)
	}
	c.lease.Release()
	a.Release()
	e := <-arrived
	if e.key != "run:e" || e.err != nil {
		t.Fatalf("%+v", e)
	}
	e.lease.Release()
	if got := f.state("run:c"); got != "idle" {
		t.Errorf("the host with a live process is %s", got)
	}
	stood("run:e", 3, 2, 1) // and nowhere else
}

// TestFleetBeyond starts a container beyond the capacity while others wait for a place, and takes no place by it.
func TestFleetBeyond(t *testing.T) {
	f := newFleet(t, t.TempDir(), func(f *containers.Fleet) { f.Capacity = 1 })
	a := f.acquire("run:a")
	arrived := make(chan error)
	go func() {
		l, err := f.Acquire(t.Context(), containers.Request{Key: "run:b"})
		if err == nil {
			l.Release()
		}
		arrived <- err
	}()
	f.await("run:b in line", func() bool { return f.state("run:b") == "queued" })
	look, err := f.Acquire(t.Context(), containers.Request{Key: "look:a", Beyond: true})
	if err != nil {
		t.Fatal(err)
	}
	a.Release()
	if err := <-arrived; err != nil { // also while the look goes on
		t.Fatal(err)
	}
	look.Release()
	if err := f.Remove(t.Context(), "look:a"); err != nil {
		t.Fatal(err)
	}
}

// What an earlier process left is adopted, or removed.
func TestFleetAdopts(t *testing.T) {
	dir := t.TempDir()
	f := newFleet(t, dir, nil)
	l := f.acquire("run:a")
	if _, err := l.Host.Start(t.Context(), containers.Command{ID: "cmd", Shell: "sleep 0.5; echo done"}); err != nil {
		t.Fatal(err)
	}
	id := l.Host.Container().ID
	f.acquire("run:b").Release()
	dead := f.acquire("run:dead").Host.Container().ID
	f.close(true)
	if _, err := f.Acquire(t.Context(), containers.Request{Key: "run:x"}); err == nil {
		t.Error("a closed fleet gives hosts")
	}
	killSandbox(t, filepath.Join(dir, "engine"), dead)

	f = newFleet(t, dir, nil)
	containers.Sweep(f.Fleet)
	if got := f.state("run:a"); got != "orphan" {
		t.Errorf("it is %s", got)
	}
	// Its own first sweep may be about to clear it away.
	f.await("the end of the dead one", func() bool { return f.state("run:dead") == "none" })
	if l, err := f.Adopt(t.Context(), containers.Request{Key: "run:dead"}); l != nil || err != nil {
		t.Errorf("adopting nothing: %v, %v", l, err)
	}
	l, err := f.Adopt(t.Context(), containers.Request{Key: "run:a"})
	if err != nil || l == nil || l.Fresh || l.Host.Container().ID != id {
		t.Fatalf("%+v, %v", l, err)
	}
	p, err := l.Host.Attach(t.Context(), "cmd", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if exit, err := p.Output(&out, nil); err != nil || exit.Code != 0 || out.String() != "done\n" {
		t.Errorf("%+v, %v, %q", exit, err, out.String())
	}
	l.Release()
	// Acquire takes an orphan too, without making it again.
	if l := f.acquire("run:b"); l.Fresh {
		t.Error("an orphan was made again")
	} else {
		l.Release()
	}
	f.close(true)

	f = newFleet(t, dir, nil)
	f.clock.Add(11 * time.Minute)
	containers.Sweep(f.Fleet)
	f.await("the removal of orphans nobody wants", func() bool { return len(f.List(t.Context())) == 0 })
	f.await("the removal of their folders", func() bool {
		left, err := os.ReadDir(filepath.Join(dir, "fleet", "hosts"))
		return err == nil && len(left) == 0
	})
}

// A connection that breaks is made again; a container that dies is made again.
func TestFleetReconnects(t *testing.T) {
	dir := t.TempDir()
	f := newFleet(t, dir, nil)
	l := f.acquire("run:a")
	shell(t, l.Host, "echo 1 > /tmp/kept")
	l.Host.Close()
	<-l.Host.Done()
	again := f.acquire("run:a")
	if again.Fresh || shell(t, again.Host, "cat /tmp/kept") != "1" {
		t.Error("it is another container")
	}
	l.Release()
	again.Release()

	killSandbox(t, filepath.Join(dir, "engine"), again.Host.Container().ID)
	<-again.Host.Done()
	l = f.acquire("run:a")
	if !l.Fresh {
		t.Error("a dead container was given out")
	}
	shell(t, l.Host, "test ! -e /tmp/kept")
	l.Release()

	// Without anybody asking, it is cleared away.
	killSandbox(t, filepath.Join(dir, "engine"), l.Host.Container().ID)
	<-l.Host.Done()
	containers.Sweep(f.Fleet)
	if got := f.state("run:a"); got != "none" {
		t.Errorf("a dead container is %s", got)
	}
	if !slices.Contains(f.events(), "lost run:a") {
		t.Errorf("events: %v", f.events())
	}
}

func TestFleetProvisionFails(t *testing.T) {
	f := newFleet(t, t.TempDir(), nil)
	bad := errors.New("no such branch")
	_, err := f.Acquire(t.Context(),
		containers.Request{Key: "run:a", Provision: func(context.Context, *containers.Host) error { return bad }})
	if !errors.Is(err, bad) {
		t.Errorf("it says %v", err)
	}
	if list := f.List(t.Context()); len(list) != 0 {
		t.Errorf("left: %+v", list)
	}
	if l := f.acquire("run:a"); !l.Fresh {
		t.Error("the failed one was given out")
	} else {
		l.Release()
	}
}

// When the last who waits for a start leaves, the start ends.
func TestFleetStartGivenUp(t *testing.T) {
	f := newFleet(t, t.TempDir(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{})
	got := make(chan error, 1)
	go func() {
		_, err := f.Acquire(ctx,
			containers.Request{Key: "run:a", Provision: func(ctx context.Context, _ *containers.Host) error {
				close(began)
				<-ctx.Done()
				return context.Cause(ctx)
			}})
		got <- err
	}()
	<-began
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("it says %v", err)
	}
	if l := f.acquire("run:a"); !l.Fresh {
		t.Error("the abandoned one was given out")
	} else {
		l.Release()
	}
}

func TestFleetRemove(t *testing.T) {
	dir := t.TempDir()
	f := newFleet(t, dir, nil)
	l := f.acquire("run:a")
	if err := f.Remove(t.Context(), "run:a"); err != nil {
		t.Fatal(err)
	}
	<-l.Host.Done()
	if err := f.Remove(t.Context(), "run:a"); err != nil {
		t.Error(err)
	}
	l.Release()
	// One that is being made.
	began := make(chan struct{})
	got := make(chan error, 1)
	go func() {
		_, err := f.Acquire(t.Context(),
			containers.Request{Key: "run:b", Provision: func(ctx context.Context, _ *containers.Host) error {
				close(began)
				<-ctx.Done()
				return ctx.Err()
			}})
		got <- err
	}()
	<-began
	if err := f.Remove(t.Context(), "run:b"); err != nil {
		t.Error(err)
	}
	if err := <-got; err == nil {
		t.Error("a container was given out that was removed while it was made")
	}
	if left, err := os.ReadDir(filepath.Join(dir, "engine")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// faulty is an engine that hangs or fails on demand, without heeding its context.
type faulty struct {
	containerstest.Engine
	hang chan struct{} // starts of a key with "hang" wait for it
	fail atomic.Bool   // Remove fails
}

func (e *faulty) Start(ctx context.Context, s containers.Spec) (containers.Container, error) {
	if strings.Contains(s.Key, "hang") {
		<-e.hang
		ctx = context.WithoutCancel(ctx)
	}
	return e.Engine.Start(ctx, s)
}

func (e *faulty) Remove(ctx context.Context, id string) error {
	if e.fail.Load() {
		return fmt.Errorf("cannot remove: %w", containers.ErrUnavailable)
	}
	return e.Engine.Remove(ctx, id)
}

func TestFleetEngineHangs(t *testing.T) {
	dir := t.TempDir()
	engine := &faulty{hang: make(chan struct{})}
	f := newFleet(t, dir, func(f *containers.Fleet) {
		engine.Engine, f.Engine = f.Engine.(containerstest.Engine), engine
		f.Capacity, f.StartTimeout = 2, 100*time.Millisecond
		containers.SetCleanGrace(t, 100*time.Millisecond)
	})
	_, err := f.Acquire(t.Context(), containers.Request{Key: "run:hang"})
	if !errors.Is(err, containers.ErrUnavailable) {
		t.Errorf("it says %v", err)
	}
	if list := f.List(t.Context()); len(list) != 0 {
		t.Errorf("it takes a place still: %+v", list)
	}
	// Much later the engine wakes up; what it made is removed.
	close(engine.hang)
	f.close(false)
	list, err := engine.List(t.Context(), containers.Owner(f.Fleet))
	if err != nil || len(list) != 0 {
		t.Errorf("left: %+v, %v", list, err)
	}
}

// A removal that fails takes no place, and is tried again.
func TestFleetRemovesLater(t *testing.T) {
	dir := t.TempDir()
	engine := &faulty{}
	f := newFleet(t, dir, func(f *containers.Fleet) {
		engine.Engine, f.Engine = f.Engine.(containerstest.Engine), engine
		f.Capacity = 1
	})
	f.acquire("run:a").Release()
	engine.fail.Store(true)
	if err := f.Remove(t.Context(), "run:a"); err == nil {
		t.Error("the removal did not fail")
	}
	f.acquire("run:b").Release()
	engine.fail.Store(false)
	containers.Sweep(f.Fleet)
	list, err := engine.List(t.Context(), containers.Owner(f.Fleet))
	if err != nil || len(list) != 1 || list[0].Key != "run:b" {
		t.Errorf("%+v, %v", list, err)
	}
}

// counting is an engine that counts what lives.
type counting struct {
	containerstest.Engine
	mu        sync.Mutex
	keys      map[string]int    // containers by key; guarded by mu, as all below
	ids       map[string]string // to the key
	now, most int
	twice     bool // two of one key at one time
}

func (e *counting) add(key string, n int) {
	e.keys[key] += n
	e.now += n
	e.most = max(e.most, e.now)
	e.twice = e.twice || e.keys[key] > 1
}

func (e *counting) Start(ctx context.Context, s containers.Spec) (containers.Container, error) {
	e.mu.Lock()
	e.add(s.Key, 1)
	e.mu.Unlock()
	c, err := e.Engine.Start(ctx, s)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.add(s.Key, -1)
		return c, err
	}
	e.ids[c.ID] = s.Key
	return c, nil
}

func (e *counting) Remove(ctx context.Context, id string) error {
	err := e.Engine.Remove(ctx, id)
	if err == nil {
		e.ended(id)
	}
	return err
}

// Process finds out that a container has ended before its removal has.
func (e *counting) Process(ctx context.Context, id string) (int, uint64, error) {
	pid, start, err := e.Engine.Process(ctx, id)
	if errors.Is(err, containers.ErrGone) {
		e.ended(id)
	}
	return pid, start, err
}

func (e *counting) ended(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if key, ok := e.ids[id]; ok {
		delete(e.ids, id)
		e.add(key, -1)
	}
}

// Twenty callers at five places, each with five commands: all are served, none
// sees another's files, and no goroutine stays.
func TestFleetManyCallers(t *testing.T) {
	before := runtime.NumGoroutine()
	count := &counting{keys: map[string]int{}, ids: map[string]string{}}
	f := newFleet(t, t.TempDir(), func(f *containers.Fleet) {
		count.Engine, f.Engine = f.Engine.(containerstest.Engine), count
		f.Capacity = 5
	})
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			key := fmt.Sprint("run:", i)
			for range 5 {
				l, err := f.Acquire(t.Context(), containers.Request{Key: key})
				if err != nil {
					t.Error(err)
					return
				}
				p, err := l.Host.Start(t.Context(),
					containers.Command{ID: rand.Text(), Shell: "echo " + key + " >> who; sort -u who"})
				if err != nil {
					t.Error(err)
					return
				}
				var out bytes.Buffer
				if exit, err := p.Output(&out, nil); err != nil || exit.Code != 0 || out.String() != key+"\n" {
					t.Errorf("%s: %q, %+v, %v", key, out.String(), exit, err)
				}
				l.Release()
			}
		})
	}
	group.Wait()
	f.close(false)
	if count.most > 5 || count.twice || count.now != 0 {
		t.Errorf("%d containers at once at a capacity of 5, two of one key: %v, left: %d", count.most,
			count.twice, count.now)
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	b := make([]byte, 1<<20)
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, b[:runtime.Stack(b, true)])
}

// killSandbox ends process 1 of a container, from outside, and returns when the engine has seen that.
func killSandbox(t *testing.T, dir, id string) {
	t.Helper()
	engine := &sandbox.Engine{Dir: dir}
	pid, _, err := engine.Process(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); err == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("container %s does not die", id)
		}
		_, _, err = engine.Process(t.Context(), id)
	}
	if !errors.Is(err, containers.ErrGone) {
		t.Fatal(err)
	}
}
