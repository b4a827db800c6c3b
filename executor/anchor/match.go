package anchor

import (
	"slices"
	"sort"

	"github.com/ramus-dev/ramus/internal/align"
)

// maxCells bounds the comparison of a part that has no line once in both texts, see [align.Signs].
const maxCells = 1 << 18

// maxPasses bounds how often a match looks for elements that are there once, in passes over all elements of both lists. Each level of parts
// is less than one pass. Edits of files rarely take more than two passes.
const maxPasses = 20

// number gives each line a number, the same to equal lines.
func number(before, after []string) (a, b []int32) {
	known := make(map[string]int32, len(before))
	of := func(lines []string) []int32 {
		list := make([]int32, len(lines))
		for i, l := range lines {
			n, ok := known[l]
			if !ok {
				n = int32(len(known))
				known[l] = n
			}
			list[i] = n
		}
		return list
	}
	return of(before), of(after)
}

// match returns the place in b of each element of a, and -1 for those that b lacks there. Places grow. It is a patience difference: elements
// that both lists have once come first, and parts without any are compared by their longest common subsequence. So are the parts that are left
// after [maxPasses]. Elements are numbers from 0 without large gaps, see [number].
func match(a, b []int32) []int {
	pairs, _ := matchWithin(a, b, maxPasses*(len(a)+len(b)))
	return pairs
}

// matchWithin is match with a budget of elements that are looked at to find those that are there once. It returns what is left of the budget.
func matchWithin(a, b []int32, budget int) (pairs []int, left int) {
	kinds := int32(0)
	for _, list := range [][]int32{a, b} {
		for _, n := range list {
			kinds = max(kinds, n+1)
		}
	}
	counts := make([]seen, kinds)
	pairs = make([]int, len(a))
	for i := range pairs {
		pairs[i] = -1
	}
	type part struct{ aFrom, aTo, bFrom, bTo int }
	// The parts of a level come before those of the next one, so that a part with many levels takes no budget from the others.
	todo := []part{{0, len(a), 0, len(b)}}
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		start, end := align.Ends(a[p.aFrom:p.aTo], b[p.bFrom:p.bTo])
		for i := range start {
			pairs[p.aFrom+i] = p.bFrom + i
		}
		for i := range end {
			pairs[p.aTo-1-i] = p.bTo - 1 - i
		}
		p.aFrom, p.aTo, p.bFrom, p.bTo = p.aFrom+start, p.aTo-end, p.bFrom+start, p.bTo-end
		if p.aFrom == p.aTo || p.bFrom == p.bTo {
			continue
		}
		var once [][2]int
		if n := p.aTo - p.aFrom + p.bTo - p.bFrom; n <= budget {
			budget -= n
			once = unique(a[p.aFrom:p.aTo], b[p.bFrom:p.bTo], counts)
		}
		if len(once) == 0 {
			i, j := p.aFrom, p.bFrom
			for _, sign := range align.Signs(a[p.aFrom:p.aTo], b[p.bFrom:p.bTo], maxCells) {
				if sign == align.Same {
					pairs[i] = j
				}
				if sign != align.Added {
					i++
				}
				if sign != align.Deleted {
					j++
				}
			}
			continue
		}
		i, j := p.aFrom, p.bFrom
		for _, x := range once {
			todo = append(todo, part{i, p.aFrom + x[0], j, p.bFrom + x[1]})
			pairs[p.aFrom+x[0]] = p.bFrom + x[1]
			i, j = p.aFrom+x[0]+1, p.bFrom+x[1]+1
		}
		todo = append(todo, part{i, p.aTo, j, p.bTo})
	}
	return pairs, budget
}

// seen is how often two lists have an element, and its last place in the second one.
type seen struct{ inA, inB, at int32 }

// unique returns the places of elements that both lists have once, as the longest sequence of them that is in the same order in both. counts
// has a zero for each element, and is left so.
func unique(a, b []int32, counts []seen) [][2]int {
	for _, n := range a {
		counts[n].inA++
	}
	for j, n := range b {
		counts[n].inB++
		counts[n].at = int32(j)
	}
	var places [][2]int
	for i, n := range a {
		if s := counts[n]; s.inA == 1 && s.inB == 1 {
			places = append(places, [2]int{i, int(s.at)})
		}
	}
	for _, list := range [][]int32{a, b} {
		for _, n := range list {
			counts[n] = seen{}
		}
	}
	// ends[k] is the place whose sequence of k+1 ends first in b, and before its predecessor in that sequence.
	var ends []int
	before := make([]int, len(places))
	for i, x := range places {
		k := sort.Search(len(ends), func(k int) bool { return places[ends[k]][1] > x[1] })
		before[i] = -1
		if k > 0 {
			before[i] = ends[k-1]
		}
		if k == len(ends) {
			ends = append(ends, i)
		} else {
			ends[k] = i
		}
	}
	if len(ends) == 0 {
		return nil
	}
	var list [][2]int
	for i := ends[len(ends)-1]; i >= 0; i = before[i] {
		list = append(list, places[i])
	}
	slices.Reverse(list)
	return list
}
