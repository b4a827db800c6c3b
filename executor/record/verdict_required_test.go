package record

import (
	"strings"
	"testing"
)

// TestRequiredChecks checks that a run that changed something is verified only if every check that the repository's
// configuration requires ran on its last change.
func TestRequiredChecks(t *testing.T) {
	contract, tests := CommandCheck("contract"), "lib_run_tests"
	if CheckOf(contract) != "contract" || CheckOf(tests) != "tests" || CheckOf("lib_read_file") != "" {
		t.Errorf("%q, %q", CheckOf(contract), CheckOf(tests))
	}
	r := Run{State: StateComplete, Start: "a", Head: "b",
		Required: []RequiredCheck{{Task: contract, Command: "make contract"}, {Task: tests, Command: tests}}}
	passed := func(task, command string, current bool) ManifestCheck {
		return ManifestCheck{Check: CheckOf(task), Task: task, Command: command, Result: CheckPassed, Current: current}
	}
	for _, x := range []struct {
		list []ManifestCheck
		want Verdict
		why  string
	}{
		{[]ManifestCheck{passed(contract, "make contract", true), passed(tests, tests, true)}, VerdictVerified, ""},
		{[]ManifestCheck{passed(tests, tests, true)}, VerdictUnverified, "make contract is required"},
		{[]ManifestCheck{passed(contract, "make contract", false), passed(tests, tests, true)}, VerdictUnverified,
			"make contract is required"},
		{[]ManifestCheck{passed(contract, "make contract", true), passed(tests, tests+` {"pattern":"x"}`, true)},
			VerdictUnverified, "lib_run_tests is required"},
		{nil, VerdictUnverified, "make contract is required"},
	} {
		got, why := verdict(r, x.list)
		if got != x.want || !strings.Contains(strings.Join(why, "; "), x.why) {
			t.Errorf("%+v: %s, %q; want %s, %q", x.list, got, why, x.want, x.why)
		}
	}
	r.Head = r.Start
	if got, _ := verdict(r, nil); got != VerdictNone {
		t.Errorf("nothing changed: %s", got)
	}
	r.With = []Addition{{Repo: "library", Start: "a", Head: "b", Required: []RequiredCheck{{Task: contract, Command: "make library"}}}}
	got, why := verdict(r, []ManifestCheck{passed(contract, "make contract", true), passed(tests, tests, true)})
	if got != VerdictUnverified || !strings.Contains(strings.Join(why, "; "), "make library is required") {
		t.Errorf("an additional repository changed: %s, %q", got, why)
	}
}
