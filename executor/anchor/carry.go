package anchor

import (
	"slices"
	"unicode"
)

// State is the state of an anchor in another commit.
type State string

const (
	Same    State = "same"    // the file has the lines at the same place
	Moved   State = "moved"   // the file has the lines at another place, or has another path
	Changed State = "changed" // the lines, or those around them, are others
	Gone    State = "gone"    // the lines are not there, or nobody can tell which they are
)

// Place is the position of an anchor in another commit.
type Place struct {
	State State  `json:"state"`
	Path  string `json:"path,omitempty"` // of the file there, empty if the file is gone
	// From and To are the lines there, from 1. Of a changed anchor they are those that took the place of its lines. They are 0 if there are
	// none.
	From int `json:"from,omitempty"`
	To   int `json:"to,omitempty"`
	// Exact is set for a changed anchor whose own lines are the same, so that only lines around them differ.
	Exact bool `json:"exact,omitempty"`
	// In is the first commit in which the anchor was changed or gone. It is empty if that is not known.
	In string `json:"in,omitempty"`
}

// Fits reports whether the place has the lines of the anchor.
func (p Place) Fits() bool { return p.State == Same || p.State == Moved }

// maxWindow is how many lines on each side may tell equal lines from each other.
const maxWindow = 768

// minLetters is the number of letters and digits without which a block of lines is not found elsewhere. It is that of git blame -M.
const minLetters = 20

// Carry finds lines of a text in a later text. from and to are numbers from 1 of lines of before. The place has no path.
func Carry(before, after []string, from, to int) Place {
	a, b := number(before, after)
	first, last := from-1, to-1
	if first < 0 || last < first || last >= len(a) {
		return Place{State: Gone}
	}
	pairs := match(a, b)
	at := pairs[first]
	whole := at >= 0
	for i := first; i <= last && whole; i++ {
		whole = pairs[i] == at+i-first
	}
	if whole {
		p := Place{State: Moved, From: at + 1, To: at + last - first + 1}
		switch {
		case !fits(a, b, first, last, at, Around, Around):
			p.State, p.Exact = Changed, true
		case !isOnly(a, b, first, last, at):
			return Place{State: Gone}
		case at == first:
			p.State = Same
		}
		return p
	}
	p, isTaken := carryChanged(a, b, pairs, first, last)
	if isTaken && letters(before[max(0, first-Around):min(len(a), last+1+Around)]) >= minLetters {
		return carryMoved(a, b, first, last)
	}
	return p
}

// letters returns the number of letters and digits of lines.
func letters(lines []string) (n int) {
	for _, l := range lines {
		for _, r := range l {
			if unicode.IsLetter(r) || unicode.IsDigit(r) {
				n++
			}
		}
	}
	return n
}

// carryChanged finds lines of which some are not in the later text, at least not there. isTaken is set if they were taken away, and nothing
// has their place.
func carryChanged(a, b []int32, pairs []int, first, last int) (p Place, isTaken bool) {
	low, high, near := -1, len(b), false
	for i := first - 1; i >= 0 && low < 0; i-- {
		low = pairs[i]
		near = near || low >= 0 && first-i <= Around
	}
	for i := last + 1; i < len(a) && high == len(b); i++ {
		if pairs[i] >= 0 {
			high = pairs[i]
			near = near || i-last <= Around
		}
	}
	kept := slices.ContainsFunc(pairs[first:last+1], func(at int) bool { return at >= 0 })
	if low+1 == high || !kept && !near {
		return Place{State: Gone}, low+1 == high && !kept
	}
	return Place{State: Changed, From: low + 2, To: high}, false
}

// carryMoved finds lines that were taken away and are elsewhere, with the same lines around them.
func carryMoved(a, b []int32, first, last int) Place {
	start, end := max(0, first-Around), min(len(a), last+1+Around)
	block := a[start:end]
	if first-start < Around || end-last-1 < Around || count(a, block) != 1 || count(b, block) != 1 {
		return Place{State: Gone} // it is not known, or is not there as a whole
	}
	at := index(b, block, 0) + first - start
	if !isOnly(a, b, first, last, at) {
		return Place{State: Gone}
	}
	return Place{State: Moved, From: at + 1, To: at + last - first + 1}
}

// fits reports whether the lines around a block are the same in both texts, and as many.
func fits(a, b []int32, first, last, at, before, after int) bool {
	start, end := max(0, first-before), min(len(a), last+1+after)
	low, high := at-(first-start), at+end-first
	if low < 0 || high > len(b) || first-before < 0 && low != 0 || last+1+after > len(a) && high != len(b) {
		return false
	}
	return slices.Equal(a[start:end], b[low:high])
}

// isOnly reports whether a block cannot be confused with another one, by the lines before it as well as by those after it. A copy whose one
// side was edited since then is such another one.
func isOnly(a, b []int32, first, last, at int) bool {
	return isOnlyWith(a, b, first, last, at, 1, 0) && isOnlyWith(a, b, first, last, at, 0, 1)
}

// isOnlyWith widens the block, by lines before or after it, until neither text has it twice.
func isOnlyWith(a, b []int32, first, last, at, before, after int) bool {
	for n := Around; n <= maxWindow; n *= 2 {
		if !fits(a, b, first, last, at, before*n, after*n) {
			return false
		}
		start, end := max(0, first-before*n), min(len(a), last+1+after*n)
		// The beginning and the end of a file are as good as a line that is there once.
		if before > 0 && start == 0 || after > 0 && end == len(a) {
			return true
		}
		if block := a[start:end]; count(a, block) == 1 && count(b, block) == 1 {
			return true
		}
	}
	return false
}

// count returns how often a list has a block, and 2 if more often.
func count(list, block []int32) int {
	at := index(list, block, 0)
	if at < 0 {
		return 0
	}
	if index(list, block, at+1) < 0 {
		return 1
	}
	return 2
}

// index returns the first place of a block in a list from a place on, and -1 if there is none.
func index(list, block []int32, from int) int {
	for i := from; i+len(block) <= len(list); i++ {
		if slices.Equal(list[i:i+len(block)], block) {
			return i
		}
	}
	return -1
}
