package browse

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

// Interactive browsers listen for MCP by streamable HTTP, on the loopback that the agent shares with the browser's
// sidecar. Nothing leads there from outside the container. InteractiveEnv names the variable that gives
// InteractiveURL to the agent.
const (
	InteractiveEnv  = "RAMUS_BROWSER_MCP"
	InteractivePort = 8931
)

// InteractiveURL is where an agent finds its browser.
var InteractiveURL = fmt.Sprintf("http://127.0.0.1:%d/mcp", InteractivePort)

const (
	interactiveStart = time.Minute            // until it listens
	interactiveLook  = 100 * time.Millisecond // between two looks whether it does
	// interactiveAgain is how often a browser that ended by itself is started again.
	interactiveAgain = 3
)

// Interactive is the browser of an agent at work, in a sidecar that is there until Close. It is for the agent alone
// and its pictures are not evidence. The server knows only the hosts that the browser reached through the proxy.
type Interactive struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the sidecar is gone and does not start again
}

// OpenInteractive starts a browser for the agent of a caller and waits until it listens. It returns nil if none is
// available, since an agent can work without one. OpenInteractive reports the browser's state to note, also after it
// returns.
func (in *Inspector) OpenInteractive(ctx context.Context, h *containers.Host, caller record.Caller, note func(format string, args ...any)) *Interactive {
	if in.Browser == nil {
		note("the agent works without a browser: none is configured")
		return nil
	}
	living, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := &Interactive{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		in.keepInteractive(living, h.Container().ID, caller, note)
	}()
	if err := b.listens(ctx, h); err != nil {
		b.Close()
		note("the agent works without a browser: %v", err)
		return nil
	}
	note("a browser was started for the agent, at %s; its visits are not recorded", InteractiveURL)
	return b
}

// keepInteractive runs the browser's sidecar, and starts it again if it ends by itself, until ctx ends.
func (in *Inspector) keepInteractive(ctx context.Context, id string, caller record.Caller, note func(format string, args ...any)) {
	for again := 0; ; again++ {
		end, gone := in.runInteractive(ctx, id, "agent-browser:"+caller.String())
		switch {
		case ctx.Err() != nil:
			note("the agent's browser was ended")
			return
		case gone || again == interactiveAgain:
			note("the agent's browser is gone: %s", end)
			return
		}
		note("the agent's browser ended by itself and is started again: %s", end)
	}
}

// runInteractive runs the browser's sidecar until it ends. end describes the end. gone reports whether another
// attempt is useless.
func (in *Inspector) runInteractive(ctx context.Context, id, key string) (end string, gone bool) {
	said := &text.Tail{Limit: 500}
	s := in.sidecar(key, io.Discard, said, "mcp", "--host", "127.0.0.1", "--port", strconv.Itoa(InteractivePort),
		"--proxy", "http://"+containers.DoorAddr)
	s.Unqueued = true
	exit, err := in.Fleet.RunSidecar(ctx, id, s)
	switch {
	case err != nil:
		return in.Secrets.String(err.Error()), errors.Is(err, containers.ErrGone) ||
			errors.Is(err, containers.ErrUnavailable)
	case exit.OOM:
		return fmt.Sprintf("it used more than %d MiB of memory", in.Browser.Limits.Memory>>20), false
	}
	return in.Secrets.String(fmt.Sprintf("it ended with %d: %s", exit.Code, lastLines(said.String()))), false
}

// listens waits until the browser accepts connections.
func (b *Interactive) listens(ctx context.Context, h *containers.Host) error {
	ctx, cancel := context.WithTimeoutCause(ctx, interactiveStart,
		fmt.Errorf("it does not listen after %v", interactiveStart))
	defer cancel()
	tick := time.NewTicker(interactiveLook)
	defer tick.Stop()
	for {
		ports, err := h.Ports(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case slices.Contains(ports, InteractivePort):
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

// Close ends the browser, and waits until nothing is left of it.
func (b *Interactive) Close() {
	b.cancel()
	<-b.done
}
