package browser

import (
	"encoding/json"
	"time"
)

// Spec is one check of a page. In a repository it is a YAML file, by convention below .ramus/browser/. A task may also
// have it inline.
type Spec struct {
	// Name is the name of the check for people. The default is the file's name without its extension, or else "page".
	Name string `json:"name,omitempty"`
	// Install is a command line that runs in the work tree before Start, as "npm ci".
	Install string `json:"install,omitempty"`
	// Start is the command line that serves the page. It runs in the work tree and is ended after the check. If it is
	// empty, it is found in package.json, unless a program listens at URL's port already or URL is not local. "none"
	// starts nothing.
	Start string `json:"start,omitempty"`
	// Dir is the folder below the work tree in which Install, Start and Auth run. The default is its root.
	Dir string `json:"dir,omitempty"`
	// URL is the address of the page. The default is the port at which Start listens. A local address (127.0.0.1,
	// localhost, [::1]) is reached in the container. Any other is reached through the egress proxy, if its host is
	// allowed there.
	URL string `json:"url,omitempty"`
	// Wait bounds the time until the page's port listens. The default is 60 s.
	Wait Duration `json:"wait,omitempty"`
	// Timeout bounds the whole check in the browser, without Install and Start. The default is 2 min, the maximum 15
	// min.
	Timeout Duration `json:"timeout,omitempty"`
	// Viewports are checked one after another. The default is desktop and mobile.
	Viewports []Viewport `json:"viewports,omitempty"`
	// Steps are performed on the page after it has loaded, in each viewport.
	Steps []Step `json:"steps,omitempty"`
	// Auth is a command line whose standard output is a Playwright storage state ({"cookies": […], "origins": […]}).
	// Its values reach the browser and no evidence.
	Auth string `json:"auth,omitempty"`
	// Allow has the faults that do not fail the check.
	Allow Allow `json:"allow,omitzero"`
	// Screenshot configures the picture at the end.
	Screenshot Shot `json:"screenshot,omitzero"`
	// Video records each viewport. PDF prints the page at the end.
	Video bool `json:"video,omitempty"`
	PDF   bool `json:"pdf,omitempty"`
	// Compare, if not nil, makes the same check on the base and shows the differences.
	Compare *Against `json:"compare,omitempty"`
	// Clock is the time that the page sees, RFC 3339. If it is empty, the page sees the real time.
	Clock string `json:"clock,omitempty"`
	// File is the path of the spec's file below the work tree. It is empty for an inline spec. The reader of the file
	// sets it, and it is not part of the check.
	File string `json:"-"`
}

// Viewport is a size of the window, in CSS pixels. In YAML a string names a known one ("desktop", "mobile").
type Viewport struct {
	Name   string  `json:"name"`
	Width  int     `json:"width"`
	Height int     `json:"height"`
	Scale  float64 `json:"scale,omitempty"`  // device pixels per CSS pixel; default 1
	Mobile bool    `json:"mobile,omitempty"` // touch, and the viewport meta tag is used
}

// Default viewports (features row 123).
var (
	Desktop = Viewport{Name: "desktop", Width: 1440, Height: 1000, Scale: 1}
	Mobile  = Viewport{Name: "mobile", Width: 390, Height: 844, Scale: 1, Mobile: true}
)

// Step is one action or expectation on a page. In YAML and JSON it is an object. Its first key is the action, with the
// target as value, as in {fill: "#new", value: "Write tests"}, {click: button}, {press: Enter, in: "#new"},
// {expect_text: "#count", value: "1 item"}, {expect_visible: "#list"}.
type Step struct {
	// Do is goto, click, fill, press, select, check, uncheck, hover, wait_for,
	// expect_text, expect_visible, expect_hidden, expect_url, expect_title, expect_count or screenshot.
	Do string
	// Target is a Playwright selector. For goto and expect_url it is an address or a path, for press the key, and for
	// screenshot the picture's name.
	Target string
	// Value is the text to fill in, to select or to expect.
	Value string
	// In is the selector of the element in which a key is pressed. If it is empty, that is the page.
	In string
	// Secret keeps Value out of all evidence. Password fields are recognised without it.
	Secret bool
	// Timeout bounds this step. The default is 10 s.
	Timeout Duration
}

// Allow lists faults that do not fail a check, as regular expressions (RE2) that may match anywhere in the text. The
// evidence has the number of matches.
type Allow struct {
	Console    []string `json:"console,omitempty"`     // messages of console.error
	PageErrors []string `json:"page_errors,omitempty"` // uncaught exceptions
	Requests   []string `json:"requests,omitempty"`    // URLs that may fail or answer with 500 and above
}

// Shot configures a picture.
type Shot struct {
	FullPage bool     `json:"full_page,omitempty"`
	Selector string   `json:"selector,omitempty"` // only this element
	Mask     []string `json:"mask,omitempty"`     // selectors of elements to cover, as clocks or names of people
}

// Against configures a comparison.
type Against struct {
	// Base is a branch or commit of the repository. If it is empty, it is the commit at which the caller's branch
	// began.
	Base string `json:"base,omitempty"`
	// MaxChanged is the share of pixels (0 to 1) that may differ. The check fails above it. If it is nil, differences
	// never fail the check.
	MaxChanged *float64 `json:"max_changed,omitempty"`
	// Threshold is the distance of colours (0 to 1) that counts as a difference. The default is 0.1.
	Threshold float64 `json:"threshold,omitempty"`
	// Region is the part of each picture that is compared: the left and top edge, width and height, in CSS pixels. If it
	// is empty, the whole pictures are compared.
	Region []int `json:"region,omitempty"`
}

// Duration is a time.Duration in the notation "90s" or "2m" in YAML and JSON.
type Duration time.Duration

// Job is the standard input of the program ramus-browser. It is a spec with all defaults, and settings that a
// repository may not make.
type Job struct {
	Spec Spec `json:"spec"`
	// State is a Playwright storage state. If it is nil, the browser starts as a new visitor.
	State json.RawMessage `json:"state,omitempty"`
	// Proxy is the proxy for all addresses that are not local. If it is empty, they are refused.
	Proxy string `json:"proxy,omitempty"`
	// Deadline bounds the time of the program, which then ends itself.
	Deadline Duration `json:"deadline"`
}
