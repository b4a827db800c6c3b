package diff

import "strings"

// maxCells bounds a comparison, as the elements of one text times those of the other. Beyond it the elements between those that both texts
// begin and end with are all different.
const maxCells = 1 << 20

// Compare returns the lines of both texts, with as many as possible that are the same. A missing newline at an end makes no difference.
func Compare(before, after string) []Line {
	a, b := SplitLines(before), SplitLines(after)
	var list []Line
	i, j := 0, 0
	for _, sign := range align(a, b, maxCells) {
		l := Line{Sign: sign}
		if sign != Added {
			l.Text = a[i]
			i++
			l.Old = i
		}
		if sign != Deleted {
			l.Text = b[j]
			j++
			l.New = j
		}
		list = append(list, l)
	}
	return list
}

// SplitLines splits a text into its lines, without their newlines. An empty text has none.
func SplitLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

// align returns the signs that lead from one list to the other, with as many equal elements as possible. Deleted elements come before
// added ones. cells bounds the work.
func align(a, b []string, cells int) []string {
	signs := make([]string, 0, len(a)+len(b))
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		signs = append(signs, Same)
		start++
	}
	a, b = a[start:], b[start:]
	end := 0
	for end < len(a) && end < len(b) && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	signs = between(signs, a[:len(a)-end], b[:len(b)-end], cells)
	for range end {
		signs = append(signs, Same)
	}
	return signs
}

// between appends the signs of two lists by their longest common subsequence.
func between(signs []string, a, b []string, cells int) []string {
	i, j := 0, 0
	if len(a) > 0 && len(b) > 0 && len(a)*len(b) <= cells {
		// common[i*width+j] is the length of the subsequence of a[i:] and b[j:].
		width := len(b) + 1
		common := make([]int32, (len(a)+1)*width)
		for i := len(a) - 1; i >= 0; i-- {
			for j := len(b) - 1; j >= 0; j-- {
				if a[i] == b[j] {
					common[i*width+j] = common[(i+1)*width+j+1] + 1
				} else {
					common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
				}
			}
		}
		for i < len(a) && j < len(b) {
			switch {
			case a[i] == b[j]:
				signs = append(signs, Same)
				i, j = i+1, j+1
			case common[(i+1)*width+j] >= common[i*width+j+1]:
				signs = append(signs, Deleted)
				i++
			default:
				signs = append(signs, Added)
				j++
			}
		}
	}
	for ; i < len(a); i++ {
		signs = append(signs, Deleted)
	}
	for ; j < len(b); j++ {
		signs = append(signs, Added)
	}
	return signs
}
