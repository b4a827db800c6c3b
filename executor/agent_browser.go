package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
)

// BrowserInteractive gives an agent a browser of its own to drive while it works; see [Agent.Browser].
const BrowserInteractive = "interactive"

// Where an agent finds its browser: MCP by streamable HTTP, on the loopback that it
// shares with the browser's sidecar. Nothing leads there from outside the container.
const (
	agentBrowserPort = 8931
	agentBrowserEnv  = "RAMUS_BROWSER_MCP"
)

var agentBrowserURL = fmt.Sprintf("http://127.0.0.1:%d/mcp", agentBrowserPort)

const (
	agentBrowserStart = time.Minute            // until it listens
	agentBrowserLook  = 100 * time.Millisecond // between two looks whether it does
	// agentBrowserAgain is how often a browser that ended by itself is started again.
	agentBrowserAgain = 3
)

// agentBrowser is the browser of an agent at work: a sidecar that is there until it is
// ended, by whoever began it. What it shows is for the agent alone and no evidence: what
// it visited is not known here, but for the hosts that it was let out to.
type agentBrowser struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the sidecar is gone for good
}

// openBrowser starts the agent's browser and waits until it listens; false where the agent has none, or
// it cannot be had: an agent can do its work all the same, and the journal says so.
func (c *conversation) openBrowser(ctx context.Context, w *work) bool {
	if c.a.Browser != BrowserInteractive {
		return false
	}
	if c.browser != nil { // of a container that is gone, or of an agent that did not come up
		c.closeBrowser()
	}
	x := c.l.x
	note := func(format string, args ...any) {
		// The run's own events will meet the same error.
		_ = c.l.emit(record.Event{Type: record.EventNote, Step: w.s.ID, Message: text.Clip(fmt.Sprintf(format, args...), 4<<10)}, false)
	}
	if x.Browser == nil {
		note("the agent works without a browser: none is configured")
		return false
	}
	living, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := &agentBrowser{cancel: cancel, done: make(chan struct{})}
	c.browser = b
	id := w.host.Container().ID
	go func() {
		defer close(b.done)
		for again := 0; ; again++ {
			end, gone := x.beside(living, id, "agent-browser:"+c.l.claim.Caller.String())
			switch {
			case living.Err() != nil:
				note("the agent's browser was ended")
				return
			case gone || again == agentBrowserAgain:
				note("the agent's browser is gone: %s", end)
				return
			}
			note("the agent's browser ended by itself and is started again: %s", end)
		}
	}()
	if err := b.listens(ctx, w.host); err != nil {
		c.closeBrowser()
		note("the agent works without a browser: %v", err)
		return false
	}
	note("a browser was started for the agent, at %s; what it visits is not recorded", agentBrowserURL)
	return true
}

// beside runs the browser's sidecar until it ends; end says how it did, gone that there
// is no use in trying again.
func (x *Executor) beside(ctx context.Context, id, key string) (end string, gone bool) {
	said := &text.Tail{Limit: 500}
	exit, err := x.Fleet.RunSidecar(ctx, id, containers.Sidecar{
		Key: key, Image: x.Browser.Image, Limits: x.Browser.Limits, Unqueued: true,
		Args: []string{containers.BrowserDir + "/ramus-browser", "mcp", "--host", "127.0.0.1", "--port", strconv.Itoa(agentBrowserPort),
			"--proxy", "http://" + containers.DoorAddr},
		Stdout: io.Discard, Stderr: said})
	switch {
	case err != nil:
		return x.Secrets.String(err.Error()), errors.Is(err, containers.ErrGone) || errors.Is(err, containers.ErrUnavailable)
	case exit.OOM:
		return fmt.Sprintf("it used more than %d MiB of memory", x.Browser.Limits.Memory>>20), false
	}
	return x.Secrets.String(fmt.Sprintf("it ended with %d: %s", exit.Code, lastLines(said.String()))), false
}

// listens waits until the browser can be asked.
func (b *agentBrowser) listens(ctx context.Context, h *containers.Host) error {
	ctx, cancel := context.WithTimeoutCause(ctx, agentBrowserStart, fmt.Errorf("it does not listen after %v", agentBrowserStart))
	defer cancel()
	tick := time.NewTicker(agentBrowserLook)
	defer tick.Stop()
	for {
		ports, err := h.Ports(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case slices.Contains(ports, agentBrowserPort):
			return nil
		}
		select {
		case <-tick.C:
		case <-b.done:
			return errors.New("it does not start")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// closeBrowser ends the agent's browser, if it has one, and waits until nothing is left of it.
func (c *conversation) closeBrowser() {
	if c.browser == nil {
		return
	}
	c.browser.cancel()
	<-c.browser.done
	c.browser = nil
}
