package tournament

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// TestSame tells plans apart that ask for different work, and no others.
func TestSame(t *testing.T) {
	plan := func(change func(*Plan)) Plan {
		p := Plan{Name: "cup", Repo: "app", Base: "main", Of: "run:a", Task: "x", Checks: []string{"lib_run_lint"}}
		if err := p.SetEntries([]string{"a", "b"}, 2); err != nil {
			t.Fatal(err)
		}
		change(&p)
		return p
	}
	p := plan(func(*Plan) {})
	for name, x := range map[string]struct {
		change func(*Plan)
		same   bool
	}{
		"nothing":           {func(*Plan) {}, true},
		"another time":      {func(p *Plan) { p.Time, p.At, p.By.Name = time.Unix(1, 0), "1", "Bob" }, true},
		"a refused entry":   {func(p *Plan) { p.Entries[0].Refused = "no room" }, true},
		"a repository":      {func(p *Plan) { p.Repo = "x" }, false},
		"a base":            {func(p *Plan) { p.Base = "x" }, false},
		"a fork":            {func(p *Plan) { p.Of = "" }, false},
		"a task":            {func(p *Plan) { p.Task = "y" }, false},
		"a check":           {func(p *Plan) { p.Checks = append(p.Checks, "x") }, false},
		"fewer entries":     {func(p *Plan) { p.Entries = p.Entries[:3] }, false},
		"another agent":     {func(p *Plan) { p.Entries[3].Agent = "c" }, false},
		"another caller":    {func(p *Plan) { p.Entries[3].Caller = p.Entries[2].Caller }, false},
		"the first's agent": {func(p *Plan) { p.Entries[0].Agent = "c" }, false},
	} {
		q := plan(x.change)
		if p.Same(q) != x.same || q.Same(p) != x.same {
			t.Errorf("%s: the same: %t", name, p.Same(q))
		}
	}
}

// TestRequest makes the request of an entry, which begins at the base or as a fork.
func TestRequest(t *testing.T) {
	p := Plan{Name: "cup", Repo: "app", Base: "main", At: "1", Task: "x", Checks: []string{"lib_run_lint"}, By: gitd.Person{Name: "Ada"}}
	if err := p.SetEntries([]string{"a", "b"}, 1); err != nil {
		t.Fatal(err)
	}
	r := p.request(p.Entries[1])
	if r.At != "1" || r.Fork != nil || r.Caller != p.Entries[1].Caller || r.Agent.Name != "b" || r.Agent.Prompt != "x" || len(r.Agent.Checks) != 1 {
		t.Errorf("%+v", r)
	}
	p.Of = "run:a"
	if r = p.request(p.Entries[0]); r.At != "" || r.Fork == nil || r.Fork.Of != "run:a" || r.Fork.Commit != "1" {
		t.Errorf("%+v", r)
	}
}

// TestBook keeps, lists and forgets tournaments. One whose record is too large, or broken, is not read, and hides no others.
func TestBook(t *testing.T) {
	repo := repotest.NewRepo(t)
	b := &Book{Bot: gitd.Person{Name: "ramus", Email: "ramus@example.org"}, Now: func() time.Time { return time.Unix(1_700_000_000, 0) }}
	for _, name := range []string{"one", "two"} {
		if err := b.Make(t.Context(), repo, Plan{Name: name, Repo: "old-name", Task: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Make(t.Context(), repo, Plan{Name: "one", Task: "y"}); !errors.Is(err, gitd.ErrConflict) {
		t.Errorf("a second one with the name: %v", err)
	}
	if r, err := Read(t.Context(), repo, "one"); err != nil || r.Task != "x" || r.Repo != repo.Name() {
		t.Errorf("%+v, %v", r, err)
	}
	for _, name := range []string{"none", "../one", ""} {
		if _, err := Read(t.Context(), repo, name); !errors.Is(err, gitd.ErrNotFound) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, text := range map[string]string{"broken": "{", "large": `{"task":"` + strings.Repeat("x", 4<<20) + `"}`} {
		h, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Author: b.Bot, When: b.Now(), Message: "x",
			Put: []gitd.File{{Path: recordFile, Content: []byte(text)}}})
		if err == nil {
			err = repo.Update(t.Context(), gitd.RefUpdate{Name: ref(name), New: h})
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Read(t.Context(), repo, name); err == nil {
			t.Errorf("the %s one is read", name)
		}
	}
	list, err := List(t.Context(), repo)
	if err != nil || len(list) != 2 || list[0].Name != "one" || list[1].Name != "two" {
		t.Errorf("%+v, %v", list, err)
	}
	// Somebody else changes it each time.
	calls := 0
	if _, err := b.Change(t.Context(), repo, "one", func(*Record) error {
		calls++
		_, at, err := read(t.Context(), repo, "one")
		if err == nil {
			err = b.write(t.Context(), repo, Record{Plan: Plan{Name: "one", Task: strings.Repeat("y", calls)}}, at)
		}
		return err
	}); !errors.Is(err, gitd.ErrConflict) || calls != recordSaves {
		t.Errorf("%d calls: %v", calls, err)
	}
	if err := b.Forget(t.Context(), repo, "one"); err != nil {
		t.Fatal(err)
	}
	if err := b.Forget(t.Context(), repo, "one"); !errors.Is(err, gitd.ErrNotFound) {
		t.Errorf("forgotten twice: %v", err)
	}
}
