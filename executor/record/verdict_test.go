package record

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/browser"
	"github.com/ramus-dev/ramus/tasks/results"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// branch plays a run on a branch and writes the journal of it as the executor does.
type branch struct {
	run    Run
	events []Event
	subs   map[string]Manifest
	n      int
}

func newBranch() *branch {
	return &branch{run: Run{Start: commitHash(0), Head: commitHash(0), Base: "main", State: StateComplete}}
}

func commitHash(n int) gitd.Hash { return gitd.Hash(fmt.Sprintf("%040x", n)) }

// move makes a commit, of a step or of somebody else.
func (b *branch) move() gitd.Hash {
	b.n++
	b.run.Head = commitHash(b.n)
	return b.run.Head
}

// step records a step that ran. change is set if it left a commit.
func (b *branch) step(id, task, command string, ok, change bool, output map[string]any, failure string) {
	e := Event{Type: EventStepStarted, Step: id, Task: task, Command: command, Parent: b.run.Head}
	b.events = append(b.events, e)
	e.Type, e.OK, e.Message = EventStepFinished, &ok, failure
	if CheckOf(task) != "" {
		e.Tree = b.run.Head // a commit's tree has its name here
	}
	e.Data = mustMarshal(StepResult{workflow.StepResult{OK: ok, Output: output, Error: failure}})
	if change {
		e.Commit = b.move()
	}
	b.events = append(b.events, e)
}

func (b *branch) change(id string) { b.step(id, "", "edit", true, true, nil, "") }

func (b *branch) tests(id string, passed, failed, skipped int) {
	exit := min(failed, 1)
	b.step(id, "lib_run_tests", "lib_run_tests", failed == 0, false, map[string]any{"exit_code": exit,
		"value": results.Tests{Framework: "go", Passed: passed, Failed: failed, Skipped: skipped,
			FailedNames: names(failed)}}, "")
}

func names(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint("Test", i))
	}
	return list
}

func (b *branch) lint(id string, findings int) {
	b.step(id, "lib_run_lint", "lib_run_lint", findings == 0, false, map[string]any{"exit_code": min(findings, 1),
		"value": results.Lint{Tool: "go vet", Count: findings}}, "")
}

// look records a step that looked at a page at the branch's commit, with these verdicts.
func (b *branch) look(id string, change bool, verdicts ...browser.Verdict) {
	at, ok := b.run.Head, true
	for _, v := range verdicts {
		ok = ok && v == browser.Pass
	}
	b.step(id, "browser_test", "browser_test", ok, change, nil, "")
	var seen []Event
	for i, v := range verdicts {
		seen = append(seen, Event{Type: EventBrowser, Step: id,
			Data: mustMarshal(browser.Check{Name: fmt.Sprint("page ", i), Verdict: v, Reason: "it is " + string(v),
				Commit: string(at), Tree: string(at)})})
	}
	end := len(b.events) - 1
	b.events = slices.Concat(b.events[:end], seen, b.events[end:])
}

func (b *branch) judge() (Verdict, []ManifestCheck, string) {
	_, list := checks(b.run.Head, b.events, b.subs)
	v, why := verdict(b.run, list)
	return v, list, strings.Join(why, "\n")
}

