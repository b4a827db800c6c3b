package tournament

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// TestJudgeQuestion has three entries, of which the second one failed. The question has the others in their order, and the
// larger diff is clipped.
func TestJudgeQuestion(t *testing.T) {
	repo := repotest.NewRepo(t)
	p := Plan{Name: "cup", Repo: repo.Name(), Task: "x"}
	if err := p.SetEntries([]string{"a"}, 3); err != nil {
		t.Fatal(err)
	}
	commit := func(n int, parents ...gitd.Hash) gitd.Hash {
		h, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Put: []gitd.File{{Path: "f", Content: []byte(strings.Repeat("x\n", n))}},
			Parents: parents, Author: gitd.Person{Name: "Ada", Email: "ada@example.org"}, When: time.Unix(1700000000, 0), Message: "x"})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	p.At = commit(1)
	var results []Result
	for i, n := range []int{100_000, 2, 3} {
		r := entry(i + 1)
		r.Entry, r.Head, r.Added = p.Entries[i], commit(n, p.At), n
		results = append(results, r)
	}
	results[1].Verdict = record.VerdictFailed
	same := func(s string) string { return s }
	standing := Standing{Record: Record{Plan: p}, Places: Rank(results, nil), Ended: true}
	var asked string
	judge := func(s Standing, answer string, err error) (*Opinion, error) {
		asked = ""
		return Judge(t.Context(), repo, s, same, func(_ context.Context, q Question) (string, error) {
			asked = q.Prompt
			return answer, err
		}, time.Unix(1700000000, 0))
	}
	answer := `{"order":[3,1],"words":"x"}`
	o, err := judge(standing, answer+strings.Repeat(" ", judgeAnswer-len(answer)), nil)
	if err != nil || o.Order[0] != p.Entries[2].Caller || o.Order[1] != p.Entries[0].Caller || o.Of != heads(results) || o.Words != "x" {
		t.Fatalf("%+v, %v", o, err)
	}
	var document struct{ Entries []judged }
	if err := json.Unmarshal([]byte(asked), &document); err != nil {
		t.Fatal(err)
	}
	if e := document.Entries; len(e) != 2 || e[0].Entry != 1 || e[1].Entry != 3 || !e[0].Clipped || e[1].Clipped ||
		len(e[0].Diff) != judgeDiffs/2 || !strings.Contains(e[1].Diff, "+x\n+x\n") || e[1].Added != 3 {
		t.Errorf("%.3000s", asked)
	}
	if _, err := judge(standing, answer+strings.Repeat(" ", judgeAnswer), nil); err == nil {
		t.Error("a long answer was read")
	}
	gone := errors.New("gone")
	if _, err := judge(standing, "", gone); !errors.Is(err, gone) {
		t.Error(err)
	}

	// A diff that cannot be read is an error. Nothing is asked about one entry, and one that was dropped does not count.
	broken := append([]Result{}, results...)
	broken[2].Head = gitd.Hash(strings.Repeat("1", 40))
	standing.Places = Rank(broken, nil)
	if o, err := judge(standing, answer, nil); err == nil || asked != "" {
		t.Errorf("%+v", o)
	}
	results[2].Dropped = true
	standing.Places = Rank(results, nil)
	if o, err := judge(standing, answer, nil); o != nil || err != nil || asked != "" {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestChange has many changes at once. Each is there in the end, or its error says that it is not.
func TestChange(t *testing.T) {
	repo := repotest.NewRepo(t)
	book := &Book{Bot: gitd.Person{Name: "ramus", Email: "ramus@example.com"}, Now: func() time.Time { return time.Unix(1700000000, 0) }}
	p := Plan{Name: "cup", Repo: repo.Name(), Task: "x"}
	if err := p.SetEntries([]string{"a"}, 2); err != nil {
		t.Fatal(err)
	}
	if err := book.Make(t.Context(), repo, p); err != nil {
		t.Fatal(err)
	}
	// The other one changes it between reading and writing, once.
	calls := 0
	r, err := book.Change(t.Context(), repo, p.Name, func(r *Record) error {
		if calls++; calls == 1 {
			if _, err := book.Change(t.Context(), repo, p.Name, func(r *Record) error { r.Begun = true; return nil }); err != nil {
				t.Error(err)
			}
		}
		r.Taken = p.Entries[0].Caller
		return nil
	})
	if err != nil || calls != 2 || !r.Begun || r.Taken.IsZero() {
		t.Errorf("%d calls: %+v, %v", calls, r, err)
	}
	calls = 0
	_, err = book.Change(t.Context(), repo, p.Name, func(r *Record) error {
		calls++
		_, err := book.Change(t.Context(), repo, p.Name, func(r *Record) error { r.Task = fmt.Sprint(calls); return nil })
		return err
	})
	if !errors.Is(err, gitd.ErrConflict) || calls != recordSaves {
		t.Errorf("%d calls: %v", calls, err)
	}
}
