package trial

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/bisect"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

var bot = gitd.Person{Name: "ramus", Email: "ramus@example.com"}

// runs are runs whose exit status follows from the commit.
type runs struct {
	exit   func(gitd.Hash) int
	failed error // of Submit

	mu      sync.Mutex // guards all below
	started map[string]record.Request
	removed int
}

func (r *runs) Submit(_ context.Context, q record.Request) (record.Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		return record.Run{}, r.failed
	}
	c, err := record.RunCaller(fmt.Sprint("try-", len(r.started)))
	if err != nil {
		return record.Run{}, err
	}
	run := record.Run{ID: "one", Caller: c, Kind: record.KindExec, State: record.StateComplete}
	r.started[run.Name()] = q
	return run, nil
}

func (r *runs) Run(_ context.Context, name string) (record.Run, error) {
	return record.Run{ID: "one", Kind: record.KindExec, State: record.StateComplete}, nil
}

func (r *runs) Events(_ context.Context, run string, _ int64, follow bool) iter.Seq2[record.Event, error] {
	if !follow {
		return func(func(record.Event, error) bool) {} // it works
	}
	r.mu.Lock()
	at := r.started[run].At
	r.mu.Unlock()
	exit := r.exit(at)
	return func(yield func(record.Event, error) bool) {
		yield(record.Event{Seq: 1, Type: record.EventStepFinished, Exit: &exit, Time: time.Unix(1700000000, 0)}, nil)
	}
}

func (r *runs) remove(context.Context, record.Caller) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed++
	return nil
}

// history makes a repository with n commits after the first one.
func history(t *testing.T, n int) (*gitd.Repo, []gitd.Hash) {
	t.Helper()
	repo := repotest.NewRepo(t)
	var list []gitd.Hash
	for i := range n + 1 {
		c := gitd.NewCommit{Author: bot, When: time.Unix(1700000000, 0), Message: fmt.Sprint(i),
			Put: []gitd.File{{Path: "f", Content: fmt.Append(nil, i)}}}
		if i > 0 {
			c.Parents = []gitd.Hash{list[i-1]}
		}
		h, err := repo.WriteCommit(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, h)
	}
	none := gitd.Hash("")
	if err := repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: list[n], Old: &none}); err != nil {
		t.Fatal(err)
	}
	return repo, list
}

// bisection returns a search over list, whose commits from the index fault on are bad.
func bisection(t *testing.T, repo *gitd.Repo, list []gitd.Hash, fault int) (*Bisection, *runs) {
	t.Helper()
	at := map[gitd.Hash]int{}
	for i, h := range list {
		at[h] = i
	}
	r := &runs{started: map[string]record.Request{}, exit: func(h gitd.Hash) int {
		if at[h] >= fault {
			return 1
		}
		return 0
	}}
	request := record.Request{Repo: "app", Command: &record.Command{Shell: "try"}}
	book := &Book{Repo: repo, Bot: bot, Now: func() time.Time { return time.Unix(1700000000, 0) }}
	if err := book.Open(t.Context(), request, false); err != nil {
		t.Fatal(err)
	}
	return &Bisection{Repo: repo, Good: list[0], Bad: list[len(list)-1], Book: book,
		Trier: &Trier{Runs: r, Request: request, Remove: r.remove}}, r
}

// TestBisection finds faults, removes all callers, and takes the results of an earlier search.
func TestBisection(t *testing.T) {
	repo, list := history(t, 40)
	for _, fault := range []int{1, 17, 40} {
		b, r := bisection(t, repo, list, fault)
		b.Book.ref += fmt.Sprint(fault) // the faults are those of different commands
		b.Book.tries = map[gitd.Hash]Try{}
		var steps []Progress
		b.Tell = func(p Progress) { steps = append(steps, p) }
		found, err := b.Run(t.Context())
		checkProgress(t, steps, found)
		if err != nil || found.First == nil || found.First.Commit != list[fault] || found.Rounds > 4 || found.Plan.Known != 0 ||
			found.Plan.Rounds != 3 || found.Plan.Steps != 40 {
			t.Fatalf("fault at %d: %+v, %v", fault, found, err)
		}
		if r.removed != len(r.started) || found.Tries != r.removed {
			t.Errorf("%d runs, %d removed, %d tries", len(r.started), r.removed, found.Tries)
		}
		again, later := bisection(t, repo, list, fault)
		again.Book.ref, again.Book.tries = b.Book.ref, map[gitd.Hash]Try{}
		if _, err := again.Book.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		found, err = again.Run(t.Context())
		if err != nil || found.First == nil || found.First.Commit != list[fault] || len(later.started) != 0 || found.Tries != 0 ||
			found.Rounds != 0 || found.Plan.Known < 1 || found.Plan.Known > r.removed {
			t.Errorf("again: %+v, %v, %d runs", found, err, len(later.started))
		}
	}
}