func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		name string
		play func(*branch)
		want Verdict
		why  []string // parts of the reasons for which it is unverified; none if it is verified
	}{
		{"nothing happened", func(*branch) {}, VerdictNone, nil},
		{"a command that changed nothing", func(b *branch) { b.step("exec", "", "ls", true, false, nil, "") },
			VerdictNone, nil},
		{"a change", func(b *branch) { b.change("a") }, VerdictUnverified, []string{"no check ran on the last change"}},
		{"a change, tests pass", func(b *branch) { b.change("a"); b.tests("t", 3, 0, 0) }, VerdictVerified, nil},
		{"tests pass, nothing changed", func(b *branch) { b.tests("t", 3, 0, 1) }, VerdictVerified, nil},
		{"tests pass on other files than the branch has", func(b *branch) {
			b.change("a")
			b.tests("t", 3, 0, 0)
			b.events[len(b.events)-1].Tree = commitHash(999)
		}, VerdictUnverified, []string{"no check ran on the last change"}},
		{"tests pass on files that nobody knows", func(b *branch) {
			b.change("a")
			b.tests("t", 3, 0, 0)
			b.events[len(b.events)-1].Tree = ""
		}, VerdictUnverified, []string{"no check ran on the last change"}},
		{"tests pass before the change", func(b *branch) { b.tests("t", 3, 0, 0); b.change("a") }, VerdictUnverified,
			[]string{"tests passed before the last change", "no check ran on the last change"}},
		{"tests fail, a change, tests pass",
			func(b *branch) { b.tests("t", 2, 1, 0); b.change("a"); b.tests("t#2", 3, 0, 0) }, VerdictVerified, nil},
		{"tests fail, and pass when they run again",
			func(b *branch) { b.change("a"); b.tests("t", 2, 1, 0); b.tests("t#2", 3, 0, 0) }, VerdictVerified, nil},
		{"tests fail", func(b *branch) { b.change("a"); b.tests("t", 2, 1, 0) }, VerdictFailed, nil},
		{"tests pass, lint fails", func(b *branch) { b.change("a"); b.tests("t", 2, 0, 0); b.lint("l", 3) },
			VerdictFailed, nil},
		{"lint failed, a change, tests pass", func(b *branch) { b.lint("l", 3); b.change("a"); b.tests("t", 2, 0, 0) },
			VerdictUnverified,
			[]string{"lint failed before the last change"}},
		{"lint passed, a change, tests pass", func(b *branch) { b.lint("l", 0); b.change("a"); b.tests("t", 2, 0, 0) },
			VerdictVerified,
			[]string{"lint passed before the last change"}},
		{"the run failed after its tests",
			func(b *branch) { b.change("a"); b.tests("t", 2, 0, 0); b.run.State = StateFailed }, VerdictFailed, nil},
		{"no tests were found", func(b *branch) { b.change("a"); b.tests("t", 0, 0, 0) }, VerdictUnverified,
			[]string{"tests skipped: no tests were found"}},
		{"all tests were skipped", func(b *branch) { b.change("a"); b.tests("t", 0, 0, 4) }, VerdictUnverified,
			[]string{"tests skipped: all 4 tests"}},
		{"output that could not be counted", func(b *branch) {
			b.change("a")
			b.step("t", "lib_run_tests", "lib_run_tests", true, false,
				map[string]any{"exit_code": 0, "value": results.Tests{Framework: "make", Unknown: true}}, "")
		}, VerdictVerified, nil},
		{"no way to run tests", func(b *branch) {
			b.change("a")
			b.step("t", "lib_run_tests", "lib_run_tests", false, false, nil, "cannot run tests: no go.mod")
		}, VerdictUnverified, []string{"tests could not run: cannot run tests: no go.mod"}},
		{"the linter is not installed", func(b *branch) {
			b.change("a")
			b.tests("t", 1, 0, 0)
			b.step("l", "lib_run_lint", "lib_run_lint", false, false,
				map[string]any{"exit_code": 127, "value": results.Lint{Tool: "ruff"}}, "")
		}, VerdictVerified, []string{"lint could not run: exit code 127"}},
		{"an agent's checks: one passes, one is skipped", func(b *branch) {
			b.change("agent")
			b.tests("check-tests", 5, 0, 0)
			b.events = append(b.events, Event{Type: EventCheck, Task: "lib_run_lint", Message: "no linter is configured"})
		}, VerdictVerified, []string{"lint skipped: no linter is configured"}},
		{"an agent's checks: a step that found nothing to run", func(b *branch) {
			b.change("agent")
			b.step("check-build", "lib_run_build", "lib_run_build", false, false, nil, "cannot build")
			b.events = append(b.events,
				Event{Type: EventCheck, Step: "check-build", Task: "lib_run_build", Message: "nothing to build"})
		}, VerdictUnverified, []string{"build skipped: nothing to build", "no check ran"}},
		{"skipped checks, nothing changed", func(b *branch) {
			b.events = append(b.events, Event{Type: EventCheck, Task: "lib_run_lint", Message: "no linter is configured"})
		}, VerdictNone, []string{"lint skipped"}},
		{"tests that change files themselves", func(b *branch) {
			b.change("a")
			b.step("t", "lib_run_tests", "lib_run_tests", true, true,
				map[string]any{"exit_code": 0, "value": results.Tests{Framework: "jest", Passed: 3}}, "")
		}, VerdictUnverified, []string{"tests passed, but it changed files itself", "no check ran on the last change"}},
		{"somebody pushed after the tests", func(b *branch) { b.change("a"); b.tests("t", 3, 0, 0); b.move() },
			VerdictUnverified, []string{"tests passed before the last change"}},
		{"killed in the tests", func(b *branch) {
			b.change("a")
			b.events = append(b.events, Event{Type: EventStepStarted, Step: "t", Task: "lib_run_tests",
				Command: "lib_run_tests", Parent: b.run.Head})
		}, VerdictUnverified, []string{"tests could not run: it began but has no result"}},
		{"killed in the tests, which began again", func(b *branch) {
			b.change("a")
			b.events = append(b.events, Event{Type: EventStepStarted, Step: "t", Task: "lib_run_tests",
				Command: "lib_run_tests", Parent: b.run.Head})
			b.tests("t", 3, 0, 0)
		}, VerdictVerified, nil},
		{"a page passes", func(b *branch) { b.change("a"); b.look("l", false, browser.Pass, browser.Pass) },
			VerdictVerified, nil},
		{"a page fails", func(b *branch) {
			b.change("a")
			b.look("l", false, browser.Pass, browser.Unverified,
				browser.Fail)
		}, VerdictFailed, nil},
		{"a page could not be looked at",
			func(b *branch) { b.change("a"); b.look("l", false, browser.Pass, browser.Unverified) }, VerdictUnverified,
			[]string{"browser could not run: page 1: it is UNVERIFIED", "no check ran"}},
		{"a page passes before the change", func(b *branch) { b.look("l", false, browser.Pass); b.change("a") },
			VerdictUnverified, []string{"browser passed before the last change"}},
		{"looking changed files", func(b *branch) { b.change("a"); b.look("l", true, browser.Pass) }, VerdictUnverified,
			[]string{"browser passed, but it changed files itself"}},
		{"a page fails, a change, it passes",
			func(b *branch) { b.look("l", false, browser.Fail); b.change("a"); b.look("l", false, browser.Pass) },
			VerdictVerified, nil},
		{"no page was looked at", func(b *branch) {
			b.change("a")
			b.step("l", "browser_test", "browser_test", false, false, nil, "cannot find a page to check")
		}, VerdictUnverified, []string{"browser could not run: cannot find a page", "no check ran"}},
		{"killed while a browser looked, which began again", func(b *branch) {
			b.change("a")
			b.look("l", false, browser.Fail)
			b.events = b.events[:len(b.events)-1]
			b.look("l", false, browser.Pass)
		}, VerdictVerified, nil},
		{"a picture was taken", func(b *branch) {
			b.change("a")
			b.step("s", "capture_screenshot", "capture_screenshot", true, false, nil, "")
		}, VerdictUnverified,
			[]string{"no check ran"}},
		{"a sub-workflow changes, checks and passes", func(b *branch) {
			sub := newBranch()
			sub.change("a")
			sub.tests("t", 3, 0, 0)
			_, list := checks(sub.run.Head, sub.events, nil)
			ok := true
			b.run.Head = sub.run.Head
			b.subs = map[string]Manifest{"sub": {Checks: list}}
			b.events = append(b.events,
				Event{Type: EventStepFinished, Kind: string(workflow.KindWorkflow), Step: "sub", OK: &ok})
		}, VerdictVerified, nil},
		{"merged into a base that had moved",
			func(b *branch) { b.change("a"); b.tests("t", 3, 0, 0); b.run.Merged = commitHash(999) }, VerdictVerified,
			[]string{"main had moved"}},
		{"answered without running anything", func(b *branch) { b.run = Run{State: StateComplete, Kind: KindRequest} },
			VerdictNone, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBranch()
			test.play(b)
			got, list, why := b.judge()
			if got != test.want {
				t.Errorf("verdict %s, want %s; checks %+v; why:\n%s", got, test.want, list, why)
			}
			for _, part := range test.why {
				if !strings.Contains(why, part) {
					t.Errorf("%q is not said:\n%s", part, why)
				}
			}
			if len(test.why) == 0 && why != "" {
				t.Errorf("said to be unverified:\n%s", why)
			}
		})
	}
}

