package review

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/anchor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// TestFull fills reviews as far as they go. One more is refused, and changes nothing.
func TestFull(t *testing.T) {
	repo := repotest.NewRepo(t)
	first := newThread(t, repo, "t")
	thread := func(i int) Thread {
		x := first
		x.ID = fmt.Sprintf("t-%d", i)
		return x
	}
	b := &Book{Bot: ada}
	change := func(caller string, change func(*Review)) error {
		t.Helper()
		c, err := record.RunCaller(caller)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Change(t.Context(), repo, c, ada, "x", func(r *Review) error { change(r); return nil })
		return err
	}
	for _, x := range []struct {
		noun string
		most int
		fill func(r *Review, n int)
	}{
		{"threads", MaxThreads, func(r *Review, n int) {
			for i := range n {
				r.Threads = append(r.Threads, thread(i))
			}
		}},
		{"remarks", MaxRemarks, func(r *Review, n int) {
			r.Threads = []Thread{thread(0)}
			r.Threads[0].Remarks = slices.Repeat(first.Remarks, n)
		}},
	} {
		if err := change(x.noun, func(r *Review) { x.fill(r, x.most+1) }); !errors.Is(err, ErrFull) {
			t.Errorf("%d %s: %v", x.most+1, x.noun, err)
		}
		if err := change(x.noun, func(r *Review) { x.fill(r, x.most) }); err != nil {
			t.Errorf("%d %s: %v", x.most, x.noun, err)
		}
	}

	// A file of 8 MiB.
	note := func(n int) func(*Review) {
		return func(r *Review) { r.Batches = []Batch{{ID: "b", Note: strings.Repeat("x", n)}} }
	}
	if err := change("size", note(0)); err != nil {
		t.Fatal(err)
	}
	c, _ := record.RunCaller("size")
	file, err := repo.ReadFile(t.Context(), Ref(c), "batches/b.json", maxFile)
	if err != nil {
		t.Fatal(err)
	}
	room := maxFile - len(file) - len(` "note": "",`+"\n")
	if err := change("size", note(room+1)); !errors.Is(err, ErrFull) {
		t.Errorf("a file of one byte more: %v", err)
	}
	if err := change("size", note(room)); err != nil {
		t.Errorf("a file of 8 MiB: %v", err)
	}
	if r, err := new(Book).Read(t.Context(), repo, c); err != nil || len(r.Batches[0].Note) != room {
		t.Errorf("a file of 8 MiB cannot be read: %v", err)
	}
}

