package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
)

// chart has lines over a growing number. Both axes are logarithmic. The cost is proportional where a line rises like
// the axis, and constant where it is level.
type chart struct {
	Name   string   `json:"name"` // file name, without .svg
	Title  string   `json:"title"`
	X      string   `json:"x"`
	Y      string   `json:"y"`
	Series []series `json:"series"`
}

type series struct {
	Name   string  `json:"name"`
	Points []point `json:"points"`
}

type point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// add appends a point to a line. The first point creates the line.
func (c *chart) add(name string, x, y float64) {
	if y <= 0 || math.IsNaN(y) {
		return // a logarithmic axis has no such value
	}
	i := slices.IndexFunc(c.Series, func(s series) bool { return s.Name == name })
	if i < 0 {
		i = len(c.Series)
		c.Series = append(c.Series, series{Name: name})
	}
	c.Series[i].Points = append(c.Series[i].Points, point{x, y})
}

// Sizes of a chart, in its own units. The image's width sets the size of text, which is larger where the chart is shown
// small. The margins have space for both.
const (
	chartWidth, chartHeight = 720, 480
	marginLeft, marginRight = 104, 28
	marginTop, marginBottom = 112, 86
)

const chartStyle = `
text { font: 15px system-ui, sans-serif; fill: #24292f }
.title { font-size: 19px; font-weight: 600 }
.grid { stroke: #d0d7de; stroke-width: 1 }
.line { fill: none; stroke-width: 3; stroke-linejoin: round }
.paper { fill: #ffffff }
.c0 { stroke: #0969da } .c1 { stroke: #bc4c00 } .c2 { stroke: #6e7781 } .c3 { stroke: #8250df }
.d0 { fill: #0969da } .d1 { fill: #bc4c00 } .d2 { fill: #6e7781 } .d3 { fill: #8250df }
@media (max-width: 480px) {
  text { font-size: 24px } .title { font-size: 26px } .wide { display: none } .line { stroke-width: 4.5 } .grid { stroke-width: 1.5 }
}
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .paper { fill: #0d1117 } .grid { stroke: #30363d }
  .c0 { stroke: #58a6ff } .c1 { stroke: #f0883e } .c2 { stroke: #8b949e } .c3 { stroke: #bc8cff }
  .d0 { fill: #58a6ff } .d1 { fill: #f0883e } .d2 { fill: #8b949e } .d3 { fill: #bc8cff }
}
`

// keyGap is the width of the dot and the space of a name in the key, in letters.
const keyGap = 6

// svg returns the chart as SVG.
func (c chart) svg() string {
	x, y := axis{math.Inf(1), math.Inf(-1)}, axis{math.Inf(1), math.Inf(-1)}
	for _, s := range c.Series {
		for _, p := range s.Points {
			x.take(p.X)
			y.take(p.Y)
		}
	}
	y.toDecades()
	atX := func(v float64) float64 { return marginLeft + x.part(v)*(chartWidth-marginLeft-marginRight) }
	atY := func(v float64) float64 {
		return chartHeight - marginBottom - y.part(v)*(chartHeight-marginTop-marginBottom)
	}

	var b strings.Builder
	text := func(x, y float64, class, anchor, s string) {
		var escaped strings.Builder
		xml.EscapeText(&escaped, []byte(s))
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">%s</text>\n", x, y, class,
			anchor, &escaped)
	}
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"100%%\" role=\"img\">\n<style>%s</style>\n", chartWidth, chartHeight, chartStyle)
	fmt.Fprintf(&b, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", chartWidth, chartHeight)
	text(18, 32, "title", "start", c.Title)
	text(18, 62, "", "start", c.Y)

	const bottom = chartHeight - marginBottom
	for _, v := range y.ticks() {
		fmt.Fprintf(&b, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1[3]f\"/>\n", marginLeft,
			chartWidth-marginRight, atY(v))
		text(marginLeft-10, atY(v)+6, "", "end", short(v))
	}
	xs := c.xs()
	for i, v := range xs {
		class := ""
		if i%2 == 1 && i != len(xs)-1 || i == len(xs)-2 && len(xs) > 2 {
			class = "wide" // every other one is left out where space is short
		}
		fmt.Fprintf(&b, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1[1]f\" y1=\"%d\" y2=\"%d\"/>\n", atX(v), marginTop, bottom)
		text(atX(v), bottom+26, class, "middle", short(v))
	}
	text(chartWidth-marginRight, chartHeight-18, "", "end", c.X)

	letters := 0
	for _, s := range c.Series {
		letters += len(s.Name) + keyGap
	}
	column := 18.0
	for i, s := range c.Series {
		var path strings.Builder
		for j, p := range s.Points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], atX(p.X), atY(p.Y))
		}
		fmt.Fprintf(&b, "<path class=\"line c%d\" d=\"%s\"/>\n", i%4, &path)
		for _, p := range s.Points {
			fmt.Fprintf(&b, "<circle class=\"d%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"/>\n", i%4, atX(p.X), atY(p.Y))
		}
		// The key is above the lines, in columns as wide as their names, so that it fits any width.
		fmt.Fprintf(&b, "<circle class=\"d%d\" cx=\"%.1f\" cy=\"86\" r=\"7\"/>\n", i%4, column+7)
		text(column+22, 92, "", "start", s.Name)
		column += float64((chartWidth-36)*(len(s.Name)+keyGap)) / float64(letters)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// xs returns the x values of all points.
func (c chart) xs() []float64 {
	var out []float64
	for _, s := range c.Series {
		for _, p := range s.Points {
			out = append(out, p.X)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// axis is logarithmic. It goes from the smallest to the largest value.
type axis struct{ min, max float64 }

func (a *axis) take(v float64) { a.min, a.max = min(a.min, v), max(a.max, v) }

// toDecades widens an axis to powers of ten, or to ones and threes if that is narrower.
func (a *axis) toDecades() {
	low, high := math.Pow(10, math.Floor(math.Log10(a.min))), math.Pow(10, math.Ceil(math.Log10(a.max)))
	if 3*low <= a.min {
		low *= 3
	}
	if high/3 >= a.max {
		high /= 3
	}
	if high <= low {
		high = 10 * low
	}
	a.min, a.max = low, high
}

// part returns the position of v between the ends, 0 to 1.
func (a axis) part(v float64) float64 {
	if a.max <= a.min {
		return 0.5
	}
	return math.Log(v/a.min) / math.Log(a.max/a.min)
}

// ticks returns ones and threes, or only ones if there are many.
func (a axis) ticks() []float64 {
	var out []float64
	for d := math.Floor(math.Log10(a.min)); d <= math.Log10(a.max)+1e-9; d++ {
		for _, f := range []float64{1, 3} {
			if v := f * math.Pow(10, d); v >= a.min*0.999 && v <= a.max*1.001 {
				out = append(out, v)
			}
		}
	}
	if len(out) > 7 {
		out = slices.DeleteFunc(out, func(v float64) bool { l := math.Log10(v); return math.Abs(l-math.Round(l)) > 0.01 })
	}
	return out
}

// short formats a number for an axis. It returns 1k for 1,000.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return trimZeros(fmt.Sprintf("%.1f", v/1e6)) + "M"
	case v >= 1000:
		return trimZeros(fmt.Sprintf("%.1f", v/1e3)) + "k"
	case v >= 1:
		return trimZeros(fmt.Sprintf("%.1f", v))
	}
	return trimZeros(fmt.Sprintf("%.4f", v))
}
