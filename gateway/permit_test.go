package gateway_test

import (
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestCallerNameWithinLongerNames submits a run for a caller whose name is a part of other callers' names. A partial
// name finds a caller, but Submit must use the exact name.
func TestCallerNameWithinLongerNames(t *testing.T) {
	r := open(t, false, nil)
	r.repo(t, "team/app")
	for _, id := range []string{"fox-1", "fox-2", "fox"} {
		c, err := record.RunCaller(id)
		if err != nil {
			t.Fatal(err)
		}
		run, err := r.local.Submit(t.Context(),
			record.Request{Caller: c, Repo: "team/app", Command: &record.Command{Shell: "true"}})
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		for _, err := range r.local.Events(t.Context(), run.Name(), 0) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if st, err := r.local.Caller(t.Context(), "run:fox"); err != nil || st.Caller.ID() != "fox" {
		t.Errorf("run:fox is %v, %v", st.Caller, err)
	}
}
