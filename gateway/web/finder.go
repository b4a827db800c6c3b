package web

import (
	"errors"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// finder finds the things that the path of a page names, as the person of the call sees them.
type finder struct {
	executor   *executor.Executor
	find       *lookup.Lookup
	workspaces *workspace.Workspaces
}

// namedRun returns the run that the path names, if the person may see it.
func (f *finder) namedRun(c *route.Call) (workspace.Workspace, record.Run, error) {
	s, _, err := f.workspaces.Named(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return s, record.Run{}, err
	}
	r, ok := f.executor.Find(s.Caller, c.R.PathValue("run"))
	if !ok || !c.Who.SeesRun(r) {
		return s, r, route.NotFound("run", c.R.PathValue("run"))
	}
	return s, r, nil
}

// workRepo returns the repository that the path names, unless it is one with records of ramus alone.
func (f *finder) workRepo(c *route.Call) (*gitd.Repo, error) {
	r, err := f.find.PathRepo(c)
	if err == nil && lookup.IsOwnRepo(r.Name()) {
		return nil, route.NotFound("repository", r.Name())
	}
	return r, err
}

// shownRepo returns the repository of a page, with its base. head is empty if the base has no commit, or is hidden.
func (f *finder) shownRepo(c *route.Call) (r *gitd.Repo, base string, head gitd.Hash, err error) {
	if r, err = f.workRepo(c); err != nil {
		return nil, "", "", err
	}
	ctx := c.R.Context()
	if base, err = r.Base(ctx); err != nil || !c.Who.SeesBranch(r.Name(), base) {
		return r, base, "", err
	}
	if head, err = r.Resolve(ctx, "refs/heads/"+base); errors.Is(err, gitd.ErrNotFound) {
		return r, base, "", nil
	}
	return r, base, head, err
}

// lastRun returns the newest run of the caller that works on a branch.
func lastRun(x *executor.Executor, branch string) (record.Run, bool) {
	caller, ok := callerOfBranch(branch)
	if !ok {
		return record.Run{}, false
	}
	runs := x.OfCaller(caller)
	if len(runs) == 0 {
		return record.Run{}, false
	}
	return runs[len(runs)-1], true
}
