package timeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// journals are runs with their events.
type journals struct {
	runs   []record.Run
	events map[string][]record.Event
	reads  int
}

func (j *journals) OfCaller(record.Caller) []record.Run { return j.runs }

func (j *journals) Events(_ context.Context, run string, _ int64, _ bool) iter.Seq2[record.Event, error] {
	j.reads++
	return func(yield func(record.Event, error) bool) {
		for _, e := range j.events[run] {
			if !yield(e, nil) {
				return
			}
		}
	}
}

var (
	ada = route.Who{Subject: "github:1", Repo: "*", Scopes: []string{gitd.ScopeAdmin}}
	eve = route.Who{Subject: "github:2", Repo: "other", Scopes: []string{gitd.ScopeRead}}
)

// add adds a run with n commands. commit returns the commit of one, which is empty if it changed nothing.
func (j *journals) add(t testing.TB, n int, commit func() gitd.Hash) {
	caller, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	r := record.Run{ID: fmt.Sprintf("r%d", len(j.runs)), Caller: caller, Kind: record.KindTerminal, Repo: "app"}
	j.runs = append(j.runs, r)
	if j.events == nil {
		j.events = map[string][]record.Event{}
	}
	var list []record.Event
	for i := range n {
		step, seq := fmt.Sprintf("shell/%d", i+1), int64(2*i+1)
		var parent gitd.Hash
		ok := i%3 != 0
		e := record.Event{Seq: seq + 1, Type: record.EventStepFinished, Step: step, OK: &ok, Time: time.Unix(seq+1, 0)}
		if e.Commit = commit(); e.Commit == "" {
			e.Parent = "base"
		}
		list = append(list, record.Event{Seq: seq, Type: record.EventStepStarted, Step: step, Parent: parent,
			Command: fmt.Sprint("echo ", i), Time: time.Unix(seq, 0)}, e)
	}
	j.events[r.Name()] = list
}

// TestParts reads a timeline of 5,000 ticks from end to end, forward and back.
func TestParts(t *testing.T) {
	j := &journals{}
	for len(j.runs) < 1000 {
		j.add(t, 5, func() gitd.Hash { return "" })
	}
	lines := &Timelines{Journals: j}
	read := func(w Window) Line {
		t.Helper()
		j.reads = 0
		l, err := lines.Read(t.Context(), ada, j.runs[0].Caller, w)
		if err != nil {
			t.Fatal(err)
		}
		if most := 2*max(w.Ticks, 100)/5 + 4; j.reads > most {
			t.Errorf("%+v read %d journals, want at most %d", w, j.reads, most)
		}
		return l
	}
	var back, forth []string
	l := read(Window{})
	for {
		for i := range l.Ticks {
			back = append(back, l.Ticks[len(l.Ticks)-1-i].ID)
		}
		if !l.Older {
			break
		}
		l = read(Window{Before: l.Ticks[0].ID, Ticks: 499})
	}
	forth = append(forth, l.Ticks[0].ID)
	for l = read(Window{After: l.Ticks[0].ID, Ticks: 337}); ; l = read(Window{After: l.Ticks[len(l.Ticks)-1].ID, Ticks: 337}) {
		for _, tick := range l.Ticks {
			forth = append(forth, tick.ID)
		}
		if !l.Newer {
			break
		}
	}
	if len(back) != 5000 || len(forth) != 5000 {
		t.Fatalf("%d ticks back and %d forth, want 5000", len(back), len(forth))
	}
	for i := range forth {
		if forth[i] != back[4999-i] {
			t.Fatalf("tick %d is %s forth and %s back", i, forth[i], back[4999-i])
		}
	}
	for _, n := range []int{0, 1, 2, 30, 2500, 4998, 4999} {
		for _, most := range []int{1, 2, 61} {
			l := read(Window{At: forth[n], Ticks: most})
			first := n - l.At
			if l.Ticks[l.At].ID != forth[n] || len(l.Ticks) != most || l.Older != (first > 0) || l.Newer != (first+most < 5000) ||
				l.Ticks[0].ID != forth[first] {
				t.Errorf("%d of %d: %d ticks, at %d, older %v, newer %v", n, most, len(l.Ticks), l.At, l.Older, l.Newer)
			}
		}
	}
}

