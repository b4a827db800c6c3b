package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		q    float64
		want float64
	}{
		{[]float64{7}, 0.9, 7},
		{[]float64{1, 3}, 0.5, 2},
		{[]float64{1, 2, 3}, 0.5, 2},
		{[]float64{1, 2, 3}, 1, 3},
		{[]float64{0, 10}, 0.9, 9},
	} {
		if got := quantile(c.v, c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("quantile(%v, %v) = %v, want %v", c.v, c.q, got, c.want)
		}
	}
}

// TestCompare holds what makes a comparison honest: every side in every round that it takes
// part in, its preparation outside, ratios inside a round, a wrong answer no measurement.
func TestCompare(t *testing.T) {
	b := &bench{settings: settings{rounds: 10, seconds: time.Hour}, said: io.Discard, scenario: "test"}
	var settled, warm int
	m, err := b.compare(t.Context(), comparison{metrics: []metric{{"time", "ms"}}, sides: []side{
		{name: sideRamus, settle: func(context.Context) error { settled++; return nil },
			round: func(_ context.Context, n int) ([]float64, error) {
				if n == 0 {
					warm++
				}
				return []float64{float64(n)}, nil
			}},
		{name: "other", every: 5,
			round: func(_ context.Context, n int) ([]float64, error) { return []float64{10 * float64(n)}, nil }},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if settled != 11 || warm != 1 {
		t.Errorf("ramus was prepared %d times and warmed up %d times, want 11 and 1", settled, warm)
	}
	r := b.add(m, "what", "time", "other", atMost(0.2))
	if r.Ramus.N != 10 || r.Against.N != 2 || r.Ramus.Median != 5.5 || r.Against.Median != 35 {
		t.Errorf("the sides are %+v and %+v", r.Ramus, r.Against)
	}
	if math.Abs(r.RatioP90-0.1) > 1e-9 { // each round by itself: 1/10, and 6/60
		t.Errorf("the ratio of a round is %v, want 0.1", r.RatioP90)
	}
	if r.State != stateMet || !r.Noisy { // 10 and 60: the other side swings
		t.Errorf("state %q, noisy %v", r.State, r.Noisy)
	}

	wrong := errors.New("a wrong answer")
	_, err = b.compare(t.Context(), comparison{metrics: []metric{{"time", "ms"}}, sides: []side{
		{name: sideRamus, round: func(_ context.Context, n int) ([]float64, error) {
			if n == 3 {
				return nil, wrong
			}
			return []float64{1}, nil
		}}}})
	if !errors.Is(err, wrong) {
		t.Errorf("a wrong answer came to %v", err)
	}

	b.rounds, b.seconds = 1000, 0 // no time: three rounds all the same
	m, err = b.compare(t.Context(), comparison{metrics: []metric{{"time", "ms"}}, sides: []side{
		{name: sideRamus, round: func(context.Context, int) ([]float64, error) { return []float64{1}, nil }}}})
	if err != nil || len(m.of[0][0]) != 3 {
		t.Errorf("%d rounds without time, %v; want 3", len(m.of[0][0]), err)
	}
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		t    target
		v    float64
		met  bool
		text string
	}{
		{atMost(0.1), 0.1, true, "≤ 0.1×"},
		{atMost(0.1), 0.11, false, "≤ 0.1×"},
		{atLeast(10), 9, false, "≥ 10×"},
		{atLeast(0.6), 0.7, true, "≥ 0.6×"},
		{below(25), 20, true, "≤ 25 MB"},
		{target{}, 1, false, ""},
	} {
		if got := c.t.text("MB"); got != c.text || c.t.set() && c.t.met(c.v) != c.met {
			t.Errorf("%+v with %v: %q, met %v", c.t, c.v, got, c.t.met(c.v))
		}
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0312: "0.0312", 0.25: "0.25", 3: "3", 12.34: "12.3", 456.7: "457",
		1234567: "1,234,567", -1234: "-1,234"} {
		if got := digits(v); got != want {
			t.Errorf("digits(%v) = %q, want %q", v, got, want)
		}
	}
}

// TestEnds: what was begun last ends first, each once, and all of it in spite of errors.
func TestEnds(t *testing.T) {
	b := &bench{}
	var order strings.Builder
	for _, s := range []string{"a", "b", "c"} {
		b.onExit(func(context.Context) error { order.WriteString(s); return errors.New(s) })
	}
	if err := b.exitTo(t.Context(), 2); err == nil || order.String() != "c" {
		t.Errorf("%q ended, %v", order.String(), err)
	}
	if err := b.exit(t.Context()); err == nil || order.String() != "cba" {
		t.Errorf("%q ended, %v", order.String(), err)
	}
}

func TestPrint(t *testing.T) {
	r := report{Rows: []row{
		{Scenario: "cold", What: "437 files", Unit: "ms", Ramus: stat{12, 10, 14, 15}, Other: sideRun,
			Against: stat{400, 350, 500, 15},
			Ratio:   0.03, RatioP90: 0.04, Target: "≤ 0.1×", State: stateMet, Load: 0.5},
		{Scenario: "cold", What: "broken", State: stateFailed, Note: "why"},
	}}
	var out bytes.Buffer
	r.print(&out)
	for _, want := range []string{"437 files", "12 ms", "400 ms", "0.03×", "≤ 0.1×", "met", "FAILED", "why",
		"1 targets met, 0 missed, 1 FAILED"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, &out)
		}
	}
	if r.failed() != 1 {
		t.Errorf("%d rows failed", r.failed())
	}
}
