package live

import "testing"

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
