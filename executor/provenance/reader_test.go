package provenance

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

var ada = gitd.Person{Name: "Ada", Email: "ada@example.com"}

// world is a repository with runs.
type world struct {
	t       *testing.T
	repo    *gitd.Repo
	runs    []record.Run // the oldest first
	events  map[string][]record.Event
	clock   time.Time
	written map[string]string // the run and the step of each line, by its text
}

func newWorld(t *testing.T) *world {
	t.Helper()
	repo := repotest.NewRepo(t)
	return &world{t: t, repo: repo, events: map[string][]record.Event{}, clock: time.Unix(1700000000, 0).UTC(),
		written: map[string]string{}}
}

func (w *world) Find(c record.Caller, id string) (record.Run, bool) {
	for _, r := range w.runs {
		if r.Caller == c && r.ID == id {
			return r, true
		}
	}
	return record.Run{}, false
}

func (w *world) OfCaller(c record.Caller) (list []record.Run) {
	for _, r := range w.runs {
		if r.Caller == c {
			list = append(list, r)
		}
	}
	return list
}

func (w *world) Runs(_ context.Context, f record.Filter) (list []record.Run, err error) {
	for _, r := range slices.Backward(w.runs) {
		if f.Match(r) && len(list) < f.Max {
			list = append(list, r)
		}
	}
	return list, nil
}

func (w *world) Events(_ context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error] {
	if follow {
		w.t.Errorf("the answer waits for the end of %s", run)
	}
	return func(yield func(record.Event, error) bool) {
		for _, e := range w.events[run] {
			if e.Seq > after && !yield(e, nil) {
				return
			}
		}
	}
}

// tip returns the commit of a branch, and "" if there is none.
func (w *world) tip(branch string) gitd.Hash {
	w.t.Helper()
	h, err := w.repo.Resolve(w.t.Context(), "refs/heads/"+branch)
	if err != nil && !errors.Is(err, gitd.ErrNotFound) {
		w.t.Fatal(err)
	}
	return h
}

