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

// BrowserFolder is where checks by a browser lie among a run's artifacts. What a
// container puts into a folder of that name in /artifacts is no evidence and is left out.
const BrowserFolder = "browser"

// BrowserChecks reads the checks by a browser from a journal.
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

// lentFolder is where the files of a sub-workflow's checks lie, below BrowserFolder.
func SubFolder(step string) string { return "sub-" + FileName(step) }

// EarlierFolder is where the files of checks lie that a run took over, with their steps, from
// the run that it was begun again from.
const EarlierFolder = "earlier"

// lent are a sub-workflow's checks as its run's, by the step that it was.
func checksOfSub(step string, checks []browser.Check) []browser.Check {
	checks = moved(SubFolder(step), checks)
	for i := range checks {
		checks[i].Step = step + "/" + checks[i].Step
	}
	return checks
}

// takenOver is the event of a check as that of the run which takes it over.
func TakeOver(e Event) Event {
	for _, c := range moved(EarlierFolder, BrowserChecks([]Event{e})) {
		if data, err := json.Marshal(c); err == nil { // a type of ours
			e.Data = data
		}
	}
	return e
}

// moved are checks whose files lie in a folder of another run's.
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

// FileName makes a step's id fit for a file: "judge[3]#2" becomes "judge_3__2".
func FileName(step string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, text.Clip(step, 100))
}
