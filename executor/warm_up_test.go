package executor_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gitd"
)

// TestWarmUp wakes callers that sleep while somebody types. A prompt that follows starts no container. Without one the container is removed,
// and nothing else is left.
func TestWarmUp(t *testing.T) {
	var mu sync.Mutex
	var started []string
	w := newWorld(t, func(x *executor.Executor) {
		x.SetWarm(time.Hour)
		before := x.Fleet.Event
		x.Fleet.Event = func(e containers.FleetEvent) {
			if before != nil {
				before(e)
			}
			if mu.Lock(); e.What == "started" {
				started = append(started, e.Key)
			}
			mu.Unlock()
		}
	})
	starts := func(name string) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range started {
			if key == name {
				n++
			}
		}
		return n
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for range 1500 {
			if is() {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("missed: %s; %+v", what, w.x.Stats().WarmUps)
	}
	sleep := func(name string) {
		t.Helper()
		if err := w.x.Fleet.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	ada, bo := gitd.Person{Name: "Ada", Email: "ada@example.org", ID: "a"}, gitd.Person{Name: "Bo", Email: "bo@example.org", ID: "b"}
	for _, name := range []string{"run:otter", "run:heron", "run:ibis"} {
		w.exec(name, "echo "+name+" >name.txt")
		sleep(name)
	}
	began := time.Now()
	w.exec("run:otter", "cat name.txt")
	cold := time.Since(began)
	sleep("run:otter")

	otter := caller(t, "run:otter")
	for range 2 {
		if !w.x.WarmUp(otter, ada) {
			t.Fatal("otter is not woken")
		}
	}
	until("otter is awake", func() bool { return starts("run:otter") == 3 })
	began = time.Now()
	if _, out, _ := w.exec("run:otter", "cat name.txt"); strings.TrimSpace(out) != "run:otter" {
		t.Errorf("the container that was woken has %q", out)
	}
	t.Logf("the first command took %v after a warm-up, and %v without", time.Since(began), cold)
	if n := starts("run:otter"); n != 3 {
		t.Errorf("the command started a container, of %d", n)
	}
	if !w.x.WarmUp(otter, bo) {
		t.Error("another person who types does not keep it")
	}

	// Each person has two at most.
	if !w.x.WarmUp(caller(t, "run:heron"), ada) || w.x.WarmUp(caller(t, "run:ibis"), ada) || w.x.WarmUp(caller(t, "run:nobody"), ada) {
		t.Error("one person has not two containers")
	}
	if st := w.x.Stats().WarmUps; st.Begun != 2 || st.Refused != 2 {
		t.Errorf("%+v", st)
	}

	// One that is abandoned leaves nothing.
	w.x.SetWarm(time.Millisecond)
	ibis := caller(t, "run:ibis")
	refs := w.inRepo("for-each-ref")
	if !w.x.WarmUp(ibis, bo) {
		t.Fatal("ibis is not woken")
	}
	until("ibis is given back", func() bool { return w.x.Stats().WarmUps.GivenBack == 1 })
	until("ibis sleeps", func() bool { return !slices.Contains(w.x.Fleet.Keys(), "run:ibis") })
	if after := w.inRepo("for-each-ref"); after != refs || starts("run:ibis") != 2 {
		t.Errorf("%d starts; refs\n%s\nwant\n%s", starts("run:ibis"), after, refs)
	}
	if err := w.x.Expect(t.Context(), "demo", ada); err != nil {
		t.Error(err)
	}
	if err := w.x.Expect(t.Context(), "none", ada); err == nil {
		t.Error("there is a repository none")
	}
}
