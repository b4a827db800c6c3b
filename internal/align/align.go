// Package align compares two lists element by element.
package align

// The signs of elements.
const (
	Same    = " "
	Deleted = "-"
	Added   = "+"
)

// Signs returns the signs that lead from one list to the other, with as many equal elements as possible. Deleted elements come before
// added ones. cells bounds the work, as the elements of one list times those of the other. Beyond it the elements between those that both
// lists begin and end with are all different.
func Signs[T comparable](a, b []T, cells int) []string {
	signs := make([]string, 0, len(a)+len(b))
	start, end := Ends(a, b)
	for range start {
		signs = append(signs, Same)
	}
	signs = between(signs, a[start:len(a)-end], b[start:len(b)-end], cells)
	for range end {
		signs = append(signs, Same)
	}
	return signs
}

// Ends returns the number of elements that both lists begin with, and the number of those after them that both lists end with.
func Ends[T comparable](a, b []T) (start, end int) {
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	a, b = a[start:], b[start:]
	for end < len(a) && end < len(b) && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	return start, end
}

// between appends the signs of two lists by their longest common subsequence.
func between[T comparable](signs []string, a, b []T, cells int) []string {
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