// TestOverview lists 5,000 ticks as Read does, with their lanes, and reads the journal of a run that has ended once.
func TestOverview(t *testing.T) {
	j := &journals{}
	for len(j.runs) < 1000 {
		n := len(j.runs)
		j.add(t, 5, func() gitd.Hash { return []gitd.Hash{"", "a"}[n%2] })
		r := &j.runs[n]
		if r.State = record.StateComplete; n == 500 {
			r.Kind, r.Agent, r.State = record.KindAgent, &record.AgentCall{Name: "coder", Prompt: "words"}, record.StateRunning
			j.events[r.Name()][0].Kind = string(record.KindAgent)
		}
	}
	lines := &Timelines{Journals: j, Memory: &Memory{}}
	read := func() Overview {
		t.Helper()
		j.reads = 0
		o, err := lines.Overview(t.Context(), ada, j.runs[0].Caller)
		if err != nil || len(o) != 5000 {
			t.Fatalf("%d ticks: %v", len(o), err)
		}
		return o
	}
	o := read()
	if got, want := fmt.Sprint(o.Lanes()), "[0 2500 2505]"; got != want {
		t.Errorf("lanes begin at %s, want %s", got, want)
	}
	if got := o.States()[:10]; got != "fssfsfccfc" {
		t.Errorf("the states are %s", got)
	}
	for _, x := range [][3]int{{0, -1, 0}, {2499, -1, 0}, {2500, -1, 0}, {2503, -1, 2500}, {2505, -1, 2500}, {0, 1, 2500}, {2500, 1, 2505}, {2505, 1, 4999}} {
		if got := o.Lane(x[0], x[1]); got != x[2] {
			t.Errorf("from %d by %d is %d, want %d", x[0], x[1], got, x[2])
		}
	}
	l, err := lines.Read(t.Context(), ada, j.runs[0].Caller, Window{At: o[2600].ID, Ticks: 50})
	if err != nil {
		t.Fatal(err)
	}
	for i, tick := range l.Ticks {
		if m := o[2600-l.At+i]; m.ID != tick.ID || m.State != tick.State() || m.Commit != "" != tick.Changed {
			t.Errorf("%+v is %+v", m, tick)
		}
	}
	if read(); j.reads != 1 {
		t.Errorf("%d journals were read again, want that of the run which goes on", j.reads)
	}
	if o, err := lines.Overview(t.Context(), eve, j.runs[0].Caller); err != nil || len(o) != 0 {
		t.Errorf("others see %d ticks: %v", len(o), err)
	}
}

// TestRefusals asks for ticks that do not exist and for those of others.
func TestRefusals(t *testing.T) {
	j := &journals{}
	j.add(t, 3, func() gitd.Hash { return "" })
	lines := &Timelines{Journals: j}
	for _, w := range []Window{{At: "r0/2"}, {At: "r0"}, {At: "r9/1"}, {Before: "r0/x"}, {After: "/"}, {Ticks: MaxTicks + 1}, {Ticks: -1},
		{At: "r0/1", After: "r0/1"}} {
		if l, err := lines.Read(t.Context(), ada, j.runs[0].Caller, w); err == nil {
			t.Errorf("%+v: %+v", w, l)
		}
	}
	l, err := lines.Read(t.Context(), eve, j.runs[0].Caller, Window{})
	if err != nil || len(l.Ticks) != 0 || j.reads > 4 {
		t.Errorf("others see %+v: %v", l, err)
	}
}

