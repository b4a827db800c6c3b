package record

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/results"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// CheckOf returns the manifest's name of the check that a library task makes, or "" if the task's outcome says nothing about
// the code.
func CheckOf(task string) string {
	switch task {
	case "lib_run_tests":
		return "tests"
	case "lib_run_lint":
		return "lint"
	case "lib_run_build":
		return "build"
	case "browser_test":
		return browserCheck
	}
	return ""
}

// browserCheck is how the manifest calls what browser_test checks. A picture alone
// (capture_screenshot) says nothing about the code.
const browserCheck = "browser"

// notInstalled is the shell's exit code for a program that is not there: the
// check has not said anything about the code.
const notInstalled = 127

// checkOutcome is what a check's step.finished event holds of its result.
type checkOutcome struct {
	Result struct {
		Error  string `json:"error"`
		Output struct {
			ExitCode *int `json:"exit_code"` // nil: no command was run
			TimedOut bool `json:"timed_out"`
			Value    struct {
				results.Tests
				Tool  string `json:"tool"`  // of lint and build
				Count int    `json:"count"` // of findings
			} `json:"value"`
		} `json:"output"`
	} `json:"result"`
}

// checks reads from a journal what was checked and how it went; subs are the
// manifests of sub-workflows, by step: what they checked, the run has checked.
// What a check says, it says of the tree it ran on. tree is that of the run's end.
func checks(tree gitd.Hash, events []Event, subs map[string]Manifest) (tested []ManifestTests, list []ManifestCheck) {
	looks := make(map[string][]BrowserCheck) // by step, since its last beginning
	for _, e := range events {
		switch {
		case e.Type == EventStepStarted:
			delete(looks, e.Step)
		case e.Type == EventBrowser:
			looks[e.Step] = append(looks[e.Step], BrowserChecks([]Event{e})...)
		case e.Type == EventCheck:
			c := withdrawn(&list, e)
			list = append(list, c)
		case e.Type == EventStepFinished && e.Kind == string(workflow.KindWorkflow):
			for _, c := range subs[e.Step].Checks {
				c.Step = e.Step + "/" + c.Step
				list = append(list, c)
			}
			for _, t := range subs[e.Step].Tests {
				t.Step = e.Step + "/" + t.Step
				tested = append(tested, t)
			}
		case e.Type == EventStepFinished && CheckOf(e.Task) != "":
			var o checkOutcome
			_ = json.Unmarshal(e.Data, &o) // an event of ours; of a broken one only the exit code is known
			c := ManifestCheck{Check: CheckOf(e.Task), Task: e.Task, Command: e.Command, Step: e.Step, Tool: o.Result.Output.Value.Tool, Commit: e.Parent, Tree: e.Tree, DurationMS: e.DurationMS}
			if t := o.Result.Output.Value.Tests; c.Check == "tests" && o.Result.Output.ExitCode != nil {
				c.Tool = t.Framework
				tested = append(tested, ManifestTests{Step: e.Step, Framework: t.Framework, Passed: t.Passed, Failed: t.Failed, Skipped: t.Skipped,
					FailedNames: t.FailedNames, Unknown: t.Unknown, OK: e.OK != nil && *e.OK, Commit: e.Parent})
			}
			c.Result, c.Why = o.judge(e)
			if c.Check == browserCheck {
				c.sawBy(looks[e.Step], e)
			}
			list = append(list, c)
		}
	}
	for _, e := range OpenSteps(events) {
		if check := CheckOf(e.Task); check != "" {
			list = append(list, ManifestCheck{Check: check, Task: e.Task, Command: e.Command, Step: e.Step, Result: CheckNotRun, Commit: e.Parent,
				Why: "it began but has no result"})
		}
	}
	for i := range list {
		list[i].Current = list[i].Tree != "" && list[i].Tree == tree
	}
	return tested, list
}

// withdrawn is a check of which an event says that it was skipped or could not
// run; a step that tried it is no check then.
func withdrawn(list *[]ManifestCheck, e Event) ManifestCheck {
	c := ManifestCheck{Check: orName(CheckOf(e.Task), e.Task), Task: e.Task, Command: e.Command, Step: e.Step, Result: CheckSkipped, Why: e.Message}
	if e.Reason == string(CheckNotRun) {
		c.Result = CheckNotRun
	}
	if e.Step != "" {
		*list = slices.DeleteFunc(*list, func(d ManifestCheck) bool {
			if d.Step == e.Step {
				c.Command, c.Commit, c.Tree = d.Command, d.Commit, d.Tree
			}
			return d.Step == e.Step
		})
	}
	return c
}

