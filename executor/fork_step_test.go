package executor_test

import (
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// TestForkAtStep forks a caller at its steps. The files and the memory are those from which the step began.
func TestForkAtStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withACP(nil))
	first := w.ended(w.ask("conv:tree", "remember apples").Name())
	second := w.ended(w.ask("conv:tree", "remember pears").Name())
	for _, x := range []struct {
		name, step    string
		apples, pears bool
		start         gitd.Hash
		unknown       bool
	}{
		{name: "last", step: "turn-1", apples: true, start: second.Start},
		{name: "one", step: first.ID + "/turn-1", start: first.Start},
		{name: "none", step: "turn-7", unknown: true},
	} {
		r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "conv:twig-"+x.name),
			Fork: &record.Fork{Of: "conv:tree", Commit: gitd.Hash(x.step)}, Agent: &record.AgentCall{Prompt: "recall"}})
		if x.unknown {
			if err == nil {
				t.Errorf("%s was forked", x.step)
			}
			continue
		}
		if err != nil {
			t.Fatal(x.step, err)
		}
		r = w.ended(r.Name())
		out := w.stdout(r.Name(), "turn-1")
		if strings.Contains(out, "apples") != x.apples || strings.Contains(out, "pears") != x.pears || r.Fork.Commit != x.start {
			t.Errorf("%s: %q, %+v, want %s", x.step, out, r.Fork, x.start)
		}
	}
}
