package executor_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// TestWarmUp wakes callers that sleep while somebody types. A prompt that follows starts no container. Without one the container is removed,
// and nothing else is left.
func TestWarmUp(t *testing.T) {
	t.Parallel()
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
		if !w.x.Warmer.WarmUp(otter, ada) {
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
	if !w.x.Warmer.WarmUp(otter, bo) {
		t.Error("another person who types does not keep it")
	}

	// Each person has two at most.
	if !w.x.Warmer.WarmUp(caller(t, "run:heron"), ada) || w.x.Warmer.WarmUp(caller(t, "run:ibis"), ada) || w.x.Warmer.WarmUp(caller(t, "run:nobody"), ada) {
		t.Error("one person has not two containers")
	}
	if st := w.x.Stats().WarmUps; st.Begun != 2 || st.Refused != 2 {
		t.Errorf("%+v", st)
	}

	// One that is abandoned leaves nothing.
	w.x.SetWarm(time.Millisecond)
	ibis := caller(t, "run:ibis")
	refs := w.inRepo("for-each-ref")
	if !w.x.Warmer.WarmUp(ibis, bo) {
		t.Fatal("ibis is not woken")
	}
	until("ibis is given back", func() bool { return w.x.Stats().WarmUps.GivenBack == 1 })
	until("ibis sleeps", func() bool { return !slices.Contains(w.x.Fleet.Keys(), "run:ibis") })
	if after := w.inRepo("for-each-ref"); after != refs || starts("run:ibis") != 2 {
		t.Errorf("%d starts; refs\n%s\nwant\n%s", starts("run:ibis"), after, refs)
	}
	if err := w.x.Warmer.Expect(t.Context(), "none", ada); err == nil {
		t.Error("there is a repository none")
	}
	if w.keeper == nil {
		if err := w.x.Warmer.Expect(t.Context(), "demo", ada); err != nil {
			t.Error(err)
		}
		return
	}

	// The first run of a new caller has the container that was bound while its person typed. That of another person has not.
	expected := func() (keys []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range started {
			if strings.HasPrefix(key, "run:") && !strings.HasSuffix(key, "otter") && !strings.HasSuffix(key, "heron") && !strings.HasSuffix(key, "ibis") {
				keys = append(keys, key)
			}
		}
		return keys
	}
	begin := func(by gitd.Person) (record.Run, string) {
		t.Helper()
		run, err := w.x.Submit(t.Context(), record.Request{Repo: "demo", Asker: by, Command: &record.Command{Shell: "cat greeting.txt; git status --short --branch; echo new >made.txt"}})
		if err != nil {
			t.Fatal(err)
		}
		run, err = w.x.Settled(t.Context(), run.Caller, run.ID)
		if err != nil || run.State != record.StateComplete {
			t.Fatalf("%+v %v", run, err)
		}
		return run, w.inRepo("log", "--format=%s", "-1", "refs/heads/"+run.Branch)
	}
	w.x.SetWarm(time.Hour)
	for range 2 {
		if err := w.x.Warmer.Expect(t.Context(), "demo", bo); err != nil {
			t.Fatal(err)
		}
	}
	until("a container is bound for a new caller", func() bool { return len(expected()) == 1 })
	if after := w.inRepo("for-each-ref"); after != refs {
		t.Errorf("a caller that has not begun has refs\n%s", after)
	}
	cy, _ := begin(gitd.Person{Name: "Cy", Email: "cy@example.org", ID: "c"})
	began = time.Now()
	run, subject := begin(bo)
	t.Logf("the first run of a new caller took %v after a warm-up", time.Since(began))
	if cy.Caller.String() == expected()[0] || run.Caller.String() != expected()[0] || starts(run.Caller.String()) != 1 || !strings.Contains(subject, "cat greeting.txt") {
		t.Errorf("%s and %s began, %v were started, %q", cy.Caller, run.Caller, expected(), subject)
	}
	if again, _ := begin(bo); again.Caller == run.Caller {
		t.Error("a second new caller is the first one")
	}

	// One that nobody begins is given back.
	w.x.SetWarm(time.Millisecond)
	given, begun := w.x.Stats().WarmUps.GivenBack, len(expected())
	if err := w.x.Warmer.Expect(t.Context(), "demo", gitd.Person{Name: "Di", Email: "di@example.org", ID: "d"}); err != nil {
		t.Fatal(err)
	}
	until("the container is given back", func() bool { return w.x.Stats().WarmUps.GivenBack == given+1 })
	if list := expected(); len(list) != begun+1 || slices.Contains(w.x.Fleet.Keys(), list[begun]) {
		t.Errorf("%v were started, %v are there", list, w.x.Fleet.Keys())
	}
}