// sawBy says how a check by a browser ended, and on what commit. A task may have done
// several: the worst of them counts.
func (c *ManifestCheck) sawBy(looks []BrowserCheck, e Event) {
	if len(looks) == 0 {
		return // it could not be done as asked; the step says why
	}
	c.Tool, c.Commit, c.Tree, c.Result, c.Why = looks[0].Browser, gitd.Hash(looks[0].Commit), gitd.Hash(looks[0].Tree), CheckPassed, ""
	for _, l := range looks {
		switch l.Verdict {
		case BrowserPass:
			continue
		case BrowserFail:
			if c.Result == CheckFailed {
				continue
			}
			c.Result = CheckFailed
		default:
			if c.Result != CheckPassed {
				continue
			}
			c.Result = CheckNotRun
		}
		c.Why = l.Name + ": " + text.Clip(l.Reason, 1<<10)
	}
	switch {
	case c.Result != CheckPassed:
	case e.OK == nil || !*e.OK:
		c.Result, c.Why = CheckNotRun, orName(e.Message, "it was stopped before its end")
	case e.Commit != "" && e.Commit != c.Commit:
		c.Why = fmt.Sprintf("it changed files itself: what it left (%.10s) was not checked again", e.Commit)
	}
}

func orName(name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return name
}

// judge says how a check ended, and in words why it did not pass.
func (o checkOutcome) judge(e Event) (CheckResult, string) {
	out := o.Result.Output
	value := out.Value
	switch {
	case e.OK == nil || !*e.OK:
		switch {
		case out.ExitCode == nil:
			return CheckNotRun, orName(o.Result.Error, e.Message)
		case *out.ExitCode == notInstalled:
			return CheckNotRun, fmt.Sprintf("exit code %d: what it runs is not installed", notInstalled)
		case out.TimedOut:
			return CheckFailed, "it took too long and was ended"
		case value.Failed > 0:
			return CheckFailed, fmt.Sprintf("%d of %d failed", value.Failed, value.Passed+value.Failed)
		case value.Count > 0:
			return CheckFailed, fmt.Sprintf("%d findings", value.Count)
		}
		return CheckFailed, fmt.Sprintf("exit code %d", *out.ExitCode)
	case e.Task == "lib_run_tests" && !value.Unknown && value.Passed == 0:
		if value.Skipped > 0 {
			return CheckSkipped, fmt.Sprintf("all %d tests were skipped", value.Skipped)
		}
		return CheckSkipped, "no tests were found"
	case e.Commit != "":
		return CheckPassed, fmt.Sprintf("it changed files itself: what it left (%.10s) was not checked again", e.Commit)
	}
	return CheckPassed, ""
}

// verdict says whether what stands at the run's end was checked; why names what
// was not. A check counts when it ran on the tree of the branch's last commit: a change
// after it, whoever made it, the check's own too, takes its word away. A check
// that failed earlier and never ran again keeps the rest from being called verified.
func verdict(r Run, list []ManifestCheck) (v Verdict, why []string) {
	list = lastWords(list)
	known := make(map[string]bool) // the kinds of checks that ran on what stands
	var passed, failed, owed bool
	for _, c := range list {
		if c.Current && c.Result.Ran() {
			known[c.Check] = true
			passed = passed || c.Result == CheckPassed
			failed = failed || c.Result == CheckFailed
		}
	}
	for _, c := range list {
		switch {
		case c.Result == CheckSkipped:
			why = append(why, fmt.Sprintf("%s skipped: %s", c.Check, c.Why))
		case c.Result == CheckNotRun:
			why = append(why, fmt.Sprintf("%s could not run: %s", c.Check, c.Why))
			owed = true
		case c.Current || known[c.Check]:
		case c.Result == CheckFailed:
			why = append(why, c.Check+" failed before the last change and did not run again")
			owed, passed = true, false
		case c.Why != "":
			why = append(why, fmt.Sprintf("%s passed, but %s", c.Check, c.Why))
		default:
			why = append(why, c.Check+" passed before the last change and did not run again")
		}
	}
	if r.Changed() && len(known) == 0 {
		why = append(why, "no check ran on the last change")
	}
	if r.Merged != "" && r.Merged != r.Head {
		why = append(why, fmt.Sprintf("%s had moved: what was merged into it (%.10s) is another commit than the branch's last", r.Base, r.Merged))
	}
	switch {
	case r.State == StateFailed || failed:
		return VerdictFailed, why
	case passed:
		return VerdictVerified, why
	case r.Changed() || owed:
		return VerdictUnverified, why
	}
	return VerdictNone, why
}

// Ran tells whether a check has said something about the code.
func (r CheckResult) Ran() bool { return r == CheckPassed || r == CheckFailed }

// lastWords keeps of each check what it said last. Checks of one kind may look
// at different parts (a pattern, a target), so each command has a word of its own.
func lastWords(list []ManifestCheck) (kept []ManifestCheck) {
	for i, c := range list {
		again := func(d ManifestCheck) bool { return d.Task == c.Task && d.Command == c.Command }
		if !slices.ContainsFunc(list[i+1:], again) {
			kept = append(kept, c)
		}
	}
	return kept
}
