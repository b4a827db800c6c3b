package diff

// Pair has two lines that stand next to each other. An equal line is on both sides. Nil means that a side has none.
type Pair struct{ Old, New *Line }

// Pairs returns lines side by side. The n-th deleted line of a change stands next to its n-th added line.
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
	}
	return list
}