// TestVerdictProperty plays random journals and compares the verdict with a model that
// is kept during the play.
func TestVerdictProperty(t *testing.T) {
	const seed = 7
	rnd := rand.New(rand.NewPCG(seed, 1))
	seen := map[Verdict]int{}
	for round := range 5_000 {
		b := newBranch()
		// Of each kind of check, by its command, the last result and its commit.
		type word struct {
			result CheckResult
			at     gitd.Hash
		}
		said := map[string]map[string]word{"tests": {}, "lint": {}, "build": {}}
		for i := range rnd.IntN(8) {
			id := fmt.Sprint("s", i)
			at := b.run.Head
			switch rnd.IntN(8) {
			case 0, 1:
				b.change(id)
			case 2:
				b.move() // by somebody else
			case 3:
				b.step(id, "", "ls", rnd.IntN(2) == 0, false, nil, "")
			case 4:
				failed := rnd.IntN(2)
				b.tests(id, 1+rnd.IntN(5), failed, rnd.IntN(2))
				said["tests"]["lib_run_tests"] = word{[]CheckResult{CheckPassed, CheckFailed}[failed], at}
			case 5:
				found := rnd.IntN(2)
				b.lint(id, found)
				said["lint"]["lib_run_lint"] = word{[]CheckResult{CheckPassed, CheckFailed}[found], at}
			case 6:
				command := fmt.Sprint("lib_run_build ", rnd.IntN(2))
				ok, change := rnd.IntN(2) == 0, rnd.IntN(4) == 0
				b.step(id, "lib_run_build", command, ok, change, map[string]any{"exit_code": map[bool]int{true: 0,
					false: 2}[ok], "value": results.Build{Tool: "go"}}, "")
				said["build"][command] = word{map[bool]CheckResult{true: CheckPassed, false: CheckFailed}[ok], at}
			case 7:
				b.step(id, "lib_run_tests", "lib_run_tests", false, false, nil, "cannot run tests")
				said["tests"]["lib_run_tests"] = word{CheckNotRun, at}
			}
		}
		if rnd.IntN(10) == 0 {
			b.run.State = StateFailed
		}
		passed, failed, broken, notRun := 0, 0, 0, 0
		for _, words := range said {
			now := 0
			for _, w := range words {
				switch {
				case w.result == CheckNotRun:
					notRun++
				case w.at != b.run.Head:
				case w.result == CheckPassed:
					passed++
					now++
				default:
					failed++
					now++
				}
			}
			for _, w := range words {
				if w.result == CheckFailed && w.at != b.run.Head && now == 0 {
					broken++
				}
			}
		}
		want := VerdictNone
		switch {
		case b.run.State == StateFailed || failed > 0:
			want = VerdictFailed
		case passed > 0 && broken == 0:
			want = VerdictVerified
		case b.run.Changed() || notRun+broken > 0:
			want = VerdictUnverified
		}
		got, list, why := b.judge()
		if got != want {
			t.Fatalf("seed %d, round %d: verdict %s, want %s\nchecks %+v\nwhy: %s", seed, round, got, want, list, why)
		}
		if got == VerdictUnverified && why == "" {
			t.Fatalf("seed %d, round %d: unverified without a word; checks %+v", seed, round, list)
		}
		seen[got]++
		// One more change takes a verified run its verdict.
		b.change("last")
		if again, _, _ := b.judge(); again == VerdictVerified || again == VerdictNone {
			t.Fatalf("seed %d, round %d: %s after one more change", seed, round, again)
		}
	}
	for _, v := range []Verdict{VerdictVerified, VerdictUnverified, VerdictFailed, VerdictNone} {
		if seen[v] < 25 {
			t.Errorf("only %d journals are %s: the test does not try it", seen[v], v)
		}
	}
}

