package changes

import (
	"fmt"
	"testing"

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
