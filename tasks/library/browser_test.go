package library_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/browser"
	"github.com/ramus-dev/ramus/tasks/library"
	"github.com/ramus-dev/ramus/tasks/taskstest"
)

// looker is a Shell over a folder whose browser says what it is told to; it keeps what it was asked.
type looker struct {
	*taskstest.LocalShell
	asked  []browser.Spec
	answer func(browser.Spec) (browser.Check, error)
}

func (l *looker) Browse(_ context.Context, s browser.Spec) (browser.Check, error) {
	l.asked = append(l.asked, s)
	if l.answer != nil {
		return l.answer(s)
	}
	return check(s.Name, browser.Pass), nil
}

func check(name string, v browser.Verdict) browser.Check {
	return browser.Check{
		Name: name, Verdict: v, Reason: "because of " + name,
		Views: []browser.View{{Viewport: browser.Desktop, Verdict: v, Reason: "because",
			Screenshot: name + "/desktop/screenshot.png"}},
	}
}

func newLooker(t *testing.T, files map[string]string) *looker {
	t.Helper()
	dir := t.TempDir()
	taskstest.WriteTree(t, dir, files)
	return &looker{LocalShell: &taskstest.LocalShell{Dir: dir}}
}

func browse(t *testing.T, sh tasks.Shell, name, params string) (tasks.Output, library.Browsed, error) {
	t.Helper()
	task, ok := library.Lookup(name)
	if !ok {
		t.Fatalf("no task %s", name)
	}
	out, err := task.Run(t.Context(), sh, json.RawMessage(params))
	v, _ := out.Value.(library.Browsed)
	return out, v, err
}

func TestBrowserTest(t *testing.T) {
	files := map[string]string{
		".ramus/browser/b.yaml":     "start: npm start\n",
		".ramus/browser/a.yml":      "name: First\nurl: http://127.0.0.1:3000/\n",
		".ramus/browser/notes.txt":  "no spec",
		".ramus/browser/sub/c.yaml": "name: not at the top",
		"elsewhere.yaml":            "name: Elsewhere",
	}
	for _, c := range []struct{ params, want string }{
		{``, "First, b"},
		{`{"spec":"elsewhere.yaml"}`, "Elsewhere"},
		{`{"spec":"./.ramus/browser/a.yml"}`, "First"},
		{`{"check":{"name":"Inline","steps":[{"click":"a"}]}}`, "Inline"},
		{`{"check":{}}`, "check"},
	} {
		l := newLooker(t, files)
		out, v, err := browse(t, l, "browser_test", c.params)
		var names []string
		for i, s := range l.asked {
			names = append(names, s.Name)
			if v.Checks[i].Name != s.Name || s.Compare != nil || len(s.Viewports) != 2 {
				t.Errorf("%s: asked %+v, got %+v", c.params, s, v.Checks[i])
			}
		}
		if err != nil || !out.OK || v.Verdict != browser.Pass || strings.Join(names, ", ") != c.want {
			t.Errorf("%s: %q, %+v, %v", c.params, names, out, err)
		}
	}
	l := newLooker(t, files)
	if _, _, err := browse(t, l, "browser_test", `{"spec":"elsewhere.yaml","compare":true}`); err != nil ||
		l.asked[0].Compare == nil ||
		l.asked[0].Compare.Threshold != browser.DefaultThreshold || l.asked[0].File != "elsewhere.yaml" {
		t.Errorf("%+v, %v", l.asked, err)
	}
}

