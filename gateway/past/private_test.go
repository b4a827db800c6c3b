package past

import (
	"context"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// hidden has one private caller.
type hidden struct{ caller record.Caller }

func (h hidden) IsPrivate(c record.Caller) bool { return c == h.caller }

func (h hidden) SetPrivate(context.Context, record.Caller, string, bool, gitd.Person) error {
	return nil
}

// TestRunsFor tries commits of private callers by private runs.
func TestRunsFor(t *testing.T) {
	umbra, err := record.RunCaller("umbra")
	if err != nil {
		t.Fatal(err)
	}
	open, err := record.RunCaller("open")
	if err != nil {
		t.Fatal(err)
	}
	api := &API{Executor: &executor.Executor{}, Privacy: hidden{umbra}}
	for caller, want := range map[record.Caller]bool{umbra: true, open: false, {}: false} {
		if _, private := api.runsFor(caller).(privateRuns); private != want {
			t.Errorf("%v: %v", caller, private)
		}
	}
	api.Privacy = nil
	if _, private := api.runsFor(umbra).(privateRuns); private {
		t.Error("nothing is private here")
	}
}
