package results

import (
	"strings"
	"time"

	"github.com/ramus-dev/ramus/internal/text"
)

// Tests is the value of lib_run_tests.
type Tests struct {
	// Framework is the framework that ran: go, vitest, jest, mocha, node, pytest, unittest, cargo, make, or the package
	// manager (npm, pnpm, yarn) whose script ran.
	Framework string `json:"framework"`
	Passed    int    `json:"passed"`
	Failed    int    `json:"failed"`
	Skipped   int    `json:"skipped"`
	Total     int    `json:"total"`
	// FailedNames are the names of the first 200 tests that failed, in the order of the reports.
	FailedNames []string `json:"failed_names"`
	// Failures are the first 20 of those with their messages, each clipped to 2 KiB.
	Failures   []Failure `json:"failures,omitempty"`
	DurationMS int64     `json:"duration_ms"`
	// Unknown is true if the output could not be read. The counts then have no meaning, and only the exit code shows
	// the result.
	Unknown bool `json:"unknown"`
}

// Failure is one failed test.
type Failure struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Lint is the value of lib_run_lint.
type Lint struct {
	// Tool has the names of the tools that ran, as "go vet" or "eslint", joined by ", ".
	Tool string `json:"tool"`
	// Count is the number of all findings. Findings are the first 100.
	Count    int       `json:"count"`
	Findings []Finding `json:"findings"`
}

// Finding is a message of a linter about one place.
type Finding struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
}

// Build is the value of lib_run_build.
type Build struct {
	Tool string `json:"tool"`
}

const (
	maxFailedNames = 200
	maxFailures    = 20
	maxFindings    = 100
	maxFailureText = 2 << 10 // bytes of a failure's text or a finding's message
	maxName        = 500     // bytes of a test's name
	maxSuiteDepth  = 100     // nesting of suites; deeper ones are not read
)

// NewTests returns Tests without a test.
func NewTests() *Tests { return &Tests{FailedNames: []string{}} }

func (t *Tests) pass() { t.Passed++; t.Total++ }
func (t *Tests) skip() { t.Skipped++; t.Total++ }

func (t *Tests) fail(name, message string) {
	t.Failed++
	t.Total++
	if len(t.FailedNames) < maxFailedNames {
		t.FailedNames = append(t.FailedNames, shorten(name, maxName))
	}
	if len(t.Failures) < maxFailures {
		t.Failures = append(t.Failures, Failure{shorten(name, maxName), shorten(strings.TrimSpace(message), maxFailureText)})
	}
}

// seconds adds a duration in seconds, the unit of most formats. Absurd values are left out.
func (t *Tests) seconds(s float64) {
	if s > 0 && s < 1e9 {
		t.DurationMS += int64(s * float64(time.Second/time.Millisecond))
	}
}

// shorten returns s as valid UTF-8, clipped to limit bytes.
func shorten(s string, limit int) string { return text.Clip(strings.ToValidUTF8(s, "\uFFFD"), limit) }

// Add adds a finding.
func (l *Lint) Add(f Finding) {
	l.Count++
	if len(l.Findings) < maxFindings {
		f.File, f.Message = shorten(f.File, maxName), shorten(strings.TrimSpace(f.Message), maxFailureText)
		l.Findings = append(l.Findings, f)
	}
}
