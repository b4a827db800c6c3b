package bisect

import "slices"

// choose returns the cut points of a round: at most k steps that can be tried, by index. It compares the points that
// cut a line into equal parts with those that halve the largest part again and again, and takes those that leave fewer
// steps in the worst case. In a line the first are the best ones. Among branches they may be close to each other.
func (s *Search) choose(k int) []int {
	var open []int
	for i := range s.steps {
		if s.left.has(i) && i != s.bad && !s.skipped.has(i) {
			open = append(open, i)
		}
	}
	if len(open) <= k {
		return open
	}
	even := s.even(open, k)
	if halved := s.halve(open, k); s.worst(halved) < s.worst(even) {
		return halved
	}
	return even
}

// even returns the k open steps whose histories have about 1/(k+1), 2/(k+1) … of the steps that are left.
func (s *Search) even(open []int, k int) []int {
	type weighed struct{ step, weight int }
	list := make([]weighed, len(open))
	for at, i := range open {
		list[at] = weighed{i, s.history[i].countBoth(s.left)}
	}

	n := s.left.count()
	var points []int
	for j := 1; j <= k; j++ {
		want := max(j*n/(k+1), 1)
		best := 0
		for at := range list {
			if distance(list[at].weight, want) < distance(list[best].weight, want) {
				best = at
			}
		}
		points = append(points, list[best].step)
		list = slices.Delete(list, best, best+1)
	}
	return points
}

func distance(a, b int) int { return max(a-b, b-a) }

// halve returns k open steps, each of which divides the largest part that the earlier ones left as evenly as possible.
func (s *Search) halve(open []int, k int) []int {
	parts := []set{s.left.clone()}
	var points []int
	for len(points) < k {
		largest := slices.MaxFunc(parts, func(a, b set) int { return a.count() - b.count() })
		size := largest.count()
		best, gain := 0, 0
		for _, i := range open {
			inside := s.history[i].countBoth(largest)
			if g := min(inside, size-inside); g > gain {
				best, gain = i, g
			}
		}
		if gain == 0 {
			break // nothing divides it
		}
		points = append(points, best)
		parts = divide(parts, s.history[best])
	}
	return points
}

// divide divides each part into those steps that are in history and those that are not.
func divide(parts []set, history set) []set {
	var list []set
	for _, p := range parts {
		inside, outside := p.clone(), p.clone()
		inside.keep(history)
		outside.drop(history)
		for _, half := range []set{inside, outside} {
			if half.count() > 0 {
				list = append(list, half)
			}
		}
	}
	return list
}

// worst returns how many steps are left in the worst case after a round with these points.
func (s *Search) worst(points []int) int {
	parts := []set{s.left}
	for _, i := range points {
		parts = divide(parts, s.history[i])
	}
	most := 0
	for _, p := range parts {
		most = max(most, p.count())
	}
	return most
}
