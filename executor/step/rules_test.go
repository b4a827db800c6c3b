package step

import (
	"testing"

	"github.com/ramus-dev/ramus/tasks/rules"
)

// TestApprovals lets approved programs start once for each approval, whatever their folder, and remembers refusals.
func TestApprovals(t *testing.T) {
	one, other := &rules.Rule{Then: rules.Ask, Run: []rules.Pattern{{"touch"}}}, &rules.Rule{Then: rules.Ask}
	start := startOf([]string{"touch", "x"}, []*rules.Rule{one})
	var a, none *Approvals = &Approvals{}, nil
	a.allow(start)
	a.allow(start)
	none.allow(start)
	for _, args := range [][]string{{"/bin/touch", "x", "y"}, {"touch"}, {"touch x"}, {"touc", "hx"}} {
		if a.takeStart(startOf(args, []*rules.Rule{one})) {
			t.Errorf("%q may start", args)
		}
	}
	if a.takeStart(startOf([]string{"touch", "x"}, []*rules.Rule{other})) {
		t.Error("another rule was approved")
	}
	again := startOf([]string{"/usr/bin/touch", "x"}, []*rules.Rule{one})
	for n := range 3 { // it was allowed twice
		if a.takeStart(again) != (n < 2) {
			t.Errorf("start %d: %t", n+1, n >= 2)
		}
	}
	if none.takeStart(again) {
		t.Error("it may start without approvals")
	}
	for range maxStarts + 1 {
		a.refuse(start, "no")
		start[0]++
		start[1] += start[0] % 2
	}
	if a.refusal(again) != "no" || none.refusal(again) != "" || len(a.refused) > maxStarts {
		t.Errorf("%d refusals", len(a.refused))
	}
}
