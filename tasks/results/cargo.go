package results

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
)

var (
	cargoSum    = pattern.New(`^test result: (?:ok|FAILED)\. ([0-9]{1,9}) passed; ([0-9]{1,9}) failed; ([0-9]{1,9}) ignored;.*?(?:finished in ([0-9.]+)s)?\s*$`)
	cargoFailed = pattern.New(`^test (.+?) \.\.\. FAILED\s*$`)
	cargoStdout = pattern.New(`^---- (.+?) stdout ----\s*$`)
)

// ParseCargo reads the output of `cargo test`, over all its test programs. A crate that does not compile prints no
// result. That is unknown, not 0 failed.
func ParseCargo(out []byte) (*Tests, bool) {
	var (
		r     = NewTests()
		names []Failure
		texts = map[string]*strings.Builder{}
		text  *strings.Builder
		quote bool // the text is quoted output of a test, which does not count
		seen  bool
	)
	for raw := range bytes.Lines(ansi.ReplaceAll(out, nil)) {
		line := strings.TrimRight(string(raw), "\r\n")
		if m := cargoStdout.FindStringSubmatch(line); m != nil {
			quote, text = true, nil
			if len(texts) < maxFailedNames && texts[m[1]] == nil {
				text = &strings.Builder{}
				texts[m[1]] = text
			}
			continue
		}
		if line == "failures:" {
			quote = false // the second one, after all quoted text
		}
		if quote {
			if text != nil {
				appendText(text, line+"\n")
			}
			continue
		}
		if m := cargoSum.FindStringSubmatch(line); m != nil {
			seen = true
			for i, to := range []*int{&r.Passed, &r.Failed, &r.Skipped} {
				n, _ := strconv.Atoi(m[i+1])
				*to += n
			}
			s, _ := strconv.ParseFloat(m[4], 64)
			r.seconds(s)
			continue
		}
		if m := cargoFailed.FindStringSubmatch(line); m != nil {
			if len(names) < maxFailedNames {
				names = append(names, Failure{Name: m[1]})
			}
		}
	}
	r.Total = r.Passed + r.Failed + r.Skipped
	for i := range names {
		if b := texts[names[i].Name]; b != nil {
			names[i].Text = b.String()
		}
	}
	r.takeNames(names)
	return r, seen
}
