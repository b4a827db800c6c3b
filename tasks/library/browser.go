package library

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// Browsed is the value of browser_test and capture_screenshot, a summary of the checks. The run's evidence has them
// completely, in browser/index.json.
type Browsed struct {
	// Verdict is the worst verdict of the checks, in the order FAIL, UNVERIFIED, PASS.
	Verdict browser.Verdict `json:"verdict"`
	Reason  string          `json:"reason"` // of the first check with that verdict
	Checks  []BrowsedCheck  `json:"checks"`
}

// BrowsedCheck is one check of a [Browsed].
type BrowsedCheck struct {
	Name    string          `json:"name"`
	Spec    string          `json:"spec,omitempty"` // the file of the spec
	Verdict browser.Verdict `json:"verdict"`
	Reason  string          `json:"reason"`
	Views   []BrowsedView   `json:"views"`
	Compare *BrowsedDiff    `json:"compare,omitempty"`
	// Log is the end of the application's output if the check did not pass.
	Log string `json:"log,omitempty"`
}

// BrowsedView is a check at one viewport. The names of files are those of the evidence, below browser/.
type BrowsedView struct {
	Viewport   string          `json:"viewport"`
	Verdict    browser.Verdict `json:"verdict"`
	Reason     string          `json:"reason"`
	URL        string          `json:"url,omitempty"` // after redirects and steps
	Status     int             `json:"status,omitempty"`
	Title      string          `json:"title,omitempty"`
	Screenshot string          `json:"screenshot,omitempty"`
	Trace      string          `json:"trace,omitempty"`
	Aria       string          `json:"aria,omitempty"`
	Console    []string        `json:"console_errors,omitempty"` // including uncaught exceptions; the first 10
	Network    []string        `json:"network_errors,omitempty"` // "GET URL: 500", the first 10
	Step       string          `json:"failed_step,omitempty"`    // with the reason
}

// BrowsedDiff has the differences from the base.
type BrowsedDiff struct {
	Commit  string            `json:"commit"`
	Verdict browser.Verdict   `json:"verdict"` // of the check on the base
	Reason  string            `json:"reason,omitempty"`
	Views   []BrowsedPictures `json:"views,omitempty"`
}

// BrowsedPictures has the differences at one viewport.
type BrowsedPictures struct {
	Viewport string  `json:"viewport"`
	Changed  float64 `json:"changed"` // share of the pixels, 0 to 1
	Triptych string  `json:"triptych,omitempty"`
	Aria     string  `json:"aria,omitempty"` // unified diff of the accessibility trees, its first 4 KiB
	Note     string  `json:"note,omitempty"`
	// Uncompared reports that the pictures could not be compared.
	Uncompared bool `json:"uncompared,omitempty"`
}

const (
	specFiles = ".ramus/browser/*.{yaml,yml}"
	// maxSpecs bounds the checks of one step, because each may take minutes.
	maxSpecs = 50
)

const browserTestDoc = `Checks web pages in a real browser (Chromium) against the current work tree. For each check it starts the application, opens the page at each viewport (1440x1000 and 390x844 by default), performs the spec's steps, takes a picture and ends the application.

A check fails on an uncaught exception, a console error, a request that failed or was answered with 500 and above, a step that did not work, a page that did not load. It is UNVERIFIED if the page could not be checked because nothing started or nothing listened. OK means that every check passed. Otherwise reason names the cause, and views has it for each viewport. Pictures, trace, requests, console and accessibility tree are kept as the run's evidence below browser/.

Without parameters every .ramus/browser/*.yaml is checked, one after another. spec names one file, check is a spec inline: {"start": "npm run dev", "steps": [{"fill": "#new", "value": "Milk"}, {"press": "Enter", "in": "#new"}, {"expect_text": "#list", "value": "Milk"}]}. Steps take Playwright selectors. start and url may be left out: package.json says how the page is served, and the port that comes to listen is the page's. A server must listen on 127.0.0.1 or all addresses.`

type browserTestParams struct {
	Spec    string          `json:"spec,omitempty" jsonschema:"A spec file of the repository, like .ramus/browser/todo.yaml."`
	Check   json.RawMessage `json:"check,omitempty" jsonschema:"A spec inline, instead of a file."`
	Compare bool            `json:"compare,omitempty" jsonschema:"Also make the check on the commit at which the branch began, and show the differences."`
}

func (browserTestParams) adjust(s *jsonschema.Schema) {
	spec := new(jsonschema.Schema)
	if err := json.Unmarshal(browser.Schema(), spec); err != nil {
		panic(fmt.Sprintf("the schema of a spec: %v",
			err)) // the schema is part of the program, so every test would show this
	}
	spec.Schema, spec.Title, spec.Description = "", "", s.Properties["check"].Description
	s.Properties["check"] = spec
}

