package gateway_test

import (
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestNewCallerBesideLongerNames begins a caller whose name is a part of others' names:
// what somebody types to find a caller may be a part, whose work is claimed is not looked for.
func TestNewCallerBesideLongerNames(t *testing.T) {
	r := open(t, false, nil)
	r.repo(t, "team/app")
	for _, id := range []string{"fox-1", "fox-2", "fox"} {
		c, err := record.RunCaller(id)
		if err != nil {
			t.Fatal(err)
		}
		run, err := r.local.Submit(t.Context(), record.Request{Caller: c, Repo: "team/app", Command: &record.Command{Shell: "true"}})
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
