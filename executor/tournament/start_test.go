package tournament

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// starts counts the runs that were asked for, by caller. The runs of an executor are found by caller and key.
type starts struct {
	runs map[string]int
	fail map[string]error
}

func (s *starts) Submit(_ context.Context, r record.Request) (record.Run, error) {
	if err := s.fail[r.Caller.ID()]; err != nil {
		return record.Run{}, err
	}
	s.runs[r.Caller.String()+"/"+r.Key]++
	return record.Run{ID: r.Key, Caller: r.Caller}, nil
}

// TestBegin stops between any two entries, goes on, and begins nothing again once all have begun.
func TestBegin(t *testing.T) {
	repo := repotest.NewRepo(t)
	book := &Book{Bot: gitd.Person{Name: "ramus", Email: "ramus@example.com"}, Now: func() time.Time { return time.Unix(1700000000, 0) }}
	for n := range 3 {
		p := Plan{Name: fmt.Sprint("cup", n), Repo: repo.Name(), Task: "x"}
		if err := p.SetEntries([]string{"a", "b", "c"}, 1); err != nil {
			t.Fatal(err)
		}
		if err := book.Make(t.Context(), repo, p); err != nil {
			t.Fatal(err)
		}
		if err := book.Make(t.Context(), repo, p); !errors.Is(err, gitd.ErrConflict) {
			t.Errorf("made twice: %v", err)
		}
		x := &starts{runs: map[string]int{}, fail: map[string]error{p.Entries[n].Caller.ID(): record.ErrClosed}}
		if _, err := book.Begin(t.Context(), repo, x, Record{Plan: p}, nil); !errors.Is(err, record.ErrClosed) || len(x.runs) != n {
			t.Errorf("%d: %v, %v", n, x.runs, err)
		}
		x.fail = nil
		if err := book.Resume(t.Context(), repo, x); err != nil || len(x.runs) != 3 {
			t.Errorf("%d: %v, %v", n, x.runs, err)
		}
		x.runs = map[string]int{}
		if err := book.Resume(t.Context(), repo, x); err != nil || len(x.runs) != 0 {
			t.Errorf("%d: again: %v, %v", n, x.runs, err)
		}
		if r, err := Read(t.Context(), repo, p.Name); err != nil || !r.Begun || !r.Same(p) {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if list, err := List(t.Context(), repo); err != nil || len(list) != 3 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestRefused keeps the reason of an entry that was refused. A tournament without entries is not kept.
func TestRefused(t *testing.T) {
	repo := repotest.NewRepo(t)
	book := &Book{Bot: gitd.Person{Name: "ramus", Email: "ramus@example.com"}, Now: func() time.Time { return time.Unix(1700000000, 0) }}
	p := Plan{Name: "cup", Repo: repo.Name(), Task: "x"}
	if err := p.SetEntries([]string{"a", "b"}, 1); err != nil {
		t.Fatal(err)
	}
	if err := book.Make(t.Context(), repo, p); err != nil {
		t.Fatal(err)
	}
	x := &starts{runs: map[string]int{}, fail: map[string]error{"cup-1": record.ErrInvalid}}
	r, err := book.Begin(t.Context(), repo, x, Record{Plan: p}, nil)
	if err != nil || r.Entries[0].Refused == "" || r.Entries[1].Refused != "" || !r.Begun {
		t.Errorf("%+v, %v", r, err)
	}
	p.Name = "other"
	if err := p.SetEntries([]string{"a", "b"}, 1); err != nil {
		t.Fatal(err)
	}
	if err := book.Make(t.Context(), repo, p); err != nil {
		t.Fatal(err)
	}
	x.fail = map[string]error{"other-1": record.ErrConflict, "other-2": gitd.ErrDenied}
	if _, err := book.Begin(t.Context(), repo, x, Record{Plan: p}, nil); !errors.Is(err, record.ErrConflict) {
		t.Error(err)
	}
	if _, err := Read(t.Context(), repo, "other"); !errors.Is(err, gitd.ErrNotFound) {
		t.Error(err)
	}
}

// TestClaim has takers of all entries at once. One of them claims its entry, and the others only after its merge did
// nothing.
func TestClaim(t *testing.T) {
	repo := repotest.NewRepo(t)
	book := &Book{Bot: gitd.Person{Name: "ramus", Email: "ramus@example.com"}, Now: func() time.Time { return time.Unix(1700000000, 0) }}
	p := Plan{Name: "cup", Repo: repo.Name(), Task: "x"}
	if err := p.SetEntries([]string{"a", "b", "c"}, 1); err != nil {
		t.Fatal(err)
	}
	if err := book.Make(t.Context(), repo, p); err != nil {
		t.Fatal(err)
	}
	claims := make([]error, len(p.Entries))
	var all sync.WaitGroup
	for i, e := range p.Entries {
		all.Go(func() { _, claims[i] = book.Claim(t.Context(), repo, p.Name, e.Caller) })
	}
	all.Wait()
	r, err := Read(t.Context(), repo, p.Name)
	if err != nil || r.Claimed.IsZero() {
		t.Fatalf("%+v, %v", r, err)
	}
	first := r.Claimed
	other := p.Entries[0].Caller
	if other == first {
		other = p.Entries[1].Caller
	}
	for i, e := range p.Entries {
		if (claims[i] == nil) != (e.Caller == first) || claims[i] != nil && !errors.Is(claims[i], gitd.ErrConflict) &&
			!errors.Is(claims[i], record.ErrConflict) {
			t.Errorf("%s: %v", e.Caller, claims[i])
		}
	}

	// Only a result that is certain ends the claim.
	for _, x := range []struct {
		result  error
		claimed record.Caller
	}{{errors.New("the connection ended"), first}, {record.ErrConflict, record.Caller{}}} {
		if err := book.Settle(t.Context(), repo, p.Name, first, x.result); err != nil {
			t.Fatal(err)
		}
		if r, err := Read(t.Context(), repo, p.Name); err != nil || r.Claimed != x.claimed || !r.Taken.IsZero() {
			t.Errorf("after %v: %+v, %v", x.result, r, err)
		}
	}
	for range 2 {
		if _, err := book.Claim(t.Context(), repo, p.Name, other); err != nil {
			t.Fatal(err)
		}
		if err := book.Settle(t.Context(), repo, p.Name, other, nil); err != nil {
			t.Fatal(err)
		}
		if r, err := Read(t.Context(), repo, p.Name); err != nil || r.Taken != other || !r.Claimed.IsZero() {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if _, err := book.Claim(t.Context(), repo, p.Name, first); !errors.Is(err, record.ErrConflict) {
		t.Errorf("claimed after another was taken: %v", err)
	}
}
