package record_test

import (
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// A change in an additional repository makes earlier checks void, because they may have used its files.
func TestAdditionsMakeChecksVoid(t *testing.T) {
	yes, zero := true, 0
	tree := gitd.Hash("1111111111111111111111111111111111111111")
	check := record.Event{Type: record.EventStepFinished, Step: "check", Task: "lib_run_build", OK: &yes, Exit: &zero, Tree: tree}
	edit := record.Event{Type: record.EventStepFinished, Step: "edit", OK: &yes, Exit: &zero}
	run := record.Run{State: record.StateComplete, Start: "a", Head: "b", With: []record.Addition{{Repo: "lib", Start: "a", Head: "b"}}}
	moved := edit
	moved.With = []record.Move{{Repo: "lib", Parent: "a", Commit: "b"}}
	idle := edit
	idle.With = []record.Move{{Repo: "lib", Parent: "a"}}
	for _, c := range []struct {
		name    string
		events  []record.Event
		current bool
	}{
		{"no change", []record.Event{check, idle}, true},
		{"a change after the check", []record.Event{check, moved}, false},
		{"a change before the check", []record.Event{moved, check}, true},
	} {
		m := record.NewManifest(run, tree, c.events, nil)
		if len(m.Checks) != 1 || m.Checks[0].Current != c.current {
			t.Errorf("%s: %+v", c.name, m.Checks)
		}
		if verified := m.Verdict == record.VerdictVerified; verified != c.current {
			t.Errorf("%s: the verdict is %s (%v)", c.name, m.Verdict, m.Unverified)
		}
	}
	if run.Head = run.Start; !run.Changed() {
		t.Error("a run that changed an additional repository alone has changed nothing")
	}
}

func TestLandedInSeveral(t *testing.T) {
	app := record.Landed{Repo: "app", Into: "main", Policy: record.MergePush, Upstream: "https://git.example.org/app"}
	app.Merged, app.Commit = true, "1234567890abcdef"
	lib := record.Landed{Repo: "lib", Into: "trunk", Policy: record.MergeHere}
	lib.Merged, lib.UpToDate = true, true
	all := record.LandedAll{Landed: app, With: []record.Landed{lib}}
	want := "app: merged into main at 1234567890, here and at https://git.example.org/app; lib: nothing to merge: trunk has all of it"
	if got := all.String(); got != want || all.InTheWay() || !all.Whole() {
		t.Errorf("got %q", got)
	}
	all.With[0].Conflicts = []string{"a", "b"}
	if got := all.String(); got != "lib: conflict in a, b; nothing was merged in any repository" || !all.InTheWay() {
		t.Errorf("got %q", got)
	}
}