// commit writes files on a branch.
func (w *world) commit(branch, message string, files map[string]string, gone ...string) gitd.Hash {
	w.t.Helper()
	w.clock = w.clock.Add(time.Minute)
	old := w.tip(branch)
	c := gitd.NewCommit{From: old, Author: ada, When: w.clock, Message: message, Delete: gone}
	if old != "" {
		c.Parents = []gitd.Hash{old}
	}
	for name, content := range files {
		c.Put = append(c.Put, gitd.File{Path: name, Content: []byte(content)})
	}
	h, err := w.repo.WriteCommit(w.t.Context(), c)
	if err == nil {
		err = w.repo.Update(w.t.Context(), gitd.RefUpdate{Name: "refs/heads/" + branch, New: h, Old: &old})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// begin makes a caller with a run and its branch at main.
func (w *world) begin(id string) *record.Run {
	w.t.Helper()
	caller, err := record.RunCaller(id)
	if err != nil {
		w.t.Fatal(err)
	}
	base := w.tip("main")
	if err := w.repo.Update(w.t.Context(), gitd.RefUpdate{Name: "refs/heads/" + caller.Branch(), New: base,
		Old: new(gitd.Hash)}); err != nil {
		w.t.Fatal(err)
	}
	w.runs = append(w.runs, record.Run{ID: "one", Caller: caller, Kind: record.KindExec, Repo: "app", Base: "main",
		BaseCommit: base,
		Branch:     caller.Branch(), Start: base, Head: base, Asker: ada, CreatedAt: w.clock, State: record.StateComplete})
	return &w.runs[len(w.runs)-1]
}

// step adds a step that writes files to a run.
func (w *world) step(r *record.Run, name, command string, files map[string]string, gone ...string) gitd.Hash {
	w.t.Helper()
	parent := w.tip(r.Branch)
	h := w.commit(r.Branch, fmt.Sprintf("%s\n\n%s: %s\n%s: %s\n%s: %s\n%s: 0", command, record.TrailerCaller, r.Caller,
		record.TrailerRun, r.ID, record.TrailerStep, name, record.TrailerExit), files, gone...)
	r.Head, r.EndedAt = h, w.clock
	w.journal(r, record.Event{Type: record.EventStepStarted, Step: name, Command: command, Parent: parent})
	ok, exit := true, 0
	w.journal(r, record.Event{Type: record.EventStepFinished, Step: name, Command: command, Commit: h, OK: &ok,
		Exit: &exit, Stdout: &record.Stream{Tail: "output of " + name}})
	return h
}

func (w *world) journal(r *record.Run, e record.Event) {
	e.Seq, e.Time = int64(len(w.events[r.Name()])+1), w.clock
	w.events[r.Name()] = append(w.events[r.Name()], e)
}

// merge brings the branch of a run into main.
func (w *world) merge(r *record.Run, strategy gitd.Strategy) gitd.MergeResult {
	w.t.Helper()
	w.clock = w.clock.Add(time.Minute)
	res, err := w.repo.Merge(w.t.Context(), gitd.MergeRequest{From: r.Branch, Into: "main", Strategy: strategy,
		Committer: ada, When: w.clock})
	if err != nil || !res.Merged {
		w.t.Fatalf("%s: %+v, %v", strategy, res, err)
	}
	return res
}

func (w *world) explain(path string, line int, more ...func(*Question)) Answer {
	w.t.Helper()
	q := Question{Repo: w.repo, Rev: "main", Path: path, From: line, To: line}
	for _, change := range more {
		change(&q)
	}
	a, err := (&Reader{Runs: w}).Explain(w.t.Context(), q)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// TestExplain finds the step of a line that reached the base in each way.
func TestExplain(t *testing.T) {
	for _, strategy := range []gitd.Strategy{gitd.StrategyFF, gitd.StrategyMerge, gitd.StrategyRebase,
		gitd.StrategySquash} {
		t.Run(string(strategy), func(t *testing.T) {
			w := newWorld(t)
			w.commit("main", "begin", map[string]string{"f": "1\n2\n3\n"})
			r := w.begin("a")
			w.step(r, "s1", "write four", map[string]string{"f": "1\n2\n3\nfour\n"})
			made := w.step(r, "s2", "write zero", map[string]string{"f": "zero\n1\n2\n3\nfour\n"})
			if strategy != gitd.StrategyFF {
				w.commit("main", "another", map[string]string{"other": "x\n"})
			}
			w.merge(r, strategy)

			a := w.explain("f", 1)
			c := a.Causes[a.Lines[0].Cause]
			if c.Run != "run:a/one" || c.Step != "s2" || c.Command != "write zero" || c.Stdout != "output of s2" ||
				c.Person.Name != "Ada" ||
				c.Exit == nil {
				t.Errorf("%+v", c)
			}
			if copied := strategy == gitd.StrategyRebase; copied != (c.Was == made) || copied != (c.Was != "") {
				t.Errorf("it is a copy of %q, the step made %s", c.Was, made)
			}
			if squashed := strategy == gitd.StrategySquash; squashed != (len(c.Squashes) == 1) {
				t.Errorf("squashes: %v", c.Squashes)
			}
			if c := w.explain("f", 3).Causes[0]; c.Known() || c.Subject != "begin" {
				t.Errorf("a line of a person: %+v", c)
			}
		})
	}
}

// TestForge looks through a squash that a forge made, onto a base that moved.
func TestForge(t *testing.T) {
	w := newWorld(t)
	w.commit("main", "begin", map[string]string{"f": "1\n", "g": "1\n"})
	r := w.begin("a")
	w.step(r, "s1", "write", map[string]string{"f": "1\ntwo\n"})
	w.step(r, "s2", "write", map[string]string{"h": "three\n"})
	w.commit("main", "another", map[string]string{"g": "2\n"})
	squash := w.commit("main", "All of it (#7)", map[string]string{"f": "1\ntwo\n", "h": "three\n"})

	for path, step := range map[string]string{"f": "s1", "h": "s2"} {
		a := w.explain(path, 0)
		c := a.Causes[len(a.Causes)-1]
		if c.Step != step || !slices.Equal(c.Squashes, []gitd.Hash{squash}) {
			t.Errorf("%s: %+v", path, c)
		}
	}
	hidden := w.explain("h", 1, func(q *Question) { q.Sees = func(record.Run) bool { return false } })
	if c := hidden.Causes[0]; c.Commit != squash || c.Known() || c.Claimed != "" {
		t.Errorf("for somebody who does not see the run: %+v", c)
	}
}

// TestForged gives commits trailers that are not true.
func TestForged(t *testing.T) {
	w := newWorld(t)
	first := w.commit("main", "begin", map[string]string{"f": "1\n"})
	r := w.begin("a")
	w.step(r, "s1", "write", map[string]string{"f": "1\n2\n"})
	for _, x := range []struct{ message, claimed string }{
		{"x\n\nRamus-Caller: run:a\nRamus-Run: one\nRamus-Step: s1\nRamus-Exit: 0", "run:a/one"},
		{"x\n\nRamus-Caller: run:a\nRamus-Run: two\nRamus-Step: s1", "run:a/two"},
		{"x\n\nRamus-Caller: ../a\nRamus-Run: one\nRamus-Step: s1", "../a/one"},
		{"x\n\nRamus-Squashed: " + string(first), ""},
		{"x\n\nRamus-Squashed: " + strings.Repeat("1", 40), ""},
	} {
		made := w.commit("main", x.message,
			map[string]string{"f": "1\n" + fmt.Sprint(len(w.written)) + x.message + "\n"})
		w.written[x.message] = ""
		c := w.explain("f", 2).Causes[0]
		if c.Commit != made || c.Known() || c.Claimed != x.claimed || len(c.Squashes) > 0 {
			t.Errorf("%q: %+v", x.message, c)
		}
	}

	// Somebody pushes a commit to the branch of the caller after the step.
	w.commit(r.Branch, "x\n\nRamus-Caller: run:a\nRamus-Run: one\nRamus-Step: s1", map[string]string{"g": "forged\n"})
	if c := w.explain("g", 1, func(q *Question) { q.Rev = r.Branch }).Causes[0]; c.Known() || c.Claimed != "run:a/one" {
		t.Errorf("after the step: %+v", c)
	}
}

// TestWorking explains the commit of a step that works.
func TestWorking(t *testing.T) {
	w := newWorld(t)
	w.commit("main", "begin", map[string]string{"f": "1\n"})
	r := w.begin("a")
	parent := w.step(r, "s1", "write", map[string]string{"f": "1\n2\n"})
	w.journal(r, record.Event{Type: record.EventStepStarted, Step: "s2", Command: "work", Parent: parent})
	w.commit(r.Branch, "work\n\nRamus-Caller: run:a\nRamus-Run: one\nRamus-Step: s2",
		map[string]string{"f": "1\n2\n3\n"})
	for line, step := range map[int]string{2: "s1", 3: "s2"} {
		if c := w.explain("f", line, func(q *Question) { q.Rev = r.Branch }).Causes[0]; c.Step != step {
			t.Errorf("line %d: %+v", line, c)
		}
	}
	// The answer is the same for a run that the asker does not see and for a run that does not exist.
	hide := func(q *Question) { q.Rev, q.Sees = r.Branch, func(record.Run) bool { return false } }
	if c := w.explain("f", 2, hide).Causes[0]; c.Known() || c.Claimed != "run:a/one" {
		t.Errorf("hidden: %+v", c)
	}
}

// TestInside finds the command that made a commit itself.
func TestInside(t *testing.T) {
	w := newWorld(t)
	w.commit("main", "begin", map[string]string{"f": "1\n"})
	r := w.begin("a")
	parent := w.tip(r.Branch)
	inside := w.commit(r.Branch, "Inside", map[string]string{"f": "1\ninside\n"})
	after := w.commit(r.Branch, "rest", map[string]string{"g": "x\n"})
	r.Head, r.EndedAt = after, w.clock
	w.journal(r, record.Event{Type: record.EventStepStarted, Step: "s", Command: "commit it", Parent: parent})
	w.journal(r, record.Event{Type: record.EventStepFinished, Step: "s", Command: "commit it", Commit: after})
	w.merge(r, gitd.StrategyFF)
	if c := w.explain("f", 2).Causes[0]; c.Commit != inside || !c.Inside || c.Command != "commit it" {
		t.Errorf("%+v", c)
	}
}

// TestAgent shows the prompts that an agent got with the turn.
func TestAgent(t *testing.T) {
	w := newWorld(t)
	w.commit("main", "begin", map[string]string{"f": "1\n"})
	r := w.begin("a")
	r.Kind, r.Agent = record.KindAgent, &record.AgentCall{Name: "coder", Prompt: "begin with it"}
	for turn, said := range []string{"", "now more"} {
		name := fmt.Sprint("turn-", turn+1)
		if said != "" {
			w.journal(r, record.Event{Type: record.EventPrompt, Message: said,
				Data: fmt.Appendf(nil, `{"key":"k","text":%q,"by":{"name":"Bob","email":"b@example.com"}}`, said)})
		}
		parent := w.tip(r.Branch)
		w.journal(r, record.Event{Type: record.EventStepStarted, Step: name, Kind: string(record.KindAgent),
			Parent: parent,
			Data:   fmt.Appendf(nil, `{"prompts":%d}`, turn+1)})
		h := w.commit(r.Branch, fmt.Sprintf("%s\n\nRamus-Caller: run:a\nRamus-Run: one\nRamus-Step: %s", name, name),
			map[string]string{fmt.Sprint("f", turn): "x\n"})
		r.Head, r.EndedAt = h, w.clock
		w.journal(r, record.Event{Type: record.EventStepFinished, Step: name, Commit: h})
	}
	w.journal(r, record.Event{Type: record.EventStepStarted, Step: "check", Task: "lib_run_lint"})
	ok := true
	w.journal(r, record.Event{Type: record.EventStepFinished, Step: "check", Task: "lib_run_lint", OK: &ok})
	w.merge(r, gitd.StrategyFF)
	for path, want := range map[string]Prompt{"f0": {"Ada", "begin with it"}, "f1": {"Bob", "now more"}} {
		c := w.explain(path, 1).Causes[0]
		if c.Agent != "coder" || !slices.Equal(c.Prompts, []Prompt{want}) || len(c.Checks) != 1 ||
			c.Checks[0].Check != "lint" {
			t.Errorf("%s: %+v", path, c)
		}
	}
}

// TestRandom makes random histories of callers that write lines, rename the file, and reach the base in all ways. Each
// line has its text from one step, which is the answer. Its commit is that of stock git's blame, unless that is a squash.
func TestRandom(t *testing.T) {
	strategies := []gitd.Strategy{gitd.StrategyMerge, gitd.StrategyRebase, gitd.StrategySquash}
	seeds := uint64(4)
	if os.Getenv("RAMUS_TEST") == "full" {
		seeds = 40
	}
	for seed := range seeds {
		w := newWorld(t)
		r := rand.New(rand.NewPCG(seed, 3))
		path, lines := "f0", []string{"first 0", "first 1", "first 2", "first 3", "first 4", "first 5"}
		w.commit("main", "begin", map[string]string{path: strings.Join(lines, "\n") + "\n"})
		for i := range 8 {
			run := w.begin(fmt.Sprint("c", i))
			for j := range 1 + r.IntN(3) {
				name := fmt.Sprint("s", j)
				text := fmt.Sprintf("line of caller %d step %d", i, j)
				lines = slices.Insert(lines, r.IntN(len(lines)+1), text)
				w.written[text] = run.Name() + " " + name
				var gone []string
				if r.IntN(4) == 0 {
					gone = []string{path}
					path = fmt.Sprintf("f%d-%d", i, j)
				}
				w.step(run, name, "write "+text, map[string]string{path: strings.Join(lines, "\n") + "\n"}, gone...)
			}
			w.commit("main", fmt.Sprint("other ", i), map[string]string{fmt.Sprint("other", i): "x\n"})
			w.merge(run, strategies[r.IntN(len(strategies))])
		}
		stock := stockBlame(t, w.repo, path)
		for _, brief := range []bool{false, true} {
			a := w.explain(path, 0, func(q *Question) { q.Brief = brief })
			if len(a.Lines) != len(lines) {
				t.Fatalf("seed %d: %d lines, want %d", seed, len(a.Lines), len(lines))
			}
			for i, l := range a.Lines {
				c := a.Causes[l.Cause]
				got := ""
				if c.Known() {
					got = c.Run + " " + c.Step
				}
				if c.Commit != stock[i] && !slices.Contains(c.Squashes, stock[i]) {
					t.Errorf("seed %d: %q is of %s (squashed by %v), stock git has %s", seed, l.Text, c.Commit, c.Squashes, stock[i])
				}
				if got != w.written[l.Text] {
					t.Errorf("seed %d: %q is of %q, want %q", seed, l.Text, got, w.written[l.Text])
				}
			}
		}
	}
}

// stockBlame returns the commit of each line of a file of main, as stock git has it.
func stockBlame(t *testing.T, repo *gitd.Repo, path string) (list []gitd.Hash) {
	t.Helper()
	body := true // of the line before
	for row := range strings.Lines(gittest.Run(t, repo.Dir(), "blame", "--line-porcelain", "main", "--", path)) {
		if body {
			hash, _, _ := strings.Cut(row, " ")
			list = append(list, gitd.Hash(hash))
		}
		body = strings.HasPrefix(row, "\t")
	}
	return list
}
