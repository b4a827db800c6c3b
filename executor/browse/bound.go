package browse

import (
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// boundedCheck cuts the texts of a check until the journal can hold it. A line that is too long there makes the whole run unreadable. JSON may
// write six bytes for one.
func boundedCheck(c browser.Check) browser.Check {
	for most, entries := 2<<10, maxViewSteps; ; {
		c.Reason, c.Log = text.Clip(c.Reason, maxSaid), text.ClipEnd(c.Log, maxSaid)
		c.Views = slices.Clone(c.Views)
		for i := range c.Views {
			v := boundedView(c.Views[i], most)
			v.Network, v.Steps = v.Network[:min(len(v.Network), entries)], v.Steps[:min(len(v.Steps), entries)]
			v.Console.Errors, v.Console.PageErrors = v.Console.Errors[:min(len(v.Console.Errors), entries)],
				v.Console.PageErrors[:min(len(v.Console.PageErrors), entries)]
			c.Views[i] = v
		}
		if c.Compare != nil {
			d := *c.Compare
			d.Reason, d.Views = text.Clip(d.Reason, most), slices.Clone(d.Views)
			for i := range d.Views {
				d.Views[i].Aria = text.Clip(d.Views[i].Aria, 8*most)
			}
			c.Compare = &d
		}
		switch {
		case entries == 0 || len(record.Marshal(c)) <= maxCheckData:
			return c
		case most > 128:
			most /= 2
		default:
			entries /= 2
		}
	}
}
