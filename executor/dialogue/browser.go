package dialogue

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/internal/text"
)

// openBrowser starts the agent's browser and waits until it listens. It returns false if the agent has none, or if
// none is available. The journal has the reason.
func (c *conversation) openBrowser(ctx context.Context, w *step.Work) bool {
	if c.a.Browser != agent.BrowserInteractive {
		return false
	}
	c.closeBrowser() // of a container that is gone, or of an agent that did not come up
	c.browser = c.d.all.Inspector.OpenInteractive(ctx, w.Host, c.run.Initial.Caller, func(format string, args ...any) {
		// The run's own events will meet the same error.
		_ = c.run.Emit(record.Event{Type: record.EventNote, Step: w.Info.ID,
			Message: text.Clip(fmt.Sprintf(format, args...), 4<<10)}, false)
	})
	return c.browser != nil
}

// closeBrowser ends the agent's browser, if it has one, and waits until nothing is left of it.
func (c *conversation) closeBrowser() {
	if c.browser != nil {
		c.browser.Close()
		c.browser = nil
	}
}
