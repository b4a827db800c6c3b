package changes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/diff"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// TestListsAreBounded keeps as many changes as there may be, and forgets all for one more.
func TestListsAreBounded(t *testing.T) {
	r := repotest.NewRepo(t)
	commit := func(n int) gitd.Hash {
		t.Helper()
		c := gitd.NewCommit{Author: gitd.Person{Name: "Ada", Email: "ada@example.org"}, Message: "x"}
		for i := range n {
			c.Put = append(c.Put, gitd.File{Path: fmt.Sprint(i)})
		}
		h, err := r.WriteCommit(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	none, three, four := commit(0), commit(3), commit(4)
	l := lists{by: map[listKey][]gitd.Change{{repo: "x"}: nil}, count: maxListed - 3}
	for _, x := range []struct {
		to           gitd.Hash
		lists, count int
	}{{three, 2, maxListed + 1}, {three, 2, maxListed + 1}, {four, 1, 5}, {three, 2, 9}} {
		if _, err := l.read(t.Context(), r, none, x.to); err != nil || len(l.by) != x.lists || l.count != x.count {
			t.Errorf("%d lists with %d changes, want %d with %d: %v", len(l.by), l.count, x.lists, x.count, err)
		}
	}
}

// TestExplain blames the time that git takes exactly for an error after that time, of a caller that still waits.
func TestExplain(t *testing.T) {
	waits := t.Context()
	over, cancel := context.WithCancel(waits)
	cancel()
	failed := errors.New("git failed")
	for _, x := range []struct {
		what       string
		ctx, timed context.Context
		err        error
		late       bool
	}{
		{"success", waits, waits, nil, false},
		{"success at the last moment", waits, over, nil, false},
		{"an error in time", waits, waits, failed, false},
		{"an error after the time", waits, over, failed, true},
		{"the caller went away", over, over, failed, false},
	} {
		err := explain(x.ctx, x.timed, x.err)
		var p *route.Problem
		if late := errors.As(err, &p) && p.Kind == route.KindTimeout; late != x.late || !late && !errors.Is(err, x.err) {
			t.Errorf("%s: got %v, want a problem: %t", x.what, err, x.late)
		}
	}
}

// TestReadDiffEndsGit ends git at a limit, which is no error, and returns the error of git otherwise.
func TestReadDiffEndsGit(t *testing.T) {
	r := repotest.NewRepo(t)
	c := gitd.NewCommit{Author: gitd.Person{Name: "Ada", Email: "ada@example.org"}, Message: "x"}
	none, err := r.WriteCommit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		c.Put = append(c.Put, gitd.File{Path: fmt.Sprint(i), Content: []byte(strings.Repeat("line\n", 10_000))})
	}
	many, err := r.WriteCommit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	o := gitd.DiffOptions{Text: true}
	for _, x := range []struct {
		to     gitd.Hash
		limits diff.Limits
		files  int
		whole  bool
		fails  bool
	}{
		{many, diff.Limits{Files: 1}, 1, false, false},
		{many, diff.Limits{Lines: 15_000}, 2, false, false},
		{many, diff.Limits{File: 1}, 20, true, false},
		{none, diff.Limits{}, 0, true, false},
		{gitd.Hash(strings.Repeat("ab", 20)), diff.Limits{}, 0, false, true},
	} {
		list, whole, err := readDiff(t.Context(), r, none, x.to, o, x.limits)
		if len(list) != x.files || whole != x.whole || (err != nil) != x.fails {
			t.Errorf("%s, %+v: got %d files, whole %t, %v, want %d and %t", x.to, x.limits, len(list), whole, err, x.files, x.whole)
		}
	}
}
