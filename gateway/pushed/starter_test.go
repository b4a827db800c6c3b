package pushed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gitd"
)

// work is an executor whose runs are only records. It begins one run for each key.
type work struct {
	lookup.Executor

	requests []record.Request           // those that began a run
	refuse   func(record.Request) error // nil refuses nothing
	events   []record.Event             // of each run
	broken   error                      // ends the events
	end      record.Run                 // of each run, apart from its name
	lost     error                      // of Run
	followed []string                   // runs whose events were read until their end
}

func (w *work) OfCaller(record.Caller) []record.Run { return nil }

func (w *work) Submit(_ context.Context, r record.Request) (record.Run, error) {
	if w.refuse != nil {
		if err := w.refuse(r); err != nil {
			return record.Run{}, err
		}
	}
	at := slices.IndexFunc(w.requests, func(x record.Request) bool { return x.Key == r.Key })
	if at < 0 {
		at = len(w.requests)
		w.requests = append(w.requests, r)
	}
	return w.run(at), nil
}

func (w *work) run(n int) record.Run {
	caller, err := record.RunCaller("otter")
	if err != nil {
		panic(err)
	}
	r := w.end
	r.Caller, r.ID, r.Branch, r.Repo = caller, fmt.Sprint("r", n), caller.Branch(), "app"
	return r
}

func (w *work) Run(_ context.Context, name string) (record.Run, error) {
	for n := range w.requests {
		if r := w.run(n); r.Name() == name {
			return r, w.lost
		}
	}
	return record.Run{}, record.ErrNotFound
}

func (w *work) Events(_ context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		if follow && after == 0 {
			w.followed = append(w.followed, run)
		}
		for _, e := range w.events {
			if !yield(e, nil) {
				return
			}
		}
		if w.broken != nil {
			yield(record.Event{}, w.broken)
		}
	}
}

// files returns the files of the workflows that were started, in order.
func (w *work) files() (list []string) {
	for _, r := range w.requests {
		list = append(list, r.File)
	}
	return list
}

// ada may do everything.
var ada = gitd.Grant{Subject: "ada", Repo: "*", Scopes: []string{gitd.ScopeAdmin}}

// notices returns the number of notices that are kept.
func (h *house) notices() int {
	h.t.Helper()
	files, err := filepath.Glob(filepath.Join(h.s.Dir, "*"))
	if err != nil {
		h.t.Fatal(err)
	}
	return len(files)
}

// push makes a push that changes refs, and returns what the person sees before and after its end.
func (h *house) push(ctx context.Context, p gitd.Push) (before, after string) {
	h.t.Helper()
	happened, err := h.s.Expect(ctx, p)
	if err != nil {
		h.t.Fatal(err)
	}
	if happened == nil {
		return "", ""
	}
	var out, rest strings.Builder
	if follow := happened(ctx, p, &out); follow != nil {
		follow(ctx, &rest)
	}
	return out.String(), rest.String()
}

