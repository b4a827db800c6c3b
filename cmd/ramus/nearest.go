package main

import "slices"

// nearest returns the known word that a misspelt word probably means. Returns "" if more than a third of the letters
// are wrong.
func nearest(word string, known []string) string {
	best, distance := "", len(word)/3+2
	for _, k := range known {
		if d := edits(word, k); d < distance {
			best, distance = k, d
		}
	}
	return best
}

// edits returns the Levenshtein distance, with a swap of neighbours counted as one.
func edits(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64 // too long for a misspelling
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = slices.Min([]int{last[j+1] + 1, row[j] + 1, last[j] + cost})
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
