package search

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/executor/archive"
	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/runs"
	"github.com/ramus-dev/ramus/executor/runs/runstest"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
	"github.com/ramus-dev/ramus/internal/goroutines"
)

// site has the runs of a server, and a Searcher for them.
type site struct {
	Searcher
	t      *testing.T
	repo   *gitd.Repo
	live   runstest.AtWork
	begun  int            // runs
	work   sync.WaitGroup // refreshes
	logged bytes.Buffer   // read after work
}

func newSite(t *testing.T) *site {
	t.Helper()
	goroutines.Watch(t)
	git := repotest.NewServer(t)
	repo, err := git.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	ix, _, err := index.Open(filepath.Join(t.TempDir(), "index.db"))
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, repo: repo, live: runstest.AtWork{}}
	s.Context, s.Path = t.Context(), filepath.Join(t.TempDir(), "search.db")
	s.Log = slog.New(slog.NewTextHandler(&s.logged, nil))
	s.Go = func(f func()) bool { s.work.Go(f); return true }
	s.Runs = &runs.Reader{Context: t.Context(), Git: git, Index: ix, Live: s.live,
		Folder: &live.Folder{Dir: t.TempDir(), Now: time.Now}}
	t.Cleanup(func() {
		s.work.Wait()
		if err := errors.Join(s.Close(), ix.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// run adds a run that has ended, a minute after the one before it.
func (s *site) run(id string, change ...func(*record.Run)) record.Run {
	s.t.Helper()
	c, err := record.ParseCaller("run:otter")
	if err != nil {
		s.t.Fatal(err)
	}
	s.begun++
	r := record.Run{ID: id, Caller: c, Repo: "app", Kind: record.KindExec, State: record.StateComplete, Branch: c.Branch(),
		CreatedAt: time.Date(2026, 5, 4, 12, s.begun, 0, 0, time.UTC)}
	for _, f := range change {
		f(&r)
	}
	if err := s.Runs.Index.Put(r); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// journal returns the text of a journal.
func journal(events ...record.Event) []byte {
	var text []byte
	for i, e := range events {
		e.Seq = int64(i + 1)
		text = append(append(text, record.Marshal(e)...), '\n')
	}
	return text
}

// keep has the journal and the outputs of a run in the live folder.
func (s *site) keep(r record.Run, outputs map[string]string, events ...record.Event) {
	s.t.Helper()
	err := errors.Join(os.MkdirAll(s.Runs.Folder.Output(r), 0o700),
		os.WriteFile(s.Runs.Folder.Journal(r), journal(events...), 0o600))
	for name, text := range outputs {
		err = errors.Join(err, os.WriteFile(filepath.Join(s.Runs.Folder.Output(r), name), []byte(text), 0o600))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// seal has them in the run's ref. The manifest names the outputs, and the lost one, which is not there.
func (s *site) seal(r record.Run, outputs map[string]string, lost string, events ...record.Event) {
	s.t.Helper()
	put := []gitd.File{{Path: archive.JournalFile, Content: journal(events...)}}
	var m record.Manifest
	for name, text := range outputs {
		name = "output/" + name
		put = append(put, gitd.File{Path: name, Content: []byte(text)})
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
		m.Files = append(m.Files, record.ManifestFile{Name: name, Size: int64(len(text)), SHA256: sum})
	}
	if lost != "" {
		m.Files = append(m.Files, record.ManifestFile{Name: "output/" + lost, Size: 1, SHA256: strings.Repeat("0", 64)})
	}
	text, err := json.Marshal(m)
	if err != nil {
		s.t.Fatal(err)
	}
	c := s.commit(gitd.NewCommit{Put: append(put, gitd.File{Path: record.ManifestPath, Content: text}), Message: "sealed"})
	if err := s.repo.Update(s.t.Context(), gitd.RefUpdate{Name: record.RunRef(r.Caller, r.ID), New: c}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) commit(c gitd.NewCommit) gitd.Hash {
	s.t.Helper()
	c.Author = gitd.Person{Name: "Ada", Email: "ada@example.org"}
	h, err := s.repo.WriteCommit(s.t.Context(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// find returns the needles of a run, or of all if it is empty, as KIND SEQ STEP STREAM:LINE TEXT.
func (s *site) find(run string) (list []string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	a, err := s.Search(ctx, Query{Words: "needle", Run: run}, true)
	if err != nil || a.Behind != 0 {
		s.t.Fatalf("%d runs are left, %v", a.Behind, err)
	}
	for _, h := range a.Hits {
		list = append(list, fmt.Sprintf("%s %d %s %s:%d %s", h.Kind, h.Seq, h.Step, h.Stream, h.Line, h.Text))
	}
	return list
}

func (s *site) want(r record.Run, want ...string) {
	s.t.Helper()
	if got := s.find(r.Name()); !slices.Equal(got, want) {
		s.t.Errorf("%s\n got %q\nwant %q", r.ID, got, want)
	}
}

// log returns the log when nothing is at work.
func (s *site) log() string {
	s.work.Wait()
	return s.logged.String()
}

// printed is a stream of a step that is kept in a file.
func printed(file string) *record.Stream { return &record.Stream{Bytes: 6, File: file} }

// TestSearcher finds the texts of a run of an agent, where its outputs are in the live folder and where they are sealed. Of a
// run whose outputs were pruned it finds the rest.
func TestSearcher(t *testing.T) {
	s := newSite(t)
	by := func(r *record.Run) {
		r.Kind, r.Agent, r.Asker.Name = record.KindAgent, &record.AgentCall{Prompt: "Repair it.\nUse a needle."}, "Ada Needle"
	}
	turn, check := string(record.KindAgent), string(record.KindTask)
	events := []record.Event{
		{Type: record.EventStepStarted, Step: "turn", Kind: turn, Command: "needle-agent"},
		{Type: record.EventAgent, Step: "turn", Kind: "plan", Message: "a plan with a needle"},
		{Type: record.EventAgent, Step: "turn", Kind: "tool_call", Message: "grep needle"},
		{Type: record.EventPrompt, Data: record.Marshal(record.Prompt{Key: "1", Text: "One more needle."})},
		{Type: record.EventStepFinished, Step: "turn", Stdout: printed("1.stdout"), Stderr: printed("output/1.stderr")},
		{Type: record.EventStepStarted, Step: "check", Kind: check, Task: "count needle"},
		{Type: record.EventStepFinished, Step: "check", Stdout: printed("6.stdout")},
		{Type: record.EventStepStarted, Step: "turn", Kind: turn},
		{Type: record.EventNote, Step: "turn", Message: "a note about a needle"},
		{Type: record.EventStepFinished, Step: "turn", Stdout: printed("8.stdout"), Stderr: &record.Stream{Bytes: 6, Tail: "needle"}},
		{Type: record.EventStepStarted, Step: "quiet", Kind: check},
		{Type: record.EventStepFinished, Step: "quiet", Stdout: &record.Stream{File: "8.stdout"}, Stderr: printed("none")},
	}
	outputs := map[string]string{
		"1.stdout": "I look for the\nneedle.\n",
		"1.stderr": "there is a needle\n",
		"6.stdout": "none\nnone\n1 needle\n",
		"8.stdout": "It is the needle.",
	}
	want := []string{
		"person 0  :1 Ada Needle",
		"prompt 0  :2 Use a needle.",
		"prompt 0  :1 One more needle.",
		"command 1 turn :1 needle-agent",
		"command 1 turn :1 grep needle",
		"answer 1 turn stdout:2 needle.",
		"output 1 turn stderr:1 there is a needle",
		"command 6 check :1 count needle",
		"output 6 check stdout:3 1 needle",
		"answer 8 turn stdout:1 It is the needle.",
	}
	kept, sealed, pruned := s.run("kept", by), s.run("sealed", by), s.run("pruned", by)
	s.keep(kept, outputs, events...)
	s.seal(sealed, outputs, "", events...)
	s.seal(pruned, nil, "", events...)
	talk := s.run("talk", func(r *record.Run) { r.Kind, r.Asker.Name = record.KindConversation, "Needle" })
	s.want(kept, want...)
	s.want(sealed, want...)
	s.want(pruned, slices.DeleteFunc(slices.Clone(want), func(hit string) bool {
		return strings.HasPrefix(hit, "answer") || strings.HasPrefix(hit, "output")
	})...)
	s.want(talk)
	if log := s.log(); log != "" {
		t.Errorf("logged %s", log)
	}
}

// TestDamagedOutput logs that an output is not as it was, and finds the other runs. A server that ends logs nothing.
func TestDamagedOutput(t *testing.T) {
	s := newSite(t)
	begun := record.Event{Type: record.EventStepStarted, Step: "go", Command: "needle"}
	ended := record.Event{Type: record.EventStepFinished, Step: "go", Stderr: printed("1.stderr")}
	good, bad := s.run("good"), s.run("bad")
	s.seal(good, map[string]string{"1.stderr": "needle\n"}, "", begun, ended)
	s.seal(bad, nil, "1.stderr", begun, ended)

	var cancel context.CancelFunc
	s.Context, cancel = context.WithCancel(t.Context())
	cancel()
	if got := s.find(""); got != nil {
		t.Errorf("a server that ends has found %q", got)
	}
	if log := s.log(); log != "" {
		t.Errorf("a server that ends has logged %s", log)
	}
	s.Context = t.Context()
	s.want(good, "command 1 go :1 needle", "output 1 go stderr:1 needle")
	s.want(bad)
	if log := s.log(); !strings.Contains(log, "does not find everything") || !strings.Contains(log, bad.Name()) {
		t.Errorf("logged %q", log)
	}
}

// TestCommits finds the commits from the start of a run to its head, and the paths that they changed. Commits that are
// gone, and a run without any, leave the rest to be found.
func TestCommits(t *testing.T) {
	s := newSite(t)
	minute := 0
	commit := func(name string, parents ...gitd.Hash) gitd.Hash {
		minute++
		c := gitd.NewCommit{Parents: parents, Message: "needle " + name + "\n\nNo subject has this needle.",
			When: time.Date(2026, 5, 4, 12, minute, 0, 0, time.UTC),
			Put:  []gitd.File{{Path: "needle/" + name, Content: []byte(name)}}}
		if len(parents) > 0 {
			c.From = parents[0]
		}
		return s.commit(c)
	}
	first := commit("first")
	start := commit("start", first)
	side := commit("side", start)
	ahead := commit("two\nlines", start)
	head := commit("merge", ahead, side)
	other := commit("other", first)
	gone := gitd.Hash(strings.Repeat("1", 40))
	for i, x := range []struct {
		start, head gitd.Hash
		want        []string
	}{
		{start, head, []string{"subject 0  :1 needle merge", "subject 0  :2 needle two lines",
			"path 0  :1 needle/merge", "path 0  :2 needle/two lines"}},
		{start, other, []string{"subject 0  :1 needle other", "path 0  :1 needle/other", "path 0  :2 needle/start"}},
		{start, start, nil},
		{start, "", nil},
		{"", head, nil},
		{start, gone, nil},
		{gone, head, nil},
	} {
		r := s.run(fmt.Sprint("run-", i), func(r *record.Run) { r.Start, r.Head, r.Asker.Name = x.start, x.head, "Needle" })
		s.want(r, append([]string{"person 0  :1 Needle"}, x.want...)...)
	}
	if log := s.log(); log != "" {
		t.Errorf("logged %s", log)
	}
}

// TestVersion checks that the version of a run differs when there is more to find, and only then.
func TestVersion(t *testing.T) {
	s := newSite(t)
	r := s.run("one", func(r *record.Run) { r.State = record.StateRunning })
	l, err := s.Runs.Folder.Open(r)
	if err != nil {
		t.Fatal(err)
	}
	defer l.End()
	s.live[r.Name()] = l
	seen := map[string]bool{}
	differs := func(r record.Run) bool {
		t.Helper()
		v, err := passages{s.Runs}.Version(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { seen[v] = true }()
		return !seen[v]
	}
	differs(r)
	for _, kind := range []string{record.EventStepStarted, record.EventAgent, record.EventPrompt, record.EventNote,
		record.EventStepFinished} {
		if err := l.Emit(record.Event{Type: kind, Step: "go"}, false); err != nil {
			t.Fatal(err)
		}
		if got, want := differs(r), kind != record.EventAgent && kind != record.EventNote; got != want {
			t.Errorf("after %s the version differs: %t", kind, got)
		}
	}
	for _, change := range []func(){
		func() { r.State = record.StateAwaitingReview },
		func() { r.State = record.StateFailed },
		func() { r.State = record.StateComplete },
		func() { r.EndedAt = r.CreatedAt.Add(time.Hour) },
		func() { r.Head = "1" },
	} {
		if change(); !differs(r) || differs(r) {
			t.Errorf("the version of %+v", r)
		}
	}
	r.ID, r.State = "unknown", record.StateRunning
	if _, err := (passages{s.Runs}).Version(t.Context(), r); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("the version of an unknown run: %v", err)
	}
}

// TestBehind searches while a run is read that takes long. A search that waits for everything waits for it, and another
// does not.
func TestBehind(t *testing.T) {
	s := newSite(t)
	begun := record.Event{Type: record.EventStepStarted, Step: "go"}
	ended := record.Event{Type: record.EventStepFinished, Step: "go", Stdout: printed("1.stdout")}
	slow, quick := s.run("slow"), s.run("quick")
	s.keep(quick, map[string]string{"1.stdout": "a needle\n"}, begun, ended)
	s.keep(slow, nil, begun, ended)
	pipe := filepath.Join(s.Runs.Folder.Output(slow), "1.stdout")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}

	var a Answer
	var err error
	for until := time.Now().Add(30 * time.Second); (len(a.Hits) != 1 || a.Behind != 1) && time.Now().Before(until); {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		a, err = s.Search(ctx, Query{Words: "needle"}, false)
		cancel()
		if err != nil {
			break
		}
	}
	if err != nil || len(a.Hits) != 1 || a.Hits[0].Run != quick.Name() || a.Behind != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*searchWait)
	defer cancel()
	if _, err := s.Search(ctx, Query{Words: "needle"}, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a search for everything has ended: %v", err)
	}

	out, err := os.OpenFile(pipe, os.O_WRONLY|unix.O_NONBLOCK, 0)
	for until := time.Now().Add(30 * time.Second); errors.Is(err, unix.ENXIO) && time.Now().Before(until); {
		time.Sleep(time.Millisecond) // the refresh does not read it yet
		out, err = os.OpenFile(pipe, os.O_WRONLY|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = out.WriteString("a needle at last\n")
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	want := []string{"output 1 go stdout:1 a needle", "output 1 go stdout:1 a needle at last"}
	if got := s.find(""); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestRefresh has searches wait for a refresh that begins after them. Those that come while one is at work share the next.
func TestRefresh(t *testing.T) {
	s := newSite(t)
	var begun []func()
	s.Go = func(f func()) bool { begun = append(begun, f); return true }
	channel := func() <-chan struct{} {
		t.Helper()
		_, c, err := s.refresh()
		if err != nil || c == nil {
			t.Fatal(c, err)
		}
		return c
	}
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for round := range 2 {
		one, two, three := channel(), channel(), channel()
		if one == two || two != three || closed(one) || closed(two) || len(begun) != round+1 {
			t.Fatalf("%d refreshes have begun, the second waits for another one: %t, the third for the same: %t",
				len(begun), one != two, two == three)
		}
		begun[round]()
		if !closed(one) || !closed(two) {
			t.Error("somebody waits and nothing is at work")
		}
	}
}

// TestClose checks that a Searcher that is closed, or whose server is, finds nothing, and that its index can be opened
// again.
func TestClose(t *testing.T) {
	s := newSite(t)
	s.run("one", func(r *record.Run) { r.Asker.Name = "Needle" })
	closed := func(why string) {
		t.Helper()
		if _, err := s.Search(t.Context(), Query{Words: "needle"}, true); !errors.Is(err, record.ErrClosed) {
			t.Errorf("%s: %v", why, err)
		}
	}
	do := s.Go
	s.Go = func(func()) bool { return false }
	closed("the server is closing")
	s.Go = do
	if got := s.find(""); len(got) != 1 {
		t.Errorf("got %q", got)
	}
	if _, err := s.Search(t.Context(), Query{Words: "no"}, true); !errors.Is(err, ErrQuery) {
		t.Errorf("a short word: %v", err)
	}
	s.work.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	closed("after Close")
	ix, err := Open(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := ix.Close(); err != nil {
		t.Error(err)
	}

	unused := newSite(t)
	if err := unused.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(unused.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a Searcher that was not used has a file: %v", err)
	}
	s = unused
	closed("closed before its first search")

	s = newSite(t)
	s.Path = t.TempDir() // no file
	if err := os.WriteFile(filepath.Join(s.Path, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Search(t.Context(), Query{Words: "needle"}, true); err == nil {
		t.Error("an index is a folder")
	}
}
