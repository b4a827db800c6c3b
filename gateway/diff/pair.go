package diff

// Pair has two lines that stand next to each other. An equal line is on both sides. Nil means that a side has none.
type Pair struct{ Old, New *Line }

// Bounds of the search for lines that are alike.
const (
	maxAlike     = 1024 // deleted lines of a change times added ones; beyond it the n-th stands next to the n-th
	maxAlikeLine = 400  // bytes of a line
	leastAlike   = 40   // percent
)

// Pairs returns lines side by side. The deleted and added lines of a change that are most alike stand next to each other, in their order. A
// change with as many deleted lines as added ones has them in pairs.
func Pairs(lines []Line) []Pair {
	var list []Pair
	for i := 0; i < len(lines); {
		if lines[i].Sign == Same {
			list = append(list, Pair{&lines[i], &lines[i]})
			i++
			continue
		}
		var old, fresh []*Line
		for ; i < len(lines) && lines[i].Sign != Same; i++ {
			if lines[i].Sign == Deleted {
				if len(fresh) > 0 {
					break // another change follows at once
				}
				old = append(old, &lines[i])
			} else {
				fresh = append(fresh, &lines[i])
			}
		}
		if len(old) != len(fresh) && len(old)*len(fresh) <= maxAlike {
			list = pairAlike(list, old, fresh)
		} else {
			list = pairInOrder(list, old, fresh)
		}
	}
	return list
}

// pairInOrder appends pairs of the n-th lines of both lists.
func pairInOrder(list []Pair, old, fresh []*Line) []Pair {
	for n := range max(len(old), len(fresh)) {
		var p Pair
		if n < len(old) {
			p.Old = old[n]
		}
		if n < len(fresh) {
			p.New = fresh[n]
		}
		list = append(list, p)
	}
	return list
}

// pairAlike appends pairs of the lines that are most alike. The lines between two such pairs stand next to each other in their order.
func pairAlike(list []Pair, old, fresh []*Line) []Pair {
	width := len(fresh) + 1
	best := make([]int, (len(old)+1)*width) // of old[i:] and fresh[j:]
	score := make([]int, len(old)*len(fresh))
	words := make([]map[string]int, len(fresh))
	for j, l := range fresh {
		words[j] = countWords(l.Text)
	}
	for i := len(old) - 1; i >= 0; i-- {
		have := countWords(old[i].Text)
		for j := len(fresh) - 1; j >= 0; j-- {
			s := alike(have, words[j])
			score[i*len(fresh)+j] = s
			best[i*width+j] = max(best[(i+1)*width+j], best[i*width+j+1])
			if s >= leastAlike {
				best[i*width+j] = max(best[i*width+j], s+best[(i+1)*width+j+1])
			}
		}
	}
	i, j, atOld, atNew := 0, 0, 0, 0
	for i < len(old) && j < len(fresh) {
		s := score[i*len(fresh)+j]
		switch {
		case s >= leastAlike && best[i*width+j] == s+best[(i+1)*width+j+1]:
			list = append(pairInOrder(list, old[atOld:i], fresh[atNew:j]), Pair{old[i], fresh[j]})
			i, j = i+1, j+1
			atOld, atNew = i, j
		case best[i*width+j] == best[(i+1)*width+j]:
			i++
		default:
			j++
		}
	}
	return pairInOrder(list, old[atOld:], fresh[atNew:])
}

// countWords counts the words of the beginning of a line, without white space.
func countWords(s string) map[string]int {
	counts := map[string]int{}
	for _, w := range splitWords(s[:min(len(s), maxAlikeLine)]) {
		if w[0] > ' ' {
			counts[w]++
		}
	}
	return counts
}

// alike returns how much of the words of two lines is the same, in percent of bytes.
func alike(a, b map[string]int) int {
	both, all := 0, 0
	for w, n := range a {
		both += 2 * len(w) * min(n, b[w])
		all += len(w) * n
	}
	for w, n := range b {
		all += len(w) * n
	}
	if all == 0 {
		return 0
	}
	return 100 * both / all
}
