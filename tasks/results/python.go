package results

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
)

// ParseJUnit reads a JUnit XML report of pytest.
func ParseJUnit(out []byte) (*Tests, bool) {
	if i := bytes.IndexByte(out, '<'); i >= 0 {
		out = out[i:]
	}
	var (
		r       = NewTests()
		d       = xml.NewDecoder(bytes.NewReader(out))
		suites  int // open testsuite elements; only the outermost have the time
		seen    bool
		name    string
		outcome string // of the open testcase
		text    strings.Builder
		inText  bool
	)
	for depth := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return r, seen && depth == 0
		}
		if err != nil {
			return nil, false
		}
		switch e := token.(type) {
		case xml.StartElement:
			if depth++; depth > maxSuiteDepth {
				return nil, false
			}
			switch e.Name.Local {
			case "testsuites":
				seen = true
			case "testsuite":
				seen = true
				if suites++; suites == 1 {
					s, _ := strconv.ParseFloat(attr(e, "time"), 64)
					r.seconds(s)
				}
			case "testcase":
				outcome = "passed"
				text.Reset()
				name = attr(e, "name")
				if class := attr(e, "classname"); class != "" {
					name = class + "::" + name
				}
			case "failure", "error":
				// A test may fail and then have an error in its teardown too.
				outcome, inText = "failed", true
				if text.Len() == 0 {
					appendText(&text, attr(e, "message")+"\n")
				}
			case "skipped":
				if outcome == "passed" {
					outcome = "skipped"
				}
			}
		case xml.CharData:
			if inText {
				appendText(&text, string(e))
			}
		case xml.EndElement:
			depth--
			switch e.Name.Local {
			case "testsuite":
				suites--
			case "failure", "error":
				inText = false
			case "testcase":
				switch outcome {
				case "passed":
					r.pass()
				case "skipped":
					r.skip()
				case "failed":
					r.fail(name, text.String())
				}
				outcome = ""
			}
		}
	}
}

func attr(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

var (
	// pytestSum matches "=== 1 failed, 2 passed, 1 warning in 0.12s (0:00:01) ===", and with -q the same without the
	// signs.
	pytestSum    = pattern.New(`^(?:=+ )?((?:[0-9]+ [a-z]+(?:, )?)+|no tests ran) in ([0-9.]+)s(?: \([0-9:]+\))?(?: =+)?\s*$`)
	pytestFailed = pattern.New(`^(?:FAILED|ERROR) (\S.*?)(?: - (.*))?\s*$`)
)

// ParsePytest reads the last line and the short summary that pytest prints for people. It is for a missing report.
func ParsePytest(out []byte) (*Tests, bool) {
	r, seen := NewTests(), false
	var names []Failure
	for line := range bytes.Lines(ansi.ReplaceAll(out, nil)) {
		if m := pytestSum.FindSubmatch(line); m != nil {
			seen = true
			*r = *NewTests() // a test may print such a line too, but pytest prints the last one
			r.addCounts(m[1])
			s, _ := strconv.ParseFloat(string(m[2]), 64)
			r.seconds(s)
		} else if m := pytestFailed.FindSubmatch(line); m != nil && len(names) < maxFailedNames {
			names = append(names, Failure{string(m[1]), string(m[2])})
		}
	}
	r.takeNames(names)
	return r, seen
}

// takeNames sets the names of failed tests that were counted already.
func (t *Tests) takeNames(names []Failure) {
	failed, total := t.Failed, t.Total
	for _, n := range names[:min(len(names), failed)] {
		t.fail(n.Name, n.Text)
	}
	t.Failed, t.Total = failed, total
}

var (
	unittestRan    = pattern.New(`^Ran ([0-9]{1,9}) tests? in ([0-9.]+)s\s*$`)
	unittestResult = pattern.New(`^(?:OK|FAILED|NO TESTS RAN)(?: \(([a-z= ,0-9]+)\))?\s*$`)
	unittestCount  = pattern.New(`([a-z ]+)=([0-9]{1,9})`)
	unittestFailed = pattern.New(`^(?:FAIL|ERROR|UNEXPECTED SUCCESS): (.*?)\s*$`)
)

// ParseUnittest reads the output of Python's unittest. A test with several failed subtests counts once for each.
func ParseUnittest(out []byte) (*Tests, bool) {
	var (
		r       = NewTests()
		names   []Failure
		ran     = -1
		seen    bool
		collect *Failure // the failure whose traceback is being read
		rules   int
		oks     int // number of lines of -v
	)
	for raw := range bytes.Lines(ansi.ReplaceAll(out, nil)) {
		line := strings.TrimRight(string(raw), "\r\n")
		if ran < 0 && strings.HasSuffix(line, " ... ok") {
			oks++
		}
		switch {
		case strings.HasPrefix(line, "======") || strings.HasPrefix(line, "------"):
			if rules++; rules > 1 {
				collect = nil
			}
		case unittestFailed.MatchString(line):
			collect = nil
			if len(names) < maxFailedNames {
				names = append(names, Failure{Name: unittestFailed.FindStringSubmatch(line)[1]})
				collect, rules = &names[len(names)-1], 0
			}
		case unittestRan.MatchString(line):
			m := unittestRan.FindStringSubmatch(line)
			ran, _ = strconv.Atoi(m[1])
			s, _ := strconv.ParseFloat(m[2], 64)
			r.DurationMS = 0
			r.seconds(s)
			collect = nil
		case ran >= 0 && unittestResult.MatchString(line):
			seen = true
			counts := map[string]int{}
			for _, m := range unittestCount.FindAllStringSubmatch(unittestResult.FindStringSubmatch(line)[1], -1) {
				counts[strings.TrimSpace(m[1])], _ = strconv.Atoi(m[2])
			}
			r.Failed = counts["failures"] + counts["errors"] + counts["unexpected successes"]
			r.Skipped = counts["skipped"] + counts["expected failures"]
			// An error in setUpClass counts as failed without having run, and a test with subtests may fail more than
			// once. So ran minus the others may be too low. The number of lines that end in "ok" may be too low as
			// well, because a test may print in between.
			r.Passed = min(ran, max(ran-r.Failed-r.Skipped, oks, 0))
			r.Total = r.Passed + r.Failed + r.Skipped
		case collect != nil && len(collect.Text) < maxFailureText:
			collect.Text += line + "\n"
		}
	}
	r.takeNames(names)
	return r, seen
}
