package search

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// source has the passages of runs by the names of the runs.
type source map[string][]passage

type passage struct {
	Passage
	text string
}

func (s source) Version(_ context.Context, r record.Run) (string, error) {
	return fmt.Sprint(len(s[r.Name()])), nil
}

func (s source) Read(_ context.Context, r record.Run, b *Builder) error {
	for _, p := range s[r.Name()] {
		if p.text == "cannot be read" {
			return errors.New(p.text)
		}
		if err := b.Add(p.Passage, p.text); err != nil {
			return err
		}
	}
	return nil
}

// world has an index of runs.
type world struct {
	*testing.T
	ix   *Index
	runs []record.Run
	from source
}

func newWorld(t *testing.T, runs int) *world {
	w := &world{T: t, from: source{}}
	for i := range runs {
		c, err := record.ParseCaller(fmt.Sprintf("run:caller-%d", i%3))
		if err != nil {
			t.Fatal(err)
		}
		w.runs = append(w.runs, record.Run{Caller: c, ID: fmt.Sprintf("r%d", i), Repo: "app", CreatedAt: time.Unix(int64(1000+i), 0)})
	}
	ix, err := Open(filepath.Join(t.TempDir(), "search.db"))
	if err != nil {
		t.Fatal(err)
	}
	w.ix = ix
	t.Cleanup(func() {
		if err := ix.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) add(run int, kind Kind, text string) {
	name := w.runs[run].Name()
	w.from[name] = append(w.from[name], passage{Passage{Kind: kind, Seq: int64(len(w.from[name]) + 1)}, text})
}

func (w *world) refresh() {
	w.Helper()
	var behind []int
	if err := w.ix.Refresh(w.Context(), w.runs, w.from, func(n int) { behind = append(behind, n) }); err != nil {
		w.Fatal(err)
	}
	for i, n := range behind {
		if n != len(behind)-1-i {
			w.Fatalf("%v runs are left", behind)
		}
	}
}

func (w *world) run(name string) (record.Run, bool) {
	i := slices.IndexFunc(w.runs, func(r record.Run) bool { return r.Name() == name })
	if i < 0 {
		return record.Run{}, false
	}
	return w.runs[i], true
}

// find returns the hits of a query as RUN KIND:LINE TEXT.
func (w *world) find(q Query) (list []string) {
	w.Helper()
	a, err := w.ix.Find(w.Context(), q, w.run)
	if err != nil {
		w.Fatal(err)
	}
	for _, h := range a.Hits {
		list = append(list, fmt.Sprintf("%s %s:%d %s", strings.TrimPrefix(h.Run, h.Caller+"/"), h.Kind, h.Line, h.Text))
	}
	return list
}

func (w *world) want(q Query, want ...string) {
	w.Helper()
	if got := w.find(q); !slices.Equal(got, want) {
		w.Errorf("%+v\n got %q\nwant %q", q, got, want)
	}
}

// TestSearch finds words in all kinds of passages.
func TestSearch(t *testing.T) {
	w := newWorld(t, 3)
	w.add(0, KindPrompt, "Repair the login.\nThe button does nothing.")
	w.add(0, KindOutput, "ok\nERROR: cannot connect\nerror at the end\n")
	w.add(1, KindCommand, "go test ./login/...")
	w.add(1, KindPath, "login/form.go\nmain.go")
	w.add(1, KindPerson, "Ada")
	w.add(2, KindSubject, "Zażółć gęślą jaźń")
	w.refresh()
	w.want(Query{Words: "login"}, "r1 command:1 go test ./login/...", "r1 path:1 login/form.go", "r0 prompt:1 Repair the login.")
	w.want(Query{Words: "LOGIN", Kinds: []Kind{KindPath}}, "r1 path:1 login/form.go")
	w.want(Query{Words: "error"}, "r0 output:2 ERROR: cannot connect", "r0 output:3 error at the end")
	w.want(Query{Words: "error connect"}, "r0 output:2 ERROR: cannot connect")
	w.want(Query{Words: `"cannot connect"`}, "r0 output:2 ERROR: cannot connect")
	w.want(Query{Words: `"connect cannot"`})
	w.want(Query{Words: "login nothing"}, "r0 prompt:2 The button does nothing.") // a prompt is searched as a whole
	w.want(Query{Words: "gĘŚLĄ"}, "r2 subject:1 Zażółć gęślą jaźń")               // case does not matter
	w.want(Query{Words: "login", Caller: "run:caller-0"}, "r0 prompt:1 Repair the login.")
	w.want(Query{Words: "login", Repo: "other"})
	w.want(Query{Words: "login", Run: w.runs[0].Name()}, "r0 prompt:1 Repair the login.")
	w.want(Query{Words: "login", Sees: func(r record.Run) bool { return r.ID != "r1" }}, "r0 prompt:1 Repair the login.")
	w.want(Query{Words: "ada"}, "r1 person:1 Ada")

	// A run that changes is read again, and one that is gone is not found.
	w.add(0, KindCommand, "make login")
	w.runs = slices.Delete(w.runs, 1, 2)
	w.refresh()
	w.want(Query{Words: "login"}, "r0 prompt:1 Repair the login.", "r0 command:1 make login")

	for words, want := range map[string]string{
		"":                          "one word must have at least 3 letters",
		"ab":                        "one word must have at least 3 letters",
		"a b c":                     "one word must have at least 3 letters",
		strings.Repeat("long", 200): "the query has 800 bytes, at most 400 are allowed",
		strings.Repeat("abc ", 17):  "the query has 17 words, at most 16 are allowed",
	} {
		if _, err := w.ix.Find(t.Context(), Query{Words: words}, w.run); !errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", words, err)
		}
	}
	for _, q := range []Query{{Kinds: []Kind{"none"}}, {Max: 201}, {Max: -1}, {After: "x"}, {After: "00"}} {
		q.Words = "login"
		if _, err := w.ix.Find(t.Context(), q, w.run); !errors.Is(err, ErrQuery) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestMore shows a bounded part of many hits, and goes on from there.
func TestMore(t *testing.T) {
	w := newWorld(t, 30)
	for i := range w.runs {
		w.add(i, KindOutput, strings.Repeat("needle\n", i))
	}
	w.refresh()
	runs, pages := map[string]int{}, 0
	for q := (Query{Words: "needle", Max: 25}); ; pages++ {
		a, err := w.ix.Find(t.Context(), q, w.run)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Hits) > 25+hitsEachRun {
			t.Errorf("%d hits", len(a.Hits))
		}
		for _, h := range a.Hits {
			runs[h.Run]++
		}
		for _, name := range a.More {
			if runs[name] != hitsEachRun {
				t.Errorf("%s has %d hits and more", name, runs[name])
			}
		}
		if q.After = a.Next; a.Next == "" {
			break
		}
	}
	for i, r := range w.runs {
		if runs[r.Name()] != min(i, hitsEachRun) {
			t.Errorf("%s has %d hits", r.Name(), runs[r.Name()])
		}
	}
	if pages < 5 {
		t.Errorf("%d pages", pages)
	}
	if got := w.find(Query{Words: "needle", Run: w.runs[29].Name()}); len(got) != 29 {
		t.Errorf("%d hits of one run", len(got))
	}
}

// TestOracle compares random searches in random texts with a search line by line.
func TestOracle(t *testing.T) {
	letters := []string{"a", "b", "Ab", "ł", "İ", "\xff", " ", "  ", "c", "\r"}
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		word := func(most int) string {
			var s strings.Builder
			for range rnd.IntN(most) + 1 {
				s.WriteString(letters[rnd.IntN(len(letters))])
			}
			return s.String()
		}
		w := newWorld(t, 4)
		for i := range w.runs {
			for range rnd.IntN(6) {
				kind := Kinds[rnd.IntN(len(Kinds))]
				var text strings.Builder
				for range rnd.IntN(40) {
					text.WriteString(word(12))
					if rnd.IntN(30) == 0 && kind.byLine() { // words of others are sought in 64 KiB
						text.WriteString(strings.Repeat("filler ", rnd.IntN(8000)))
					}
					text.WriteString("\n")
				}
				w.add(i, kind, text.String())
			}
		}
		w.refresh()
		for range 30 {
			q := Query{Words: `"` + word(5) + `" ` + word(4), Max: MaxHits}
			p, err := q.plan()
			if err != nil {
				continue
			}
			for _, r := range w.runs {
				q.Run = r.Name()
				var want []string
				for _, x := range w.from[r.Name()] {
					whole := fold([]byte(x.text))
					for n, line := range strings.Split(strings.TrimRight(x.text, "\n"), "\n") {
						line = strings.TrimRight(line, "\r")
						folded := fold([]byte(line))
						hit := p.has(folded)
						if !x.Kind.byLine() {
							hit = p.has(whole) && strings.Contains(string(folded), string(p.words[0]))
						}
						if hit {
							want = append(want, fmt.Sprintf("%s:%d", x.Kind, n+1))
						}
					}
				}
				var got []string
				for _, h := range w.find(q) {
					at, _, _ := strings.Cut(strings.TrimPrefix(h, r.ID+" "), " ")
					got = append(got, at)
				}
				if len(want) <= MaxHits && !slices.Equal(got, want) {
					t.Fatalf("seed %d, %q in %s\n got %q\nwant %q", seed, q.Words, r.Name(), got, want)
				}
			}
		}
	}
}

// TestDamage searches again after the file was damaged or removed.
func TestDamage(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"removed": os.Remove,
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"other":   func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("damaged", 10000)), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.add(0, KindOutput, "a needle\n")
			w.refresh()
			if err := w.ix.Close(); err != nil {
				t.Fatal(err)
			}
			if err := damage(w.ix.path); err != nil {
				t.Fatal(err)
			}
			again, err := Open(w.ix.path)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			w.ix = again
			w.want(Query{Words: "needle"})
			w.refresh()
			w.want(Query{Words: "needle"}, "r0 output:1 a needle")
		})
	}
}