// TestStartEvents starts the workflows of the base whose branches and paths match a push.
func TestStartEvents(t *testing.T) {
	for _, test := range []struct {
		what   string
		branch string // of the second commit, which adds file
		file   string
		made   bool // the push makes the branch
		want   string
	}{
		{"no branch matches", "topic", "src/a", false, "any.yaml"},
		{"branches match", "release/1", "src/a", false, "any.yaml release.yaml"},
		{"paths match", "topic", "docs/a", false, "any.yaml docs.yaml"},
		{"paths of a new branch are compared with the base", "topic", "docs/a", true, "any.yaml docs.yaml"},
		{"other paths of a new branch", "topic", "src/a", true, "any.yaml"},
		{"the base", "main", "src/a", false, "any.yaml"},
		{"the base gets a workflow", "main", ".ramus/workflows/new.yaml", false, "any.yaml new.yaml"},
		{"a branch gets a workflow", "topic", ".ramus/workflows/new.yaml", false, "any.yaml"},
		{"the branch of a caller", "ramus/run-otter", "docs/a", false, ""},
	} {
		h := newHouse(t)
		first := h.commit("main", nil, workflowFile("broken.yaml", "on: pushh"),
			workflowFile("release.yaml", "id: release\non: {push: {branches: ['release/*']}}\n"),
			workflowFile("any.yaml", "id: any\non: push\n"),
			workflowFile("docs.yaml", "id: docs\non: {push: {paths: ['docs/**']}}\n"))
		ref := gitd.PushedRef{Name: "refs/heads/" + test.branch, Old: first}
		if test.made {
			ref.Old = ""
		}
		file := gitd.File{Path: test.file, Content: []byte("id: new\non: push\n")}
		ref.Commit = h.commit("", []gitd.Hash{first}, file)
		p := gitd.Push{Repo: "app", Grant: ada, Refs: []gitd.PushedRef{ref}}
		if test.branch == "main" { // its workflows count once it has moved
			happened, err := h.s.Expect(t.Context(), p)
			if err != nil || happened == nil {
				t.Fatal(err)
			}
			h.commit("main", []gitd.Hash{first}, file)
			var out strings.Builder
			if follow := happened(t.Context(), p, &out); follow != nil {
				t.Errorf("%s: the push waits for the workflows of events", test.what)
			}
		} else {
			shown, _ := h.push(t.Context(), p)
			if n := strings.Count(shown, "broken.yaml starts nothing: line 1"); n != 1 && test.want != "" {
				t.Errorf("%s: got %q, want one line about the mistake", test.what, shown)
			}
			if n := strings.Count(shown, "`ramus follow "); n != len(h.work.requests) {
				t.Errorf("%s: got %q, want a line for each of %d runs", test.what, shown, len(h.work.requests))
			}
		}
		var got []string
		for _, r := range h.work.requests {
			got = append(got, strings.TrimPrefix(r.File, ".ramus/workflows/"))
			if r.At != ref.Commit || !r.Anywhere || r.Repo != "app" || r.Asker.ID == "" {
				t.Errorf("%s: got %+v, want a run at %s for the person", test.what, r, ref.Commit)
			}
		}
		if slices.Sort(got); strings.Join(got, " ") != test.want {
			t.Errorf("%s: got %q, want %q", test.what, got, test.want)
		}
		if n := h.notices(); n != 0 {
			t.Errorf("%s: %d notices are left, want 0", test.what, n)
		}
	}
}

// TestStartEventsOnce starts no second run for the same branch, commit and text.
func TestStartEventsOnce(t *testing.T) {
	h := newHouse(t)
	at := h.commit("main", nil, workflowFile("a.yaml", "id: a\non: push\n"))
	push := func(branch string) gitd.Push {
		return gitd.Push{Repo: "app", Grant: ada, Refs: []gitd.PushedRef{{Name: "refs/heads/" + branch, Commit: at}}}
	}
	for i, branch := range []string{"a", "a", "b"} {
		h.push(t.Context(), push(branch))
		if got, want := len(h.work.requests), []int{1, 1, 2}[i]; got != want {
			t.Errorf("push %d of %s: got %d runs, want %d", i+1, branch, got, want)
		}
	}
}

// TestStartEventsBound starts as many runs as a push may, and says that others were left out.
func TestStartEventsBound(t *testing.T) {
	for _, test := range []struct {
		branches int
		want     int
		said     bool
	}{{maxStarted, maxStarted, false}, {maxStarted + 2, maxStarted, true}} {
		h := newHouse(t)
		at := h.commit("main", nil, workflowFile("a.yaml", "id: a\non: push\n"))
		p := gitd.Push{Repo: "app", Grant: ada}
		for n := range test.branches {
			p.Refs = append(p.Refs, gitd.PushedRef{Name: fmt.Sprint("refs/heads/b", n), Commit: at})
		}
		shown, _ := h.push(t.Context(), p)
		if got := len(h.work.requests); got != test.want {
			t.Errorf("%d branches: got %d runs, want %d", test.branches, got, test.want)
		}
		if got := strings.Count(shown, "the others were left out") == 1; got != test.said {
			t.Errorf("%d branches: got %q, want a line about the bound: %t", test.branches, shown, test.said)
		}
	}
}

