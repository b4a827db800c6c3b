package browser

import "time"

// Verdict says how a check ended.
type Verdict string

// The verdicts.
const (
	Pass Verdict = "PASS"
	Fail Verdict = "FAIL"
	// Unverified: the page was not looked at, or not to the end, for a reason that is not the page's.
	Unverified Verdict = "UNVERIFIED"
)

// Index is browser/index.json of a run's artifacts: the checks of the run, in order.
type Index struct {
	Schema int     `json:"schema"` // 1
	Checks []Check `json:"checks"`
}

// Check is one check: what was looked at and what came of it. Names of files are
// relative to the index's folder. Fields are only ever added.
type Check struct {
	Name    string  `json:"name"`
	Spec    string  `json:"spec,omitempty"` // the file it came from
	Dir     string  `json:"dir,omitempty"`  // the folder of its files, "001-todo"
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"` // in words; of a PASS what was looked at
	// Commit, Tree and Branch are what stood in the work tree.
	Commit string  `json:"commit,omitempty"`
	Tree   string  `json:"tree,omitempty"`
	Branch string  `json:"branch,omitempty"`
	Step   string  `json:"step,omitempty"` // of the run
	Images []Image `json:"images,omitempty"`
	// Browser and Driver are their versions.
	Browser    string    `json:"browser,omitempty"`
	Driver     string    `json:"driver,omitempty"`
	Started    time.Time `json:"started,omitzero"`
	DurationMS int64     `json:"duration_ms"`
	// MemoryPeak is the most memory that the browser's container used, in bytes; 0: not known.
	MemoryPeak int64 `json:"memory_peak,omitempty"`
	// Redacted: cookies, credentials and secrets were taken out of trace, HAR and console.
	Redacted bool        `json:"redacted"`
	Views    []View      `json:"views"`
	Compare  *Comparison `json:"compare,omitempty"`
	Files    []File      `json:"files,omitempty"`
	// Log is the end of what the application printed, when the check did not pass.
	Log string `json:"log,omitempty"`
}

// Image is an image that took part.
type Image struct {
	Role string `json:"role"` // task, browser
	Name string `json:"name"` // with digest; of the Sandbox "sandbox"
}

// File is a file of a check.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Type   string `json:"type,omitempty"`
}

// View is a check at one viewport.
type View struct {
	Viewport Viewport `json:"viewport"`
	Verdict  Verdict  `json:"verdict"`
	Reason   string   `json:"reason"`
	URL      string   `json:"url"`       // asked for
	FinalURL string   `json:"final_url"` // after redirects and steps
	Status   int      `json:"status"`    // of the first document; 0: there was no answer
	Title    string   `json:"title,omitempty"`
	// The files of this view; empty: there is none.
	Screenshot string         `json:"screenshot,omitempty"`
	Trace      string         `json:"trace,omitempty"`
	HAR        string         `json:"har,omitempty"`
	Video      string         `json:"video,omitempty"`
	PDF        string         `json:"pdf,omitempty"`
	Aria       string         `json:"aria,omitempty"` // the accessibility tree, YAML
	Console    Console        `json:"console"`
	Network    []NetworkError `json:"network_errors,omitempty"` // the first 100
	Requests   int            `json:"requests"`
	Allowed    int            `json:"allowed,omitempty"` // faults that the spec's Allow took
	Steps      []StepResult   `json:"steps,omitempty"`
	DurationMS int64          `json:"duration_ms"`
}

// Console is what a page said.
type Console struct {
	File       string         `json:"file,omitempty"`        // console.jsonl, a ConsoleLine each
	Counts     map[string]int `json:"counts,omitempty"`      // by kind: error, warning, info, log …
	Errors     []string       `json:"errors,omitempty"`      // the first 20 messages of kind error that were not allowed
	PageErrors []string       `json:"page_errors,omitempty"` // the first 20 uncaught exceptions that were not allowed
	Dropped    int            `json:"dropped,omitempty"`     // lines that are not in File because there were too many
}

// ConsoleLine is one line of console.jsonl.
type ConsoleLine struct {
	TimeMS int64  `json:"t"`    // since the view began
	Kind   string `json:"kind"` // as of the browser; "pageerror" for an uncaught exception
	Text   string `json:"text"`
	URL    string `json:"url,omitempty"`
	Line   int    `json:"line,omitempty"`
}

// NetworkError is a request that failed or was answered with 400 and above.
type NetworkError struct {
	Method   string `json:"method"`
	URL      string `json:"url"`
	Status   int    `json:"status,omitempty"`  // 0: no answer
	Failure  string `json:"failure,omitempty"` // why there was none
	Resource string `json:"resource,omitempty"`
}

// StepResult is how a step went.
type StepResult struct {
	Do         string `json:"do"`
	Target     string `json:"target,omitempty"`
	Value      string `json:"value,omitempty"` // "[redacted]" when it is secret
	In         string `json:"in,omitempty"`
	Secret     bool   `json:"secret,omitempty"` // also when the browser found it to be a field for passwords
	OK         bool   `json:"ok"`
	MS         int64  `json:"ms"`
	Error      string `json:"error,omitempty"`
	Screenshot string `json:"screenshot,omitempty"` // of a step that failed, or took one
}

// Comparison is a check beside the same one on another commit.
type Comparison struct {
	Base    string  `json:"base"` // the branch or commit that was asked for
	Commit  string  `json:"commit"`
	Tree    string  `json:"tree"`
	Cached  bool    `json:"cached"`  // the base had been looked at before
	Verdict Verdict `json:"verdict"` // of the check on the base
	Reason  string  `json:"reason"`
	Views   []Diff  `json:"views,omitempty"`
}

// Diff is what differs between two views of one viewport.
type Diff struct {
	Viewport string `json:"viewport"`
	// Changed is the share of pixels that differ, 0 to 1; Pixels how many. Pictures of
	// different size are laid over each other at the top left; what only one has, differs.
	Changed float64 `json:"changed"`
	Pixels  int     `json:"pixels"`
	Boxes   []Box   `json:"boxes,omitempty"`    // where, the largest first, at most 20
	Before  string  `json:"before,omitempty"`   // picture of the base
	After   string  `json:"after,omitempty"`    // picture of the branch, the view's own
	Picture string  `json:"triptych,omitempty"` // before, after and what differs, side by side
	Aria    string  `json:"aria,omitempty"`     // unified diff of the accessibility trees; empty: equal
	Note    string  `json:"note,omitempty"`     // why there is no diff
}

// Box is a part of a picture, in device pixels.
type Box struct {
	X      int `json:"x"`
	Y      int `json:"y"`
	Width  int `json:"width"`
	Height int `json:"height"`
}
