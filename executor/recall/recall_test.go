package recall

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/replay"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// desk is a book whose time goes on by a second with each commit.
type desk struct {
	*Book
	t   *testing.T
	now time.Time
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, now: time.Unix(1700000000, 0)}
	d.Book = &Book{Repo: repotest.NewRepo(t), Bot: gitd.Person{Name: "ramus", Email: "ramus@example.com"},
		Now: func() time.Time { d.now = d.now.Add(time.Second); return d.now }}
	return d
}

func caller(t *testing.T, id string) record.Caller {
	t.Helper()
	c, err := record.RunCaller(id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// put commits a file at a ref.
func (d *desk) put(ref, name string, content []byte) {
	d.t.Helper()
	c, err := d.Repo.WriteCommit(d.t.Context(), gitd.NewCommit{Author: d.Bot, When: d.Now(), Message: "x",
		Put: []gitd.File{{Path: name, Content: content}}})
	if err == nil {
		err = d.Repo.Update(d.t.Context(), gitd.RefUpdate{Name: ref, New: c})
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// keep keeps a result of a run, and makes the ref of the run.
func (d *desk) keep(s Subject, c record.Caller, run, out string) Result {
	d.t.Helper()
	r := Result{Caller: c, Run: run, Step: "check", Time: d.now.UTC(), DurationMS: 7, Exit: 1, Stdout: []byte(out), Stderr: []byte{}}
	r.Result.Output = map[string]any{"stdout": out}
	d.put(record.RunRef(c, run), "run.json", []byte("{}"))
	if err := d.Keep(d.t.Context(), s, r); err != nil {
		d.t.Fatal(err)
	}
	return r
}

func (d *desk) wantNone(s Subject, by record.Caller, why string) {
	d.t.Helper()
	if r, err := d.Find(d.t.Context(), s, by); !errors.Is(err, gitd.ErrNotFound) {
		d.t.Errorf("%s: found %+v, %v", why, r, err)
	}
}

// TestBook finds a result with its outputs, and only one that somebody can look at.
func TestBook(t *testing.T) {
	d, ada, bo := newDesk(t), caller(t, "ada"), caller(t, "bo")
	s := Subject{Tree: gitd.Hash(strings.Repeat("a", 40)), Task: "lib_run_tests", Engine: "sandbox"}
	d.wantNone(s, bo, "nothing is kept")
	want := d.keep(s, ada, "1", "out\x00put\n")
	got, err := d.Find(t.Context(), s, bo)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v:\n%+v, want\n%+v", err, got, want)
	}
	if at := got.Reused(); at.Run != "run:ada/1" || at.Step != "check" || at.DurationMS != 7 {
		t.Errorf("%+v", at)
	}
	newer := d.keep(s, ada, "2", "newer")
	if got, err := d.Find(t.Context(), s, bo); err != nil || got.Run != newer.Run {
		t.Errorf("%v: %+v", err, got)
	}
	d.Hides = func(c record.Caller) bool { return c == ada }
	d.wantNone(s, bo, "it is hidden")
	if _, err := d.Find(t.Context(), s, ada); err != nil {
		t.Errorf("it is hidden from its own caller: %v", err)
	}
	d.keep(s, ada, "3", "hidden")
	d.Hides = nil
	if got, err := d.Find(t.Context(), s, bo); err != nil || got.Run != "2" {
		t.Errorf("the result of a hidden caller was kept: %v: %+v", err, got)
	}
	if err := d.Repo.Update(t.Context(), gitd.RefUpdate{Name: record.RunRef(ada, "2")}); err != nil {
		t.Fatal(err)
	}
	d.wantNone(s, bo, "its run is gone")
	large := want
	large.Run, large.Stdout = "1", make([]byte, MaxOutput+1)
	s.Task = "lib_run_lint"
	if err := d.Keep(t.Context(), s, large); err != nil {
		t.Fatal(err)
	}
	d.wantNone(s, bo, "it is too large")
	if _, err := d.Find(t.Context(), Subject{Task: "x"}, bo); !errors.Is(err, ErrNoSubject) {
		t.Errorf("without a tree: %v", err)
	}
}

// TestDiffers never finds a result again that was different when its run was replayed, also if the verdict is gone and the
// check ran again.
func TestDiffers(t *testing.T) {
	d, ada := newDesk(t), caller(t, "ada")
	verdict := func(run string, v replay.Result) {
		text, err := json.Marshal(replay.Verdict{Commands: []replay.Checked{
			{Command: replay.Command{Step: "other"}, Result: replay.Differs}, {Command: replay.Command{Step: "check"}, Result: v}}})
		if err != nil {
			t.Fatal(err)
		}
		d.put(replay.Refs+"/"+ada.Slug()+"/"+run, "verdict.json", text)
	}
	for i, again := range []bool{false, true} {
		s := Subject{Tree: gitd.Hash(strings.Repeat("a", 40)), Shell: fmt.Sprint("date ", i)}
		run := fmt.Sprint("run-", i)
		d.keep(s, ada, run, "1")
		verdict(run, replay.Same)
		if _, err := d.Find(t.Context(), s, ada); err != nil {
			t.Fatal(err)
		}
		verdict(run, replay.Differs)
		if again { // nobody looked before the check ran again
			d.keep(s, ada, run+"-b", "2")
		}
		d.wantNone(s, ada, "it differs")
		if err := d.Repo.Update(t.Context(), gitd.RefUpdate{Name: replay.Refs + "/" + ada.Slug() + "/" + run}); err != nil {
			t.Fatal(err)
		}
		d.wantNone(s, ada, "the verdict is gone")
		d.keep(s, ada, run+"-c", "3")
		d.wantNone(s, ada, "the check ran again")
	}
}

// TestBound removes the oldest results.
func TestBound(t *testing.T) {
	d, ada := newDesk(t), caller(t, "ada")
	d.Kept = 10
	var all []Subject
	for i := range 25 {
		all = append(all, Subject{Tree: gitd.Hash(fmt.Sprintf("%040d", i)), Shell: "x"})
		d.keep(all[i], ada, fmt.Sprint("r", i), "")
	}
	refs, err := d.Repo.Refs(t.Context(), Refs)
	if err != nil || len(refs) > 11 {
		t.Fatalf("%v: %d results", err, len(refs))
	}
	d.wantNone(all[0], ada, "the oldest")
	if _, err := d.Find(t.Context(), all[24], ada); err != nil {
		t.Error(err)
	}
}

// TestKey changes random subjects in one place. Equal subjects have equal keys, whatever the order of fields of their
// JSON, and all others have different ones.
func TestKey(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	words := []string{"", "a", "b", "ab", "a b", "A=1", "{}", "null", "\x00", "ä"}
	word := func() string { return words[random.IntN(len(words))] }
	list := func() (l []string) {
		for range random.IntN(3) {
			l = append(l, word())
		}
		return l
	}
	object := func() json.RawMessage {
		m := map[string]any{}
		for range random.IntN(4) {
			m[word()] = map[string]any{"x": word(), "y": list()}
		}
		if len(m) == 0 {
			return nil
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	draw := []func(*Subject){
		func(s *Subject) { s.Tree = gitd.Hash(fmt.Sprintf("%040x", random.Uint64())) },
		func(s *Subject) { s.Task = word() },
		func(s *Subject) { s.Params = object() },
		func(s *Subject) { s.Shell = "x" + word() },
		func(s *Subject) { s.Args = list() },
		func(s *Subject) { s.Dir = word() },
		func(s *Subject) { s.Engine = word() },
		func(s *Subject) { s.Image = word() },
		func(s *Subject) { s.Files = []gitd.Hash{gitd.Hash(word()), gitd.Hash(word())} },
		func(s *Subject) { s.Env = list() },
		func(s *Subject) { s.Dependencies = list() },
		func(s *Subject) { s.Container = object() },
		func(s *Subject) { s.Bare = random.IntN(2) == 0 },
	}
	if n := reflect.TypeFor[Subject]().NumField(); n != len(draw) {
		t.Fatalf("a subject has %d fields, %d are drawn", n, len(draw))
	}
	key := func(s Subject) string {
		k, err := s.Key()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for range 2000 {
		var s Subject
		for _, f := range draw {
			f(&s)
		}
		same := s
		same.Params, same.Container = turned(t, s.Params), turned(t, s.Container)
		if key(s) != key(same) {
			t.Fatalf("equal subjects have two keys:\n%+v\n%+v", s, same)
		}
		other := s
		draw[random.IntN(len(draw))](&other)
		if equal := reflect.DeepEqual(s, other); equal != (key(s) == key(other)) {
			t.Fatalf("equal: %t\n%+v\n%+v", equal, s, other)
		}
	}
	for _, none := range []string{"", "null", "{}", " { } "} {
		with := Subject{Tree: "a", Task: "t", Params: json.RawMessage(none)}
		if key(with) != key(Subject{Tree: "a", Task: "t"}) {
			t.Errorf("%q are parameters", none)
		}
	}
}

// turned returns an object with its fields in reverse order.
func turned(t *testing.T, text json.RawMessage) json.RawMessage {
	if text == nil {
		return nil
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, k := range slices.Backward(slices.Sorted(maps.Keys(m))) {
		name, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, string(name)+" : "+string(m[k]))
	}
	return json.RawMessage("{" + strings.Join(parts, " , ") + "}")
}
