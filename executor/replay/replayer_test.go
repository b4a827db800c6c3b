package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

var bot = gitd.Person{Name: "ramus", Email: "ramus@example.com"}

// done is the result of a command.
type done struct {
	file   string // the content of the file f afterwards; empty leaves it as it is
	exit   int
	stdout string
}

// world is a repository, and runs of which do gives the results.
type world struct {
	t    *testing.T
	repo *gitd.Repo
	base gitd.Hash
	run  record.Run
	do   func(command string, time int) done
	fail error // of Submit

	mu      sync.Mutex // guards all below
	times   map[string]int
	ended   map[string]record.Event // by run
	stdout  map[string]string       // by run and step
	removed int
	events  []record.Event // of run
}

func newWorld(t *testing.T) *world {
	t.Helper()
	repo := repotest.NewRepo(t)
	caller, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, repo: repo, times: map[string]int{}, ended: map[string]record.Event{}, stdout: map[string]string{}}
	w.base = w.commit("", "1\n2\n")
	w.run = record.Run{ID: "one", Caller: caller, Kind: record.KindWorkflow, Repo: "app", Base: "main", State: record.StateComplete}
	for _, name := range []string{"refs/heads/main", "refs/heads/" + caller.Branch()} {
		if err := repo.Update(t.Context(), gitd.RefUpdate{Name: name, New: w.base, Old: new(gitd.Hash)}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) commit(parent gitd.Hash, content string) gitd.Hash {
	w.t.Helper()
	c := gitd.NewCommit{From: parent, Author: bot, When: time.Unix(1700000000, 0), Message: "x",
		Put: []gitd.File{{Path: "f", Content: []byte(content)}}}
	if parent != "" {
		c.Parents = []gitd.Hash{parent}
	}
	h, err := w.repo.WriteCommit(w.t.Context(), c)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// finish returns the event of the end of a command.
func (w *world) finish(step string, d done) record.Event {
	e := record.Event{Type: record.EventStepFinished, Step: step, Exit: &d.exit}
	if d.file != "" {
		e.Commit = w.commit(w.base, d.file)
	}
	return e
}

// step adds a command to the run.
func (w *world) step(name string, d done) {
	w.events = append(w.events, record.Event{Type: record.EventStepStarted, Step: name, Kind: "shell", Command: name, Parent: w.base},
		w.finish(name, d))
	w.stdout[w.run.Name()+" "+name] = d.stdout
}

func (w *world) Submit(_ context.Context, q record.Request) (record.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return record.Run{}, w.fail
	}
	n := w.times[q.Command.Shell]
	w.times[q.Command.Shell]++
	c, err := record.RunCaller(fmt.Sprintf("try-%d", len(w.ended)))
	if err != nil {
		return record.Run{}, err
	}
	r := record.Run{ID: "one", Caller: c, Kind: record.KindExec, State: record.StateComplete}
	d := w.do(q.Command.Shell, n)
	w.ended[r.Name()] = w.finish("exec", d)
	w.stdout[r.Name()+" exec"] = d.stdout
	return r, nil
}

func (w *world) Run(_ context.Context, name string) (record.Run, error) {
	caller, _, _ := strings.Cut(name, "/")
	c, err := record.ParseCaller(caller)
	return record.Run{ID: "one", Caller: c, Kind: record.KindExec, State: record.StateComplete}, err
}

func (w *world) Events(_ context.Context, run string, _ int64, _ bool) iter.Seq2[record.Event, error] {
	w.mu.Lock()
	e := w.ended[run]
	w.mu.Unlock()
	return func(yield func(record.Event, error) bool) { yield(e, nil) }
}

func (w *world) Output(_ context.Context, run, step, stream string) (io.ReadCloser, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := ""
	if stream == Stdout {
		text = w.stdout[run+" "+step]
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

func (w *world) replay(times int, steps ...string) (Verdict, error) {
	w.t.Helper()
	list, err := Commands(w.run, w.events)
	if err == nil {
		list, err = Choose(list, steps)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	p := &Replayer{Repo: w.repo, Runs: w, Request: record.Request{Repo: "app", Asker: bot}, Times: times, Bot: bot,
		Now: func() time.Time { return time.Unix(1700000000, 0) },
		Remove: func(context.Context, record.Caller) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.removed++
			return nil
		}}
	return p.Replay(w.t.Context(), w.run, list)
}

// TestReplay finds the commands of which the files, the exit status or the outputs differ, also if they do so only
// sometimes.
func TestReplay(t *testing.T) {
	w := newWorld(t)
	first := map[string]done{"same": {file: "1\n2\n3\n", stdout: "x\n"}, "file": {file: "1\nzwei\n"}, "exit": {}, "output": {stdout: "a\nb\n"}}
	for _, name := range []string{"same", "file", "exit", "output"} {
		w.step(name, first[name])
	}
	w.do = func(command string, n int) done {
		d := first[command]
		if n == 1 { // the second time
			switch command {
			case "file":
				d.file = "1\ndeux\n"
			case "exit":
				d.exit = 3
			case "output":
				d.stdout = "a\nc\n"
			}
		}
		return d
	}
	v, err := w.replay(1)
	if err != nil || v.Result != Reproducible || v.Count(Same) != 4 {
		t.Fatalf("%+v, %v", v, err)
	}

	w.times = map[string]int{}
	if v, err = w.replay(3); err != nil || v.Result != Differs {
		t.Fatalf("%+v, %v", v, err)
	}
	for i, want := range []Difference{{}, {Part: Files, Path: "f", Line: 2, Was: "zwei", Now: "deux"}, {Part: Exit, Was: "0", Now: "3"},
		{Part: Stdout, Line: 2, Was: "b", Now: "c"}} {
		c := v.Commands[i]
		if len(c.Tries) != 3 {
			t.Errorf("%s was tried %d times", c.Step, len(c.Tries))
		}
		if i == 0 {
			if c.Result != Same {
				t.Errorf("%+v", c)
			}
			continue
		}
		if c.Result != Differs || len(c.Differences) != 1 || c.Differences[0] != want || !c.Tries[1].Differs || c.Tries[0].Differs {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	if w.removed != len(w.ended) {
		t.Errorf("%d of %d callers were removed", w.removed, len(w.ended))
	}

	// A replay of one command replaces its result alone.
	if v, err = w.replay(1, "exit"); err != nil || v.Count(Differs) != 2 || v.Count(Same) != 2 {
		t.Errorf("%+v, %v", v, err)
	}
	kept, err := Read(t.Context(), w.repo, w.run)
	if err != nil || kept.Result != Differs || len(kept.Commands) != 4 || kept.Commands[1].Differences[0].Now != "deux" {
		t.Errorf("%+v, %v", kept, err)
	}
}

// TestReplayFails tells errors of the server from those of a command, and removes all callers.
func TestReplayFails(t *testing.T) {
	w := newWorld(t)
	w.step("a", done{})
	w.step("b", done{})
	w.do = func(string, int) done { return done{} }
	w.fail = record.ErrClosed
	if _, err := w.replay(1); !errors.Is(err, record.ErrClosed) {
		t.Error(err)
	}
	w.fail = record.ErrInvalid
	v, err := w.replay(1)
	if err != nil || v.Result != Partly || v.Count(Left) != 2 || !strings.Contains(v.Commands[0].Why, "invalid") {
		t.Errorf("%+v, %v", v, err)
	}
	w.fail = nil
	w.events[0].Parent = gitd.Hash(strings.Repeat("1", 40))
	if v, err = w.replay(1); err != nil || v.Commands[0].Why != "the commit from which it began is gone" || v.Commands[1].Result != Same {
		t.Errorf("%+v, %v", v, err)
	}
	for _, times := range []int{-1, MaxTimes + 1} {
		if _, err := w.replay(times); !errors.Is(err, record.ErrInvalid) {
			t.Error(times, err)
		}
	}
}

// TestRequest begins in the base if the branch of the caller was deleted after a merge.
func TestRequest(t *testing.T) {
	w := newWorld(t)
	w.step("a", done{})
	list, err := Commands(w.run, w.events)
	if err != nil {
		t.Fatal(err)
	}
	p := &Replayer{Repo: w.repo}
	q, err := p.request(t.Context(), w.run, list[0])
	if err != nil || q.Fork == nil || q.Fork.Of != "run:a" {
		t.Errorf("%+v, %v", q, err)
	}
	if err := w.repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/" + w.run.Caller.Branch(), Old: &w.base}); err != nil {
		t.Fatal(err)
	}
	if q, err = p.request(t.Context(), w.run, list[0]); err != nil || q.Fork != nil || q.Base != "main" {
		t.Errorf("%+v, %v", q, err)
	}
}
