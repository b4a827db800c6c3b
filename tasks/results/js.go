package results

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
)

// ParseJest reads jest's --json, which is also the format of vitest's json reporter. A file that could not be loaded
// counts as one failed test.
func ParseJest(out []byte) (*Tests, bool) {
	type jest struct {
		TestResults []struct {
			Name             string
			Status           string
			Message          string
			StartTime        float64
			EndTime          float64
			AssertionResults []struct {
				FullName        string
				AncestorTitles  []string
				Title           string
				Status          string
				FailureMessages []string
			}
		} `json:"testResults"`
		NumTotalTests *float64 `json:"numTotalTests"`
	}
	report, ok := decodeReport(out, func(j *jest) bool { return j.NumTotalTests != nil })
	if !ok {
		return nil, false
	}
	r := NewTests()
	first, last := 0.0, 0.0
	for _, file := range report.TestResults {
		if file.StartTime > 0 && (first == 0 || file.StartTime < first) {
			first = file.StartTime
		}
		last = max(last, file.EndTime)
		failed := 0
		for _, a := range file.AssertionResults {
			switch a.Status {
			case "passed":
				r.pass()
			case "failed":
				failed++
				name := strings.Join(append(a.AncestorTitles, a.Title), " > ")
				if a.Title == "" {
					name = a.FullName
				}
				r.fail(name, strings.Join(a.FailureMessages, "\n"))
			default: // pending, skipped, todo, disabled
				r.skip()
			}
		}
		if file.Status == "failed" && failed == 0 {
			r.fail(file.Name, file.Message)
		}
	}
	r.seconds((last - first) / 1000)
	return r, true
}

// ParseMocha reads mocha's json reporter.
func ParseMocha(out []byte) (*Tests, bool) {
	type test struct {
		FullTitle string
		Err       struct{ Message, Stack string }
	}
	type mocha struct {
		Stats *struct{ Duration float64 }
		// Tests are decoded one by one, because otherwise one odd field in a test would lose the whole report.
		Passes, Pending, Failures []json.RawMessage
	}
	report, ok := decodeReport(out, func(m *mocha) bool { return m.Stats != nil })
	if !ok {
		return nil, false
	}
	r := NewTests()
	for range report.Passes {
		r.pass()
	}
	for range report.Pending {
		r.skip()
	}
	for _, raw := range report.Failures {
		var t test
		if json.Unmarshal(raw, &t) != nil && t.FullTitle == "" {
			t.FullTitle = "(a test that cannot be read)"
		}
		text := t.Err.Stack
		if !strings.Contains(text, t.Err.Message) {
			text = t.Err.Message + "\n" + text
		}
		r.fail(t.FullTitle, text)
	}
	r.seconds(report.Stats.Duration / 1000)
	return r, true
}

// decodeReport decodes the JSON object in out. It is out itself, or the first object at the start of a line that is
// good, because scripts print other text around it.
func decodeReport[T any](out []byte, good func(*T) bool) (report T, ok bool) {
	const attempts = 20 // each may read to the end
	for range attempts {
		i := bytes.IndexByte(out, '{')
		for i > 0 && out[i-1] != '\n' {
			n := bytes.Index(out[i:], []byte("\n{"))
			if n < 0 {
				return report, false
			}
			i += n + 1
		}
		if i < 0 {
			return report, false
		}
		out = out[i:]
		var r T // new for each attempt, because a failed one leaves parts
		if err := json.NewDecoder(bytes.NewReader(out)).Decode(&r); err == nil && good(&r) {
			return r, true
		}
		out = out[1:]
	}
	return report, false
}

var (
	ansi = pattern.New("\x1b\\[[0-9;?]*[A-Za-z]")
	// jestSum matches "Tests: 1 failed, 1 skipped, 3 passed, 5 total".
	jestSum = pattern.New(`(?m)^Tests: +([^\n]*[0-9]+ total)\s*$`)
	// vitestSum matches " Tests 1 failed | 3 passed | 1 skipped (5)".
	vitestSum = pattern.New(`(?m)^ +Tests +([0-9]+ [a-z]+(?: \| [0-9]+ [a-z]+)*) \([0-9]+\)\s*$`)
	// mochaSum matches " 3 passing (12ms)", and mochaOther " 1 pending" and " 2 failing" on lines of their own.
	mochaSum   = pattern.New(`(?m)^ +([0-9]+ passing) \([^)\n]*\)\s*$`)
	mochaOther = pattern.New(`(?m)^ +([0-9]+ (?:pending|failing))\s*$`)
	counted    = pattern.New(`([0-9]{1,9}) ([a-z]+)`)
)

// ParseJSText reads the sums that jest, vitest and mocha print for people, for scripts that do not allow another
// reporter. The result has no names.
func ParseJSText(out []byte) (*Tests, bool) {
	out = ansi.ReplaceAll(out, nil)
	r, seen := NewTests(), false
	for _, re := range []*pattern.Regexp{jestSum, vitestSum, mochaSum} {
		for _, m := range re.FindAllSubmatch(out, -1) {
			seen = true
			r.addCounts(m[1])
		}
	}
	if mochaSum.Match(out) {
		for _, m := range mochaOther.FindAllSubmatch(out, -1) {
			r.addCounts(m[1])
		}
	}
	return r, seen
}

// addCounts adds counts like "2 failed, 3 passed, 1 skipped", in the words of several tools.
func (t *Tests) addCounts(text []byte) {
	for _, m := range counted.FindAllSubmatch(text, -1) {
		n, _ := strconv.Atoi(string(m[1]))
		switch string(m[2]) {
		case "passed", "passing", "xpassed":
			t.Passed += n
		case "failed", "failing", "error", "errors":
			t.Failed += n
		case "skipped", "pending", "todo", "xfailed", "ignored":
			t.Skipped += n
		}
	}
	t.Total = t.Passed + t.Failed + t.Skipped
}
