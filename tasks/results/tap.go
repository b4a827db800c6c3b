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

// ParseTAP reads the Test Anything Protocol, versions 13 and 14, as node --test
// and many others print it. Subtests are indented by four spaces and come before
// the line of their suite; a suite counts only if it failed and none of its tests
// did. What TAP marks as TODO counts as skipped.
func ParseTAP(out []byte) (*Tests, bool) {
	type level struct {
		name             string // from "# Subtest: "
		children, failed int
	}
	var (
		r      = NewTests()
		levels = make([]level, maxSuiteDepth+2)
		seen   bool
		yaml   = -1 // indentation of the YAML block we are in
		text   strings.Builder
		last   *Failure // whose text the next YAML block is
	)
	finish := func() {
		if last != nil {
			last.Text = shorten(strings.TrimSpace(text.String()), maxFailureText)
		}
		last, yaml = nil, -1
		text.Reset()
	}
	for raw := range bytes.Lines(out) {
		line := strings.TrimRight(string(raw), "\r\n")
		body := strings.TrimLeft(line, " ")
		indent := len(line) - len(body)
		if yaml >= 0 {
			if body == "..." && indent == yaml {
				finish()
			} else if indent < yaml && body != "" {
				finish() // the end is missing: the tool was killed in mid-block
			} else {
				if last != nil {
					appendText(&text, strings.TrimPrefix(line, strings.Repeat(" ", min(yaml, indent)))+"\n")
				}
				continue
			}
		}
		depth := indent / 4
		if body == "---" && indent%4 == 2 {
			yaml = indent
			continue
		}
		if indent%4 != 0 || depth > maxSuiteDepth {
			continue
		}
		switch {
		case strings.HasPrefix(body, "# Subtest: "):
			levels[depth].name = tapUnescape(strings.TrimPrefix(body, "# Subtest: "))
			continue
		case depth == 0 && (tapVersion.MatchString(body) || tapPlan.MatchString(body)):
			seen = true
			continue
		case depth == 0 && strings.HasPrefix(body, "Bail out!"):
			finish()
			seen = true
			r.fail(shorten(body, maxName), "")
			continue
		case depth == 0 && strings.HasPrefix(body, "# duration_ms "):
			if ms, err := strconv.ParseFloat(strings.TrimPrefix(body, "# duration_ms "), 64); err == nil {
				r.DurationMS = 0
				r.seconds(ms / 1000)
			}
			continue
		}
		m := tapPoint.FindStringSubmatch(body)
		if m == nil {
			continue
		}
		finish()
		failed, name, directive := m[1] != "", m[3], ""
		if i := tapDirective(name); i >= 0 {
			name, directive = strings.TrimSpace(name[:i]), strings.ToLower(strings.TrimSpace(name[i+1:]))
		}
		sub := levels[depth+1]
		levels[depth+1] = level{}
		levels[depth].children++
		skipped := strings.HasPrefix(directive, "skip") || strings.HasPrefix(directive, "todo")
		// What a suite says of itself repeats what its tests have said.
		if failed && !skipped {
			levels[depth].failed++
		}
		switch {
		case skipped && strings.Contains(directive, "does not match pattern"):
			// Node 20 reports in this way what newer ones leave out: it was not asked for.
		case skipped && sub.children == 0:
			r.skip()
		case skipped:
		case failed && sub.failed == 0:
			var names []string
			for d := range depth {
				if n := levels[d].name; n != "" && len(r.FailedNames) < maxFailedNames {
					names = append(names, n)
				}
			}
			n := len(r.Failures)
			r.fail(strings.Join(append(names, tapUnescape(name)), " > "), "")
			if len(r.Failures) > n {
				last = &r.Failures[n]
			}
		case !failed && sub.children == 0:
			r.pass()
		}
		levels[depth].name = ""
	}
	finish()
	return r, seen
}

// ParseTAPSums reads only the sums with which node --test ends: for output
// whose middle was left out.
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

// count makes a number of tests of a number in a text; absurd ones are capped.
func count(f float64) int { return int(max(0, min(f, 1e9))) }

// tapDirective finds the unescaped "#" that begins a directive, or -1.
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
