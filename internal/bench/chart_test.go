package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/golden"
)

func testChart() chart {
	c := chart{Name: "test", Title: "First output <of a caller>", X: "files", Y: "milliseconds"}
	for i, x := range []float64{400, 2_000, 10_000, 27_000, 80_000} {
		c.add(sideRamus, x, 12+float64(i))
		c.add(sideRun, x, 420+7*float64(i))
		c.add(sideClone, x, 500+x*0.3)
	}
	c.add(sideRamus, 100_000, 0) // cannot be drawn
	return c
}

func TestChart(t *testing.T) {
	got := testChart().svg()
	golden.CompareFile(t, "testdata/chart.svg", got)
	d := xml.NewDecoder(strings.NewReader(got))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
		t.Error("a place of the chart is no number")
	}
}

// TestChartAlone: a single point, and a single line that is level, have a place too.
func TestChartAlone(t *testing.T) {
	for _, ys := range [][]float64{{5}, {5, 5}, {0.002, 900_000}} {
		c := chart{Title: "t"}
		for i, y := range ys {
			c.add("one", float64(1+i), y)
		}
		if s := c.svg(); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
			t.Errorf("%v: a place is no number:\n%s", ys, s)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		a    axis
		want string
	}{
		{axis{1, 10}, "1 3 10"},
		{axis{3, 300}, "3 10 30 100 300"},
		{axis{1, 1e6}, "1 10 100 1k 10k 100k 1M"},
		{axis{0.01, 1}, "0.01 0.03 0.1 0.3 1"},
	} {
		var got []string
		for _, v := range c.a.ticks() {
			got = append(got, short(v))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("ticks of %v are %s, want %s", c.a, s, c.want)
		}
	}
}
