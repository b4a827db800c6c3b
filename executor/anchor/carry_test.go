package anchor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// numbered returns n lines that differ, with more than enough letters.
func numbered(name string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s has the number %d", name, i+1)
	}
	return list
}

// TestCarryEachLine carries each line of a file through changes at its ends.
func TestCarryEachLine(t *testing.T) {
	text := numbered("line", 12)
	for line := 1; line <= len(text); line++ {
		before, after := Place{State: Moved, From: line + 1, To: line + 1}, Place{State: Same, From: line, To: line}
		if line <= Around { // the new line is one of those around it
			before.State, before.Exact = Changed, true
		}
		if line > len(text)-Around {
			after.State, after.Exact = Changed, true
		}
		for name, x := range map[string]struct {
			text []string
			want Place
		}{
			"nothing":      {text, Place{State: Same, From: line, To: line}},
			"a line first": {slices.Insert(slices.Clone(text), 0, "new"), before},
			"a line last":  {append(slices.Clone(text), "new"), after},
		} {
			if got := Carry(text, x.text, line, line); got != x.want {
				t.Errorf("line %d, %s: %+v, want %+v", line, name, got, x.want)
			}
		}
	}
	for _, lines := range [][2]int{{0, 1}, {-1, 1}, {2, 1}, {12, 13}} {
		if got := Carry(text, text, lines[0], lines[1]); got != (Place{State: Gone}) {
			t.Errorf("%v: %+v", lines, got)
		}
	}
	if got := Carry(text, text, 1, 12); got != (Place{State: Same, From: 1, To: 12}) {
		t.Errorf("the whole text: %+v", got)
	}
}

