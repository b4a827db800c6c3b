package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxProblems bounds the mistakes of one file that are reported, so that a file with mistakes everywhere does not cause
// megabytes of messages.
const maxProblems = 100

// maxMessage bounds one message, in bytes.
const maxMessage = 1000

// Problem is one mistake in a file.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1
	Column  int    `json:"column"` // from 1, in characters
	Message string `json:"message"`
	Source  string `json:"source"` // the line itself
}

// String returns the problem like a compiler prints it: position and message, the line, and a caret below the column.
func (p Problem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
	if strings.TrimSpace(p.Source) != "" {
		// A tab before the caret must stay a tab, or the caret is at another position than the mistake.
		pad := []rune(p.Source)
		pad = pad[:min(max(p.Column-1, 0), len(pad))]
		for i, r := range pad {
			if r != '\t' {
				pad[i] = ' '
			}
		}
		fmt.Fprintf(&b, "\n    %s\n    %s^", p.Source, string(pad))
	}
	return b.String()
}

// Problems are all mistakes of a file, in the order of their positions.
type Problems []Problem

// Error returns all problems, each with file:line:column, the line and a mark below it.
func (p Problems) Error() string {
	var b strings.Builder
	for i, one := range p {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(one.String())
	}
	return b.String()
}

// Sorted returns the problems in the order of their positions, without repetitions.
func (p Problems) Sorted() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	p = slices.Compact(p)
	if len(p) > maxProblems {
		rest := len(p) - maxProblems
		last := p[maxProblems]
		last.Message = fmt.Sprintf("and %d more mistakes from here on", rest)
		p = append(p[:maxProblems:maxProblems], last)
	}
	return p
}

// sourceLine returns line n of a text. It clips a long line, which would flood a terminal.
func sourceLine(lines []string, n int) string {
	const most = 200
	if n < 1 || n > len(lines) {
		return ""
	}
	s := strings.TrimSuffix(lines[n-1], "\r")
	if len(s) <= most {
		return s
	}
	runes := 0
	for i := range s {
		if runes++; runes > most {
			return s[:i] + "…"
		}
	}
	return s
}

// maxNear bounds the names that are compared, in bytes.
const maxNear = 64

// nearest returns the candidate that a person most likely means by name, or "".
func nearest(name string, candidates []string) string {
	if len(name) > maxNear {
		return ""
	}
	best, least := "", len(name)/3+2
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c), least); d < least {
			best, least = c, d
		}
	}
	return best
}

// Suggest returns the nearest candidate as the end of a sentence, "; did you mean X?".
func Suggest(name string, candidates []string) string {
	if n := nearest(name, candidates); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	return ""
}

// distance returns the number of letters to insert, remove, replace or swap with their neighbour to get from a to b. It
// returns limit for all numbers from limit on.
func distance(a, b string, limit int) int {
	if len(a) > maxNear || len(b) > maxNear || len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before := make([]int, len(b)+1)
	above := make([]int, len(b)+1)
	here := make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		here[0] = i
		for j := 1; j <= len(b); j++ {
			step := 1
			if a[i-1] == b[j-1] {
				step = 0
			}
			here[j] = min(above[j]+1, here[j-1]+1, above[j-1]+step)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				here[j] = min(here[j], before[j-2]+1)
			}
		}
		before, above, here = above, here, before
	}
	return min(above[len(b)], limit)
}