// checkProgress checks that each round is told when it begins and when it ends.
func checkProgress(t *testing.T, steps []Progress, f Found) {
	t.Helper()
	tries := 0
	for i, p := range steps {
		if ended := i%2 == 1; p.Round != i/2+1 || p.Ended != ended || p.Left < 1 || len(p.Tries) == 0 || (p.Tries[0].Result != "") != ended {
			t.Errorf("step %d: %+v", i, p)
		} else if ended {
			tries += len(p.Tries)
		}
	}
	if f.Rounds != len(steps)/2 || f.Tries != tries {
		t.Errorf("%d rounds with %d tries, %d steps with %d were told", f.Rounds, f.Tries, len(steps), tries)
	}
}

// TestClocks finds the fault among branches whose commits are older than their parents.
func TestClocks(t *testing.T) {
	repo := repotest.NewRepo(t)
	write := func(name string, at int64, parents ...gitd.Hash) gitd.Hash {
		t.Helper()
		h, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Author: bot, When: time.Unix(1700000000+at, 0), Message: name, Parents: parents,
			Put: []gitd.File{{Path: "f", Content: []byte(name)}}})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	good := write("good", 0)
	fault := write("fault", 50, good)
	left, right := write("left", 100, fault), write("right", 5, fault)
	last := write("last", 200, left, right)
	b, _ := bisection(t, repo, []gitd.Hash{good, fault, left, right, last}, 1)
	b.Width = 1
	if found, err := b.Run(t.Context()); err != nil || found.First == nil || found.First.Commit != fault {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestRemove goes on if the caller of a try is gone, and not if it cannot be removed.
func TestRemove(t *testing.T) {
	repo, list := history(t, 1)
	b, r := bisection(t, repo, list, 1)
	for _, want := range []error{nil, record.ErrNotFound, record.ErrClosed} {
		b.Trier.Remove = func(context.Context, record.Caller) error { return want }
		got, err := b.Trier.Try(t.Context(), bisect.Step{Commit: list[1]})
		if fails := want == record.ErrClosed; errors.Is(err, record.ErrClosed) != fails || (err == nil) == fails || got.Result != bisect.Bad {
			t.Errorf("%v: %+v, %v", want, got, err)
		}
	}
	if len(r.started) != 3 {
		t.Errorf("%d runs", len(r.started))
	}
}

// TestJudge tells good from bad, and both from runs that say nothing about a commit.
func TestJudge(t *testing.T) {
	exit := func(n int) record.Event { return record.Event{Type: record.EventStepFinished, Step: "a", Exit: &n} }
	killed := exit(1)
	killed.Reason = "timeout"
	done := func(ok bool, task string) record.Event {
		return record.Event{Type: record.EventStepFinished, Step: "a", Task: task, OK: &ok}
	}
	findings := done(false, "lib_run_lint")
	findings.Data = []byte(`{"result":{"output":{"exit_code":1}}}`)
	missing := done(false, "lib_run_lint")
	missing.Message = "there is no linter"
	for _, x := range []struct {
		about string
		kind  record.Kind
		ended record.Event
		want  bisect.Result
	}{
		{"0", record.KindExec, exit(0), bisect.Good},
		{"1", record.KindExec, exit(1), bisect.Bad},
		{"125", record.KindExec, exit(125), bisect.Skip},
		{"200", record.KindExec, exit(200), bisect.Skip},
		{"no end", record.KindExec, record.Event{}, bisect.Skip},
		{"no status", record.KindExec, record.Event{Type: record.EventStepFinished}, bisect.Skip},
		{"a limit", record.KindExec, killed, bisect.Skip},
		{"a check that passed", record.KindTask, done(true, "lib_run_lint"), bisect.Good},
		{"a check that failed", record.KindTask, findings, bisect.Bad},
		{"a check that did not run", record.KindTask, missing, bisect.Skip},
		{"a task", record.KindTask, done(true, "lib_other"), bisect.Good},
		{"a task that failed", record.KindTask, done(false, "lib_other"), bisect.Bad},
		{"a task that did not run", record.KindTask, record.Event{}, bisect.Skip},
	} {
		got, why := judge(record.Run{Kind: x.kind}, x.ended)
		if got != x.want || got == bisect.Skip && why == "" && x.about != "125" {
			t.Errorf("%s: %s, %q", x.about, got, why)
		}
	}
}

// TestBook keeps the results of two searches that write at the same time. A search that tried nothing leaves no book.
func TestBook(t *testing.T) {
	repo, list := history(t, 2)
	b, r := bisection(t, repo, list, 1)
	r.failed = record.ErrClosed
	if _, err := b.Run(t.Context()); !errors.Is(err, record.ErrClosed) {
		t.Error(err)
	}
	if _, err := repo.Resolve(t.Context(), b.Book.ref); !errors.Is(err, gitd.ErrNotFound) {
		t.Errorf("there are results: %v", err)
	}
	one, other := openBook(t, repo), openBook(t, repo)
	var all sync.WaitGroup
	for i, book := range []*Book{one, other} {
		all.Go(func() {
			if err := book.Add(t.Context(), []Try{{Tree: list[i], Result: bisect.Good, Stdout: "x"}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	book := openBook(t, repo)
	if known := book.Known(); len(known) != 2 || known[list[0]] != bisect.Good || book.tries[list[0]].Stdout != "" {
		t.Errorf("%v", known)
	}
}

// openBook returns the book of a command, with the results that are kept.
func openBook(t *testing.T, repo *gitd.Repo) *Book {
	t.Helper()
	b := &Book{Repo: repo, Bot: bot, Now: func() time.Time { return time.Unix(1700000000, 0) }}
	if err := b.Open(t.Context(), record.Request{Command: &record.Command{Shell: "other"}}, false); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBisectionRefuses gives searches commands that do not distinguish good from bad, and servers that fail.
func TestBisectionRefuses(t *testing.T) {
	repo, list := history(t, 9)
	for _, fault := range []int{0, 10} {
		b, r := bisection(t, repo, list, fault)
		b.Book.ref += fmt.Sprint(fault)
		if _, err := b.Run(t.Context()); !errors.Is(err, bisect.ErrContradiction) || r.removed != len(r.started) {
			t.Errorf("fault at %d: %v", fault, err)
		}
	}
	b, r := bisection(t, repo, list, 4)
	r.failed = record.ErrClosed
	if _, err := b.Run(t.Context()); !errors.Is(err, record.ErrClosed) {
		t.Error(err)
	}
	b, _ = bisection(t, repo, list, 4)
	b.Good, b.Bad = b.Bad, b.Good
	if _, err := b.Plan(t.Context()); !errors.Is(err, gitd.ErrInvalid) {
		t.Error(err)
	}
	b, _ = bisection(t, repo, list, 4)
	b.Width = bisect.MaxWidth + 1
	if _, err := b.Plan(t.Context()); !errors.Is(err, gitd.ErrInvalid) {
		t.Error(err)
	}
}

// TestLargeBook keeps results with long reasons. The next search can read them, and has the newest.
func TestLargeBook(t *testing.T) {
	repo, list := history(t, 1)
	b, _ := bisection(t, repo, list, 1)
	var tries []Try
	for i := range 4000 {
		tries = append(tries, Try{Tree: gitd.Hash(fmt.Sprintf("%040x", i)), Result: bisect.Bad,
			Why: strings.Repeat("\x01", 2000), Time: time.Unix(int64(i), 0)})
	}
	if err := b.Book.Add(t.Context(), tries); err != nil {
		t.Fatal(err)
	}
	again, _ := bisection(t, repo, list, 1)
	if last, known := again.Book.Try(tries[len(tries)-1].Tree); !known || len(last.Why) > bookWhy+10 {
		t.Errorf("%t: the reason has %d bytes", known, len(last.Why))
	}
}

// unaskedRuns are runs in which a program needs a person, and whose commands end with exit status 1.
type unaskedRuns struct{ *runs }

func (r unaskedRuns) Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		if !yield(record.Event{Type: record.EventNote, Reason: record.NoteUnasked, Message: "May it run?"}, nil) {
			return
		}
		for e, err := range r.runs.Events(ctx, run, after, follow) {
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestUnasked asks nobody in a try, whose exit status says nothing then.
func TestUnasked(t *testing.T) {
	repo, list := history(t, 1)
	b, r := bisection(t, repo, list, 1)
	b.Trier.Runs = unaskedRuns{r}
	got, err := b.Trier.Try(t.Context(), bisect.Step{Commit: list[1]})
	if err != nil || got.Result != bisect.Skip || !got.Unasked || got.Why != "nobody is asked in a try. May it run?" || *got.Exit != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, q := range r.started {
		if !q.Unasked {
			t.Errorf("%+v", q)
		}
	}
}
