package provenance

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// message returns a message with trailers of the caller run:a, its run and a step. Empty values are left out.
func message(caller, run, step string) string {
	var b strings.Builder
	b.WriteString("x\n\n")
	for _, t := range [][2]string{{record.TrailerCaller, caller}, {record.TrailerRun, run}, {record.TrailerStep, step}, {"Reviewed-By", "Bob"}} {
		if t[1] != "" {
			fmt.Fprintf(&b, "%s: %s\n", t[0], t[1])
		}
	}
	return b.String()
}

// on asks about a branch in place of main.
func on(branch string) func(*Question) { return func(q *Question) { q.Rev = branch } }

// TestSquashBesideSteps looks through a squash whose lines follow those of steps that reached the base as they are.
func TestSquashBesideSteps(t *testing.T) {
	w := newWorld(t)
	w.commit("main", "begin", map[string]string{"f": "1\n"})
	w.commit("main", "A person", map[string]string{"f": "of a person\n1\n"})
	a := w.begin("a")
	w.step(a, "s1", "first", map[string]string{"f": "of a\nof a person\n1\n"})
	w.merge(a, gitd.StrategyFF)
	b := w.begin("b")
	w.step(b, "s2", "last", map[string]string{"f": "of a\nof a person\n1\nof b\n"})
	squash := w.merge(b, gitd.StrategySquash)

	got := w.explain("f", 0)
	var steps []string
	for _, l := range got.Lines {
		c := got.Causes[l.Cause]
		steps = append(steps, c.Run+" "+c.Step)
		if looked := len(c.Squashes) > 0; looked != (c.Step == "s2") || looked && c.Squashes[0] != squash.Commit {
			t.Errorf("line %d: git looked through %v", l.Line, c.Squashes)
		}
	}
	if want := []string{"run:a/one s1", " ", " ", "run:b/one s2"}; !slices.Equal(steps, want) {
		t.Errorf("the steps are %q, want %q", steps, want)
	}
}

// TestSquashOfPushed looks through a squash of a branch to which a person pushed after its last run, and not through one of a
// branch that has no run.
func TestSquashOfPushed(t *testing.T) {
	for _, path := range []string{"run", "no run"} {
		w := newWorld(t)
		w.commit("main", "begin", map[string]string{"f": "1\n"})
		r := w.begin("a")
		w.step(r, "s1", "write", map[string]string{"f": "1\n2\n"})
		branch := r.Branch
		if path == "no run" {
			branch = "topic"
			if err := w.repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/topic", New: r.Head}); err != nil {
				t.Fatal(err)
			}
		}
		pushed := w.commit(branch, "A person", map[string]string{"g": "3\n"})
		squash := w.commit("main", "All\n\n"+gitd.TrailerSquashed+": "+string(pushed), map[string]string{"f": "1\n2\n", "g": "3\n"})
		c := w.explain("f", 2).Causes[0]
		if path == "run" && (c.Step != "s1" || !slices.Equal(c.Squashes, []gitd.Hash{squash})) ||
			path == "no run" && (c.Known() || c.Commit != squash || len(c.Squashes) > 0) {
			t.Errorf("%s: %+v", path, c)
		}
	}
}

// TestSquashOfMerged does not look through a commit that calls itself the squash of work that it contains anyway.
func TestSquashOfMerged(t *testing.T) {
	w := newWorld(t)
	w.commit("main", "begin", map[string]string{"f": "1\n"})
	r := w.begin("a")
	tip := w.step(r, "s1", "write", map[string]string{"f": "1\n2\n"})
	w.merge(r, gitd.StrategyFF)
	made := w.commit("main", "x\n\n"+gitd.TrailerSquashed+": "+string(tip), map[string]string{"f": "1\n2\n3\n"})
	for line, want := range map[int]gitd.Hash{2: tip, 3: made} {
		if c := w.explain("f", line).Causes[0]; c.Commit != want || c.Known() != (want == tip) || len(c.Squashes) > 0 {
			t.Errorf("line %d: %+v", line, c)
		}
	}
}