// TestEnds reads the parts before and after a tick. A part of as many ticks as there may be is complete.
func TestEnds(t *testing.T) {
	j := &journals{}
	j.add(t, MaxTicks, func() gitd.Hash { return "" })
	lines := &Timelines{Journals: j}
	id := func(n int) string { return fmt.Sprintf("r0/%d", 2*n+1) }
	for _, x := range []struct {
		w            Window
		first, last  int
		older, newer bool
	}{
		{Window{Ticks: MaxTicks}, 0, MaxTicks - 1, false, false},
		{Window{Ticks: MaxTicks - 1}, 1, MaxTicks - 1, true, false},
		{Window{}, MaxTicks - defaultTicks, MaxTicks - 1, true, false},
		{Window{Before: id(3), Ticks: 3}, 0, 2, false, true},
		{Window{Before: id(3), Ticks: 2}, 1, 2, true, true},
		{Window{After: id(MaxTicks - 3), Ticks: 2}, MaxTicks - 2, MaxTicks - 1, true, false},
		{Window{After: id(MaxTicks - 4), Ticks: 2}, MaxTicks - 3, MaxTicks - 2, true, true},
	} {
		l, err := lines.Read(t.Context(), ada, j.runs[0].Caller, x.w)
		if err != nil || len(l.Ticks) == 0 {
			t.Fatalf("%+v: %+v, %v", x.w, l, err)
		}
		if n := len(l.Ticks); l.Ticks[0].ID != id(x.first) || l.Ticks[n-1].ID != id(x.last) || l.Older != x.older || l.Newer != x.newer ||
			l.At != n-1 {
			t.Errorf("%+v: %d ticks from %s to %s, at %d, older %v, newer %v", x.w, n, l.Ticks[0].ID, l.Ticks[n-1].ID, l.At, l.Older, l.Newer)
		}
	}
	for _, w := range []Window{{Before: id(0)}, {After: id(MaxTicks - 1)}} {
		if l, err := lines.Read(t.Context(), ada, j.runs[0].Caller, w); err != nil || len(l.Ticks) != 0 || l.At != -1 {
			t.Errorf("%+v: %+v, %v", w, l, err)
		}
	}
}

// TestLanesOfPrompts has an agent that begins with two commands and gets its second prompt after them.
func TestLanesOfPrompts(t *testing.T) {
	j := &journals{}
	j.add(t, 2, func() gitd.Hash { return "" })
	j.add(t, 3, func() gitd.Hash { return "" })
	r := &j.runs[1]
	r.Kind, r.Agent = record.KindAgent, &record.AgentCall{Name: "coder", Prompt: "first"}
	list := j.events[r.Name()]
	list[4].Kind = string(record.KindAgent)
	list[4].Data = []byte(`{"prompts": 2}`)
	j.events[r.Name()] = slices.Insert(list, 4, record.Event{Type: record.EventPrompt,
		Data: record.Marshal(record.Prompt{Key: "1", Text: "second", By: gitd.Person{Name: "Ben"}})})
	lines := &Timelines{Journals: j}
	o, err := lines.Overview(t.Context(), ada, r.Caller)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(o.Lanes()); got != "[0 2 4]" {
		t.Errorf("lanes begin at %s", got)
	}
	for i, m := range o {
		if got := o.Find(m.ID); got != i {
			t.Errorf("%s is at %d, want %d", m.ID, got, i)
		}
	}
	if got := o.Find("r0/2"); got != -1 {
		t.Errorf("a tick that does not exist is at %d", got)
	}
}

// TestMemoryIsBounded keeps as many marks as there may be, and forgets them for one more.
func TestMemoryIsBounded(t *testing.T) {
	var m Memory
	half := make([]runMark, maxRemembered/2)
	m.keep("a", half)
	m.keep("b", half)
	if len(m.marks) != 2 || m.count != maxRemembered {
		t.Errorf("%d runs with %d marks", len(m.marks), m.count)
	}
	m.keep("c", half[:1])
	if len(m.marks) != 1 || m.count != 1 {
		t.Errorf("%d runs with %d marks after one more", len(m.marks), m.count)
	}
}

// TestLongCommand cuts a command that is longer than a tick shows.
func TestLongCommand(t *testing.T) {
	j := &journals{}
	j.add(t, 2, func() gitd.Hash { return "" })
	list := j.events[j.runs[0].Name()]
	list[0].Command, list[2].Command = strings.Repeat("x", maxText), strings.Repeat("x", maxText+1)
	l, err := (&Timelines{Journals: j}).Read(t.Context(), ada, j.runs[0].Caller, Window{})
	if err != nil || l.Ticks[0].Cut() || !l.Ticks[1].Cut() {
		t.Errorf("%v, %v, %v", l.Ticks[0].Cut(), l.Ticks[1].Cut(), err)
	}
}

