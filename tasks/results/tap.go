package results

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
)

var (
	tapVersion = pattern.New(`^TAP version 1[34]\s*$`)
	tapPlan    = pattern.New(`^1\.\.[0-9]+(?:\s|$)`)
	tapPoint   = pattern.New(`^(not )?ok(?: +([0-9]+))?(?: +- | +|$)(.*)$`)
	tapSum     = pattern.New(`^# (tests|pass|fail|cancelled|skipped|todo|duration_ms) ([0-9]+(?:\.[0-9]+)?)\s*$`)
)

// ParseTAP reads the Test Anything Protocol, versions 13 and 14, which node --test and many others print. Subtests are
// indented by four spaces and come before the line of their suite. A suite counts only if it failed and none of its
// tests did. Tests marked TODO count as skipped.
func ParseTAP(out []byte) (*Tests, bool) {
	p := &tapParser{r: NewTests(), levels: make([]tapLevel, maxSuiteDepth+2), yaml: -1}
	for raw := range bytes.Lines(out) {
		p.addLine(strings.TrimRight(string(raw), "\r\n"))
	}
	p.finishBlock()
	return p.r, p.seen
}

// tapLevel is the open suite at one depth.
type tapLevel struct {
	name             string // from "# Subtest: "
	children, failed int
}

// tapParser reads TAP line by line.
type tapParser struct {
	r      *Tests
	levels []tapLevel
	seen   bool // there was a version, a plan or a bail out
	yaml   int  // indentation of the open YAML block; -1 if there is none
	text   strings.Builder
	last   *Failure // the failure whose text is in the next YAML block
}

// finishBlock ends the text of the last failure.
func (p *tapParser) finishBlock() {
	if p.last != nil {
		p.last.Text = shorten(strings.TrimSpace(p.text.String()), maxFailureText)
	}
	p.last, p.yaml = nil, -1
	p.text.Reset()
}

// addLine reads one line.
func (p *tapParser) addLine(line string) {
	body := strings.TrimLeft(line, " ")
	indent := len(line) - len(body)
	if p.yaml >= 0 {
		if body == "..." && indent == p.yaml {
			p.finishBlock()
		} else if indent < p.yaml && body != "" {
			p.finishBlock() // the end of a block is missing if the tool was killed
		} else {
			if p.last != nil {
				appendText(&p.text, strings.TrimPrefix(line, strings.Repeat(" ", min(p.yaml, indent)))+"\n")
			}
			return
		}
	}

	depth := indent / 4
	if body == "---" && indent%4 == 2 {
		p.yaml = indent
		return
	}
	if indent%4 != 0 || depth > maxSuiteDepth || p.addComment(body, depth) {
		return
	}
	if m := tapPoint.FindStringSubmatch(body); m != nil {
		p.finishBlock()
		p.addPoint(m[1] != "", m[3], depth)
	}
}

// addComment reads a line that is not the result of a test. It returns false for other lines.
func (p *tapParser) addComment(body string, depth int) bool {
	switch {
	case strings.HasPrefix(body, "# Subtest: "):
		p.levels[depth].name = tapUnescape(strings.TrimPrefix(body, "# Subtest: "))
	case depth == 0 && (tapVersion.MatchString(body) || tapPlan.MatchString(body)):
		p.seen = true
	case depth == 0 && strings.HasPrefix(body, "Bail out!"):
		p.finishBlock()
		p.seen = true
		p.r.fail(shorten(body, maxName), "")
	case depth == 0 && strings.HasPrefix(body, "# duration_ms "):
		if ms, err := strconv.ParseFloat(strings.TrimPrefix(body, "# duration_ms "), 64); err == nil {
			p.r.DurationMS = 0
			p.r.seconds(ms / 1000)
		}
	default:
		return false
	}
	return true
}

// addPoint adds the result of one test or suite.
func (p *tapParser) addPoint(failed bool, name string, depth int) {
	directive := ""
	if i := tapDirective(name); i >= 0 {
		name, directive = strings.TrimSpace(name[:i]), strings.ToLower(strings.TrimSpace(name[i+1:]))
	}
	sub := p.levels[depth+1]
	p.levels[depth+1] = tapLevel{}
	p.levels[depth].children++
	skipped := strings.HasPrefix(directive, "skip") || strings.HasPrefix(directive, "todo")
	// The result of a suite repeats those of its tests.
	if failed && !skipped {
		p.levels[depth].failed++
	}

	switch {
	case skipped && strings.Contains(directive, "does not match pattern"):
		// Node 20 reports tests in this way that were not selected. Newer versions leave them out.
	case skipped && sub.children == 0:
		p.r.skip()
	case skipped:
	case failed && sub.failed == 0:
		p.addFailure(name, depth)
	case !failed && sub.children == 0:
		p.r.pass()
	}
	p.levels[depth].name = ""
}

// addFailure adds a failed test by its name and those of its suites.
func (p *tapParser) addFailure(name string, depth int) {
	var names []string
	for d := range depth {
		if n := p.levels[d].name; n != "" && len(p.r.FailedNames) < maxFailedNames {
			names = append(names, n)
		}
	}
	n := len(p.r.Failures)
	p.r.fail(strings.Join(append(names, tapUnescape(name)), " > "), "")
	if len(p.r.Failures) > n {
		p.last = &p.r.Failures[n]
	}
}

// ParseTAPSums reads only the sums at the end of node --test, for output whose middle is missing.
func ParseTAPSums(out []byte) (*Tests, bool) {
	sums := map[string]float64{}
	for line := range bytes.Lines(out) {
		if m := tapSum.FindSubmatch(line); m != nil {
			sums[string(m[1])], _ = strconv.ParseFloat(string(m[2]), 64)
		}
	}
	partial, _ := ParseTAP(out)
	r := NewTests()
	r.Passed = count(sums["pass"])
	r.Failed = max(count(sums["fail"]+sums["cancelled"]), partial.Failed)
	r.Skipped = count(sums["skipped"] + sums["todo"])
	r.Total = r.Passed + r.Failed + r.Skipped
	r.FailedNames, r.Failures, r.DurationMS = partial.FailedNames, partial.Failures, partial.DurationMS
	_, ok := sums["tests"]
	return r, ok
}

// count converts a number in a text to a number of tests. Absurd values are capped.
func count(f float64) int { return int(max(0, min(f, 1e9))) }

// tapDirective returns the position of the unescaped "#" that begins a directive, or -1.
func tapDirective(s string) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '#':
			rest := strings.ToLower(strings.TrimSpace(s[i+1:]))
			if strings.HasPrefix(rest, "skip") || strings.HasPrefix(rest, "todo") {
				return i
			}
		}
	}
	return -1
}

var tapUnescaper = strings.NewReplacer(`\\`, `\`, `\#`, `#`, `\n`, "\n", `\t`, "\t", `\r`, "\r")

func tapUnescape(s string) string { return tapUnescaper.Replace(strings.TrimSpace(s)) }
