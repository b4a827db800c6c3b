package trial

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

func (r *runs) Events(_ context.Context, run string, _ int64, _ bool) iter.Seq2[record.Event, error] {
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
		found, err := b.Run(t.Context())
		if err != nil || found.First == nil || found.First.Commit != list[fault] || found.Rounds > 4 {
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
		if err != nil || found.First == nil || found.First.Commit != list[fault] || len(later.started) != 0 {
			t.Errorf("again: %+v, %v, %d runs", found, err, len(later.started))
		}
	}
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