// TestCarryReplaced replaces lines among others. The lines in their place are named if a line near them is kept.
func TestCarryReplaced(t *testing.T) {
	text := numbered("line", 60)
	for name, x := range map[string]struct {
		from, to int // replaced, from 1
		line     int
		want     Place
	}{
		"one line":                         {30, 30, 30, Place{State: Changed, From: 30, To: 30}},
		"the nearest kept three before":    {30, 50, 32, Place{State: Changed, From: 30, To: 50}},
		"the nearest kept four before":     {30, 50, 33, Place{State: Gone}},
		"the nearest kept three after":     {30, 50, 48, Place{State: Changed, From: 30, To: 50}},
		"the nearest kept four after":      {30, 50, 47, Place{State: Gone}},
		"everything from the first line":   {1, 50, 48, Place{State: Changed, From: 1, To: 50}},
		"everything to the last line":      {30, 60, 32, Place{State: Changed, From: 30, To: 60}},
		"everything, with none kept":       {1, 60, 32, Place{State: Gone}},
		"a line next to a replaced one":    {30, 30, 31, Place{State: Changed, From: 31, To: 31, Exact: true}},
		"a line three from a replaced one": {30, 30, 33, Place{State: Changed, From: 33, To: 33, Exact: true}},
		"a line four from a replaced one":  {30, 30, 34, Place{State: Same, From: 34, To: 34}},
	} {
		after := slices.Concat(text[:x.from-1], numbered("other", x.to-x.from+1), text[x.to:])
		if got := Carry(text, after, x.line, x.line); got != x.want {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
	// Of three lines the middle one is kept.
	after := slices.Clone(text)
	after[29], after[31] = "a", "b"
	if got := Carry(text, after, 30, 32); got != (Place{State: Changed, From: 30, To: 32}) {
		t.Errorf("the middle line is kept: %+v", got)
	}
}

// TestCarryTakenAway moves a block to another place of a file. Its lines are found there if the block has all lines around them, has enough
// letters, and is there once.
func TestCarryTakenAway(t *testing.T) {
	rest := numbered("line", 60)
	at := func(list []string, i int, block []string) []string {
		return slices.Insert(slices.Clone(list), i, block...)
	}
	block := numbered("moved", 7)
	few := func(letters string) []string {
		list := []string{"(", "[", "{", letters, "}", "]", ")"}
		return list
	}
	moved := func(line int) Place { return Place{State: Moved, From: line, To: line} }
	for name, x := range map[string]struct {
		before, after []string
		line          int
		want          Place
	}{
		"to a later place":          {at(rest, 10, block), at(rest, 40, block), 14, moved(44)},
		"to an earlier place":       {at(rest, 40, block), at(rest, 10, block), 44, moved(14)},
		"to the end":                {at(rest, 10, block), at(rest, 60, block), 14, moved(64)},
		"to the beginning":          {at(rest, 40, block), at(rest, 0, block), 44, moved(4)},
		"from the beginning":        {at(rest, 0, block), at(rest, 40, block), 4, moved(44)},
		"from the end":              {at(rest, 60, block), at(rest, 10, block), 64, moved(14)},
		"its second line":           {at(rest, 10, block), at(rest, 40, block), 13, Place{State: Gone}},
		"its fifth line":            {at(rest, 10, block), at(rest, 40, block), 15, Place{State: Gone}},
		"twice":                     {at(rest, 10, block), at(at(rest, 40, block), 20, block), 14, Place{State: Gone}},
		"nowhere":                   {at(rest, 10, block), rest, 14, Place{State: Gone}},
		"as many letters as needed": {at(rest, 10, few("abcdefghij0123456789")), at(rest, 40, few("abcdefghij0123456789")), 14, moved(44)},
		"too few letters":           {at(rest, 10, few("abcdefghij012345678")), at(rest, 40, few("abcdefghij012345678")), 14, Place{State: Gone}},
	} {
		if got := Carry(x.before, x.after, x.line, x.line); got != x.want {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
	// Lines near the beginning or the end of the file have fewer around them, so they are not looked for elsewhere.
	for _, line := range []int{1, 3} {
		if got := Carry(at(rest, 0, block), at(rest, 40, block), line, line); got != (Place{State: Gone}) {
			t.Errorf("line %d: %+v", line, got)
		}
		if got := Carry(at(rest, 60, block), at(rest, 10, block), 68-line, 68-line); got != (Place{State: Gone}) {
			t.Errorf("line %d from the end: %+v", line, got)
		}
	}
}

// TestCarryEqualLines tells equal lines from each other by lines up to 768 away, and by the ends of the file.
func TestCarryEqualLines(t *testing.T) {
	same := func(n int) []string { return slices.Repeat([]string{"x"}, n) }
	far := func(before, after int) []string {
		return slices.Concat(same(2000), []string{"first"}, same(before-1), same(1), same(after-1), []string{"last"}, same(2000))
	}
	for _, x := range []struct {
		before, after int
		want          State
	}{{768, 768, Same}, {769, 768, Gone}, {768, 769, Gone}, {1, 1, Same}, {385, 385, Same}} {
		line := 2000 + 1 + x.before
		if got := Carry(far(x.before, x.after), far(x.before, x.after), line, line); got.State != x.want {
			t.Errorf("lines that differ %d before and %d after: %+v, want %s", x.before, x.after, got, x.want)
		}
	}
	for name, x := range map[string]struct {
		before, after []string
		line          int
		want          State
	}{
		"none is added":                    {same(20), same(20), 10, Same},
		"the first, one is added":          {same(20), same(21), 1, Gone},
		"the last, others are before them": {same(20), slices.Concat([]string{"y"}, same(21)), 20, Gone},
	} {
		if got := Carry(x.before, x.after, x.line, x.line); got.State != x.want {
			t.Errorf("%s: %+v, want %s", name, got, x.want)
		}
	}
}

// TestMatch pairs the elements of lists.
func TestMatch(t *testing.T) {
	for _, x := range []struct {
		a, b []int32
		want []int
	}{
		{nil, nil, []int{}},
		{[]int32{1}, nil, []int{-1}},
		{[]int32{1, 2, 3}, []int32{1, 2, 3}, []int{0, 1, 2}},
		{[]int32{1, 2, 3}, []int32{0, 1, 3}, []int{1, -1, 2}},
		{[]int32{1, 2, 1, 2}, []int32{2, 1, 2, 1}, []int{-1, 0, 1, 2}},            // no element is there once
		{[]int32{9, 1, 2, 3, 8}, []int32{7, 3, 1, 2, 6}, []int{-1, 2, 3, -1, -1}}, // the longest sequence that is in order
		{[]int32{9, 1, 1, 5, 2, 2, 8}, []int32{7, 1, 5, 2, 6}, []int{-1, -1, 1, 2, 3, -1, -1}},
	} {
		if got := match(x.a, x.b); !slices.Equal(got, x.want) {
			t.Errorf("%v, %v: %v, want %v", x.a, x.b, got, x.want)
		}
	}

	// One line in common is found in texts that are too large to be compared in another way.
	var a, b []int32
	for i := range int32(600) {
		a, b = append(a, 2*i), append(b, 2*i+1)
	}
	a, b = slices.Insert(a, 300, 1200), slices.Insert(b, 200, 1200)
	pairs := match(a, b)
	if i := slices.IndexFunc(pairs, func(at int) bool { return at >= 0 }); i != 300 || pairs[i] != 200 {
		t.Errorf("the element 300 is at %d", pairs[300])
	}

	// The places grow, and have the same elements.
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a, b := make([]int32, r.IntN(12)), make([]int32, r.IntN(12))
		for _, list := range [][]int32{a, b} {
			for i := range list {
				list[i] = r.Int32N(6)
			}
		}
		last := -1
		for i, at := range match(a, b) {
			if at < 0 {
				continue
			}
			if at <= last || a[i] != b[at] {
				t.Fatalf("%v, %v: %v", a, b, match(a, b))
			}
			last = at
		}
	}
}

// nested returns two lists of 3n+1 elements. Each level of parts has two elements fewer than the one around it.
func nested(n int32) (a, b []int32) {
	for i := range n {
		a, b = append(a, n+1, i+1, i), append(b, n+2, i+1, i)
	}
	return append(a, n+1), append(b, n+2)
}

// TestMatchBudget matches lists that have many levels of parts within a budget. Parts of other levels are matched nevertheless.
func TestMatchBudget(t *testing.T) {
	matched := func(pairs []int) (n int) {
		for _, at := range pairs {
			if at >= 0 {
				n++
			}
		}
		return n
	}
	const n = 1000
	a, b := nested(n)
	all, left := matchWithin(a, b, 1<<30)
	passes := ((1 << 30) - left) / (len(a) + len(b))
	if passes < 10*maxPasses {
		t.Fatalf("the lists need %d passes", passes)
	}
	pairs, left := matchWithin(a, b, maxPasses*(len(a)+len(b)))
	if got := matched(pairs); left < 0 || got < maxPasses || got >= matched(all) {
		t.Errorf("%d of %d elements are matched, and %d is left", got, matched(all), left)
	}
	if !slices.Equal(match(a, b), pairs) {
		t.Error("a match has another budget")
	}
	last := -1
	for i, at := range pairs {
		if at >= 0 && (at <= last || a[i] != b[at]) {
			t.Fatalf("the element %d is at %d", i, at)
		}
		last = max(last, at)
	}

	// An edit before or after them that needs two levels is found. Its parts are too large to be compared in another way.
	const twice, size = n + 3, 300
	edit := func(first int32) (list []int32) {
		for part := range int32(2) {
			list = append(list, twice+1+part)
			for i := range int32(2 * size) {
				if i == size {
					list = append(list, twice)
				}
				list = append(list, first+part*2*size+i)
			}
		}
		return append(list, twice+3)
	}
	from, to := edit(2*n), edit(2*n+4*size)
	for _, x := range []struct {
		a, b []int32
		at   int // of the edit
	}{{slices.Concat(from, a), slices.Concat(to, b), 0}, {slices.Concat(a, from), slices.Concat(b, to), len(a)}} {
		var kept []int
		for i, at := range match(x.a, x.b)[x.at : x.at+len(from)] {
			if at >= 0 {
				kept = append(kept, i)
			}
		}
		if want := []int{0, size + 1, 2*size + 2, 3*size + 3, 4*size + 4}; !slices.Equal(kept, want) {
			t.Errorf("of the edit at %d the elements %d are matched, want %d", x.at, kept, want)
		}
	}

	// Few elements are all matched, by their longest common subsequence.
	a, b = nested(100)
	all, _ = matchWithin(a, b, 1<<30)
	if pairs := match(a, b); matched(pairs) < matched(all) {
		t.Errorf("%d of %d elements are matched", matched(pairs), matched(all))
	}

	// Lines in random order need few passes.
	r := rand.New(rand.NewPCG(3, 4))
	a, b = nil, nil
	for _, i := range r.Perm(5000) {
		a, b = append(a, int32(len(a))), append(b, int32(i))
	}
	budget := maxPasses * (len(a) + len(b))
	if _, left := matchWithin(a, b, budget); left < budget*3/4 {
		t.Errorf("of the budget %d, %d is left", budget, left)
	}
}

// TestSum hashes lines with those around them.
func TestSum(t *testing.T) {
	text := numbered("line", 300)
	sum := func(lines []string, from, to int) string {
		t.Helper()
		s, err := Sum(lines, from, to)
		if err != nil || len(s) != 32 {
			t.Fatalf("%d to %d: %q, %v", from, to, s, err)
		}
		return s
	}
	one := sum(text, 10, 12)
	for name, x := range map[string]struct {
		line int // that is changed
		same bool
	}{"four before": {6, true}, "three before": {7, false}, "itself": {11, false}, "three after": {15, false}, "four after": {16, true}} {
		other := slices.Clone(text)
		other[x.line-1] = "x"
		if got := sum(other, 10, 12) == one; got != x.same {
			t.Errorf("a line %s changed: the sum is the same: %t", name, got)
		}
	}
	if sum(text[1:], 9, 11) != one {
		t.Error("the sum depends on the place")
	}
	if sum(text, 10, 11) == one || sum(text, 11, 12) == one {
		t.Error("other lines have the same sum")
	}
	sum(text, 1, MaxLines)
	sum(text, 300, 300)
	for _, x := range [][2]int{{0, 1}, {2, 1}, {300, 301}, {1, MaxLines + 1}} {
		if _, err := Sum(text, x[0], x[1]); !errors.Is(err, ErrLines) {
			t.Errorf("%v: %v", x, err)
		}
	}
	for _, x := range []struct{ from, to, first, lines int }{{1, 1, 1, 4}, {5, 6, 2, 8}, {300, 300, 297, 4}, {400, 400, 397, 0}} {
		if first, list := Excerpt(text, x.from, x.to); first != x.first || len(list) != x.lines || len(list) > 0 && list[0] != text[first-1] {
			t.Errorf("%d to %d: %d lines from %d", x.from, x.to, len(list), first)
		}
	}
}

// TestChangedIn names the first commit in which the lines differ, although clocks went wrong.
func TestChangedIn(t *testing.T) {
	repo := repotest.NewRepo(t)
	text := strings.Join(numbered("line", 9), "\n") + "\n"
	commit := func(at int64, put string, content string, parents ...gitd.Hash) gitd.Hash {
		t.Helper()
		n := gitd.NewCommit{Author: author, When: time.Unix(1_700_000_000+at, 0), Message: put, Parents: parents,
			Put: []gitd.File{{Path: put, Content: []byte(content)}}}
		if len(parents) > 0 {
			n.From = parents[0]
		}
		h, err := repo.WriteCommit(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	base := commit(0, "f", text)
	change := commit(200, "f", strings.Replace(text, "number 5", "number five", 1), base)
	early := commit(10, "g", "x\n", change)
	late := commit(300, "h", "x\n", change)
	both := commit(400, "i", "x\n", early, late)
	a, _, err := Make(t.Context(), repo, Ends{Base: base, Commit: base}, New, "f", 5, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := new(Follower).Find(t.Context(), repo, a, Ends{Base: base, Commit: both})
	if err != nil || p.State != Changed || p.In != string(change) {
		t.Errorf("%+v, %v, want it changed in %s", p, err, change)
	}
}

// TestFindRenamed follows lines into a file of another name, at the same place and at another one.
func TestFindRenamed(t *testing.T) {
	repo := repotest.NewRepo(t)
	text := strings.Join(numbered("line", 30), "\n") + "\n"
	commit := func(parent gitd.Hash, path, content string, gone ...string) gitd.Hash {
		t.Helper()
		n := gitd.NewCommit{From: parent, Author: author, When: time.Unix(1_700_000_000, 0), Message: path, Delete: gone,
			Put: []gitd.File{{Path: path, Content: []byte(content)}}}
		if parent != "" {
			n.Parents = []gitd.Hash{parent}
		}
		h, err := repo.WriteCommit(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	base := commit("", "f", text)
	for name, x := range map[string]struct {
		at   gitd.Hash
		want Place
	}{
		"as it was":       {base, Place{State: Same, Path: "f", From: 5, To: 6}},
		"another file":    {commit(base, "g", "x\n"), Place{State: Same, Path: "f", From: 5, To: 6}},
		"another name":    {commit(base, "g", text, "f"), Place{State: Moved, Path: "g", From: 5, To: 6}},
		"and a last line": {commit(base, "g", text+"x\n", "f"), Place{State: Moved, Path: "g", From: 5, To: 6}},
		"a last line":     {commit(base, "f", text+"x\n"), Place{State: Same, Path: "f", From: 5, To: 6}},
		"a first line":    {commit(base, "f", "x\n"+text), Place{State: Moved, Path: "f", From: 6, To: 7}},
		"a copy":          {commit(base, "g", text), Place{State: Same, Path: "f", From: 5, To: 6}},
		"no file":         {commit(base, "g", "x\n", "f"), Place{State: Gone}},
	} {
		var f Follower
		for _, side := range []string{New, Old} {
			a, _, err := Make(t.Context(), repo, Ends{Base: base, Commit: base}, side, "f", 5, 6)
			if err != nil {
				t.Fatal(err)
			}
			to := Ends{Base: base, Commit: x.at}
			if side == Old {
				to = Ends{Base: x.at, Commit: base}
			}
			for range 2 { // the second time from memory
				p, err := f.Find(t.Context(), repo, a, to)
				want := x.want
				if !want.Fits() {
					want.In = string(x.at)
				}
				if err != nil || p != want {
					t.Errorf("%s, the %s side: %+v, %v, want %+v", name, side, p, err, want)
				}
			}
		}
	}
}
