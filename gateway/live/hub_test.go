package live

import (
	"fmt"
	"strings"
	"testing"
)

// TestComeAndGo wakes the views of a workspace when another person comes or goes, and no others.
func TestComeAndGo(t *testing.T) {
	h := &Hub{}
	woken := func(s *sleeper) bool {
		select {
		case <-s.wake:
			return true
		default:
			return false
		}
	}
	ada, twice, list := h.join("ada"), h.join("ada"), h.join("cy")
	h.listen(ada, []string{"caller/run-x"})
	h.listen(list, []string{TopicMe})
	h.listen(twice, []string{"caller/run-x"})
	if woken(ada) || woken(list) {
		t.Error("a second page of the same person is news")
	}
	bo := h.join("bo")
	h.listen(bo, []string{"caller/run-x"})
	if !woken(ada) || !woken(twice) || woken(bo) || woken(list) {
		t.Error("bo came")
	}
	h.listen(bo, []string{"caller/run-x"})
	if woken(ada) {
		t.Error("bo was there already")
	}
	h.listen(bo, []string{"caller/run-y"})
	if !woken(ada) {
		t.Error("bo went to another workspace")
	}
	h.leave(bo)
	if woken(ada) {
		t.Error("bo was not there")
	}
	if got := h.Present("caller/run-x"); len(got) != 1 || got[0] != "ada" {
		t.Errorf("%q", got)
	}
}

// TestReordered has elements change places. Elements that come or go are no reason.
func TestReordered(t *testing.T) {
	view := func(list string) (v View) {
		for _, key := range strings.Fields(list) {
			in, _, _ := strings.Cut(key, "-")
			v.Fragments = append(v.Fragments, Fragment{Key: key, In: in})
		}
		return v
	}
	for _, x := range []struct{ before, now, want string }{
		{"", "a-1 a-2", ""}, {"a-1 a-2", "a-0 a-1 a-3 a-2", ""}, {"a-1 a-2 a-3", "a-1 a-3", ""}, {"a-1 b-1 a-2", "b-1 a-1 a-2", ""},
		{"a-1 a-2 b-1", "a-2 a-0 a-1 b-1", "a: a-2 a-0 a-1"}, {"a-1 a-2 a-3", "a-2 a-3 a-1", "a: a-2 a-3 a-1"},
	} {
		got := ""
		for _, op := range reordered(view(x.before).keys(), view(x.now)) {
			got += op.In + ": " + strings.Join(op.Keys, " ")
		}
		if got != x.want {
			t.Errorf("%q to %q: %q, want %q", x.before, x.now, got, x.want)
		}
	}
}

// TestMissed wakes a view by a change that came while it was made for the first time, and by no other.
func TestMissed(t *testing.T) {
	h := &Hub{}
	for _, x := range []struct {
		changes, topics string
		woken           bool
	}{{"repo/app", "me repo/app", true}, {"repo/lib me repo/app", "repo/app", true}, {"repo/lib", "repo/app", false},
		{"repo/app", "", false}} {
		s := h.join("ada")
		for _, change := range strings.Fields(x.changes) {
			h.Wake(change)
		}
		h.listen(s, strings.Fields(x.topics))
		if woken := len(s.wake) == 1; woken != x.woken {
			t.Errorf("changes of %q wake a view of %q: %v", x.changes, x.topics, woken)
		}
		h.leave(s)
	}

	s := h.join("ada")
	h.listen(s, nil) // a view may have no topics
	h.Wake("repo/app")
	if len(s.wake) != 0 {
		t.Error("a change of another topic wakes it")
	}
	s = h.join("bo")
	for i := range 2 * maxChanged {
		h.Wake(fmt.Sprint("run/", i))
	}
	h.listen(s, []string{fmt.Sprint("run/", 2*maxChanged-1)})
	if len(s.wake) != 1 || len(s.changed) != 0 {
		t.Error("the last of many changes was missed")
	}
}
