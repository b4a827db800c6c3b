package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// side is one way to do a comparison's work.
type side struct {
	name string
	// settle, when set, runs before each round of this side. Its time is not measured.
	settle func(ctx context.Context) error
	// round does the work once, checks its result, and returns the measurements, one number for each of the
	// comparison's metrics. n counts from 0.
	round func(ctx context.Context, n int) ([]float64, error)
	// every limits the side to each n-th round. 0 and 1 mean all rounds. It is for alternatives that take a hundred
	// times as long.
	every int
}

// comparison has sides that do the same work. The first is ramus.
type comparison struct {
	metrics []metric
	sides   []side
	// rounds limits the rounds of the settings. 0 means no further limit.
	rounds int
	// noWarmUp omits the round before the first, whose numbers are dropped.
	noWarmUp bool
}

// metric is the meaning of a number.
type metric struct {
	what string // "first output", "CPU"
	unit string // "ms", "MB", "/s", ""
}

// measured is the result of a comparison.
type measured struct {
	metrics []metric
	names   []string
	// of[side][metric] has the numbers of the rounds, and NaN for a round without the side.
	of    [][][]float64
	load  float64
	began time.Time
}

// compare runs the rounds of a comparison.
func (b *bench) compare(ctx context.Context, c comparison) (*measured, error) {
	m := &measured{metrics: c.metrics, began: time.Now()}
	for _, s := range c.sides {
		m.names = append(m.names, s.name)
		m.of = append(m.of, make([][]float64, len(c.metrics)))
	}
	rounds := b.rounds
	if c.rounds > 0 {
		rounds = min(rounds, c.rounds)
	}
	once := func(n, i int) ([]float64, error) {
		s := c.sides[i]
		if s.settle != nil {
			if err := s.settle(ctx); err != nil {
				return nil, fmt.Errorf("%s, before round %d: %w", s.name, n, err)
			}
		}
		// Data that other sides have left unwritten is written first. In a file system with a journal, this side's
		// fsync would wait for it.
		unix.Sync()
		v, err := s.round(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("%s, round %d: %w", s.name, n, err)
		}
		if len(v) != len(c.metrics) {
			return nil, fmt.Errorf("%s measured %d numbers, %d were asked for", s.name, len(v), len(c.metrics))
		}
		return v, nil
	}
	if !c.noWarmUp {
		for i := range c.sides {
			if _, err := once(0, i); err != nil {
				return nil, err
			}
		}
	}
	begin, loads := time.Now(), 0.0
	for n := 1; n <= rounds; n++ {
		if n > 3 && time.Since(begin) > b.seconds {
			break
		}
		loads += loadAverage()
		for _, i := range rand.Perm(len(c.sides)) {
			v := slices.Repeat([]float64{math.NaN()}, len(c.metrics))
			if every := max(c.sides[i].every, 1); (n-1)%every == 0 {
				var err error
				if v, err = once(n, i); err != nil {
					return nil, err
				}
			}
			for j, x := range v {
				m.of[i][j] = append(m.of[i][j], x)
			}
		}
		m.load = loads / float64(n)
	}
	return m, nil
}

// side returns the index of a side by its name.
func (m *measured) side(name string) int { return slices.Index(m.names, name) }

func (m *measured) metric(what string) int {
	return slices.IndexFunc(m.metrics, func(x metric) bool { return x.what == what })
}

// stat is the distribution of numbers.
type stat struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	P90    float64 `json:"p90"`
	N      int     `json:"n"`
}

func statOf(v []float64) stat {
	v = known(v)
	if len(v) == 0 {
		return stat{}
	}
	return stat{Median: quantile(v, 0.5), Min: v[0], P90: quantile(v, 0.9), N: len(v)}
}

// known returns v sorted and without the numbers that were not measured.
func known(v []float64) []float64 {
	v = slices.DeleteFunc(slices.Clone(v), math.IsNaN)
	slices.Sort(v)
	return v
}

// quantile interpolates between the neighbours in v, which is sorted and not empty.
func quantile(v []float64, q float64) float64 {
	at := q * float64(len(v)-1)
	i := int(at)
	if i+1 >= len(v) {
		return v[len(v)-1]
	}
	return v[i] + (at-float64(i))*(v[i+1]-v[i])
}

// ratios divides the numbers of each round in which both sides took part.
func ratios(a, b []float64) []float64 {
	var out []float64
	for i := range a {
		if r := a[i] / b[i]; !math.IsNaN(r) && !math.IsInf(r, 0) {
			out = append(out, r)
		}
	}
	return out
}
