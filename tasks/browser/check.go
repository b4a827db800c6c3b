package browser

import "time"

// Verdict is the result of a check.
type Verdict string

// Verdicts.
const (
	Pass Verdict = "PASS"
	Fail Verdict = "FAIL"
	// Unverified means that the browser did not see the page, or not completely, for a reason that is not the page's
	// fault.
	Unverified Verdict = "UNVERIFIED"
)

// Index is browser/index.json of a run's artifacts. It has the checks of the run, in order.
type Index struct {
	Schema int     `json:"schema"` // 1
	Checks []Check `json:"checks"`
}

// Check is one check, with its subject and its result. Names of files are relative to the index's folder. New versions
// only add fields.
type Check struct {
	Name    string  `json:"name"`
	Spec    string  `json:"spec,omitempty"` // the file of the spec
	Dir     string  `json:"dir,omitempty"`  // the folder of its files, "001-todo"
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"` // for people; of a PASS, a description of the checked page
	// Commit, Tree and Branch are those of the work tree.
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
	// MemoryPeak is the highest memory use of the browser's container, in bytes. 0 means that it is not known.
	MemoryPeak int64 `json:"memory_peak,omitempty"`
	// Redacted is true if cookies, credentials and secrets were removed from trace, HAR and console.
	Redacted bool        `json:"redacted"`
	Views    []View      `json:"views"`
	Compare  *Comparison `json:"compare,omitempty"`
	Files    []File      `json:"files,omitempty"`
	// Log is the end of the application's output if the check did not pass.
	Log string `json:"log,omitempty"`
}

// Image is an image of a container of the check.
type Image struct {
	Role string `json:"role"` // task, browser
	Name string `json:"name"` // with digest; "sandbox" for the Sandbox
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
	URL      string   `json:"url"`       // as requested
	FinalURL string   `json:"final_url"` // after redirects and steps
	Status   int      `json:"status"`    // of the first document; 0 if there was no answer
	Title    string   `json:"title,omitempty"`
	// The names of this view's files. A name is empty if there is no such file.
	Screenshot string         `json:"screenshot,omitempty"`
	Trace      string         `json:"trace,omitempty"`
	HAR        string         `json:"har,omitempty"`
	Video      string         `json:"video,omitempty"`
	PDF        string         `json:"pdf,omitempty"`
	Aria       string         `json:"aria,omitempty"` // the accessibility tree, YAML
	Console    Console        `json:"console"`
	Network    []NetworkError `json:"network_errors,omitempty"` // the first 100
	Requests   int            `json:"requests"`
	Allowed    int            `json:"allowed,omitempty"` // faults that match the spec's Allow
	Steps      []StepResult   `json:"steps,omitempty"`
	DurationMS int64          `json:"duration_ms"`
}

// Console has the console messages of a page.
type Console struct {
	File       string         `json:"file,omitempty"`        // console.jsonl, one ConsoleLine per line
	Counts     map[string]int `json:"counts,omitempty"`      // by kind: error, warning, info, log …
	Errors     []string       `json:"errors,omitempty"`      // the first 20 messages of kind error that were not allowed
	PageErrors []string       `json:"page_errors,omitempty"` // the first 20 uncaught exceptions that were not allowed
	Dropped    int            `json:"dropped,omitempty"`     // lines missing in File because there were too many
}

// ConsoleLine is one line of console.jsonl.
type ConsoleLine struct {
	TimeMS int64  `json:"t"`    // since the start of the view
	Kind   string `json:"kind"` // the browser's kind; "pageerror" for an uncaught exception
	Text   string `json:"text"`
	URL    string `json:"url,omitempty"`
	Line   int    `json:"line,omitempty"`
}

// NetworkError is a request that failed or was answered with status 400 or above.
type NetworkError struct {
	Method   string `json:"method"`
	URL      string `json:"url"`
	Status   int    `json:"status,omitempty"`  // 0 if there was no answer
	Failure  string `json:"failure,omitempty"` // the reason for a missing answer
	Resource string `json:"resource,omitempty"`
}

// StepResult is the result of a step.
type StepResult struct {
	Do         string `json:"do"`
	Target     string `json:"target,omitempty"`
	Value      string `json:"value,omitempty"` // "[redacted]" if it is secret
	In         string `json:"in,omitempty"`
	Secret     bool   `json:"secret,omitempty"` // also set if the browser found a password field
	OK         bool   `json:"ok"`
	MS         int64  `json:"ms"`
	Error      string `json:"error,omitempty"`
	Screenshot string `json:"screenshot,omitempty"` // of a failed step, or of the action screenshot
}

// Comparison is a check together with the same check on another commit.
type Comparison struct {
	Base    string  `json:"base"` // the requested branch or commit
	Commit  string  `json:"commit"`
	Tree    string  `json:"tree"`
	Cached  bool    `json:"cached"`  // the base had been checked before
	Verdict Verdict `json:"verdict"` // of the check on the base
	Reason  string  `json:"reason"`
	Views   []Diff  `json:"views,omitempty"`
}

// Diff has the differences between two views of one viewport.
type Diff struct {
	Viewport string `json:"viewport"`
	// Changed is the share of pixels that differ, 0 to 1, and Pixels their number. Pictures of different size are
	// aligned at the top left. The parts that only one has count as different.
	Changed float64 `json:"changed"`
	Pixels  int     `json:"pixels"`
	Boxes   []Box   `json:"boxes,omitempty"`    // the differing parts, the largest first, at most 20
	Before  string  `json:"before,omitempty"`   // picture of the base
	After   string  `json:"after,omitempty"`    // picture of the branch, the same as the view's
	Picture string  `json:"triptych,omitempty"` // before, after and the differences, side by side
	Aria    string  `json:"aria,omitempty"`     // unified diff of the accessibility trees; empty if they are equal
	Note    string  `json:"note,omitempty"`     // the reason for a missing diff
	// Uncompared reports that the pictures could not be compared, for example because one is missing.
	Uncompared bool `json:"uncompared,omitempty"`
}

// Box is a part of a picture, in device pixels.
type Box struct {
	X      int `json:"x"`
	Y      int `json:"y"`
	Width  int `json:"width"`
	Height int `json:"height"`
}
