package browser

import (
	"encoding/json"
	"time"
)

// Spec is one check of a page. In a repository it is a YAML file, by custom
// below .ramus/browser/; a task may also be given it inline.
type Spec struct {
	// Name is how people call the check; default the file's name without ending, else "page".
	Name string `json:"name,omitempty"`
	// Install is a command line that is run in the work tree before Start, "npm ci".
	Install string `json:"install,omitempty"`
	// Start is the command line that serves the page, run in the work tree and ended
	// after the check. Empty: found in package.json, unless something listens at
	// URL's port already or URL is not local. "none": nothing is started.
	Start string `json:"start,omitempty"`
	// Dir is the folder below the work tree where Install, Start and Auth are run; default its root.
	Dir string `json:"dir,omitempty"`
	// URL is the page. Default: the port that Start comes to listen on. A local one
	// (127.0.0.1, localhost, [::1]) is reached in the container; any other through
	// the egress proxy, if its host is allowed there.
	URL string `json:"url,omitempty"`
	// Wait is how long the page's port may take to listen; default 60 s.
	Wait Duration `json:"wait,omitempty"`
	// Timeout bounds the whole check in the browser, not Install and Start; default 2 min, at most 15 min.
	Timeout Duration `json:"timeout,omitempty"`
	// Viewports are looked at one after another; default desktop and mobile.
	Viewports []Viewport `json:"viewports,omitempty"`
	// Steps are what is done on the page after it has loaded, in each viewport.
	Steps []Step `json:"steps,omitempty"`
	// Auth is a command line whose standard output is a Playwright storage state
	// ({"cookies": […], "origins": […]}); its values reach the browser and no evidence.
	Auth string `json:"auth,omitempty"`
	// Allow says which faults are none.
	Allow Allow `json:"allow,omitzero"`
	// Screenshot says how the picture at the end is taken.
	Screenshot Shot `json:"screenshot,omitzero"`
	// Video records each viewport; PDF prints the page at the end.
	Video bool `json:"video,omitempty"`
	PDF   bool `json:"pdf,omitempty"`
	// Compare, when set, does the same check on the base and shows what differs.
	Compare *Against `json:"compare,omitempty"`
	// Clock is what the page takes for the time, RFC 3339; empty: the real one.
	Clock string `json:"clock,omitempty"`
	// File is where the spec was read, below the work tree; empty of one given inline. Whoever
	// reads the file sets it; it is no part of the check.
	File string `json:"-"`
}

// Viewport is a size of the window, in CSS pixels. In YAML a string names one of
// the known ones ("desktop", "mobile").
type Viewport struct {
	Name   string  `json:"name"`
	Width  int     `json:"width"`
	Height int     `json:"height"`
	Scale  float64 `json:"scale,omitempty"`  // device pixels per CSS pixel; default 1
	Mobile bool    `json:"mobile,omitempty"` // touch, and the viewport meta tag counts
}

// The viewports that are looked at when nothing else is asked for (features row 123).
var (
	Desktop = Viewport{Name: "desktop", Width: 1440, Height: 1000, Scale: 1}
	Mobile  = Viewport{Name: "mobile", Width: 390, Height: 844, Scale: 1, Mobile: true}
)

// Step is one thing that is done or expected on a page. In YAML and JSON it is an
// object whose first key is the action and whose value is what it acts on:
// {fill: "#new", value: "Write tests"}, {click: button}, {press: Enter, in: "#new"},
// {expect_text: "#count", value: "1 item"}, {expect_visible: "#list"}.
type Step struct {
	// Do is goto, click, fill, press, select, check, uncheck, hover, wait_for,
	// expect_text, expect_visible, expect_hidden, expect_url, expect_title, expect_count or screenshot.
	Do string
	// Target is a Playwright selector; of goto and expect_url an address or path, of
	// press the key, of screenshot the picture's name.
	Target string
	// Value is what is filled in, selected or expected.
	Value string
	// In is the selector of the element that a key is pressed in; empty: the page.
	In string
	// Secret keeps Value out of all evidence. Fields for passwords are found without it.
	Secret bool
	// Timeout of this step; default 10 s.
	Timeout Duration
}

// Allow lists faults that do not fail a check: regular expressions (RE2), found
// anywhere in the text. What they matched is counted in the evidence.
type Allow struct {
	Console    []string `json:"console,omitempty"`     // messages of console.error
	PageErrors []string `json:"page_errors,omitempty"` // uncaught exceptions
	Requests   []string `json:"requests,omitempty"`    // URLs that may fail or answer with 500 and above
}

// Shot is how a picture is taken.
type Shot struct {
	FullPage bool     `json:"full_page,omitempty"`
	Selector string   `json:"selector,omitempty"` // only this element
	Mask     []string `json:"mask,omitempty"`     // selectors of what is covered: clocks, names of people
}

// Against is what a check is compared with.
type Against struct {
	// Base is a branch or commit of the repository; empty: the commit that the caller's branch began at.
	Base string `json:"base,omitempty"`
	// MaxChanged is the share of pixels (0 to 1) that may differ; above it the check
	// fails. Nil: differences are shown and fail nothing.
	MaxChanged *float64 `json:"max_changed,omitempty"`
	// Threshold is how much a colour may differ (0 to 1) before it counts; default 0.1.
	Threshold float64 `json:"threshold,omitempty"`
}

// Duration is a time.Duration that is written "90s" or "2m" in YAML and JSON.
type Duration time.Duration

// Job is what the program ramus-browser reads from its standard input: a spec with
// every default filled in, and what no repository may say.
type Job struct {
	Spec Spec `json:"spec"`
	// State is a Playwright storage state; nil: a new visitor.
	State json.RawMessage `json:"state,omitempty"`
	// Proxy is where all but local addresses are asked for; empty: they are refused.
	Proxy string `json:"proxy,omitempty"`
	// Deadline is how long the program may take; it ends itself then.
	Deadline Duration `json:"deadline"`
}