// browserTest is browser_test. It needs a Shell that is a [tasks.Browser].
func browserTest() tasks.Task {
	return newTask("browser_test", browserTestDoc,
		func(ctx context.Context, sh tasks.Shell, p browserTestParams) (tasks.Output, error) {
			b, err := browserOf(sh)
			if err != nil {
				return tasks.Output{}, err
			}
			specs, err := p.specs(ctx, sh)
			if err != nil {
				return tasks.Output{}, err
			}
			var checks []browser.Check
			for _, s := range specs {
				if p.Compare && s.Compare == nil {
					s.Compare = &browser.Against{Threshold: browser.DefaultThreshold}
				}
				c, err := b.Browse(ctx, s)
				if err != nil {
					return tasks.Output{}, fmt.Errorf("check %s: %w", s.Name, err)
				}
				checks = append(checks, c)
			}
			v := browsed(checks)
			return tasks.Output{OK: v.Verdict == browser.Pass, Value: v}, nil
		})
}

// specs returns the requested checks. All of them are read before the first is performed.
func (p browserTestParams) specs(ctx context.Context, sh tasks.Shell) ([]browser.Spec, error) {
	var files []string
	switch {
	case p.Spec != "" && len(p.Check) > 0:
		return nil, fmt.Errorf(`%w: "spec" names a file and "check" is a spec inline: give one of them`, tasks.ErrParams)
	case len(p.Check) > 0:
		s, err := browser.Parse("check", p.Check)
		if err != nil {
			return nil, fmt.Errorf("%w: parameter \"check\": %w", tasks.ErrParams, err)
		}
		return []browser.Spec{s}, nil
	case p.Spec != "":
		name, err := tasks.CleanPath(p.Spec)
		if err != nil {
			return nil, err
		}
		files = []string{name}
	default:
		var err error
		if files, err = listSpecs(ctx, sh); err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, &noWay{"cannot find a page to check: there is no " + specFiles +
				` in the work tree. Write one, at least "start: npm run dev" and what must be seen ("steps: [{expect_visible: h1}]"), or give a spec as parameter "check"`}
		}
		if len(files) > maxSpecs {
			return nil, fmt.Errorf("%w: there are %d specs %s, and one step does at most %d: name one with \"spec\"",
				tasks.ErrParams, len(files), specFiles, maxSpecs)
		}
	}
	var specs []browser.Spec
	var wrong []error
	for _, name := range files {
		text, err := sh.ReadFile(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, refuse("spec", name, "is not in the work tree")
		}
		if err != nil {
			return nil, err
		}
		s, err := browser.Parse(name, text)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		s.File = name
		specs = append(specs, s)
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%w: %w", tasks.ErrParams, errors.Join(wrong...))
	}
	return specs, nil
}

const captureDoc = `Takes pictures of a web page in a real browser (Chromium), one for each viewport: starts the application of the work tree, opens the page, waits until it has loaded, takes the picture, ends the application. The pictures are kept as the run's evidence below browser/; views name them. It is OK when all pictures were taken; what is wrong with the page is told in reason and fails nothing: use browser_test for a verdict.`

type captureParams struct {
	URL       string   `json:"url,omitempty" jsonschema:"The page, like http://127.0.0.1:5173/about. Without one, the port at which the application listens."`
	Start     string   `json:"start,omitempty" jsonschema:"The command line that serves the page. Without one it is found in package.json, unless a program listens already; \"none\" starts nothing."`
	Dir       string   `json:"dir,omitempty" jsonschema:"The folder of the repository in which start runs; default its root."`
	Viewports []string `json:"viewports,omitempty" jsonschema:"desktop (1440x1000), mobile (390x844), or a size in CSS pixels like 1024x768; default desktop and mobile."`
	FullPage  bool     `json:"full_page,omitempty" jsonschema:"The whole page, not only the part that is visible without scrolling."`
	Selector  string   `json:"selector,omitempty" jsonschema:"Only the element of this Playwright selector."`
	Mask      []string `json:"mask,omitempty" jsonschema:"Selectors of elements to cover in the picture, such as clocks and names of people."`
	Name      string   `json:"name,omitempty" jsonschema:"The name of the picture; default page."`
}

var windowSize = pattern.New(`^([0-9]{1,5})x([0-9]{1,5})$`)

// captureScreenshot is capture_screenshot. It needs a Shell that is a [tasks.Browser].
func captureScreenshot() tasks.Task {
	return newTask("capture_screenshot", captureDoc,
		func(ctx context.Context, sh tasks.Shell, p captureParams) (tasks.Output, error) {
			b, err := browserOf(sh)
			if err != nil {
				return tasks.Output{}, err
			}
			s, err := p.spec()
			if err != nil {
				return tasks.Output{}, err
			}
			c, err := b.Browse(ctx, s)
			if err != nil {
				return tasks.Output{}, err
			}
			taken := len(c.Views) > 0 &&
				!slices.ContainsFunc(c.Views, func(v browser.View) bool { return v.Screenshot == "" })
			return tasks.Output{OK: taken, Value: browsed([]browser.Check{c})}, nil
		})
}

