package past

import (
	"context"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/replay"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// runsFor returns the runs by which commits of a caller are tried. Of a private caller these are private too, because
// they have its files. The zero caller is nobody.
func (api *API) runsFor(of record.Caller) replay.Runs {
	if of.IsZero() || api.Privacy == nil || !api.Privacy.IsPrivate(of) {
		return api.Executor
	}
	return privateRuns{api.Executor, api.Privacy, of}
}

// privateRuns are runs of new callers that are private as another one is, for the same person.
type privateRuns struct {
	*executor.Executor
	privacy workspace.Privacy
	of      record.Caller
}

// Submit begins a run of a new private caller.
func (p privateRuns) Submit(ctx context.Context, r record.Request) (record.Run, error) {
	owner := r.Asker
	if runs := p.OfCaller(p.of); len(runs) > 0 {
		owner = runs[0].Asker // the person who began a caller owns it, also if an administrator looks into it
	}
	return workspace.SubmitPrivate(ctx, p.Executor, p.privacy, owner, r)
}