// TestTurn reads the turn of an agent with its prompts, costs and pictures.
func TestTurn(t *testing.T) {
	caller, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	exit, ok := 1, false
	r := record.Run{ID: "r", Caller: caller, Kind: record.KindAgent, Agent: &record.AgentCall{Name: "coder", Prompt: "round it"},
		Asker: gitd.Person{Name: "Ada"}}
	events := []record.Event{
		{Seq: 1, Type: record.EventUsage}, // before any tick
		{Seq: 2, Type: record.EventStepStarted, Step: "turn-1", Kind: "agent", Parent: "a"},
		{Seq: 3, Type: record.EventUsage, Data: []byte(`{"cost_micros": 7, "input_tokens": 2, "output_tokens": 3}`)},
		{Seq: 4, Type: record.EventStepStarted, Step: "turn-1", Kind: "agent", Parent: "a"},
		{Seq: 5, Type: record.EventBrowser, Data: []byte(`{"views": [{"screenshot": "a.png"}, {}, {"screenshot": "b.png"}],
			"compare": {"views": [{"before": "old/b.png", "after": "b.png"}, {"before": "x"}]}}`)},
		{Seq: 6, Type: record.EventBrowser, Data: []byte(`"nonsense"`)},
		{Seq: 7, Type: record.EventStepFinished, Step: "turn-1", Parent: "a", Commit: "b", Exit: &exit, OK: &ok,
			Stdout: &record.Stream{Bytes: 3, Tail: "end"}},
		{Seq: 8, Type: record.EventStepFinished, Step: "unknown"},
	}
	ticks, err := ticksOf(r, func(yield func(record.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	})
	if err != nil || len(ticks) != 1 {
		t.Fatalf("%d ticks: %v", len(ticks), err)
	}
	got := ticks[0]
	if got.ID != "r/2" || got.Prompt != "round it" || got.Agent != "coder" || got.By.Name != "Ada" || got.CostMicros != 7 ||
		got.Tokens != 5 || strings.Join(got.Pictures, " ") != "artifacts/browser/a.png artifacts/browser/b.png" ||
		strings.Join(got.Before, " ") != " artifacts/browser/old/b.png" || got.Parent != "a" || got.Head != "b" || !got.Changed ||
		!got.Failed() || got.Stdout.Bytes != 3 || got.Stdout.Tail != "" {
		t.Errorf("the tick is %+v", got)
	}
}

// TestFiles compares the files at 300 ticks with those that git lists. A third of the commands failed.
func TestFiles(t *testing.T) {
	git := &gitd.Server{Root: t.TempDir(), KeyFile: filepath.Join(t.TempDir(), "key.pem")}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := git.Close(); err != nil {
			t.Error(err)
		}
	})
	repo, err := git.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	person := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	var tip gitd.Hash
	commit := func() gitd.Hash {
		n := gitd.NewCommit{Author: person, Committer: person, When: time.Unix(1_700_000_000, 0), Message: "Change"}
		if tip != "" {
			n.Parents = []gitd.Hash{tip}
			if n.From = tip; random.IntN(4) == 0 {
				n.Delete = []string{fmt.Sprintf("d%d/f%d", random.IntN(3), random.IntN(9))}
			}
		}
		for range 1 + random.IntN(3) {
			n.Put = append(n.Put, gitd.File{Path: fmt.Sprintf("d%d/f%d", random.IntN(3), random.IntN(9)+10*len(n.Put)),
				Content: fmt.Append(nil, random.IntN(1000))})
		}
		if tip, err = repo.WriteCommit(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		return tip
	}
	many := gitd.NewCommit{Author: person, Committer: person, When: time.Unix(1_700_000_000, 0), Message: "Add files"}
	for n := range maxFiles {
		many.Put = append(many.Put, gitd.File{Path: fmt.Sprintf("many/%d", n)})
	}
	full, err := repo.WriteCommit(t.Context(), many)
	if err != nil {
		t.Fatal(err)
	}
	many.Put = append(many.Put, gitd.File{Path: "more"})
	more, err := repo.WriteCommit(t.Context(), many)
	if err != nil {
		t.Fatal(err)
	}
	j := &journals{}
	for range 60 {
		j.add(t, 5, commit)
	}
	api := &API{Timelines: Timelines{Journals: j}, Git: git}
	line, err := api.Timelines.Read(t.Context(), ada, j.runs[0].Caller, Window{Ticks: 300})
	if err != nil || len(line.Ticks) != 300 {
		t.Fatalf("%d ticks: %v", len(line.Ticks), err)
	}
	for _, tick := range line.Ticks {
		f, err := api.filesAt(t.Context(), executor.CallerStatus{Repo: "app"}, tick, "")
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, e := range f.Entries {
			fmt.Fprintf(&got, "%s %s %s\t%s\n", e.Mode, e.Type, e.Hash, e.Path)
		}
		want, err := exec.CommandContext(t.Context(), "git", "-C", repo.Dir(), "ls-tree", "-r", string(tick.Head)).Output()
		if err != nil || got.String() != string(want) {
			t.Fatalf("%s: the files are\n%swant\n%s%v", tick.ID, got.String(), want, err)
		}
	}
	for _, x := range []struct {
		head gitd.Hash
		more bool
	}{{more, true}, {full, false}} {
		f, err := api.filesAt(t.Context(), executor.CallerStatus{Repo: "app"}, &Tick{Head: x.head}, "")
		if err != nil || f.More != x.more || len(f.Entries) > maxFiles {
			t.Errorf("%s: %d files, more %v: %v", x.head, len(f.Entries), f.More, err)
		}
	}
	if _, err := api.filesAt(t.Context(), executor.CallerStatus{Repo: "app"}, &Tick{ID: "r/1"}, ""); err == nil {
		t.Error("a tick without a commit has files")
	}
}