// TestStartEventsOfOwnRepo starts nothing in a repository of records, and nothing for tags.
func TestStartEventsOfOwnRepo(t *testing.T) {
	h := newHouse(t)
	at := h.commit("main", nil, workflowFile("a.yaml", "id: a\non: push\n"))
	for _, n := range []*notice{
		{Repo: lookup.InboxRepo, Refs: []gitd.PushedRef{{Name: "refs/heads/main", Commit: at}}},
		{Repo: "app", At: at, Refs: []gitd.PushedRef{{Name: "refs/tags/v1", Commit: at}}},
		{Repo: "app", At: at},
	} {
		var out strings.Builder
		if done := h.s.startEvents(t.Context(), h.s.who(ada), n, &screen{out: &out}); !done || out.Len() > 0 {
			t.Errorf("%+v: got %t and %q, want true and nothing", n, done, out.String())
		}
		if keep, err := h.s.look(t.Context(), n); keep != keepNothing || err != nil {
			t.Errorf("%+v: got %v, %v, want keepNothing", n, keep, err)
		}
	}
	if got := h.work.files(); len(got) > 0 {
		t.Errorf("got %q, want no run", got)
	}
}

// TestStartEventsErrors keeps the notice of a push exactly if a later start may succeed.
func TestStartEventsErrors(t *testing.T) {
	for _, test := range []struct {
		what string
		err  error
		left int
		said string
	}{
		{"an error of the server", errors.New("the disk is full"), 1, "a.yaml does not start yet, and the next start of the server"},
		{"a conflict", record.ErrConflict, 1, "a.yaml does not start yet, and the next start of the server"},
		{"a mistake", record.ErrInvalid, 0, "a.yaml does not start: "},
	} {
		h := newHouse(t)
		at := h.commit("main", nil, workflowFile("a.yaml", "id: a\non: push\n"), workflowFile("b.yaml", "id: b\non: push\n"))
		h.work.refuse = func(r record.Request) error {
			if strings.HasSuffix(r.File, "a.yaml") {
				return test.err
			}
			return nil
		}
		p := gitd.Push{Repo: "app", Grant: ada, Refs: []gitd.PushedRef{{Name: "refs/heads/topic", Commit: at}}}
		shown, _ := h.push(t.Context(), p)
		if got := h.notices(); got != test.left || !strings.Contains(shown, test.said) {
			t.Errorf("%s: got %d notices and %q, want %d and %q", test.what, got, shown, test.left, test.said)
		}
		if got := h.work.files(); len(got) != 1 || !strings.HasSuffix(got[0], "b.yaml") {
			t.Errorf("%s: got %q, want the other workflow", test.what, got)
		}
	}
	h := newHouse(t)
	n := &notice{Repo: "none", Refs: []gitd.PushedRef{{Name: "refs/heads/main", Commit: "1"}}}
	var out strings.Builder
	if done := h.s.startEvents(t.Context(), h.s.who(ada), n, &screen{out: &out}); !done ||
		!strings.Contains(out.String(), "cannot read the workflows of the base") {
		t.Errorf("no repository: got %t and %q, want true and an error", done, out.String())
	}
}

// TestExpectAsked starts the work that a push asks for, and follows it after the push unless the person detaches.
func TestExpectAsked(t *testing.T) {
	for _, test := range []struct {
		what     string
		options  []string
		refs     []string
		requests int
		followed bool
		before   []string // lines that the push shows
		after    string
	}{
		{"a task", []string{"task=lib_run_lint"}, []string{"refs/heads/topic"}, 1, true,
			[]string{"ramus: run:otter/r0 on ramus/run-otter"}, "ramus: complete in 2.0 s\n"},
		{"detached", []string{"test", "detach"}, []string{"refs/heads/topic"}, 1, false,
			[]string{"ramus: run:otter/r0 on ramus/run-otter", "ramus: `ramus follow run:otter/r0` shows it"}, ""},
		{"by the name of a ref", nil, []string{gitd.AskRefs + "ci"}, 1, true,
			[]string{"ramus: run:otter/r0 on ramus/run-otter"}, "ramus: complete in 2.0 s\n"},
		{"for review", nil, []string{gitd.ReviewRefs + "main"}, 1, true,
			[]string{"ramus: run:otter/r0 on ramus/run-otter"}, "ramus: complete in 2.0 s\n"},
		{"options without a meaning", []string{"ci.skip"}, []string{"refs/heads/topic"}, 0, false,
			[]string{"ramus: the option ci.skip means nothing here"}, ""},
		{"a mistake", []string{"task="}, []string{"refs/heads/topic"}, 0, false,
			[]string{`ramus: invalid option "task=": the value is missing`}, ""},
		{"two refs", []string{"test"}, []string{"refs/heads/a", "refs/heads/b"}, 0, false,
			[]string{"ramus: invalid push: 2 refs were changed, and work begins on one branch"}, ""},
		{"nothing", nil, []string{"refs/heads/topic"}, 0, false, nil, ""},
	} {
		h := newHouse(t)
		at := h.commit("main", nil, gitd.File{Path: "a"})
		begin := time.Unix(1_700_000_000, 0)
		h.work.end = record.Run{State: record.StateComplete, CreatedAt: begin, EndedAt: begin.Add(2 * time.Second)}
		p := gitd.Push{Repo: "app", Grant: ada, Options: test.options}
		for _, name := range test.refs {
			p.Refs = append(p.Refs, gitd.PushedRef{Name: name, Commit: at})
		}
		before, after := h.push(t.Context(), p)
		var want string
		for _, line := range test.before {
			want += line + "\n"
		}
		if before != want || after != test.after {
			t.Errorf("%s: got %q and %q, want %q and %q", test.what, before, after, want, test.after)
		}
		if got := len(h.work.requests); got != test.requests || len(h.work.followed) > 0 != test.followed {
			t.Errorf("%s: got %d runs, followed %q, want %d and %t", test.what, got, h.work.followed, test.requests, test.followed)
		}
		if got := h.notices(); got != 0 {
			t.Errorf("%s: %d notices are left, want 0", test.what, got)
		}
	}
}