// TestSquashOfLater has a run that does again what a commit before it did. The commit is not a squash of the run.
func TestSquashOfLater(t *testing.T) {
	w := newWorld(t)
	w.commit("main", "begin", map[string]string{"f": "1\n"})
	made := w.commit("main", "A person", map[string]string{"f": "1\n2\n"})
	w.commit("main", "Undo", map[string]string{"f": "1\n"})
	w.step(w.begin("a"), "s1", "again", map[string]string{"f": "1\n2\n"})
	if c := w.explain("f", 2, on(string(made))).Causes[0]; c.Commit != made || c.Known() || len(c.Squashes) > 0 {
		t.Errorf("%+v", c)
	}
}

// TestTask shows the issue and the pull request of the task that the caller works for.
func TestTask(t *testing.T) {
	whole := record.Task{Ticket: record.Ticket{Tracker: "jira", Key: "APP-1"}, PRNumber: 7, PRURL: "https://example.com/7", Base: "main"}
	for _, x := range []struct {
		name   string
		task   any
		own    *record.Pull // of the run
		hidden bool
		ticket string
		pull   int
	}{
		{name: "whole", task: whole, ticket: "APP-1", pull: 7},
		{name: "hidden", task: whole, hidden: true},
		{name: "broken", task: "x"},
		{name: "neither", task: record.Task{ID: "1"}},
		{name: "pull request", task: record.Task{PRNumber: 8}, pull: 8},
		{name: "of the run", task: whole, own: &record.Pull{Number: 9}, ticket: "APP-1", pull: 9},
		{name: "of the run alone", task: record.Task{}, own: &record.Pull{Number: 9}, pull: 9},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t)
			w.commit("main", "begin", map[string]string{"f": "1\n"})
			r := w.begin("a")
			r.Pull = x.own
			// Two commits of the caller have the same task.
			w.step(r, "s1", "write", map[string]string{"f": "1\n2\n"})
			w.step(r, "s2", "write", map[string]string{"f": "1\n2\n3\n"})
			w.merge(r, gitd.StrategyFF)
			kept, err := json.Marshal(x.task)
			if err != nil {
				t.Fatal(err)
			}
			w.runs = append(w.runs, record.Run{ID: "task", Caller: r.Caller, Kind: record.KindConversation, Repo: "app", Record: kept})
			for _, c := range w.explain("f", 0, func(q *Question) {
				q.Sees = func(r record.Run) bool { return !x.hidden || r.ID != "task" }
			}).Causes[1:] {
				if got := c.Ticket; (got == nil) != (x.ticket == "") || got != nil && got.Key != x.ticket {
					t.Errorf("%s: the issue is %+v", c.Step, got)
				}
				if got := c.Pull; (got == nil) != (x.pull == 0) || got != nil && got.Number != x.pull {
					t.Errorf("%s: the pull request is %+v", c.Step, got)
				}
			}
		})
	}
}

// TestHalfTrailers has commits with some of the trailers of a step. They name no run, so nothing is claimed.
func TestHalfTrailers(t *testing.T) {
	w := newWorld(t)
	w.commit("main", "begin", map[string]string{"f": "1\n"})
	for i, m := range []string{message("", "one", "s1"), message("run:a", "", "s1"), message("run:a", "one", ""),
		message("", "", "s1"), message("", "one", ""), message("run:a", "", "")} {
		made := w.commit("main", m, map[string]string{"f": fmt.Sprint("1\n", i, "\n")})
		if c := w.explain("f", 2).Causes[0]; c.Commit != made || c.Known() || c.Claimed != "" {
			t.Errorf("%q: %+v", m, c)
		}
	}
}