// each yields events.
func each(events ...record.Event) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// TestStates tells the end of a tick from what its command left.
func TestStates(t *testing.T) {
	yes, no := true, false
	for _, x := range []struct {
		tick   Tick
		want   State
		over   bool
		commit gitd.Hash
	}{
		{Tick{Parent: "a"}, Works, false, "a"},
		{Tick{Parent: "a", Head: "a"}, Same, true, "a"},
		{Tick{Parent: "a", Head: "b", Changed: true}, Changed, true, "b"},
		{Tick{Parent: "a", Head: "b", Changed: true, OK: &yes}, Changed, true, "b"},
		{Tick{Parent: "a", Head: "b", Changed: true, OK: &no}, Failed, true, "b"},
		{Tick{OK: &yes}, Same, true, ""},
		{Tick{OK: &no}, Failed, true, ""},
	} {
		if x.tick.State() != x.want || x.tick.Over() != x.over || x.tick.Commit() != x.commit || x.tick.Failed() != (x.want == Failed) {
			t.Errorf("%+v: got %c, over %t, %s, want %c, %t, %s", x.tick, x.tick.State(), x.tick.Over(), x.tick.Commit(), x.want, x.over, x.commit)
		}
	}
}

// TestPromptsOfTurns gives each turn the newest prompt that its agent has heard, and the person who said it.
func TestPromptsOfTurns(t *testing.T) {
	r := record.Run{ID: "r", Kind: record.KindAgent, Agent: &record.AgentCall{Name: "coder", Prompt: "first"}, Asker: gitd.Person{Name: "Ada"}}
	say := func(key, words string, by gitd.Person) record.Event {
		return record.Event{Type: record.EventPrompt, Data: record.Marshal(record.Prompt{Key: key, Text: words, By: by})}
	}
	turn := func(seq int64, step, kind, data string) record.Event {
		return record.Event{Seq: seq, Type: record.EventStepStarted, Step: step, Kind: kind, Data: []byte(data)}
	}
	long := strings.Repeat("x", maxText+1)
	ticks, err := ticksOf(r, each(turn(1, "turn-1", "agent", `{"prompts": 1}`), say("1", "second", gitd.Person{Name: "Ben"}),
		say("2", long, gitd.Person{}), turn(2, "turn-2", "agent", `{"prompts": 2}`), turn(3, "turn-3", "agent", `{"prompts": 3}`),
		turn(4, "check-lib_run_tests", "task", `{}`), turn(5, "turn-4", "agent", `{"prompts": 3}`)))
	if err != nil || len(ticks) != 5 {
		t.Fatalf("got %d ticks, %v, want 5", len(ticks), err)
	}
	for i, want := range []struct{ prompt, by, agent string }{{"first", "Ada", "coder"}, {"second", "Ben", "coder"}, {long, "Ada", "coder"},
		{"", "Ada", ""}, {"", "Ada", "coder"}} {
		got := ticks[i]
		if got.WholePrompt() != want.prompt || got.By.Name != want.by || got.Agent != want.agent || len(got.Prompt) > maxText+len("…") ||
			(got.Prompt != "") != (want.prompt != "") {
			t.Errorf("tick %d: got %.20q by %q to %q, want %.20q by %q to %q", i, got.WholePrompt(), got.By.Name, got.Agent, want.prompt, want.by, want.agent)
		}
	}
}