// TestExpectRefused starts nothing for a push that changed no refs, and forgets it.
func TestExpectRefused(t *testing.T) {
	h := newHouse(t)
	at := h.commit("main", nil, workflowFile("a.yaml", "id: a\non: push\n"))
	happened, err := h.s.Expect(t.Context(), gitd.Push{Repo: "app", Grant: ada, Options: []string{"test"},
		Refs: []gitd.PushedRef{{Name: "refs/heads/topic", Commit: at}}})
	if err != nil || happened == nil || h.notices() != 1 {
		t.Fatalf("got %d notices, %v, want 1", h.notices(), err)
	}
	var out strings.Builder
	if follow := happened(t.Context(), gitd.Push{Repo: "app", Grant: ada}, &out); follow != nil || out.Len() > 0 {
		t.Errorf("got follow %t and %q, want neither", follow != nil, out.String())
	}
	if got := h.notices(); got != 0 || len(h.work.requests) > 0 {
		t.Errorf("got %d notices and %d runs, want none", got, len(h.work.requests))
	}
}

// TestExpectAskedErrors keeps the notice of work that did not start exactly if a later start may succeed.
func TestExpectAskedErrors(t *testing.T) {
	for _, test := range []struct {
		what  string
		err   error
		left  int
		again bool
	}{
		{"an error of the server", errors.New("the disk is full"), 1, true},
		{"a mistake", record.ErrInvalid, 0, false},
	} {
		h := newHouse(t)
		at := h.commit("main", nil, gitd.File{Path: "a"})
		h.work.refuse = func(record.Request) error { return test.err }
		before, after := h.push(t.Context(), gitd.Push{Repo: "app", Grant: ada, Options: []string{"test"},
			Refs: []gitd.PushedRef{{Name: "refs/heads/topic", Commit: at}}})
		if got := strings.Contains(before, "the next start of the server tries it again"); got != test.again || after != "" {
			t.Errorf("%s: got %q and %q, want a line about the next start: %t", test.what, before, after, test.again)
		}
		if got := h.notices(); got != test.left {
			t.Errorf("%s: got %d notices, want %d", test.what, got, test.left)
		}
	}
}

// TestFollow shows a run until its end, an error, or until the person leaves.
func TestFollow(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	ended := record.Run{State: record.StateComplete, CreatedAt: begin, EndedAt: begin.Add(time.Second)}
	failed := errors.New("the journal is damaged")
	for _, test := range []struct {
		what string
		work work
		gone bool
		want string
	}{
		{"an end", work{end: ended}, false, "ramus: a  make\nramus: complete in 1.0 s\n"},
		{"a question", work{end: record.Run{State: record.StateRunning}}, false,
			"ramus: a  make\nramus: run:otter/r0 waits for an answer: `ramus approve run:otter/r0`\n"},
		{"the person leaves", work{end: ended}, true, "ramus: a  make\n"},
		{"the person leaves with an error", work{end: ended, broken: context.Canceled}, true, "ramus: a  make\n"},
		{"events that cannot be read", work{end: ended, broken: failed}, false,
			"ramus: a  make\nramus: the journal is damaged\nramus: the server's log has the details under the request's id\n"},
		{"a run that cannot be read", work{end: ended, lost: failed}, false,
			"ramus: a  make\nramus: the journal is damaged\nramus: the server's log has the details under the request's id\n"},
	} {
		h := newHouse(t)
		w := test.work
		w.requests, w.events = make([]record.Request, 1), []record.Event{{Type: record.EventStepStarted, Step: "a", Command: "make"}}
		h.s.Executor = &w
		ctx, leave := context.WithCancel(t.Context())
		if test.gone {
			leave()
		}
		var out strings.Builder
		h.s.follow(ctx, w.run(0), h.s.who(ada), &screen{out: &out})
		leave()
		if out.String() != test.want {
			t.Errorf("%s: got %q, want %q", test.what, out.String(), test.want)
		}
		if len(w.followed) != 1 {
			t.Errorf("%s: followed %q, want the run", test.what, w.followed)
		}
	}
}

