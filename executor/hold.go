package executor

import (
	"context"
	"encoding/json"
)

// Claim makes a run durable before it is known what is to be done: a run of
// KindRequest that is submitted and at which nothing works. The request needs
// Key, Caller and Repo; it has no work. A second claim with the same caller and
// key returns the first one's run, and fresh is false. The caller's branch is
// not made before Begin.
func (x *Executor) Claim(ctx context.Context, r Request) (run Run, fresh bool, err error) {
	panic("not built")
}

// Begin gives a claimed run its work and starts it. Of the request only the
// work, Input, Sub, Base and Asker count. A run that has begun already is returned as it is.
func (x *Executor) Begin(ctx context.Context, run string, r Request) (Run, error) {
	panic("not built")
}

// Note journals an event in a run that has not ended.
func (x *Executor) Note(ctx context.Context, run string, e Event) error { panic("not built") }

// Ending is how a claimed run ends that is never begun.
type Ending struct {
	Reason Reason // empty: complete
	Error  string
	Output map[string]any
}

// End seals a claimed run that was answered without running anything.
func (x *Executor) End(ctx context.Context, run string, e Ending) (Run, error) { panic("not built") }

// Tell records in an ended run that its origin knows. It is durable when Tell returns.
func (x *Executor) Tell(ctx context.Context, run string, data json.RawMessage) error {
	panic("not built")
}

// Untold lists the runs with an Origin that is not known to have been told of
// their end: those that are claimed, at work, waiting for a person, or ended. Oldest first.
func (x *Executor) Untold(ctx context.Context) ([]Run, error) { panic("not built") }