// TestMergeCommit has nothing to say about a merge, whose files come from no single step.
func TestMergeCommit(t *testing.T) {
	w := newWorld(t)
	w.commit("main", "begin", map[string]string{"f": "1\n"})
	r := w.begin("a")
	w.step(r, "s1", "write", map[string]string{"f": "1\n2\n"})
	w.commit("main", "other", map[string]string{"g": "1\n"})
	merged := w.merge(r, gitd.StrategyMerge)
	c, err := (&Reader{Runs: w}).ExplainCommit(t.Context(), w.repo, merged.Commit, nil)
	if err != nil || c.Known() || c.Claimed != "" || c.Commit != merged.Commit || c.Subject == "" {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestExplainCommit explains a commit as if it were that of a line.
func TestExplainCommit(t *testing.T) {
	w := newWorld(t)
	first := w.commit("main", "begin", map[string]string{"f": "1\n"})
	r := w.begin("a")
	made := w.step(r, "s1", "write", map[string]string{"f": "1\n2\n"})
	read := &Reader{Runs: w}
	c, err := read.ExplainCommit(t.Context(), w.repo, made, nil)
	if err != nil || c.Step != "s1" || c.Command != "write" || c.Author.Name != "Ada" || !c.When.Equal(w.clock) {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = read.ExplainCommit(t.Context(), w.repo, first, nil); err != nil || c.Known() || c.Subject != "begin" {
		t.Errorf("%+v, %v", c, err)
	}
	hidden := func(record.Run) bool { return false }
	if c, err = read.ExplainCommit(t.Context(), w.repo, made, hidden); err != nil || c.Known() || c.Claimed != "run:a/one" {
		t.Errorf("hidden: %+v, %v", c, err)
	}
	if _, err = read.ExplainCommit(t.Context(), w.repo, gitd.Hash(strings.Repeat("1", 40)), nil); err == nil {
		t.Error("a commit that does not exist is explained")
	}
	for path, line := range map[string]int{"none": 1, "f": 9} {
		q := Question{Repo: w.repo, Rev: "main", Path: path, From: line, To: line}
		if _, err := read.Explain(t.Context(), q); !errors.Is(err, gitd.ErrNotFound) {
			t.Errorf("%s:%d: %v", path, line, err)
		}
	}
}

// TestRestarted explains the commits of a step that ran twice under one name, and those of a step that it made in another
// repository.
func TestRestarted(t *testing.T) {
	w := newWorld(t)
	w.commit("main", "begin", map[string]string{"f": "1\n"})
	r := w.begin("a")
	w.step(r, "s1", "first", map[string]string{"f": "1\n2\n"})
	w.step(r, "s1", "second", map[string]string{"f": "1\n2\n3\n"})
	for line, command := range map[int]string{2: "first", 3: "second"} {
		if c := w.explain("f", line, on(r.Branch)).Causes[0]; c.Command != command || c.Exit == nil {
			t.Errorf("line %d: %+v", line, c)
		}
	}
	// The run is of another repository, and has changes here, too.
	r.Repo = "other"
	events := w.events[r.Name()]
	for i := range events {
		if e := &events[i]; e.Commit != "" {
			e.With = []record.Move{{Repo: "third", Commit: gitd.Hash(strings.Repeat("2", 40))}, {Repo: "app", Commit: e.Commit}, {Repo: "app"}}
			e.Commit = gitd.Hash(strings.Repeat("1", 40))
		}
	}
	for line, command := range map[int]string{2: "first", 3: "second"} {
		if c := w.explain("f", line, on(r.Branch)).Causes[0]; c.Command != command || c.Was != "" {
			t.Errorf("line %d: %+v", line, c)
		}
	}
}

// TestGone has a journal whose commit was removed from the repository, so that nothing shows of which commit another is a copy.
func TestGone(t *testing.T) {
	w := newWorld(t)
	w.commit("main", "begin", map[string]string{"f": "1\n"})
	r := w.begin("a")
	w.step(r, "s1", "write", map[string]string{"f": "1\n2\n"})
	w.events[r.Name()][1].Commit = gitd.Hash(strings.Repeat("1", 40))
	if c := w.explain("f", 2, on(r.Branch)).Causes[0]; c.Known() || c.Claimed != "run:a/one" {
		t.Errorf("%+v", c)
	}
}

// TestBeginning finds the last beginning of a step before its end, among events of other steps.
func TestBeginning(t *testing.T) {
	var events []record.Event
	for i, e := range []struct{ kind, step string }{{record.EventStepStarted, "a"}, {record.EventStepStarted, "b"},
		{record.EventQueue, "a"}, {record.EventStepFinished, "a"}, {record.EventStepStarted, "a"}, {record.EventStepFinished, "b"},
		{record.EventStepFinished, "a"}, {record.EventStepFinished, "c"}, {record.EventStepStarted, "b"}} {
		events = append(events, record.Event{Seq: int64(i + 1), Type: e.kind, Step: e.step})
	}
	for end, want := range map[int64]int64{4: 1, 6: 2, 7: 5, 8: 0} {
		if got := beginning(events, events[end-1]).Seq; got != want {
			t.Errorf("the step that ended with %d began with %d, want %d", end, got, want)
		}
	}
}

// TestClaimedWhileWorking has commits that name a step at work, and that it did not make.
func TestClaimedWhileWorking(t *testing.T) {
	for _, x := range []string{"its own", "another repository", "no beginning", "before it", "elsewhere", "no branch"} {
		t.Run(x, func(t *testing.T) {
			w := newWorld(t)
			w.commit("main", "begin", map[string]string{"f": "1\n"})
			r := w.begin("a")
			parent := w.step(r, "s1", "write", map[string]string{"f": "1\n2\n"})
			branch := r.Branch
			if x == "elsewhere" || x == "no branch" {
				branch = "main"
			}
			made := w.commit(branch, message("run:a", "one", "s2"), map[string]string{"g": "3\n"})
			switch x {
			case "another repository":
				r.Repo = "other"
			case "no beginning":
				parent = ""
			case "before it":
				parent = made
			case "no branch":
				if err := w.repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/" + r.Branch}); err != nil {
					t.Fatal(err)
				}
			}
			w.journal(r, record.Event{Type: record.EventStepStarted, Step: "s2", Command: "work", Parent: parent})
			c := w.explain("g", 1, on(branch)).Causes[0]
			if known := x == "its own"; c.Known() != known || (c.Claimed == "") != known {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestAgentSteps gives a step of an agent's run the prompts of the last turn before it.
func TestAgentSteps(t *testing.T) {
	w := newWorld(t)
	w.commit("main", "begin", map[string]string{"f": "1\n"})
	r := w.begin("a")
	r.Kind, r.Agent = record.KindAgent, &record.AgentCall{Name: "coder", Prompt: "begin with it"}
	prompts := func(texts ...string) {
		for _, said := range texts {
			w.journal(r, record.Event{Type: record.EventPrompt, Message: said,
				Data: fmt.Appendf(nil, `{"key":%q,"text":%q,"by":{"name":"Bob","email":"b@example.com"}}`, said, said)})
		}
	}
	step := func(name string, heard int) {
		parent := w.tip(r.Branch)
		e := record.Event{Type: record.EventStepStarted, Step: name, Parent: parent, Command: "fix"}
		if heard > 0 {
			e.Kind, e.Data = string(record.KindAgent), fmt.Appendf(nil, `{"prompts":%d}`, heard)
		}
		w.journal(r, e)
		h := w.commit(r.Branch, message("run:a", "one", name), map[string]string{name: "x\n"})
		r.Head, r.EndedAt = h, w.clock
		w.journal(r, record.Event{Type: record.EventStepFinished, Step: name, Commit: h})
	}
	step("before", 0)
	step("turn-1", 1)
	step("lint", 0)
	long := strings.Repeat("é", maxPrompt)
	prompts("two", long)
	step("turn-2", 3)
	step("lint-2", 0)
	var many []string
	for i := range maxPrompts + 1 {
		many = append(many, fmt.Sprint("p", i))
	}
	prompts(many...)
	step("turn-3", 3+len(many))
	for path, want := range map[string][]string{"before": nil, "turn-1": {"begin with it"}, "lint": {"begin with it"}, "turn-2": {"two", long},
		"lint-2": {"two", long}, "turn-3": many[:maxPrompts]} {
		c := w.explain(path, 1, on(r.Branch)).Causes[0]
		if len(c.Prompts) != len(want) {
			t.Errorf("%s: %d prompts, want %d", path, len(c.Prompts), len(want))
			continue
		}
		for i, p := range c.Prompts {
			if p.Text != text.Clip(want[i], maxPrompt) {
				t.Errorf("%s: prompt %d is %.40q, want %.40q", path, i, p.Text, want[i])
			}
		}
	}
}

// TestInsideBounds finds a command that made a commit itself only if the commit came between its beginning and its end, and
// was made while the run worked.
func TestInsideBounds(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(w *world, r *record.Run, inside, after gitd.Hash)
		want   bool
	}{
		{"as it was", func(*world, *record.Run, gitd.Hash, gitd.Hash) {}, true},
		{"no beginning", func(w *world, r *record.Run, _, _ gitd.Hash) {
			w.events[r.Name()] = w.events[r.Name()][1:]
		}, false},
		{"the end has the parent", func(w *world, r *record.Run, _, _ gitd.Hash) {
			w.events[r.Name()][1].Parent = w.events[r.Name()][0].Parent
			w.events[r.Name()] = w.events[r.Name()][1:]
		}, true},
		{"before the step", func(w *world, r *record.Run, inside, _ gitd.Hash) {
			w.events[r.Name()][0].Parent = inside
		}, false},
		{"the step made nothing", func(w *world, r *record.Run, _, _ gitd.Hash) { w.events[r.Name()][1].Commit = "" }, false},
		{"a commit that is gone", func(w *world, r *record.Run, _, _ gitd.Hash) {
			w.events[r.Name()][1].Commit = gitd.Hash(strings.Repeat("1", 40))
		}, false},
		{"after the step", func(w *world, r *record.Run, _, _ gitd.Hash) {
			w.events[r.Name()][1].Commit = w.events[r.Name()][0].Parent
		}, false},
		{"before the run", func(w *world, r *record.Run, _, _ gitd.Hash) { r.Start = r.Head; r.BaseCommit = r.Head }, false},
		{"made as long before the run as clocks differ", func(w *world, r *record.Run, inside, _ gitd.Hash) {
			r.CreatedAt = w.when(inside).Add(clockSkew)
		}, true},
		{"made long before the run", func(w *world, r *record.Run, inside, _ gitd.Hash) {
			r.CreatedAt = w.when(inside).Add(clockSkew + time.Second)
		}, false},
		{"made as long after the run as clocks differ", func(w *world, r *record.Run, inside, _ gitd.Hash) {
			r.EndedAt = w.when(inside).Add(-clockSkew)
		}, true},
		{"made long after the run", func(w *world, r *record.Run, inside, _ gitd.Hash) {
			r.EndedAt = w.when(inside).Add(-clockSkew - time.Second)
		}, false},
		{"the run works", func(_ *world, r *record.Run, _, _ gitd.Hash) { r.EndedAt = time.Time{} }, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t)
			w.commit("main", "begin", map[string]string{"f": "1\n"})
			r := w.begin("a")
			parent := w.tip(r.Branch)
			inside := w.commit(r.Branch, "Inside", map[string]string{"f": "1\ninside\n"})
			after := w.commit(r.Branch, "rest", map[string]string{"g": "x\n"})
			r.Head, r.EndedAt = after, w.clock
			w.journal(r, record.Event{Type: record.EventStepStarted, Step: "s", Command: "commit it", Parent: parent})
			w.journal(r, record.Event{Type: record.EventStepFinished, Step: "s", Command: "commit it", Commit: after})
			x.change(w, r, inside, after)
			c := w.explain("f", 2, on(r.Branch)).Causes[0]
			if c.Commit != inside || c.Known() != x.want || c.Inside != x.want {
				t.Errorf("%+v", c)
			}
		})
	}
}

// when returns the time of a commit.
func (w *world) when(h gitd.Hash) time.Time {
	w.t.Helper()
	list, err := w.repo.Commits(w.t.Context(), []gitd.Hash{h})
	if err != nil || len(list) != 1 {
		w.t.Fatal(list, err)
	}
	return list[0].When
}

// TestChecksAfter shows the checks that ran after a step, in its run and in the next ones of the caller.
func TestChecksAfter(t *testing.T) {
	w := newWorld(t)
	w.commit("main", "begin", map[string]string{"f": "1\n"})
	r := w.begin("a")
	check := func(r *record.Run, n int) {
		name, ok := fmt.Sprint("check", n), true
		w.journal(r, record.Event{Type: record.EventStepStarted, Step: name, Task: "lib_run_lint"})
		w.journal(r, record.Event{Type: record.EventStepFinished, Step: name, Task: "lib_run_lint", OK: &ok})
	}
	check(r, 0)
	w.step(r, "s1", "write", map[string]string{"f": "1\n2\n"})
	check(r, 1)
	w.step(r, "s2", "write", map[string]string{"f": "1\n2\n3\n"})
	check(r, 2)
	w.merge(r, gitd.StrategyFF)
	one := *r
	other := func(id string, change func(*record.Run)) {
		next := one
		next.ID = id
		if change != nil {
			change(&next)
		}
		w.runs = append(w.runs, next)
		check(&next, len(w.runs)+1)
	}
	other("request", func(r *record.Run) { r.Kind = record.KindRequest })
	other("hidden", nil)
	other("two", nil)
	checks := func(line int, more ...func(*Question)) (list []string) {
		for _, c := range w.explain("f", line, append(more, func(q *Question) {
			q.Sees = func(r record.Run) bool { return r.ID != "hidden" }
		})...).Causes[0].Checks {
			list = append(list, c.Run+" "+c.Step)
		}
		return list
	}
	for line, want := range map[int][]string{2: {"run:a/one check1", "run:a/one check2", "run:a/two check5"},
		3: {"run:a/one check2", "run:a/two check5"}} {
		if got := checks(line); !slices.Equal(got, want) {
			t.Errorf("line %d: %q, want %q", line, got, want)
		}
	}
	if got := checks(2, func(q *Question) { q.Brief = true }); got != nil {
		t.Errorf("a brief answer has %q", got)
	}
	// Ten later runs are searched.
	for i := range maxLater {
		other(fmt.Sprint("n", i), nil)
	}
	if got := checks(3); len(got) != 2+maxLater-3 || got[len(got)-1] != fmt.Sprintf("run:a/n6 check%d", len(w.runs)+1-3) {
		t.Errorf("%d checks: %q", len(got), got)
	}
	for i := range 2 * maxChecks {
		check(&one, 100+i)
	}
	if got := checks(3); len(got) != maxChecks {
		t.Errorf("%d checks, want %d", len(got), maxChecks)
	}
}

// TestWork compares the work of commits with that of a run by its files, and by what it changes.
func TestWork(t *testing.T) {
	w := newWorld(t)
	base := w.commit("main", "begin", map[string]string{"f": "1\n", "old": "1\n"})
	r := w.begin("a")
	w.step(r, "s1", "write", map[string]string{"f": "2\n"})
	w.step(r, "s2", "write", map[string]string{"g": "3\n"})
	run := func(change func(*record.Run)) Work {
		t.Helper()
		r := *r
		change(&r)
		work, err := WorkOfRun(t.Context(), w.repo, r)
		if err != nil {
			t.Fatal(err)
		}
		return work
	}
	whole, gone := run(func(*record.Run) {}), gitd.Hash(strings.Repeat("1", 40))
	for name, change := range map[string]func(*record.Run){
		"no base":             func(r *record.Run) { r.BaseCommit = "" },
		"no head":             func(r *record.Run) { r.Head = "" },
		"a head that is gone": func(r *record.Run) { r.Head = gone },
	} {
		if work := run(change); !work.IsZero() || work.Is(whole) || whole.Is(work) || work.Is(work) {
			t.Errorf("a run with %s has work", name)
		}
	}
	for i, x := range []struct {
		before, files map[string]string // of the commit before and of the commit
		want          bool
	}{
		{nil, map[string]string{"f": "2\n", "g": "3\n"}, true},
		{map[string]string{"other": "1\n"}, map[string]string{"f": "2\n", "g": "3\n"}, true}, // the same changes
		{map[string]string{"f": "other\n"}, map[string]string{"f": "2\n", "g": "3\n"}, true}, // the same files
		{map[string]string{"other": "1\n"}, map[string]string{"f": "2\n"}, false},
		{map[string]string{"other": "1\n"}, map[string]string{"f": "2\n", "g": "4\n"}, false},
		{map[string]string{"f": "2\n", "g": "3\n"}, map[string]string{}, false}, // it changes nothing
	} {
		branch := fmt.Sprint("b", i)
		if err := w.repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/" + branch, New: base}); err != nil {
			t.Fatal(err)
		}
		if x.before != nil {
			w.commit(branch, "before", x.before)
		}
		commits, err := w.repo.Commits(t.Context(), []gitd.Hash{w.commit(branch, "x", x.files)})
		if err != nil {
			t.Fatal(err)
		}
		work, err := WorkOfCommit(t.Context(), w.repo, commits[0])
		if err != nil || work.Is(whole) != x.want || work.IsZero() != (len(x.files) == 0) {
			t.Errorf("%d: %+v, %v", i, work, err)
		}
	}
}