// TestDurations takes the time of a tick from its end, and else from the times of its events.
func TestDurations(t *testing.T) {
	at := time.Unix(100, 0)
	for _, x := range []struct{ given, want int64 }{{0, 2000}, {1, 1}, {1500, 1500}} {
		ticks, err := ticksOf(record.Run{ID: "r"}, each(record.Event{Seq: 1, Type: record.EventStepStarted, Step: "a", Time: at},
			record.Event{Seq: 2, Type: record.EventStepFinished, Step: "a", DurationMS: x.given, Time: at.Add(2 * time.Second)}))
		if err != nil || len(ticks) != 1 || ticks[0].DurationMS != x.want {
			t.Errorf("%d ms: got %+v, %v, want %d ms", x.given, ticks, err, x.want)
		}
	}
}

// TestCosts adds the calls of models to the tick that works, or to the last one. Data that cannot be read costs nothing.
func TestCosts(t *testing.T) {
	use := func(step, data string) record.Event {
		return record.Event{Type: record.EventUsage, Step: step, Data: []byte(data)}
	}
	begin := func(seq int64, step string) record.Event {
		return record.Event{Seq: seq, Type: record.EventStepStarted, Step: step}
	}
	ticks, err := ticksOf(record.Run{ID: "r"}, each(begin(1, "a"), begin(2, "b"), use("a", `{"cost_micros": 5, "input_tokens": 1}`),
		use("", `{"cost_micros": 7, "output_tokens": 2}`), use("a", `nonsense`), use("a", `{"cost_micros": 1, "input_tokens": 1, "output_tokens": 9}`)))
	if err != nil || len(ticks) != 2 {
		t.Fatalf("got %d ticks, %v, want 2", len(ticks), err)
	}
	for i, want := range [][2]int64{{6, 11}, {7, 2}} {
		if got := [2]int64{ticks[i].CostMicros, ticks[i].Tokens}; got != want {
			t.Errorf("tick %d: got %d, want %d", i, got, want)
		}
	}
	o := Overview{{CostMicros: 1}, {CostMicros: 2}, {CostMicros: 4}}
	for at, want := range []int64{1, 3, 7} {
		if got := o.Spent(at); got != want {
			t.Errorf("spent up to %d: got %d, want %d", at, got, want)
		}
	}
}