// TestUnreadable leaves a run that cannot be read out, and reads the others.
func TestUnreadable(t *testing.T) {
	w := newWorld(t, 3)
	for i := range w.runs {
		w.add(i, KindOutput, "needle")
	}
	w.add(1, KindOutput, "cannot be read")
	if err := w.ix.Refresh(t.Context(), w.runs, w.from, nil); err == nil || !strings.Contains(err.Error(), w.runs[1].Name()) {
		t.Errorf("error %v", err)
	}
	w.want(Query{Words: "needle"}, "r2 output:1 needle", "r0 output:1 needle")
	name := w.runs[1].Name()
	w.from[name][1].text = "can be read: needle"
	w.refresh()
	if got := w.find(Query{Words: "needle"}); len(got) != 4 {
		t.Errorf("got %q", got)
	}
}

// FuzzFind decodes and searches chunks of any form.
func FuzzFind(f *testing.F) {
	c := chunk{parts: []part{{Passage{Kind: KindOutput}, 0, 1}}, text: []byte("one\ntwo\n")}
	b, err := c.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, "two")
	f.Fuzz(func(t *testing.T, b []byte, words string) {
		p, err := Query{Words: words}.plan()
		if err != nil {
			return
		}
		if c, err := decodeChunk(b); err == nil {
			p.find(c, func(Passage, int64, string) bool { return true })
		}
		text := chunk{parts: []part{{Passage{Kind: KindOutput}, 0, 1}}, text: append(b, '\n')}
		p.find(text, func(_ Passage, line int64, _ string) bool {
			if line < 1 || line > int64(len(b))+1 {
				t.Fatalf("line %d", line)
			}
			return true
		})
	})
}