func mustMarshal(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// TestJudge gives the reason of each result of a check.
func TestJudge(t *testing.T) {
	ok, failed := true, false
	for name, c := range map[string]struct {
		ok     *bool
		task   string
		commit gitd.Hash
		result string // JSON of a step's result
		want   CheckResult
		why    string
	}{
		"passed":         {&ok, "lib_run_tests", "", `{"output":{"exit_code":0,"value":{"passed":3}}}`, CheckPassed, ""},
		"no end":         {nil, "lib_run_tests", "", `{"error":"the server ended"}`, CheckNotRun, "the server ended"},
		"not installed":  {&failed, "check:vet", "", `{"output":{"exit_code":127}}`, CheckNotRun, "exit code 127: a program that it runs is not installed"},
		"too long":       {&failed, "check:vet", "", `{"output":{"exit_code":1,"timed_out":true}}`, CheckFailed, "it took too long and was ended"},
		"tests fail":     {&failed, "lib_run_tests", "", `{"output":{"exit_code":1,"value":{"passed":5,"failed":2}}}`, CheckFailed, "2 of 7 failed"},
		"findings":       {&failed, "lib_run_lint", "", `{"output":{"exit_code":1,"value":{"count":4}}}`, CheckFailed, "4 findings"},
		"an exit code":   {&failed, "check:vet", "", `{"output":{"exit_code":2}}`, CheckFailed, "exit code 2"},
		"all skipped":    {&ok, "lib_run_tests", "", `{"output":{"exit_code":0,"value":{"skipped":2}}}`, CheckSkipped, "all 2 tests were skipped"},
		"no tests":       {&ok, "lib_run_tests", "", `{"output":{"exit_code":0}}`, CheckSkipped, "no tests were found"},
		"unknown counts": {&ok, "lib_run_tests", "", `{"output":{"exit_code":0,"value":{"unknown":true}}}`, CheckPassed, ""},
		"changed": {&ok, "check:format", "0123456789abcdef", `{"output":{"exit_code":0}}`, CheckPassed,
			"it changed files itself, and its commit (0123456789) was not checked again"},
	} {
		var o checkOutcome
		if err := json.Unmarshal([]byte(`{"result":`+c.result+`}`), &o); err != nil {
			t.Fatal(err)
		}
		if got, why := o.judge(Event{OK: c.ok, Task: c.task, Commit: c.commit}); got != c.want || why != c.why {
			t.Errorf("%s: %s, %q", name, got, why)
		}
	}
}

// TestWithdrawn replaces the check of the step that could not run it. The checks of other steps stay.
func TestWithdrawn(t *testing.T) {
	list := []ManifestCheck{
		{Check: "lint", Step: "a", Command: "make lint", Commit: commitHash(1), Tree: commitHash(2)},
		{Check: "lint", Step: "b", Command: "other", Commit: commitHash(3), Tree: commitHash(4)},
	}
	c := withdrawn(&list, Event{Type: EventCheck, Step: "a", Task: "lib_run_lint", Reason: string(CheckNotRun), Message: "no linter"})
	want := ManifestCheck{Check: "lint", Task: "lib_run_lint", Step: "a", Command: "make lint", Commit: commitHash(1),
		Tree: commitHash(2), Result: CheckNotRun, Why: "no linter"}
	if c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	if len(list) != 1 || list[0].Step != "b" {
		t.Errorf("the others are %+v", list)
	}
	if c := withdrawn(&list, Event{Type: EventCheck, Task: "check:vet"}); c.Result != CheckSkipped || c.Check != "vet" || len(list) != 1 {
		t.Errorf("without a step: %+v", c)
	}
}
