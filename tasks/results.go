package tasks

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Tests is the value of lib_run_tests.
type Tests struct {
	// Framework that ran: go, vitest, jest, mocha, node, pytest, unittest,
	// cargo, make, or the package manager (npm, pnpm, yarn) whose script ran.
	Framework string `json:"framework"`
	Passed    int    `json:"passed"`
	Failed    int    `json:"failed"`
	Skipped   int    `json:"skipped"`
	Total     int    `json:"total"`
	// FailedNames are the first 200 that failed, in the order they were reported.
	FailedNames []string `json:"failed_names"`
	// Failures are the first 20 of those with what was said about them, each cut at 2 KiB.
	Failures   []Failure `json:"failures,omitempty"`
	DurationMS int64     `json:"duration_ms"`
	// Unknown says that the output could not be read: the counts say nothing,
	// and only the exit code tells how the tests went.
	Unknown bool `json:"unknown"`
}

// Failure is one failed test.
type Failure struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Lint is the value of lib_run_lint.
type Lint struct {
	// Tools that ran, "go vet", "eslint" …; joined by ", ".
	Tool string `json:"tool"`
	// Count of all findings; Findings are the first 100.
	Count    int       `json:"count"`
	Findings []Finding `json:"findings"`
}

// Finding is what a linter says about one place.
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
	maxSuiteDepth  = 100     // of nested suites; what is deeper is not looked at
)

func newTests() *Tests { return &Tests{FailedNames: []string{}} }

func (t *Tests) pass() { t.Passed++; t.Total++ }
func (t *Tests) skip() { t.Skipped++; t.Total++ }

func (t *Tests) fail(name, text string) {
	t.Failed++
	t.Total++
	if len(t.FailedNames) < maxFailedNames {
		t.FailedNames = append(t.FailedNames, clip(name, maxName))
	}
	if len(t.Failures) < maxFailures {
		t.Failures = append(t.Failures, Failure{clip(name, maxName), clip(strings.TrimSpace(text), maxFailureText)})
	}
}

// ms adds a duration in seconds, as most formats have it; absurd ones are left out.
func (t *Tests) seconds(s float64) {
	if s > 0 && s < 1e9 {
		t.DurationMS += int64(s * float64(time.Second/time.Millisecond))
	}
}

// clip makes s valid UTF-8 of at most n bytes, and an ellipsis where it cut.
func clip(s string, n int) string {
	cut := len(s) > n
	s = strings.ToValidUTF8(s[:min(len(s), n)], "\uFFFD")
	// A byte that is not UTF-8 has become three.
	if len(s) > n {
		cut = true
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	if cut {
		s += "…"
	}
	return s
}

func (l *Lint) add(f Finding) {
	l.Count++
	if len(l.Findings) < maxFindings {
		f.File, f.Message = clip(f.File, maxName), clip(strings.TrimSpace(f.Message), maxFailureText)
		l.Findings = append(l.Findings, f)
	}
}