// TestParents has the commits of anchors as parents, each once, and the review before as the first.
func TestParents(t *testing.T) {
	repo := repotest.NewRepo(t)
	c, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	old, fresh := newThread(t, repo, "old"), newThread(t, repo, "new")
	both := old
	both.ID, both.Anchor.Side, both.Anchor.Commit = "both", anchor.Old, fresh.Anchor.Commit
	again := both
	again.ID = "again"
	b := &Book{Bot: gitd.Person{Name: "ramus", Email: "ramus@example.org"}}
	tip := ""
	for _, x := range []struct {
		threads []Thread
		parents []gitd.Hash // without the review before
	}{
		{[]Thread{old}, []gitd.Hash{old.Anchor.Commit}},
		{[]Thread{both, again}, []gitd.Hash{old.Anchor.Commit, fresh.Anchor.Commit}},
	} {
		if _, err := b.Change(t.Context(), repo, c, ada, "Say it", func(r *Review) error {
			r.Threads = append(r.Threads, x.threads...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		var want []string
		if tip != "" {
			want = append(want, tip)
		}
		for _, h := range x.parents {
			want = append(want, string(h))
		}
		if got := strings.Fields(gittest.Run(t, repo.Dir(), "log", "-1", "--format=%P", Ref(c))); !slices.Equal(got, want) {
			t.Errorf("the parents are %v, want %v", got, want)
		}
		tip = strings.TrimSpace(gittest.Run(t, repo.Dir(), "rev-parse", Ref(c)))
	}
	if got := gittest.Run(t, repo.Dir(), "log", "-1", "--format=%an, %cn: %B", Ref(c)); !strings.HasPrefix(got, "Ada, ramus: Say it\n") ||
		!strings.Contains(got, "\n"+record.TrailerCaller+": run:otter") {
		t.Errorf("the commit is %q", got)
	}
}

// TestOrder reads threads and batches from files in the order of time, whatever their names are.
func TestOrder(t *testing.T) {
	repo := repotest.NewRepo(t)
	c, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	at := func(s int64) time.Time { return time.Unix(1_700_000_000+s, 0).UTC() }
	first := newThread(t, repo, "f")
	thread := func(id, path string, line int, s int64) Thread {
		x := first
		x.ID, x.Anchor.Path, x.Anchor.From = id, path, line
		x.Remarks = []Remark{{ID: "r-" + id, Time: at(s)}, {ID: "s-" + id, Time: at(0)}}
		return x
	}
	empty := thread("empty", "a", 1, 1)
	empty.Remarks = []Remark{}
	if _, err := (&Book{Bot: ada}).Change(t.Context(), repo, c, ada, "x", func(r *Review) error {
		r.Threads = []Thread{thread("a", "a", 1, 3), thread("b", "b", 1, 2), thread("c", "a", 2, 2), thread("e", "a", 1, 2), thread("d", "a", 1, 2), empty}
		r.Batches = []Batch{{ID: "x", Time: at(3)}, {ID: "z", Time: at(2)}, {ID: "y", Time: at(2)}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r, err := new(Book).Read(t.Context(), repo, c)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, x := range r.Threads {
		got += x.ID
	}
	for _, x := range r.Batches {
		got += x.ID
	}
	if got != "decba"+"yzx" {
		t.Errorf("the order is %s", got)
	}
	for _, id := range []string{"a", "d", "empty", "none"} {
		if x := r.Thread(id); (x == nil) != (id == "empty" || id == "none") || x != nil && x.ID != id {
			t.Errorf("thread %s: %+v", id, x)
		}
		x := r.Of("s-" + id)
		if (x == nil) != (id == "empty" || id == "none") || x != nil && (x.ID != id || x.Remark("s-"+id) == nil || x.Remark("s-x") != nil) {
			t.Errorf("the thread of remark s-%s: %+v", id, x)
		}
	}
	for _, id := range []string{"x", "y", "none"} {
		if x := r.Batch(id); (x == nil) != (id == "none") || x != nil && x.ID != id {
			t.Errorf("batch %s: %+v", id, x)
		}
	}
}

// TestConflict tries again while others write, and gives up after some attempts. Nothing that others wrote is lost.
func TestConflict(t *testing.T) {
	repo := repotest.NewRepo(t)
	c, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	b, other := &Book{Bot: ada}, &Book{Bot: ada}
	for _, x := range []struct {
		others int
		fails  bool
	}{{saves - 1, false}, {saves, true}} {
		tries := 0
		id := fmt.Sprint("mine-", x.others)
		_, err := b.Change(t.Context(), repo, c, ada, "x", func(r *Review) error {
			if tries++; tries <= x.others {
				if _, err := other.Change(t.Context(), repo, c, ada, "x", func(r *Review) error {
					r.Batches = append(r.Batches, Batch{ID: fmt.Sprint("other-", x.others, "-", tries)})
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
			r.Batches = append(r.Batches, Batch{ID: id})
			return nil
		})
		if (err != nil) != x.fails || x.fails && !errors.Is(err, gitd.ErrConflict) {
			t.Errorf("others wrote %d times: %v", x.others, err)
		}
		r, err := b.Read(t.Context(), repo, c)
		if err != nil || (r.Batch(id) == nil) != x.fails {
			t.Errorf("%s: %+v, %v", id, r.Batches, err)
		}
	}
	if r, err := b.Read(t.Context(), repo, c); err != nil || len(r.Batches) != 1+saves-1+saves {
		t.Errorf("%d batches, %v", len(r.Batches), err)
	}
}

// TestExcerpt cuts long lines, and many of them, and keeps runes whole.
func TestExcerpt(t *testing.T) {
	for name, x := range map[string]struct {
		lines    []string
		from, to int
		first    int
		want     []string
	}{
		"lines around":         {[]string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}, 5, 5, 2, []string{"2", "3", "4", "5", "6", "7", "8"}},
		"no line":              {nil, 1, 1, 1, []string{}},
		"a line of 500 bytes":  {[]string{strings.Repeat("x", 500)}, 1, 1, 1, []string{strings.Repeat("x", 500)}},
		"a line of 501 bytes":  {[]string{strings.Repeat("x", 501)}, 1, 1, 1, []string{strings.Repeat("x", 500)}},
		"a rune that is cut":   {[]string{strings.Repeat("x", 499) + "é"}, 1, 1, 1, []string{strings.Repeat("x", 499) + "\uFFFD"}},
		"8192 bytes":           {slices.Repeat([]string{strings.Repeat("x", 64)}, 128), 1, 128, 1, slices.Repeat([]string{strings.Repeat("x", 64)}, 128)},
		"more than 8192 bytes": {slices.Repeat([]string{strings.Repeat("x", 64)}, 129), 1, 129, 1, slices.Repeat([]string{strings.Repeat("x", 64)}, 128)},
	} {
		y := Thread{Anchor: anchor.Anchor{From: x.from, To: x.to}}
		if y.SetExcerpt(x.lines); y.First != x.first || !reflect.DeepEqual(y.Excerpt, x.want) {
			t.Errorf("%s: %d lines from %d: %.100q", name, len(y.Excerpt), y.First, y.Excerpt)
		}
	}
}

// TestWaits has a batch wait until its prompt was said or refused, if an agent gets it.
func TestWaits(t *testing.T) {
	for _, x := range []struct {
		b    Batch
		want bool
	}{
		{Batch{Agent: "coder"}, true},
		{Batch{}, false},
		{Batch{Run: "run:a/1"}, false},
		{Batch{Agent: "coder", Run: "run:a/1"}, false},
		{Batch{Agent: "coder", Refused: "no such agent"}, false},
	} {
		if got := x.b.Waits(); got != x.want {
			t.Errorf("%+v waits: %t", x.b, got)
		}
	}
}

// TestApply replaces the lines of an anchor, wherever they are in the file.
func TestApply(t *testing.T) {
	lines := []string{"a", "b", "c"}
	for _, x := range []struct {
		from, to int
		want     string
	}{{1, 1, "x b c"}, {3, 3, "a b x"}, {1, 3, "x"}, {0, 1, ""}, {3, 4, ""}, {4, 4, ""}} {
		got, err := Apply(lines, anchor.Place{State: anchor.Same, From: x.from, To: x.to}, []string{"x"})
		if strings.Join(got, " ") != x.want || (err != nil) != (x.want == "") || err != nil && !errors.Is(err, anchor.ErrLines) {
			t.Errorf("%d to %d: %q, %v", x.from, x.to, got, err)
		}
	}
	if got, err := Apply(lines, anchor.Place{State: anchor.Moved, From: 2, To: 2}, nil); err != nil || !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestNewID makes an id of parts. Other parts have another id.
func TestNewID(t *testing.T) {
	if NewID("a", "b") != "59b271ae1bbcb1d3" || NewID("a", "b") == NewID("ab") || NewID("a", "b") == NewID("b", "a") || !fileID.MatchString(NewID()) {
		t.Error(NewID("a", "b"))
	}
}
