package executor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// TestOneKeyAtOnce makes requests with one key concurrently, for a new caller. They are one run, and
// all get its result.
func TestOneKeyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const requests, rounds = 20, 4
	for round := range rounds {
		c := caller(t, fmt.Sprintf("run:one%d", round))
		results, errs := make([]record.Result, requests), make([]error, requests)
		var group sync.WaitGroup
		for i := range requests {
			group.Go(func() {
				results[i], errs[i] = w.x.Exec(t.Context(), record.Request{Key: "k", Caller: c, Repo: "demo",
					Command: &record.Command{Shell: "echo once >>count; exit 3"}}, nil, nil)
			})
		}
		group.Wait()

		for i, err := range errs {
			if err != nil || results[i].Run != c.String()+"/k" || results[i].ExitCode != 3 || results[i].Commit == "" {
				t.Errorf("round %d, request %d: %+v, %v", round, i, results[i], err)
			}
		}
		if got := w.inRepo("show", c.Branch()+":count"); got != "once" {
			t.Errorf("round %d: the command ran more than once: %q", round, got)
		}
	}
}

// TestManyKeysAtOnce makes requests with different keys concurrently, for a new caller. All of them
// run, one after another.
func TestManyKeysAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const requests = 20
	c := caller(t, "run:many")
	errs := make([]error, requests)
	var group sync.WaitGroup
	for i := range requests {
		group.Go(func() {
			_, errs[i] = w.x.Exec(t.Context(), record.Request{Key: fmt.Sprintf("k%d", i), Caller: c, Repo: "demo",
				Command: &record.Command{Shell: fmt.Sprintf("echo %d >>count", i)}}, nil, nil)
		})
	}
	group.Wait()

	for i, err := range errs {
		if err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if got := len(strings.Fields(w.inRepo("show", c.Branch()+":count"))); got != requests {
		t.Errorf("%d of %d commands are on the branch", got, requests)
	}
}

// TestLeaving checks that a command ends with the last of the requests that wait for it.
func TestLeaving(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	request := func(name string) record.Request {
		return record.Request{Key: "k", Caller: caller(t, name), Repo: "demo",
			Command: &record.Command{Shell: "echo ready; until [ -e go ]; do sleep 0.05; done; rm go; echo done"}}
	}
	type waiting struct {
		leave  context.CancelFunc
		answer chan error
		result record.Result
	}
	join := func(name string, out io.Writer) *waiting {
		ctx, leave := context.WithCancel(t.Context())
		a := &waiting{leave: leave, answer: make(chan error, 1)}
		before := w.x.Waiting(name + "/k")
		go func() {
			var err error
			a.result, err = w.x.Exec(ctx, request(name), out, nil)
			a.answer <- err
		}()
		for range 6000 {
			if w.x.Waiting(name+"/k") > before {
				return a
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatal("a request does not join the run")
		return a
	}
	left := func(t *testing.T, a *waiting) {
		t.Helper()
		a.leave()
		if err := <-a.answer; !errors.Is(err, context.Canceled) {
			t.Errorf("who leaves gets %+v, %v", a.result, err)
		}
	}

	for _, first := range []bool{true, false} {
		name := fmt.Sprintf("run:leaves-%v", first)
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			a := join(name, &out)
			w.until(name+"/k", printed("ready"))
			b := join(name, nil)
			stays, leaves := a, b
			if first {
				stays, leaves = b, a
			}
			left(t, leaves)
			if r, err := w.x.Run(t.Context(), name+"/k"); err != nil || r.Ended() {
				t.Errorf("with one who leaves the run is %+v, %v", r, err)
			}
			r, err := w.x.Run(t.Context(), name+"/k")
			if err != nil {
				t.Fatal(err)
			}
			w.release(r, "go")
			if err := <-stays.answer; err != nil || stays.result.ExitCode != 0 {
				t.Errorf("who stays gets %+v, %v", stays.result, err)
			}
			if want := map[bool]string{true: "ready\n", false: "ready\ndone\n"}[first]; out.String() != want {
				t.Errorf("the first was told %q, want %q", out.String(), want)
			}
		})
	}

	t.Run("all", func(t *testing.T) {
		a := join("run:all", nil)
		w.until("run:all/k", printed("ready"))
		b := join("run:all", nil)
		left(t, a)
		b.leave()
		if err := <-b.answer; err != nil || b.result.Reason != "cancelled" && b.result.ExitCode == 0 {
			t.Errorf("the last who leaves gets %+v, %v", b.result, err)
		}
		if r, err := w.x.Run(t.Context(), "run:all/k"); err != nil || r.Reason != record.ReasonCancelled {
			t.Errorf("without anybody the run is %+v, %v", r, err)
		}
	})

	t.Run("submitted", func(t *testing.T) {
		r, err := w.x.Submit(t.Context(), request("run:submitted"))
		if err != nil {
			t.Fatal(err)
		}
		w.until(r.Name(), printed("ready"))
		left(t, join("run:submitted", nil))
		w.release(r, "go")
		if r, err = w.x.Settled(t.Context(), r.Caller, r.ID); err != nil || r.State != record.StateComplete {
			t.Errorf("a run that was submitted, and left by a request that joined it, is %+v, %v", r, err)
		}
	})
}

