package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// report has all results of a run.
type report struct {
	Machine machine `json:"machine"`
	Rows    []row   `json:"rows"`
	Charts  []chart `json:"charts,omitempty"`
}

// The states of a row.
const (
	stateMet    = "met"
	stateMissed = "MISSED"
	stateUnable = "cannot run here"
	stateFailed = "FAILED"
)

// row is one line of the table, which compares ramus with one alternative in one metric.
type row struct {
	Scenario string  `json:"scenario"`
	What     string  `json:"what"`
	Unit     string  `json:"unit,omitempty"`
	Ramus    stat    `json:"ramus,omitzero"`
	Other    string  `json:"alternative,omitempty"`
	Against  stat    `json:"against,omitzero"`    // of the alternative
	Ratio    float64 `json:"ratio,omitempty"`     // of the medians, ramus over the alternative
	RatioP90 float64 `json:"ratio_p90,omitempty"` // of the ratios of the rounds; the 10th percentile where more is better
	Target   string  `json:"target,omitempty"`
	State    string  `json:"state,omitempty"`
	Noisy    bool    `json:"noisy,omitempty"`
	Load     float64 `json:"load"`
	Note     string  `json:"note,omitempty"`
	// Samples are the numbers of the rounds, null for a round without the side.
	Samples map[string][]*float64 `json:"samples,omitempty"`
}

// target is the goal of a row. The zero value is no target.
type target struct {
	limit float64
	least bool // the ratio, or the number, must be at least limit, otherwise at most
	alone bool // of ramus's own median instead of the ratio
}

func atMost(ratio float64) target  { return target{limit: ratio} }
func atLeast(ratio float64) target { return target{limit: ratio, least: true} }
func below(number float64) target  { return target{limit: number, alone: true} }

// onlyFor returns t if told is true, and otherwise no target. A target belongs to one of several rows.
func (t target) onlyFor(told bool) target {
	if !told {
		return target{}
	}
	return t
}
func (t target) set() bool          { return t.limit != 0 }
func (t target) met(v float64) bool { return v <= t.limit && !t.least || v >= t.limit && t.least }

func (t target) text(unit string) string {
	if !t.set() {
		return ""
	}
	sign, unit := "≤", " "+unit
	if t.least {
		sign = "≥"
	}
	if !t.alone {
		unit = "×"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s%s", sign, digits(t.limit), unit))
}

// add adds a row that compares ramus with one other side in a metric. label names the case, for example "27,000 files".
func (b *bench) add(m *measured, label, what, other string, t target) *row {
	return b.addPair(m, label, what, m.names[0], other, t)
}

// addPair is add for a comparison in which ramus has several sides.
func (b *bench) addPair(m *measured, label, what, name, other string, t target) *row {
	r := row{Scenario: b.scenario, What: label, Other: other, Load: m.load, Samples: map[string][]*float64{}}
	j := m.metric(what)
	if what != "" {
		r.What = strings.TrimPrefix(label+", "+what, ", ")
	}
	r.Unit = m.metrics[j].unit
	mine := m.of[m.side(name)][j]
	r.Ramus, r.Samples[name] = statOf(mine), samples(mine)
	reached := r.Ramus.Median
	if i := m.side(other); i >= 0 {
		theirs := m.of[i][j]
		r.Against, r.Samples[other] = statOf(theirs), samples(theirs)
		if r.Against.Median != 0 {
			r.Ratio = r.Ramus.Median / r.Against.Median
		}
		if each := known(ratios(mine, theirs)); len(each) > 0 {
			r.RatioP90 = quantile(each, 0.9)
			if t.least && !t.alone {
				r.RatioP90 = quantile(each, 0.1)
			}
		}
		r.Noisy = r.Against.Min > 0 && r.Against.P90/r.Against.Min > 3
		if !t.alone {
			reached = r.Ratio
		}
	}
	if t.set() {
		r.Target, r.State = t.text(r.Unit), stateMissed
		if t.met(reached) {
			r.State = stateMet
		}
	}
	b.report.Rows = append(b.report.Rows, r)
	return &b.report.Rows[len(b.report.Rows)-1]
}

func samples(v []float64) []*float64 {
	out := make([]*float64, len(v))
	for i, x := range v {
		if !math.IsNaN(x) {
			out[i] = &x
		}
	}
	return out
}

// tell adds a row for one number of ramus that has no measured counterpart here.
func (b *bench) tell(what, unit string, v float64, t target, note string) {
	r := row{Scenario: b.scenario, What: what, Unit: unit, Ramus: stat{v, v, v, 1}, Load: loadAverage(), Note: note}
	if t.set() {
		r.Target, r.State = t.text(unit), stateMissed
		if t.met(v) {
			r.State = stateMet
		}
	}
	b.report.Rows = append(b.report.Rows, r)
}

func (r *report) failed() (n int) {
	for _, x := range r.Rows {
		if x.State == stateFailed {
			n++
		}
	}
	return n
}

// digits formats a number with as many digits as are significant.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 1000:
		return thousands(int64(math.Round(v)))
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return trimZeros(fmt.Sprintf("%.1f", v))
	case a >= 0.1:
		return trimZeros(fmt.Sprintf("%.2f", v))
	default:
		return trimZeros(fmt.Sprintf("%.4f", v))
	}
}