// The worst verdict is the step's, with the reason of the first check that has it; all checks are done.
func TestBrowserTestTellsTheWorst(t *testing.T) {
	l := newLooker(t, map[string]string{".ramus/browser/a.yaml": "{}", ".ramus/browser/b.yaml": "{}",
		".ramus/browser/c.yaml": "{}"})
	verdicts := map[string]browser.Verdict{"a": browser.Unverified, "b": browser.Fail, "c": browser.Pass}
	l.answer = func(s browser.Spec) (browser.Check, error) { return check(s.Name, verdicts[s.Name]), nil }
	out, v, err := browse(t, l, "browser_test", "")
	if err != nil || out.OK || v.Verdict != browser.Fail || v.Reason != "b: because of b" || len(v.Checks) != 3 {
		t.Errorf("%+v, %v", out, err)
	}
	verdicts["b"] = browser.Pass
	if out, v, err = browse(t, l, "browser_test", ""); err != nil || out.OK || v.Verdict != browser.Unverified {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestBrowserTestRefuses(t *testing.T) {
	l := newLooker(t, map[string]string{"bad.yaml": "wait: 5\nstart: none\n", "good.yaml": "{}"})
	for _, c := range []struct {
		params, want string
		kind         error
	}{
		{``, "there is no .ramus/browser/", tasks.ErrNoWay},
		{`{"spec":"good.yaml","check":{}}`, "one of them", tasks.ErrParams},
		{`{"spec":"none.yaml"}`, "is not in the work tree", tasks.ErrParams},
		{`{"spec":"../x.yaml"}`, `".."`, tasks.ErrRefused},
		{`{"spec":"bad.yaml"}`, "bad.yaml:1:7: wait needs a unit", tasks.ErrParams},
		{`{"spec":"bad.yaml"}`, "bad.yaml:2:8: start is none", tasks.ErrParams},
		{`{"check":{"steps":[{"clik":"a"}]}}`, `did you mean "click"`, tasks.ErrParams},
		{`{"check":"bad.yaml"}`, `"check" must be an object, not a string`, tasks.ErrParams},
		{`{"check":null}`, `"check" must be an object, not null`, tasks.ErrParams},
		{`{"compare":"main"}`, `"compare" must be true or false`, tasks.ErrParams},
	} {
		_, _, err := browse(t, l, "browser_test", c.params)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.params, err)
		}
	}
	if len(l.asked) > 0 {
		t.Errorf("the browser was asked for %+v", l.asked)
	}
	// A plain folder has no browser.
	for _, name := range []string{"browser_test", "capture_screenshot"} {
		if _, _, err := browse(t, l.LocalShell, name, `{}`); err == nil || !strings.Contains(err.Error(), "there is no browser here") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What the browser could not do at all is an error, not a verdict.
	gone := errors.New("gone")
	l.answer = func(browser.Spec) (browser.Check, error) { return browser.Check{}, gone }
	if _, _, err := browse(t, l, "browser_test", `{"spec":"good.yaml"}`); !errors.Is(err, gone) {
		t.Error(err)
	}
}

func TestCaptureScreenshot(t *testing.T) {
	l := newLooker(t, nil)
	out, v, err := browse(t, l, "capture_screenshot", `{"url":"http://127.0.0.1:5173/about","start":"npm run dev","dir":"web/",
		"viewports":["mobile","1024x768"],"full_page":true,"selector":"main","mask":[".clock"],"name":"About us"}`)
	want := browser.Spec{
		Name: "About us", URL: "http://127.0.0.1:5173/about", Start: "npm run dev", Dir: "web",
		Viewports:  []browser.Viewport{browser.Mobile, {Name: "1024x768", Width: 1024, Height: 768, Scale: 1}},
		Screenshot: browser.Shot{FullPage: true, Selector: "main", Mask: []string{".clock"}},
		Wait:       browser.Duration(browser.DefaultWait), Timeout: browser.Duration(browser.DefaultTimeout),
	}
	if err != nil || !out.OK || !reflect.DeepEqual(l.asked[0], want) || v.Checks[0].Views[0].Screenshot == "" {
		t.Errorf("%+v, %v, asked %+v", out, err, l.asked)
	}
	// A picture of a page with faults is a picture; no picture is none.
	l.answer = func(s browser.Spec) (browser.Check, error) { return check(s.Name, browser.Fail), nil }
	if out, v, err := browse(t, l, "capture_screenshot", ``); err != nil || !out.OK || v.Verdict != browser.Fail || v.Reason == "" {
		t.Errorf("%+v, %v", out, err)
	}
	l.answer = func(s browser.Spec) (browser.Check, error) {
		c := check(s.Name, browser.Unverified)
		c.Views[0].Screenshot = ""
		return c, nil
	}
	if out, _, err := browse(t, l, "capture_screenshot", `{}`); err != nil || out.OK {
		t.Errorf("%+v, %v", out, err)
	}
	for params, want := range map[string]string{
		`{"viewports":["huge"]}`:          `like "1024x768"`,
		`{"viewports":["10x10"]}`:         "200 to 4000",
		`{"viewports":"mobile"}`:          "must be a list, not a string",
		`{"url":"file:///etc/passwd"}`:    "http:// or https://",
		`{"url":"http://a:b@127.0.0.1/"}`: "password",
		`{"start":"none"}`:                "so url must",
		`{"selector":" "}`:                "is empty",
		`{"mask":[""]}`:                   "is empty",
		`{"dir":".."}`:                    "below the root",
	} {
		if _, _, err := browse(t, l, "capture_screenshot", params); !errors.Is(err, tasks.ErrParams) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", params, err)
		}
	}
}