// TestTakeUp starts the work of pushes that happened, once, and forgets the others.
func TestTakeUp(t *testing.T) {
	h := newHouse(t)
	at := h.commit("main", nil, workflowFile("a.yaml", "id: a\non: push\n"))
	ask := gitd.PushedRef{Name: gitd.AskRefs + "ci", Commit: at}
	if err := h.repo.Update(t.Context(), gitd.RefUpdate{Name: ask.Name, New: at}); err != nil {
		t.Fatal(err)
	}
	h.s.TakeUp(t.Context()) // there is no folder yet
	for _, n := range []*notice{
		{Key: "1", Repo: "app", Grant: ada, Refs: []gitd.PushedRef{ask}},
		{Key: "2", Repo: "app", Grant: ada, Base: "refs/heads/main", Options: []string{"test"},
			Refs: []gitd.PushedRef{{Name: "refs/heads/main", Commit: at}}},
		{Key: "3", Repo: "app", Grant: ada, Options: []string{"test"}, Refs: []gitd.PushedRef{{Name: "refs/heads/never", Commit: at}}},
		{Key: "4", Repo: "none", Grant: ada, Options: []string{"test"}, Refs: []gitd.PushedRef{{Name: "refs/heads/main", Commit: at}}},
	} {
		if _, err := h.s.keep(n, keepFast); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"damaged.json": "{", "part": "{}", "large.json": ""} {
		if err := os.WriteFile(filepath.Join(h.s.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(filepath.Join(h.s.Dir, "large.json"), maxNotice+1); err != nil {
		t.Fatal(err)
	}
	h.s.TakeUp(t.Context())
	var got []string
	for _, r := range h.work.requests {
		key := r.Key
		if strings.HasPrefix(key, "push-") {
			key = "event"
		}
		got = append(got, key+" "+r.File)
		if r.At != at {
			t.Errorf("%s: begins at %s, want %s", key, r.At, at)
		}
	}
	slices.Sort(got)
	if want := []string{"1 ci.yaml", "2 ", "event .ramus/workflows/a.yaml"}; !slices.Equal(got, want) {
		t.Errorf("got the runs %q, want %q", got, want)
	}
	if n := h.notices(); n != 0 {
		t.Errorf("%d notices are left, want 0", n)
	}
	if _, err := h.repo.Resolve(t.Context(), ask.Name); !errors.Is(err, gitd.ErrNotFound) {
		t.Errorf("the ref that asks for work: got %v, want %v", err, gitd.ErrNotFound)
	}
}

// TestTakeUpAgain keeps a notice whose work does not start, and whose file cannot be read.
func TestTakeUpAgain(t *testing.T) {
	h := newHouse(t)
	at := h.commit("main", nil, gitd.File{Path: "a"})
	h.work.refuse = func(record.Request) error { return errors.New("the disk is full") }
	n := &notice{Key: "1", Repo: "app", Grant: ada, Options: []string{"test"},
		Refs: []gitd.PushedRef{{Name: "refs/heads/main", Commit: at}}}
	if _, err := h.s.keep(n, keepFast); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nothing", filepath.Join(h.s.Dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	h.s.TakeUp(t.Context())
	if got := h.notices(); got != 2 {
		t.Errorf("%d notices are left, want 2", got)
	}
	h.work.refuse = nil
	h.s.TakeUp(t.Context())
	if got := h.notices(); got != 1 || len(h.work.requests) != 1 {
		t.Errorf("got %d notices and %d runs, want 1 and 1", got, len(h.work.requests))
	}
}