func (p captureParams) spec() (browser.Spec, error) {
	s := browser.Spec{
		Name: p.Name, URL: p.URL, Start: p.Start, Dir: p.Dir,
		Screenshot: browser.Shot{FullPage: p.FullPage, Selector: p.Selector, Mask: p.Mask},
	}
	for _, name := range p.Viewports {
		if v, ok := browser.KnownViewport(name); ok {
			s.Viewports = append(s.Viewports, v)
			continue
		}
		m := windowSize.FindStringSubmatch(name)
		if m == nil {
			return s, refuse("viewports", name, `is neither desktop nor mobile nor a size like "1024x768"`)
		}
		width, _ := strconv.Atoi(m[1]) // five digits
		height, _ := strconv.Atoi(m[2])
		s.Viewports = append(s.Viewports, browser.Viewport{Name: name, Width: width, Height: height})
	}
	s, err := s.Complete()
	if err != nil {
		return s, fmt.Errorf("%w: %w", tasks.ErrParams, err)
	}
	return s, nil
}

// listSpecs returns the spec files of the work tree: those that the repository's configuration names, or else all in
// .ramus/browser.
func listSpecs(ctx context.Context, sh tasks.Shell) (files []string, err error) {
	patterns := []string{specFiles}
	if own, ok := sh.(tasks.Specs); ok && len(own.SpecFiles()) > 0 {
		patterns = own.SpecFiles()
	}
	for _, p := range patterns {
		list, err := sh.ListFiles(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, name := range list {
			if !slices.Contains(files, name) {
				files = append(files, name)
			}
		}
	}
	return files, nil
}

// browserOf returns the browser of a Shell. Returns an error if the Shell has none.
func browserOf(sh tasks.Shell) (tasks.Browser, error) {
	b, ok := sh.(tasks.Browser)
	if !ok {
		return nil, errors.New("there is no browser here: this task runs on a server with browser checks, not over a plain folder")
	}
	return b, nil
}

// browsed summarises checks for the readers of a step's result. It has the facts that a person or an agent needs next,
// and the names of the files with the rest.
func browsed(checks []browser.Check) Browsed {
	out := Browsed{Verdict: browser.Pass}
	// One check may use the whole bound, and many share it.
	for share := 1; ; share *= 2 {
		out.Checks = []BrowsedCheck{}
		for _, c := range checks {
			out.Checks = append(out.Checks, summary(c, share))
		}
		if text, err := json.Marshal(out); share == 128 || err == nil && len(text) <= maxBrowsed {
			break
		}
	}
	for _, worst := range []browser.Verdict{browser.Fail, browser.Unverified, browser.Pass} {
		if i := slices.IndexFunc(out.Checks, func(c BrowsedCheck) bool { return c.Verdict == worst }); i >= 0 {
			out.Verdict, out.Reason = worst, out.Checks[i].Reason
			if len(checks) > 1 {
				out.Reason = out.Checks[i].Name + ": " + out.Reason
			}
			break
		}
	}
	return out
}

// maxBrowsed bounds a summary, in bytes of JSON.
const maxBrowsed = 512 << 10

// summary returns the summary of a check. Its texts are a share-th of their length for a single check.
func summary(c browser.Check, share int) BrowsedCheck {
	brief := func(s string, most int) string { return brief(s, most/share) }
	faults := (10 + share - 1) / share // of each kind
	out := BrowsedCheck{
		Name: c.Name, Spec: c.Spec, Verdict: c.Verdict, Reason: brief(c.Reason, 1000),
		Views: []BrowsedView{}, Log: strings.ToValidUTF8(c.Log[max(len(c.Log)-4000/share, 0):], "\uFFFD"),
	}
	for _, v := range c.Views {
		view := BrowsedView{
			Viewport: v.Viewport.Name, Verdict: v.Verdict, Reason: brief(v.Reason, 1000),
			URL: brief(v.FinalURL, 1000), Status: v.Status, Title: brief(v.Title, 200),
			Screenshot: v.Screenshot, Trace: v.Trace, Aria: v.Aria,
		}
		for _, text := range slices.Concat(v.Console.PageErrors, v.Console.Errors) {
			if len(view.Console) < faults {
				view.Console = append(view.Console, brief(text, 500))
			}
		}
		for _, n := range v.Network {
			if len(view.Network) < faults {
				why := n.Failure
				if n.Status != 0 {
					why = strconv.Itoa(n.Status)
				}
				view.Network = append(view.Network, brief(n.Method+" "+n.URL+": "+why, 500))
			}
		}
		for i, s := range v.Steps {
			if !s.OK {
				view.Step = brief(fmt.Sprintf("%d, %s %s: %s", i+1, s.Do, s.Target, s.Error), 1000)
				break
			}
		}
		out.Views = append(out.Views, view)
	}
	if d := c.Compare; d != nil {
		out.Compare = &BrowsedDiff{Commit: d.Commit, Verdict: d.Verdict, Reason: brief(d.Reason, 1000)}
		for _, v := range d.Views {
			out.Compare.Views = append(out.Compare.Views, BrowsedPictures{
				Viewport: brief(v.Viewport, 200), Changed: v.Changed, Triptych: v.Picture,
				Aria: brief(v.Aria, 4096), Note: brief(v.Note, 500), Uncompared: v.Uncompared,
			})
		}
	}
	return out
}

// brief returns the beginning of a text of a page, as valid UTF-8.
func brief(s string, most int) string {
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
