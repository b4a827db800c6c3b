package bisect

import "math/bits"

// set is a set of indexes of steps.
type set []uint64

func newSet(n int) set { return make(set, (n+63)/64) }

func (s set) has(i int) bool { return s[i/64]>>(i%64)&1 != 0 }

func (s set) put(i int) { s[i/64] |= 1 << (i % 64) }

// add adds all elements of o.
func (s set) add(o set) {
	for i := range s {
		s[i] |= o[i]
	}
}

// keep removes the elements that o has not.
func (s set) keep(o set) {
	for i := range s {
		s[i] &= o[i]
	}
}

// drop removes the elements that o has.
func (s set) drop(o set) {
	for i := range s {
		s[i] &^= o[i]
	}
}

func (s set) clone() set { return append(set(nil), s...) }

func (s set) count() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// countBoth returns the number of elements that both sets have.
func (s set) countBoth(o set) int {
	n := 0
	for i := range s {
		n += bits.OnesCount64(s[i] & o[i])
	}
	return n
}