// TestFold compares fold with the standard library.
func TestFold(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		text := make([]byte, rnd.IntN(40))
		for i := range text {
			text[i] = byte(rnd.IntN(128))
		}
		if rnd.IntN(4) == 0 {
			text = append(text, "ŁÉ\xff"[:rnd.IntN(6)]...)
		}
		if rnd.IntN(8) == 0 {
			text = append(text, 0x80)
		}
		if got, want := fold(text), bytes.ToLower(text); !bytes.Equal(got, want) {
			t.Fatalf("fold(%q) = %q, want %q", text, got, want)
		}
	}
}

// BenchmarkFind searches a rare word, a word of each chunk and three letters in 1,000,000 lines of output.
func BenchmarkFind(b *testing.B) {
	ix, err := Open(filepath.Join(b.TempDir(), "search.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer ix.Close()
	const each, runs = 50_000, 20
	rnd := rand.New(rand.NewPCG(1, 2))
	from, list := source{}, []record.Run{}
	c, _ := record.ParseCaller("run:one")
	for i := range runs {
		var text strings.Builder
		for n := range each {
			fmt.Fprintf(&text, "2026-11-24T10:%02d:%02d level=info module=m%d request=%08x took=%dms path=/api/v1/items/%d\n", n/60%60, n%60,
				rnd.IntN(40), rnd.Uint32(), rnd.IntN(900), rnd.IntN(100000))
		}
		if i == 3 {
			text.WriteString("a needle in the hay\n")
		}
		r := record.Run{Caller: c, ID: fmt.Sprintf("r%d", i), Repo: "app", CreatedAt: time.Unix(int64(i), 0)}
		list = append(list, r)
		from[r.Name()] = []passage{{Passage{Kind: KindOutput}, text.String()}}
	}
	began := time.Now()
	if err := ix.Refresh(b.Context(), list, from, nil); err != nil {
		b.Fatal(err)
	}
	b.Logf("indexed in %v", time.Since(began))
	if st, err := os.Stat(ix.path); err == nil {
		b.Logf("%d MB", st.Size()>>20)
	}
	find := func(name string) (record.Run, bool) {
		i := slices.IndexFunc(list, func(r record.Run) bool { return r.Name() == name })
		return list[i], true
	}
	for _, words := range []string{"needle", "hay", "level=info", "absent-word", "items/4242", "level=info took=899ms module=m7 request=ab"} {
		b.Run(words, func(b *testing.B) {
			for b.Loop() {
				a, err := ix.Find(b.Context(), Query{Words: words}, find)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(a.Hits)), "hits")
			}
		})
	}
}
