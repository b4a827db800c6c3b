package results

import (
	"bytes"
	"slices"
)

// ParseAny adds up the results of all frameworks that it recognises, for scripts that may run anything.
func ParseAny(stdout, stderr []byte) (*Tests, bool) {
	out := slices.Concat(stdout, []byte("\n"), stderr)
	sum, seen := NewTests(), false
	add := func(t *Tests, ok bool) bool {
		if !ok {
			return false
		}
		seen = true
		sum.Passed += t.Passed
		sum.Failed += t.Failed
		sum.Skipped += t.Skipped
		sum.Total += t.Total
		sum.DurationMS += t.DurationMS
		sum.FailedNames = append(sum.FailedNames,
			t.FailedNames[:min(len(t.FailedNames), maxFailedNames-len(sum.FailedNames))]...)
		sum.Failures = append(sum.Failures, t.Failures[:min(len(t.Failures), maxFailures-len(sum.Failures))]...)
		return true
	}
	if bytes.Contains(out, []byte("TAP version 1")) {
		add(ParseTAP(out))
	}
	add(ParseGoTest(out))
	if !add(ParseJest(out)) && !add(ParseMocha(out)) {
		add(ParseJSText(out))
	}
	add(ParsePytest(out))
	add(ParseUnittest(out))
	add(ParseCargo(out))
	return sum, seen
}