// The answer of a step about a check is short, and JSON for every page.
func TestBrowsedIsBounded(t *testing.T) {
	l := newLooker(t, nil)
	long := strings.Repeat("\xffü", 10_000)
	l.answer = func(s browser.Spec) (browser.Check, error) {
		view := browser.View{
			Viewport: browser.Desktop, Verdict: browser.Fail, Reason: long, FinalURL: long, Title: long,
			Steps: []browser.StepResult{{Do: "click", Target: "a", OK: true}, {Do: "fill", Target: "#b", Error: long}},
			Network: []browser.NetworkError{{Method: "GET", URL: "http://a/", Status: 500},
				{Method: "GET", URL: "http://b/", Failure: "refused"}},
		}
		for range 100 {
			view.Console.Errors = append(view.Console.Errors, long)
		}
		return browser.Check{
			Name: s.Name, Verdict: browser.Fail, Reason: long, Views: []browser.View{view}, Log: long + "the end",
			Compare: &browser.Comparison{Views: []browser.Diff{{Viewport: "desktop", Changed: 0.5, Aria: long,
				Picture: "t.png"}}},
		}, nil
	}
	out, v, err := browse(t, l, "browser_test", `{"check":{}}`)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(out)
	if err != nil || len(text) > 64<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	var back tasks.Output
	if err := json.Unmarshal(text, &back); err != nil {
		t.Error(err)
	}
	view := v.Checks[0].Views[0]
	if !strings.HasPrefix(view.Step, "2, fill #b: ") ||
		!reflect.DeepEqual(view.Network, []string{"GET http://a/: 500", "GET http://b/: refused"}) ||
		len(view.Console) != 10 || !strings.HasSuffix(v.Checks[0].Log, "the end") ||
		v.Checks[0].Compare.Views[0].Triptych != "t.png" {
		t.Errorf("%+v", v)
	}
}

// What a step says of all the checks that it may do fits into its result, which is one line of the journal.
func TestBrowsedIsBoundedTogether(t *testing.T) {
	files := map[string]string{}
	for i := range 50 {
		files[fmt.Sprintf(".ramus/browser/%02d.yaml", i)] = "{}"
	}
	l := newLooker(t, files)
	long := strings.Repeat("<\x01", 10_000) // JSON writes six bytes for each
	l.answer = func(s browser.Spec) (browser.Check, error) {
		c := browser.Check{Name: s.Name, Verdict: browser.Fail, Reason: long, Log: long,
			Compare: &browser.Comparison{Reason: long}}
		for range 10 {
			v := browser.View{Verdict: browser.Fail, Reason: long, FinalURL: long, Title: long,
				Screenshot: s.Name + "/desktop/screenshot.png", Steps: []browser.StepResult{{Error: long}}}
			for range 20 {
				v.Console.Errors = append(v.Console.Errors, long)
				v.Network = append(v.Network, browser.NetworkError{URL: long})
			}
			c.Views = append(c.Views, v)
			c.Compare.Views = append(c.Compare.Views, browser.Diff{Aria: long, Note: long})
		}
		return c, nil
	}
	out, v, err := browse(t, l, "browser_test", ``)
	if err != nil || len(v.Checks) != 50 || len(v.Checks[49].Views) != 10 ||
		v.Checks[49].Views[9].Screenshot != "49/desktop/screenshot.png" {
		t.Fatalf("%d checks, %v", len(v.Checks), err)
	}
	if text, err := json.Marshal(out); err != nil || len(text) > 1<<20 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
