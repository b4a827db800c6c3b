package executor

import (
	"context"

	"github.com/ramus-dev/ramus/executor/prune"
)

// Prune removes the things that are not kept, see package prune. One Prune works at a time, and none with a backup or
// with [Executor.RotateSecrets].
func (x *Executor) Prune(ctx context.Context, p prune.Pruning) ([]prune.Pruned, error) {
	if err := x.life.err(); err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	release, err := x.runs.lock(ctx, pruneLock)
	if err != nil {
		return nil, err
	}
	defer release()
	pruner := prune.Pruner{Git: x.Git, Chain: &x.Chain, Trees: x.trees, Artifacts: x.Artifacts, LFS: x.LFS, Runs: x.Current,
		Works:  x.runs.has,
		Forget: x.Index.Remove, Hosts: x.hosts, Sweep: x.Bases.Sweep, Keep: x.options().Keep, Log: x.Log, At: x.Now()}
	return pruner.Prune(ctx, p)
}

// hosts returns the names of the callers that have a container.
func (x *Executor) hosts() []string {
	var names []string
	for _, h := range x.Fleet.List(x.life.ctx) {
		names = append(names, h.Key)
	}
	return names
}