func trimZeros(s string) string { return strings.TrimRight(strings.TrimRight(s, "0"), ".") }

func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// print writes the table.
func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n\n", r.Machine)
	lines := [][]string{{"scenario", "ramus", "alternative", "", "ratio", "p90", "target", "", "n", "load", ""}}
	for i, x := range r.Rows {
		if i == 0 || r.Rows[i-1].Scenario != x.Scenario {
			lines = append(lines, []string{x.Scenario})
		}
		line := make([]string, 11)
		line[0] = "  " + x.What
		if x.Ramus.N > 0 {
			line[1] = strings.TrimSpace(digits(x.Ramus.Median) + " " + x.Unit)
			line[8] = fmt.Sprint(x.Ramus.N)
			line[9] = fmt.Sprintf("%.1f", x.Load)
		}
		if x.Against.N > 0 {
			line[2], line[3] = strings.TrimSpace(digits(x.Against.Median)+" "+x.Unit), x.Other
			line[4] = digits(x.Ratio) + "×"
			line[8] = fmt.Sprint(min(x.Ramus.N, x.Against.N))
		}
		if x.RatioP90 != 0 {
			line[5] = digits(x.RatioP90) + "×"
		}
		line[6], line[7] = x.Target, x.State
		var notes []string
		if x.Noisy {
			notes = append(notes, "noisy")
		}
		if x.Note != "" {
			notes = append(notes, x.Note)
		}
		line[10] = strings.Join(notes, "; ")
		lines = append(lines, line)
	}
	const right = "1 2 4 5 6 8 9"
	width := make([]int, len(lines[0]))
	for _, l := range lines {
		for i, c := range l[:max(0, min(len(l), 10))] {
			if len(l) > 1 || i > 0 {
				width[i] = max(width[i], utf8.RuneCountInString(c))
			}
		}
	}
	for _, l := range lines {
		var s strings.Builder
		for i, c := range l {
			pad := strings.Repeat(" ", max(0, width[i]-utf8.RuneCountInString(c)))
			if slices.Contains(strings.Fields(right), fmt.Sprint(i)) {
				c = pad + c
			} else {
				c += pad
			}
			if i > 0 {
				s.WriteString("  ")
			}
			s.WriteString(c)
		}
		fmt.Fprintln(out, strings.TrimRight(s.String(), " "))
	}
	states := map[string]int{}
	for _, x := range r.Rows {
		states[x.State]++
	}
	fmt.Fprintf(out, "\n%d targets met, %d missed", states[stateMet], states[stateMissed])
	for _, s := range []string{stateFailed, stateUnable} {
		if n := states[s]; n > 0 {
			fmt.Fprintf(out, ", %d %s", n, s)
		}
	}
	fmt.Fprintln(out)
}

// write writes the report and its charts into a folder.
func (r *report) write(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write the results: %w", err)
	}
	errs := []error{os.WriteFile(filepath.Join(dir, "results.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "table.md"), []byte(r.markdown()), 0o644)}
	for _, c := range r.Charts {
		errs = append(errs, os.WriteFile(filepath.Join(dir, c.Name+".svg"), []byte(c.svg()), 0o644))
	}
	return errors.Join(errs...)
}

// note attaches a remark to a row.
func (r *row) note(text string) { r.Note = cmp.Or(r.Note, text) }
