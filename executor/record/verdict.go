package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/results"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// CheckOf returns the manifest's name of the check that a library task makes, or "" if the task's outcome has no
// meaning for the code.
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
	name, _ := strings.CutPrefix(task, commandCheck)
	if name == task {
		return ""
	}
	return name
}

// commandCheck begins the task of a check that is a command of the repository's configuration.
const commandCheck = "check:"

// CommandCheck returns the task by which events name a check that is a command.
func CommandCheck(name string) string { return commandCheck + name }

// browserCheck is the manifest's name of the check by browser_test. A picture alone (capture_screenshot) checks nothing.
const browserCheck = "browser"

// notInstalled is the shell's exit code for a program that does not exist. Such a check has no meaning for the code.
const notInstalled = 127

// checkOutcome is the part of a check's step.finished event that the manifest needs.
type checkOutcome struct {
	Result struct {
		Error  string `json:"error"`
		Output struct {
			ExitCode *int `json:"exit_code"` // nil if no command ran
			TimedOut bool `json:"timed_out"`
			Value    struct {
				results.Tests
				Tool  string `json:"tool"`  // of lint and build
				Count int    `json:"count"` // of findings
			} `json:"value"`
		} `json:"output"`
	} `json:"result"`
}

// checks returns the runs of tests and the checks in a journal. subs are the manifests of sub-workflows by step, whose checks count as
// the run's. A result holds for the tree that the check ran on. tree is the tree at the run's end.
func checks(tree gitd.Hash, events []Event, subs map[string]Manifest) (tested []ManifestTests, list []ManifestCheck) {
	looks := make(map[string][]BrowserCheck) // by step, since the step last began
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
			_ = json.Unmarshal(e.Data, &o) // of a broken event only the exit code is known
			c := ManifestCheck{Check: CheckOf(e.Task), Task: e.Task, Command: e.Command, Step: e.Step,
				Tool: o.Result.Output.Value.Tool, Commit: e.Parent, Tree: e.Tree, DurationMS: e.DurationMS,
				Reused: e.Reused}
			if t := o.Result.Output.Value.Tests; c.Check == "tests" && o.Result.Output.ExitCode != nil {
				c.Tool = t.Framework
				tested = append(tested, ManifestTests{Step: e.Step, Framework: t.Framework, Passed: t.Passed,
					Failed: t.Failed, Skipped: t.Skipped,
					FailedNames: t.FailedNames, Unknown: t.Unknown, OK: e.OK != nil && *e.OK, Commit: e.Parent})
			}
			c.Result, c.Why = o.judge(e)
			if c.Check == browserCheck {
				c.sawBy(looks[e.Step], e)
			}
			list = append(list, c)
		}
		if e.movedOthers(subs[e.Step]) {
			for i := range list {
				list[i].void = true
			}
		}
	}
	for _, e := range OpenSteps(events) {
		if check := CheckOf(e.Task); check != "" {
			list = append(list, ManifestCheck{Check: check, Task: e.Task, Command: e.Command, Step: e.Step,
				Result: CheckNotRun, Commit: e.Parent,
				Why: "it began but has no result"})
		}
	}
	for i := range list {
		list[i].Current = list[i].Tree != "" && list[i].Tree == tree && !list[i].void
	}
	return tested, list
}

// withdrawn returns the check of an event that reports a skipped check or one that could not run. It removes the
// check of the step that tried it from list.
func withdrawn(list *[]ManifestCheck, e Event) ManifestCheck {
	c := ManifestCheck{Check: orName(CheckOf(e.Task), e.Task), Task: e.Task, Command: e.Command, Step: e.Step,
		Result: CheckSkipped, Why: e.Message}
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

// sawBy sets the result and the commit of a check by a browser. If a task made several, the worst result counts.
func (c *ManifestCheck) sawBy(looks []BrowserCheck, e Event) {
	if len(looks) == 0 {
		return // the check could not be made as asked; the step has the reason
	}
	c.Tool, c.Commit, c.Tree, c.Result, c.Why = looks[0].Browser, gitd.Hash(looks[0].Commit), gitd.Hash(looks[0].Tree),
		CheckPassed, ""
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
		c.Why = e.unchecked()
	}
}

// unchecked describes the commit of a check that changed files.
func (e Event) unchecked() string {
	return fmt.Sprintf("it changed files itself, and its commit (%.10s) was not checked again", e.Commit)
}

func orName(name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return name
}

// judge returns the result of a check, and the reason if it did not pass.
func (o checkOutcome) judge(e Event) (CheckResult, string) {
	out := o.Result.Output
	value := out.Value
	switch {
	case e.OK == nil || !*e.OK:
		switch {
		case out.ExitCode == nil:
			return CheckNotRun, orName(o.Result.Error, e.Message)
		case *out.ExitCode == notInstalled:
			return CheckNotRun, fmt.Sprintf("exit code %d: a program that it runs is not installed", notInstalled)
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
		return CheckPassed, e.unchecked()
	}
	return CheckPassed, ""
}

// verdict returns whether the files at the run's end were checked, and in why a sentence for each part that was not. A check counts if
// it ran on the tree of the branch's last commit. A later change by anybody, also by the check itself, makes it void. A check that
// failed before and did not run again prevents the verdict verified.
func verdict(r Run, list []ManifestCheck) (v Verdict, why []string) {
	list = lastWords(list)
	known := make(map[string]bool) // the kinds of checks that ran on the last tree
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
	for _, want := range r.Required {
		has := func(c ManifestCheck) bool {
			return c.Task == want.Task && c.Command == want.Command && c.Current && c.Result.Ran()
		}
		if r.Changed() && !slices.ContainsFunc(list, has) {
			why = append(why, fmt.Sprintf("%s is required by the repository's configuration and did not run on the last change", want.Command))
			passed = false
		}
	}
	for _, a := range r.With {
		for _, want := range a.Required {
			if a.Changed() {
				why = append(why, fmt.Sprintf("%s is required by the configuration of %s and cannot run in an additional repository",
					want.Command, a.Repo))
				passed = false
			}
		}
	}
	if r.Changed() && len(known) == 0 {
		why = append(why, "no check ran on the last change")
	}
	if r.Merged != "" && r.Merged != r.Head {
		why = append(why, fmt.Sprintf("%s had moved, and the commit that was merged into it (%.10s) is not the branch's last", r.Base, r.Merged))
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

// Ran reports whether the check has a result about the code.
func (r CheckResult) Ran() bool { return r == CheckPassed || r == CheckFailed }

// lastWords returns the last result of each check. Checks of one kind may select different parts of the code by a pattern or a target,
// so each command counts as a check.
func lastWords(list []ManifestCheck) (kept []ManifestCheck) {
	for i, c := range list {
		again := func(d ManifestCheck) bool { return d.Task == c.Task && d.Command == c.Command }
		if !slices.ContainsFunc(list[i+1:], again) {
			kept = append(kept, c)
		}
	}
	return kept
}
