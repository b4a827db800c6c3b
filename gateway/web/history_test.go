package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/archive"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gitd"
)

// history is a world whose workspace otter has runs of five commands each, as an earlier server left them in git. Each tenth run is of an agent and
// looks at a page. Each fifth command failed, and each third one changed a file.
func history(t *testing.T, runs int) *world {
	t.Helper()
	return openWith(t, ada, func(x *executor.Executor, _ *sandbox.Engine) {
		repo, err := x.Git.Create(t.Context(), "app")
		if err != nil {
			t.Fatal(err)
		}
		h := &historian{t: t, repo: repo, person: gitd.Person{Name: "Ada", Email: "ada@example.org"}}
		h.base = h.commit(nil, gitd.File{Path: "README", Content: []byte("hello\n")})
		h.tip = h.base
		h.move("refs/heads/main", h.base)
		for i := range runs {
			h.run(i)
		}
		h.move(otter, h.tip)
	}, func(api *web.API) { api.Assets = built(t) })
}

// historian makes the runs of a history.
type historian struct {
	t         *testing.T
	repo      *gitd.Repo
	person    gitd.Person
	base, tip gitd.Hash
	commands  int
}

func (h *historian) commit(parents []gitd.Hash, files ...gitd.File) gitd.Hash {
	h.t.Helper()
	n := gitd.NewCommit{Parents: parents, Put: files, Author: h.person, Committer: h.person, When: time.Unix(1_700_000_000, 0), Message: "Change"}
	if len(parents) > 0 {
		n.From = parents[0]
	}
	commit, err := h.repo.WriteCommit(h.t.Context(), n)
	if err != nil {
		h.t.Fatal(err)
	}
	return commit
}

func (h *historian) move(ref string, to gitd.Hash) {
	h.t.Helper()
	if err := h.repo.Update(h.t.Context(), gitd.RefUpdate{Name: ref, New: to}); err != nil {
		h.t.Fatal(err)
	}
}

// run adds a run of five commands.
func (h *historian) run(i int) {
	h.t.Helper()
	caller, err := record.RunCaller("otter")
	if err != nil {
		h.t.Fatal(err)
	}
	began := time.Unix(1_700_000_000+int64(i)*100, 0).UTC()
	r := record.Run{ID: fmt.Sprintf("r%05d", i), Caller: caller, Kind: record.KindTerminal, Repo: "app", Base: "main", BaseCommit: h.base,
		Branch: caller.Branch(), Start: h.tip, Asker: h.person, State: record.StateComplete, CreatedAt: began, StartedAt: began, EndedAt: began.Add(time.Minute)}
	kind := "exec"
	if i%10 == 9 {
		kind, r.Kind, r.Agent = string(record.KindAgent), record.KindAgent, &record.AgentCall{Name: "coder", Prompt: fmt.Sprintf("Do <b>%d</b> things", i)}
	}
	var events []record.Event
	add := func(e record.Event) {
		e.Seq, e.Time = int64(len(events)+1), began.Add(time.Duration(len(events))*time.Second)
		events = append(events, e)
	}
	for range 5 {
		n, exit, ok := h.commands, 0, true
		h.commands++
		step := fmt.Sprintf("step-%d", n)
		add(record.Event{Type: record.EventStepStarted, Step: step, Kind: kind, Command: fmt.Sprintf("make part-%d", n), Parent: h.tip})
		end := record.Event{Type: record.EventStepFinished, Step: step, Parent: h.tip, OK: &ok, Exit: &exit, DurationMS: 1234}
		if n%5 == 4 {
			exit, ok = 2, false
		}
		if n%3 == 0 {
			h.tip = h.commit([]gitd.Hash{h.tip}, gitd.File{Path: fmt.Sprintf("d%d/f%d", n%7, n%50), Content: fmt.Appendf(nil, "%s%d\n", strings.Repeat("line\n", 40), n)})
			end.Commit = h.tip
		}
		if r.Agent != nil && n%5 == 1 {
			add(record.Event{Type: record.EventBrowser, Step: step, Data: []byte(`{"views": [{"screenshot": "001-page/desktop/screenshot.png"}],
				"compare": {"views": [{"before": "001-page/desktop/before.png", "after": "001-page/desktop/screenshot.png"}]}}`)})
		}
		add(end)
	}
	r.Head = h.tip
	var journal bytes.Buffer
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			h.t.Fatal(err)
		}
		journal.Write(append(line, '\n'))
	}
	text, err := json.Marshal(r)
	if err != nil {
		h.t.Fatal(err)
	}
	h.move(record.RunRef(caller, r.ID), h.commit(nil, gitd.File{Path: "run.json", Content: text},
		gitd.File{Path: archive.JournalFile, Content: journal.Bytes()}))
}

// TestHistory walks through all commands of a history by links, and looks at one of them among pictures.
func TestHistory(t *testing.T) {
	w := history(t, 30)
	path := "/workspaces/run-otter/timeline?n=1"
	for n := 1; ; n++ {
		_, _, body := w.get(path)
		for _, want := range []string{fmt.Sprintf("%d of 150<", n), fmt.Sprintf("make part-%d<", n-1)} {
			if !strings.Contains(body, want) && !strings.Contains(body, "Do &lt;b&gt;") {
				t.Fatalf("command %d lacks %q: %s", n, want, body)
			}
		}
		if !strings.Contains(body, `rel="next"`) {
			if n != 150 {
				t.Errorf("%d commands", n)
			}
			break
		}
		path = link(t, body, `rel="next" href="([^"]+)"`)
	}
	_, _, body := w.get("/workspaces/run-otter/timeline?n=47")
	parse(t, "a command among pictures", body).check()
	if n := strings.Count(body, `<ol class="film"`) + strings.Count(body, `/files/artifacts/browser/001-page/desktop/screenshot.png?expires=`); n < 5 ||
		!strings.Contains(body, `/files/artifacts/browser/001-page/desktop/before.png?expires=`) {
		t.Errorf("%d pictures: %s", n, body)
	}
	if !strings.Contains(body, `data-lanes="0 45 50 95 100 145"`) || !strings.Contains(body, "Do &lt;b&gt;9&lt;/b&gt; things</p>") {
		t.Errorf("the lanes: %s", body)
	}
	if !testing.Short() {
		w.lookAt("/workspaces/run-otter/timeline?n=47", "/workspaces/run-otter/timeline?n=75")
	}
}
