package evidence

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestCosts draws the sum of the costs of a run, and bounds the corners of the line.
func TestCosts(t *testing.T) {
	call := func(step string, second int, micros int64) record.Event {
		return record.Event{Type: record.EventUsage, Step: step, Time: time.Unix(int64(second), 0), Data: fmt.Appendf(nil, `{"cost_micros": %d}`, micros)}
	}
	var c costs
	for _, e := range []record.Event{{Type: record.EventNote}, {Type: record.EventUsage, Data: []byte("nonsense")}, call("free", 5, 0)} {
		c.add(e)
	}
	if c.chart() != nil {
		t.Error("nothing cost anything")
	}
	for _, e := range []record.Event{call("one", 10, 250_000), call("one", 20, 250_000), call("two<b>", 30, 500_000)} {
		c.add(e)
	}
	chart := c.chart()
	if want := "0,100 0.0,100.0 0.0,75.0 300.0,75.0 300.0,50.0 600.0,50.0 600.0,0.0"; chart.Points != want || chart.Total != "1.0000" ||
		fmt.Sprint(chart.Rows) != "[{one 0.5000 2} {two<b> 0.5000 1}]" {
		t.Errorf("the chart is %+v, want the points %s", chart, want)
	}
	var many costs
	for i := range 10_000 {
		many.add(call(fmt.Sprint(i), i, 1))
	}
	if chart := many.chart(); strings.Count(chart.Points, " ") > 2*maxCostPoints+4 || len(chart.Rows) != maxCostRows || chart.Note == "" ||
		!strings.HasSuffix(chart.Points, "600.0,0.0") {
		t.Errorf("%d corners, %d rows, %q", strings.Count(chart.Points, " "), len(chart.Rows), chart.Note)
	}
	var once costs
	if once.add(call("x", 1, 5)); once.chart().Points != "0,100 600.0,100.0 600.0,0.0" {
		t.Errorf("one call is %s", once.chart().Points)
	}
}
