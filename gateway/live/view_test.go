package live

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// page is the state of a browser, which is the keys of each list in order and the hash of each key.
type page struct {
	order map[string][]string
	in    map[string]string
	hash  map[string]string
}

// apply does the work of the island.
func (p *page) apply(ops []Op, hashes map[string]string) {
	for _, op := range ops {
		list := p.order[p.in[op.Key]]
		switch at := slices.Index(list, op.Key); op.Op {
		case "put":
			if at < 0 {
				p.in[op.Key] = op.In
				list = p.order[op.In]
				if i := slices.Index(list, op.Before); i >= 0 {
					p.order[op.In] = slices.Insert(list, i, op.Key)
				} else {
					p.order[op.In] = append(list, op.Key)
				}
			}
			p.hash[op.Key] = hashes[op.Key]
		case "drop":
			p.order[p.in[op.Key]] = slices.Delete(list, at, at+1)
			delete(p.hash, op.Key)
			delete(p.in, op.Key)
		}
	}
}

// TestFold tests that a page with the ops of any changes equals the page that is loaded now, except for the order of rows that stay.
func TestFold(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	p := page{map[string][]string{}, map[string]string{}, map[string]string{}}
	have := map[string]string{}
	for range 2000 {
		v := View{}
		hashes := map[string]string{}
		for _, list := range []string{"a", "b"} {
			for i := range 8 { // rows keep their order, as the rows of a list by time do
				if r.IntN(3) > 0 {
					key, hash := fmt.Sprintf("%s%d", list, i), fmt.Sprint(r.IntN(3))
					v.Fragments = append(v.Fragments, Fragment{Key: key, In: list, Hash: hash})
					hashes[key] = hash
				}
			}
		}
		p.apply(difference(have, v), hashes)
		var shown []string
		for _, list := range []string{"a", "b"} {
			shown = append(shown, p.order[list]...)
		}
		var want []string
		for _, f := range v.Fragments {
			want = append(want, f.Key)
		}
		if !slices.Equal(shown, want) || !maps.Equal(p.hash, hashes) || !maps.Equal(have, hashes) {
			t.Fatalf("the page shows %v, want %v", shown, want)
		}
	}
}