// TestJournalErrors returns the error of a journal that cannot be read from each part of a timeline.
func TestJournalErrors(t *testing.T) {
	failed := errors.New("the journal is damaged")
	j := &journals{}
	j.add(t, 3, func() gitd.Hash { return "" })
	j.add(t, 3, func() gitd.Hash { return "" })
	for _, bad := range []int{0, 1} {
		lines := &Timelines{Journals: &damaged{j, j.runs[bad].Name(), failed}}
		for _, w := range []Window{{}, {At: "r0/1"}, {At: "r1/5"}, {At: "r1/1"}, {Before: "r1/3"}, {After: "r0/3"}} {
			if l, err := lines.Read(t.Context(), ada, j.runs[0].Caller, w); !errors.Is(err, failed) {
				t.Errorf("run %d is damaged, %+v: got %+v, %v, want %v", bad, w, l, err, failed)
			}
		}
		if o, err := lines.Overview(t.Context(), ada, j.runs[0].Caller); !errors.Is(err, failed) {
			t.Errorf("run %d is damaged: got %+v, %v, want %v", bad, o, err, failed)
		}
	}
}

// damaged are journals of which that of one run cannot be read.
type damaged struct {
	*journals
	run string
	err error
}

func (d *damaged) Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error] {
	if run != d.run {
		return d.journals.Events(ctx, run, after, follow)
	}
	return func(yield func(record.Event, error) bool) { yield(record.Event{}, d.err) }
}

// callers is an executor that knows the callers of tests.
type callers struct {
	lookup.Executor
	known map[string]executor.CallerStatus
}

func (c callers) Caller(_ context.Context, name string) (executor.CallerStatus, error) {
	if st, ok := c.known[name]; ok {
		return st, nil
	}
	return executor.CallerStatus{}, record.ErrNotFound
}

// TestRoutes serves timelines and files, and refuses what is not there.
func TestRoutes(t *testing.T) {
	git := &gitd.Server{Root: t.TempDir(), KeyFile: filepath.Join(t.TempDir(), "key.pem")}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { git.Close() })
	repo, err := git.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	person := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	commit, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Author: person, Committer: person, When: time.Unix(1_700_000_000, 0),
		Message: "Add", Put: []gitd.File{{Path: "d/a"}, {Path: "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	full, empty := &journals{}, &journals{}
	full.add(t, 2, func() gitd.Hash { return commit })
	caller := full.runs[0].Caller
	known := callers{known: map[string]executor.CallerStatus{"otter": {Caller: caller, Repo: "app"}}}
	const path = "/api/workspaces/otter/timeline"
	for _, x := range []struct {
		what     string
		journals *journals
		path     string
		status   int
		want     string
	}{
		{"a line", full, path, http.StatusOK, `"id":"r0/3"`},
		{"a part of a line", full, path + "?before=r0/3", http.StatusOK, `"newer":true`},
		{"an empty line", empty, path, http.StatusOK, `"ticks":[]`},
		{"a line with a mistake", full, path + "?ticks=x", http.StatusBadRequest, "ticks"},
		{"a line around no tick", full, path + "?at=r0/2", http.StatusNotFound, "r0/2"},
		{"a line of nobody", full, "/api/workspaces/none/timeline", http.StatusNotFound, ""},
		{"files", full, path + "/files", http.StatusOK, `"path":"d/a"`},
		{"files of a tick", full, path + "/files?at=r0/1", http.StatusOK, `"at":"r0/1"`},
		{"files of a folder", full, path + "/files?path=d", http.StatusOK, `"d/a"`},
		{"files without a tick", empty, path + "/files", http.StatusOK, `"entries":[]`},
		{"files with a mistake", full, path + "/files?folder=d", http.StatusBadRequest, "folder"},
		{"files of no tick", full, path + "/files?at=r0/2", http.StatusNotFound, "r0/2"},
		{"files of no folder", full, path + "/files?path=none", http.StatusNotFound, ""},
		{"files of nobody", full, "/api/workspaces/none/timeline/files", http.StatusNotFound, ""},
	} {
		api := &API{Timelines: Timelines{Journals: x.journals}, Find: &lookup.Lookup{Executor: known, Git: git}, Git: git}
		rec := httptest.NewRecorder()
		(&route.Mux{}).Handler(api.Routes(), &route.Local).ServeHTTP(rec, httptest.NewRequest("GET", x.path, nil))
		if rec.Code != x.status || !strings.Contains(rec.Body.String(), x.want) {
			t.Errorf("%s: got %d %s, want %d with %q", x.what, rec.Code, rec.Body, x.status, x.want)
		}
	}
}
