package evidence

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/render"
)

// Limits of the chart of costs.
const (
	maxCostRows   = 100 // steps
	maxCostPoints = 400
	chartWidth    = 600
	chartHeight   = 100
)

// costs are the calls of models of a run that have a price.
type costs struct {
	calls []paid
	steps []costStep
	total int64 // in millionths
}

// paid is the sum of all calls up to a time.
type paid struct {
	when  time.Time
	total int64
}

type costStep struct {
	step  string
	calls int
	cost  int64
}

// costChart is the sum of the costs of a run over time. Its texts are clean.
type costChart struct {
	// Points are the corners of a line in a box of 600 by 100.
	Points        string
	Total, Within string
	Rows          []costRow
	Note          string
}

type costRow struct {
	Step, Cost string
	Calls      int
}

// add takes an event if it is a call with a price.
func (c *costs) add(e record.Event) {
	var call record.ModelCall
	if e.Type != record.EventUsage || json.Unmarshal(e.Data, &call) != nil || call.CostMicros <= 0 {
		return
	}
	c.total += call.CostMicros
	c.calls = append(c.calls, paid{e.Time, c.total})
	if n := len(c.steps); n == 0 || c.steps[n-1].step != e.Step {
		c.steps = append(c.steps, costStep{step: e.Step})
	}
	last := &c.steps[len(c.steps)-1]
	last.calls++
	last.cost += call.CostMicros
}

// chart returns the chart, or nil if no call had a price.
func (c *costs) chart() *costChart {
	if c.total == 0 {
		return nil
	}
	begin, end := c.calls[0].when, c.calls[len(c.calls)-1].when
	chart := &costChart{Total: micros(c.total), Within: render.Duration(end.Sub(begin))}
	var points strings.Builder
	y, every := float64(chartHeight), (len(c.calls)-1)/maxCostPoints+1
	fmt.Fprintf(&points, "0,%d", chartHeight)
	for i, call := range c.calls {
		if i%every != 0 && i < len(c.calls)-1 {
			continue
		}
		x := float64(chartWidth)
		if end.After(begin) {
			x *= float64(call.when.Sub(begin)) / float64(end.Sub(begin))
		}
		fmt.Fprintf(&points, " %.1f,%.1f", x, y) // the sum stays until the call
		y = chartHeight * (1 - float64(call.total)/float64(c.total))
		fmt.Fprintf(&points, " %.1f,%.1f", x, y)
	}
	chart.Points = points.String()
	for _, s := range c.steps[:min(len(c.steps), maxCostRows)] {
		chart.Rows = append(chart.Rows, costRow{Step: render.ClipClean(s.step, 200), Calls: s.calls, Cost: micros(s.cost)})
	}
	if len(c.steps) > maxCostRows {
		chart.Note = fmt.Sprintf("the first %d of %d; the journal has all", maxCostRows, len(c.steps))
	}
	return chart
}

func micros(n int64) string { return fmt.Sprintf("%.4f", float64(n)/1e6) }
