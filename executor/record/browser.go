package record

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// The types of checks by a browser, for the rooms above the executor.
type (
	BrowserCheck = browser.Check
	BrowserView  = browser.View
	BrowserDiff  = browser.Diff
	BrowserSpec  = browser.Spec

	BrowserVerdict    = browser.Verdict
	BrowserStep       = browser.StepResult
	BrowserComparison = browser.Comparison
)

// The verdicts of checks by a browser.
const (
	BrowserPass       = browser.Pass
	BrowserFail       = browser.Fail
	BrowserUnverified = browser.Unverified
)

// BrowserFolder is the folder of checks by a browser among a run's artifacts. A folder of that name that a container
// makes in /artifacts is not evidence and is left out.
const BrowserFolder = "browser"

// BrowserChecks returns the checks by a browser in a journal.
func BrowserChecks(events []Event) []browser.Check {
	checks := []browser.Check{}
	for _, e := range events {
		if e.Type != EventBrowser {
			continue
		}
		var c browser.Check
		if json.Unmarshal(e.Data, &c) == nil { // an event of ours
			checks = append(checks, c)
		}
	}
	return checks
}

// SubFolder returns the folder below BrowserFolder of the files of checks by the sub-workflow of a step.
func SubFolder(step string) string { return "sub-" + FileName(step) }

// EarlierFolder is the folder below BrowserFolder of the files of checks that a run took over from the run that it resumes.
const EarlierFolder = "earlier"

// checksOfSub returns the checks of a step's sub-workflow as checks of the run.
func checksOfSub(step string, checks []browser.Check) []browser.Check {
	checks = moved(SubFolder(step), checks)
	for i := range checks {
		checks[i].Step = step + "/" + checks[i].Step
	}
	return checks
}

// TakeOver returns the event of a check as an event of the run that takes it over.
func TakeOver(e Event) Event {
	for _, c := range moved(EarlierFolder, BrowserChecks([]Event{e})) {
		if data, err := json.Marshal(c); err == nil { // a type of ours
			e.Data = data
		}
	}
	return e
}

// moved returns checks with their files in a folder.
func moved(folder string, checks []browser.Check) []browser.Check {
	move := func(names ...*string) {
		for _, name := range names {
			if *name != "" {
				*name = path.Join(folder, *name)
			}
		}
	}
	checks = slices.Clone(checks)
	for i := range checks {
		c := &checks[i]
		c.Files, c.Views = slices.Clone(c.Files), slices.Clone(c.Views)
		move(&c.Dir)
		for j := range c.Files {
			move(&c.Files[j].Name)
		}
		for j := range c.Views {
			v := &c.Views[j]
			move(&v.Screenshot, &v.Trace, &v.HAR, &v.Video, &v.PDF, &v.Aria, &v.Console.File)
			v.Steps = slices.Clone(v.Steps)
			for n := range v.Steps {
				move(&v.Steps[n].Screenshot)
			}
		}
		if c.Compare != nil {
			d := *c.Compare
			d.Views = slices.Clone(d.Views)
			for j := range d.Views {
				move(&d.Views[j].Before, &d.Views[j].After, &d.Views[j].Picture)
			}
			c.Compare = &d
		}
	}
	return checks
}

// FileName returns a step's id as the name of a file. "judge[3]#2" becomes "judge_3__2".
func FileName(step string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, text.Clip(step, 100))
}