// TestCancelPrevious submits requests that cancel earlier runs. A repeated request leaves its own run
// alone. Other runs are stopped only after the request is accepted.
func TestCancelPrevious(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const text = "id: w\nrepo: {id: demo}\nnodes:\n  - {id: a, run: 'echo ready; sleep 600'}\n"
	request := func(name, key string) record.Request {
		return record.Request{Key: key, Caller: caller(t, name), Repo: "demo", Workflow: text, CancelPrevious: true}
	}
	submit := func(r record.Request) record.Run {
		t.Helper()
		run, err := w.x.Submit(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	first := submit(request("run:a", "k"))
	w.until(first.Name(), printed("ready"))
	again := submit(request("run:a", "k"))
	if again.Name() != first.Name() || again.Ended() {
		t.Fatalf("asked again it is %+v", again)
	}
	if now, err := w.x.Run(t.Context(), first.Name()); err != nil || now.Ended() {
		t.Fatalf("asked again it ended: %+v, %v", now, err)
	}

	refused := request("run:b", "k")
	refused.Fork = &record.Fork{Of: "run:nobody"}
	if _, err := w.x.Submit(t.Context(), refused); err == nil {
		t.Error("a fork of nobody was accepted")
	}
	if now, err := w.x.Run(t.Context(), first.Name()); err != nil || now.Ended() {
		t.Fatalf("a request that was refused ended it: %+v, %v", now, err)
	}

	next := submit(request("run:b", "k"))
	if now, err := w.x.Run(t.Context(), first.Name()); err != nil || now.Reason != record.ReasonCancelled {
		t.Errorf("the run before is %+v, %v", now, err)
	}
	if next.Ended() {
		t.Errorf("the new run is %+v", next)
	}

	// Of concurrent requests the last one continues.
	const requests = 6
	var group sync.WaitGroup
	for i := range requests {
		group.Go(func() {
			if _, err := w.x.Submit(t.Context(), request(fmt.Sprintf("run:at-once%d", i), "k")); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	live, err := w.x.Runs(t.Context(), record.Filter{Live: true})
	if err != nil || len(live) != 1 {
		t.Errorf("%d runs go on, %v, want one", len(live), err)
	}
	for _, r := range live {
		if err := w.x.Stop(t.Context(), r.Name(), r.Asker); err != nil {
			t.Error(err)
		}
	}
}

// TestBeginCancelsPrevious begins claimed runs at once, of which each cancels the earlier ones. One goes on.
func TestBeginCancelsPrevious(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const text = "id: w\nrepo: {id: demo}\nconcurrency: {cancel_previous: true}\nnodes:\n  - {id: a, run: 'echo ready; sleep 600'}\n"
	const requests = 6
	var planned, group sync.WaitGroup
	planned.Add(requests)
	names := make([]string, requests)
	for i := range requests {
		held, _, err := w.x.Claim(t.Context(),
			record.Request{Key: "k", Caller: caller(t, fmt.Sprintf("run:begun%d", i)), Repo: "demo"})
		if err != nil {
			t.Fatal(err)
		}
		names[i] = held.Name()
	}
	for _, name := range names {
		group.Go(func() {
			together := sync.OnceFunc(func() { planned.Done(); planned.Wait() })
			_, err := w.x.Begin(t.Context(), name,
				record.Request{Workflow: text, Permit: func(record.Run, string) error { together(); return nil }})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	live, err := w.x.Runs(t.Context(), record.Filter{Live: true})
	if err != nil || len(live) != 1 {
		t.Errorf("%d runs go on, %v, want one", len(live), err)
	}
	for _, r := range live {
		if err := w.x.Stop(t.Context(), r.Name(), r.Asker); err != nil {
			t.Error(err)
		}
	}
}

// TestCancelPreviousOfAnyKind has commands stop earlier ones, of their caller and of a group. Others go on.
func TestCancelPreviousOfAnyKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	submit := func(name, group, key string, cancel bool) record.Run {
		t.Helper()
		r := record.Request{Key: key, Repo: "demo", Group: group, CancelPrevious: cancel,
			Command: &record.Command{Shell: "echo ready; sleep 600"},
			Asker:   gitd.Person{Name: "ann", Email: "a@example.org"}}
		if name != "" {
			r.Caller = caller(t, name)
		}
		run, err := w.x.Submit(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	state := func(r record.Run) record.Reason {
		t.Helper()
		now, err := w.x.Run(t.Context(), r.Name())
		if err != nil {
			t.Fatal(err)
		}
		return now.Reason
	}
	other := submit("run:other", "", "", false)
	first := submit("run:a", "", "", false)
	w.until(first.Name(), printed("ready"))
	second := submit("run:a", "", "again", true)
	if state(first) != record.ReasonCancelled || state(other) != "" {
		t.Errorf("the command before ended as %q, that of another caller as %q", state(first), state(other))
	}
	w.until(second.Name(), printed("ready"))
	if again := submit("run:a", "", "again", true); again.Name() != second.Name() || state(second) != "" {
		t.Errorf("a repeated request stopped its own run: %q", state(second))
	}

	// A key without a caller means one run too.
	third := submit("", "deploy", "k", true)
	w.until(third.Name(), printed("ready"))
	if again := submit("", "deploy", "k", true); again.Name() != third.Name() || state(third) != "" {
		t.Errorf("a repeated request made %s of %s, which is %q", again.Name(), third.Name(), state(third))
	}
	fourth := submit("", "deploy", "l", true)
	if state(third) != record.ReasonCancelled || state(second) != "" || state(other) != "" {
		t.Errorf("the group's run before ended as %q, the others as %q and %q", state(third), state(second), state(other))
	}
	for _, r := range []record.Run{other, second, fourth} {
		if err := w.x.Stop(t.Context(), r.Name(), r.Asker); err != nil {
			t.Error(err)
		}
	}
}

// TestGroupWorksOneAtATime submits commands of one group for different callers. No two work at the same time.
func TestGroupWorksOneAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var group sync.WaitGroup
	const runs = 4
	names := make([]string, runs)
	for i := range runs {
		group.Go(func() {
			run, err := w.x.Submit(t.Context(),
				record.Request{Repo: "demo", Group: "one", Command: &record.Command{Shell: "true"}})
			if err == nil {
				run, err = w.x.Settled(t.Context(), run.Caller, run.ID)
			}
			if err != nil || run.State != record.StateComplete {
				t.Errorf("%+v, %v", run, err)
			}
			names[i] = run.Name()
		})
	}
	group.Wait()
	var spans [][2]time.Time
	for _, name := range names {
		var span [2]time.Time
		for e, err := range w.x.Events(t.Context(), name, 0, false) {
			switch {
			case err != nil:
				t.Fatal(err)
			case e.Type == record.EventStepStarted:
				span[0] = e.Time
			case e.Type == record.EventStepFinished:
				span[1] = e.Time
			}
		}
		spans = append(spans, span)
	}
	slices.SortFunc(spans, func(a, b [2]time.Time) int { return a[0].Compare(b[0]) })
	for i := 1; i < runs; i++ {
		if spans[i][0].Before(spans[i-1][1]) {
			t.Errorf("runs overlap: %v", spans)
		}
	}
	if _, err := w.x.Submit(t.Context(), record.Request{Repo: "demo", Group: "no group",
		Command: &record.Command{Shell: "true"}}); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("a wrong name of a group: %v", err)
	}
}

// TestForkAgain repeats a fork with its key. The result is the existing fork.
func TestForkAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	if res, _, _ := w.exec("run:trunk", "echo 1 >count"); res.ExitCode != 0 {
		t.Fatalf("%+v", res)
	}
	for range 2 {
		res, err := w.x.Exec(t.Context(),
			record.Request{Key: "k", Caller: caller(t, "run:bough"), Repo: "demo", Fork: &record.Fork{Of: "run:trunk"},
				Command: &record.Command{Shell: "echo 2 >>count"}}, nil, nil)
		if err != nil || res.Run != "run:bough/k" || res.ExitCode != 0 {
			t.Errorf("%+v, %v", res, err)
		}
	}
	if got := w.inRepo("show", "ramus/run-bough:count"); got != "1\n2" {
		t.Errorf("the branch has %q", got)
	}
}
