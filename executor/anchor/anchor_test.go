package anchor

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// TestCarry checks the places of anchors in single edits.
func TestCarry(t *testing.T) {
	const text = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"
	long := strings.ReplaceAll(text, "\n", " is the name of a number\n")
	for name, tt := range map[string]struct {
		before, after string
		from, to      int
		want          Place
	}{
		"nothing":                  {text, text, 5, 6, Place{State: Same, From: 5, To: 6}},
		"lines before":             {text, "a\nb\n" + text, 5, 6, Place{State: Moved, From: 7, To: 8}},
		"lines after":              {text, text + "a\n", 5, 6, Place{State: Same, From: 5, To: 6}},
		"the line":                 {text, strings.Replace(text, "five", "5", 1), 5, 5, Place{State: Changed, From: 5, To: 5}},
		"one of its lines":         {text, strings.Replace(text, "five", "5", 1), 5, 6, Place{State: Changed, From: 5, To: 6}},
		"a line in the middle":     {text, strings.Replace(text, "five\n", "five\nx\n", 1), 5, 6, Place{State: Changed, From: 5, To: 7}},
		"a line next to it":        {text, strings.Replace(text, "four", "4", 1), 5, 5, Place{State: Changed, From: 5, To: 5, Exact: true}},
		"a line three away":        {text, strings.Replace(text, "two", "2", 1), 5, 5, Place{State: Changed, From: 5, To: 5, Exact: true}},
		"a line four away":         {text, strings.Replace(text, "one", "1", 1), 5, 5, Place{State: Same, From: 5, To: 5}},
		"the line is gone":         {text, strings.Replace(text, "five\n", "", 1), 5, 5, Place{State: Gone}},
		"the file is empty":        {text, "", 5, 5, Place{State: Gone}},
		"another file":             {text, "a\nb\nc\n", 5, 5, Place{State: Gone}},
		"the first line":           {text, "zero\n" + text, 1, 1, Place{State: Changed, From: 2, To: 2, Exact: true}},
		"no such line":             {text, text, 11, 11, Place{State: Gone}},
		"a block that moved":       {long, moveLines(long, 1, 8, 10), 5, 5, Place{State: Moved, From: 7, To: 7}},
		"the edge of a block":      {long, moveLines(long, 1, 8, 10), 8, 8, Place{State: Changed, From: 10, To: 10, Exact: true}},
		"equal lines":              {strings.Repeat("x\n", 20), strings.Repeat("x\n", 21), 10, 10, Place{State: Gone}},
		"equal lines, one is gone": {strings.Repeat("x\n", 2000), strings.Repeat("x\n", 1999), 1000, 1000, Place{State: Gone}},
	} {
		if got := Carry(SplitLines(tt.before), SplitLines(tt.after), tt.from, tt.to); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// moveLines moves the lines from to to, numbers from 1, after the line at.
func moveLines(text string, from, to, at int) string {
	l := SplitLines(text)
	moved := slices.Concat(l[:from-1], l[to:at], l[from-1:to], l[at:])
	return strings.Join(moved, "\n") + "\n"
}

// history is a repository whose files a test edits at random.
type history struct {
	t     *testing.T
	repo  *gitd.Repo
	rnd   *rand.Rand
	files map[string][]string
	base  gitd.Hash // the tip of the base
	tip   gitd.Hash
	edits int
	lines int
}

var author = gitd.Person{Name: "Ada", Email: "ada@example.org"}

// line returns a new line. One of four is like many others.
func (h *history) line() string {
	h.lines++
	switch h.rnd.IntN(8) {
	case 0:
		return ""
	case 1:
		return []string{"}", "\treturn nil", "\t}"}[h.rnd.IntN(3)]
	}
	return fmt.Sprintf("\tvalue%d = compute(%d)", h.lines, h.rnd.IntN(1000))
}

func (h *history) some(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = h.line()
	}
	return list
}

// path returns the path of one of the files.
func (h *history) path() string {
	names := slices.Sorted(maps.Keys(h.files))
	return names[h.rnd.IntN(len(names))]
}

// block returns a part of a file, which may be empty.
func (h *history) block(path string) (from, to int) {
	n := len(h.files[path])
	from = h.rnd.IntN(n + 1)
	return from, min(n, from+1+h.rnd.IntN(12))
}

// edit changes files in one way. It returns the name of the way.
func (h *history) edit() string {
	path := h.path()
	l := h.files[path]
	from, to := h.block(path)
	switch way := h.rnd.IntN(12); way {
	case 0, 1:
		h.files[path] = slices.Insert(slices.Clone(l), from, h.some(1+h.rnd.IntN(6))...)
		return "insert"
	case 2:
		h.files[path] = slices.Delete(slices.Clone(l), from, to)
		return "delete"
	case 3, 4:
		to = min(to, from+2)
		h.files[path] = slices.Replace(slices.Clone(l), from, to, h.some(1+h.rnd.IntN(3))...)
		return "replace"
	case 5, 6:
		block := slices.Clone(l[from:to])
		rest := slices.Delete(slices.Clone(l), from, to)
		h.files[path] = slices.Insert(rest, h.rnd.IntN(len(rest)+1), block...)
		return "move"
	case 7:
		block, other := slices.Clone(l[from:to]), h.path()
		h.files[path] = slices.Delete(slices.Clone(l), from, to)
		h.files[other] = slices.Insert(slices.Clone(h.files[other]), h.rnd.IntN(len(h.files[other])+1), block...)
		return "move to another file"
	case 8:
		h.files[path] = slices.Insert(slices.Clone(l), h.rnd.IntN(len(l)+1), l[from:to]...)
		return "copy"
	case 9, 10:
		h.edits++
		name := fmt.Sprintf("renamed-%d.go", h.edits)
		delete(h.files, path)
		if h.rnd.IntN(2) == 0 {
			l = slices.Insert(slices.Clone(l), from, h.some(2)...)
		}
		h.files[name] = l
		return "rename"
	}
	if len(h.files) > 6 {
		delete(h.files, path)
		return "delete a file"
	}
	h.files[path+".copy"] = slices.Clone(l)
	return "copy a file"
}

// commit makes a commit of the files.
func (h *history) commit(parent gitd.Hash) gitd.Hash {
	h.t.Helper()
	h.edits++
	c := gitd.NewCommit{Author: author, When: time.Unix(1_700_000_000+int64(h.edits), 0), Message: fmt.Sprintf("Edit %d", h.edits)}
	if parent != "" {
		c.Parents = []gitd.Hash{parent}
	}
	for path, l := range h.files {
		c.Put = append(c.Put, gitd.File{Path: path, Content: []byte(text(l))})
	}
	commit, err := h.repo.WriteCommit(h.t.Context(), c)
	if err != nil {
		h.t.Fatal(err)
	}
	return commit
}

func text(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// read takes the files of a commit.
func (h *history) read(commit gitd.Hash) {
	h.t.Helper()
	list, err := h.repo.Tree(h.t.Context(), string(commit), "", true)
	if err != nil {
		h.t.Fatal(err)
	}
	h.files = map[string][]string{}
	for _, e := range list {
		content, err := h.repo.Blob(h.t.Context(), e.Hash, MaxFile)
		if err != nil {
			h.t.Fatal(err)
		}
		h.files[e.Path] = SplitLines(string(content))
	}
}

// rebase edits the base and replays the branch on it. Returns false, and changes nothing, if that conflicts.
func (h *history) rebase() bool {
	h.t.Helper()
	h.read(h.base)
	for range 3 {
		path := h.path()
		from, _ := h.block(path)
		h.files[path] = slices.Insert(slices.Clone(h.files[path]), from, h.some(1+h.rnd.IntN(5))...)
	}
	base := h.commit(h.base)
	if err := h.repo.Update(h.t.Context(), gitd.RefUpdate{Name: "refs/heads/work", New: h.tip}); err != nil {
		h.t.Fatal(err)
	}
	m, err := h.repo.MergeOnto(h.t.Context(), gitd.MergeRequest{From: "work", Into: "main", Strategy: gitd.StrategyRebase, Author: author}, base)
	if err != nil {
		h.t.Fatal(err)
	}
	isDone := len(m.Conflicts) == 0
	if isDone {
		h.base, h.tip = base, m.Commit
	}
	h.read(h.tip)
	return isDone
}

// oracle asks stock git about lines.
type oracle struct {
	t    *testing.T
	dir  string
	maps map[string]map[string]*lineMap // by both commits, by the old path
	who  map[string][]string            // by commit and path, the subjects of the commits that the lines come from
}

// lineMap says where git has the lines of a file. lines is nil if no line differs.
type lineMap struct {
	path  string
	lines []int // from the index of an old line to the number of a new one, from 1; 0 means that it is gone
	shift int   // of the lines after those
}

func (m *lineMap) at(line int) int {
	if line <= len(m.lines) {
		return m.lines[line-1]
	}
	return line + m.shift
}

// between returns the differences of two commits, by the old path of each file.
func (o *oracle) between(from, to gitd.Hash) map[string]*lineMap {
	o.t.Helper()
	key := string(from + to)
	if m, ok := o.maps[key]; ok {
		return m
	}
	files := map[string]*lineMap{}
	var m *lineMap
	for l := range strings.Lines(gittest.Run(o.t, o.dir, "diff", "-M", "-U0", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", string(from), string(to))) {
		l = strings.TrimSuffix(l, "\n")
		switch {
		case strings.HasPrefix(l, "diff --git a/"):
			old, fresh, _ := strings.Cut(strings.TrimPrefix(l, "diff --git a/"), " b/")
			m = &lineMap{path: fresh}
			files[old] = m
		case strings.HasPrefix(l, "deleted file"):
			m.path = ""
		case strings.HasPrefix(l, "@@ "):
			var at, gone, added int
			f := strings.Fields(l)
			at, gone = parseRange(o.t, f[1])
			_, added = parseRange(o.t, f[2])
			if gone == 0 {
				at++
			}
			for n := len(m.lines) + 1; n < at; n++ {
				m.lines = append(m.lines, n+m.shift)
			}
			m.lines = append(m.lines, make([]int, gone)...)
			m.shift += added - gone
		}
	}
	o.maps[key] = files
	return files
}

func parseRange(t *testing.T, s string) (at, count int) {
	first, rest, ok := strings.Cut(s[1:], ",")
	at, err := strconv.Atoi(first)
	if count = 1; err == nil && ok {
		count, err = strconv.Atoi(rest)
	}
	if err != nil {
		t.Fatal(err)
	}
	return at, count
}

// origins returns the subjects of the commits from which the lines of a file come, as git blame -M finds them.
func (o *oracle) origins(commit gitd.Hash, path string) []string {
	o.t.Helper()
	key := string(commit) + path
	if list, ok := o.who[key]; ok {
		return list
	}
	var list []string
	for l := range strings.Lines(gittest.Run(o.t, o.dir, "blame", "-M", "-w", "--line-porcelain", string(commit), "--", path)) {
		if subject, ok := strings.CutPrefix(l, "summary "); ok {
			list = append(list, strings.TrimSpace(subject))
		}
	}
	o.who[key] = list
	return list
}

// isRight reports whether git has the lines of an anchor at a place.
func (o *oracle) isRight(a Anchor, at gitd.Hash, p Place) bool {
	o.t.Helper()
	m := o.between(a.At(), at)[a.Path]
	if m == nil {
		return p.Path == a.Path && p.From == a.From && p.To == a.To
	}
	if m.path != p.Path || p.To-p.From != a.To-a.From {
		return false
	}
	for n := a.From; n <= a.To; n++ {
		if m.at(n) != p.From+n-a.From {
			// A block that moved in its file is deleted and added for git diff.
			return m.at(n) == 0 && o.origins(a.At(), a.Path)[n-1] == o.origins(at, p.Path)[p.From+n-a.From-1]
		}
	}
	return true
}

// isKept reports whether git has all lines of the hash of an anchor, together.
func (o *oracle) isKept(a Anchor, lines int, at gitd.Hash) bool {
	m := o.between(a.At(), at)[a.Path]
	if m == nil {
		return true
	}
	start, end := around(lines, a.From, a.To)
	for n := start; n <= end; n++ {
		if m.path == "" || m.at(n) == 0 || m.at(n) != m.at(start)+n-start {
			return false
		}
	}
	return a.From-start == Around && end-a.To == Around
}

// TestFollow makes 200 anchors in each of some histories, edits the files at random, and follows the anchors. git diff and git blame judge
// each place.
func TestFollow(t *testing.T) {
	histories, edits := 2, 20
	if os.Getenv("RAMUS_TEST") == "full" {
		histories = 50
	}
	states, ways := map[State]int{}, map[string]int{}
	kept, lost := 0, 0
	for seed := range histories {
		h := &history{t: t, repo: repotest.NewRepo(t), rnd: rand.New(rand.NewPCG(uint64(seed), 7)), files: map[string][]string{}}
		for i := range 8 {
			h.files[fmt.Sprintf("file-%d.go", i)] = h.some(20 + h.rnd.IntN(80))
		}
		h.base = h.commit("")
		h.tip = h.base
		o := &oracle{t: t, dir: h.repo.Dir(), maps: map[string]map[string]*lineMap{}, who: map[string][]string{}}
		f := new(Follower)
		var anchors []Anchor
		size := map[Anchor]int{}
		for n := range edits {
			for len(anchors) < min(200, 100+n*20) {
				path := h.path()
				if len(h.files[path]) == 0 {
					continue
				}
				from := 1 + h.rnd.IntN(len(h.files[path]))
				to := min(len(h.files[path]), from+h.rnd.IntN(3))
				a, lines, err := Make(t.Context(), h.repo, Ends{Base: h.base, Commit: h.tip}, New, path, from, to)
				if err != nil {
					t.Fatal(err)
				}
				anchors = append(anchors, a)
				size[a] = len(lines)
			}
			way := "rebase"
			if n%7 != 6 || !h.rebase() {
				way = h.edit()
				h.tip = h.commit(h.tip)
			}
			ways[way]++
			for _, a := range anchors {
				p, err := f.find(t.Context(), h.repo, a, h.tip)
				if err != nil {
					t.Fatal(err)
				}
				states[p.State]++
				if p.Fits() && !o.isRight(a, h.tip, p) {
					t.Errorf("seed %d, edit %d (%s): %+v is not at %+v", seed, n, way, a, p)
				}
				if p.Fits() && !slices.Equal(linesOf(h.files[p.Path], p.From, p.To), linesAt(t, h.repo, a)) {
					t.Errorf("seed %d, edit %d (%s): %+v has other lines at %+v", seed, n, way, a, p)
				}
				if o.isKept(a, size[a], h.tip) {
					if kept++; !p.Fits() {
						lost++
					}
				}
			}
		}
		for _, a := range anchors[:20] {
			checkChangedIn(t, f, h, a)
		}
	}
	t.Logf("%d edits %v: places %v; of %d that git has with all lines around them, %d are not found", histories*edits, ways, states, kept, lost)
	if lost*50 > kept {
		t.Errorf("%d of %d are not found", lost, kept)
	}
}

func linesOf(lines []string, from, to int) []string { return lines[from-1 : to] }

func linesAt(t *testing.T, r *gitd.Repo, a Anchor) []string {
	t.Helper()
	content, err := r.Blob(t.Context(), a.Blob, MaxFile)
	if err != nil {
		t.Fatal(err)
	}
	return linesOf(SplitLines(string(content)), a.From, a.To)
}

// checkChangedIn checks the commit in which an anchor was changed or gone. Each earlier commit that the anchor's lacks has the lines.
func checkChangedIn(t *testing.T, f *Follower, h *history, a Anchor) {
	t.Helper()
	p, err := f.Find(t.Context(), h.repo, a, Ends{Base: h.base, Commit: h.tip})
	if err != nil || p.Fits() {
		if err != nil || p.In != "" {
			t.Errorf("%+v: %+v, %v", a, p, err)
		}
		return
	}
	if p.In == "" {
		t.Errorf("%+v: %+v has no commit", a, p)
		return
	}
	list, err := h.repo.Log(t.Context(), p.In, gitd.LogOptions{Not: string(a.Commit), Topo: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range list {
		q, err := f.find(t.Context(), h.repo, a, c.Hash)
		if err != nil || q.Fits() != (i > 0) {
			t.Errorf("%+v changed in %s, but is %+v in %s, %v", a, p.In, q, c.Hash, err)
			return
		}
	}
}

// TestMakeInvalid makes anchors of lines that are not there.
func TestMakeInvalid(t *testing.T) {
	r := repotest.NewRepo(t)
	h := &history{t: t, repo: r, files: map[string][]string{"a": {"x", "y"}}}
	commit := h.commit("")
	for _, x := range []struct {
		path     string
		from, to int
	}{{"a", 0, 0}, {"a", 2, 1}, {"a", 1, 3}, {"b", 1, 1}} {
		if a, _, err := Make(t.Context(), r, Ends{commit, commit}, New, x.path, x.from, x.to); err == nil {
			t.Errorf("%+v", a)
		}
	}
	a, lines, err := Make(t.Context(), r, Ends{commit, commit}, Old, "a", 2, 0)
	if first, list := Excerpt(lines, a.From, a.To); err != nil || a.To != 2 || first != 1 || len(list) != 2 || cmp.Or(a.Sum, "") == "" {
		t.Errorf("%+v %v %v", a, list, err)
	}
}
