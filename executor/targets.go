package executor

import (
	"path/filepath"
	"runtime"
	"weak"

	"github.com/ramus-dev/ramus/executor/images"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/services"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// target returns the caller's target. It is the same one as long as a run, a container's door or anything else holds
// it. Then the executor forgets the target and its knowledge of the container.
func (x *Executor) target(c record.Caller, repo *gitd.Repo, base string) *step.Target {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.targets[c].Value()
	if t == nil || t.Repo.Name() != repo.Name() {
		t = x.steps.NewTarget(c, repo, base)
		x.targets[c] = weak.Make(t)
		runtime.AddCleanup(t, x.forgetTarget, c)
	}
	return t
}

// forgetTarget removes a caller's target that nobody holds.
func (x *Executor) forgetTarget(c record.Caller) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.targets[c].Value() == nil {
		delete(x.targets, c)
	}
}

// findTree returns the work tree of a caller, or nil if nobody holds it.
func (x *Executor) findTree(c record.Caller) *worktree.Tree {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.targets[c].Value(); t != nil {
		return t.Tree
	}
	return nil
}

// newBuilder returns the builder of images that bases describe.
func (x *Executor) newBuilder() *images.Builder {
	return &images.Builder{Devcontainer: x.Devcontainer, Dir: filepath.Join(x.Data, "builds"), Secrets: x.Secrets,
		Log: x.Log, Now: x.Now}
}

// newStarter returns the starter of the services of all callers.
func (x *Executor) newStarter() *services.Starter {
	return &services.Starter{Fleet: x.Fleet, Image: x.Image, Limits: x.ServiceLimits, Secrets: x.Secrets, Log: x.Log}
}

// newRunner returns the runner of the steps of all runs.
func (x *Executor) newRunner() *step.Runner {
	return &step.Runner{
		Context:       x.ctx,
		Go:            x.wg.Go,
		Git:           x.Git,
		Fleet:         x.Fleet,
		Trees:         x.trees,
		Deps:          x.deps,
		Settings:      x.Settings,
		Services:      x.services,
		Builder:       x.builder,
		Inspector:     x.inspector,
		Folder:        x.folder,
		Bucket:        x.artifacts.Bucket,
		Image:         x.Image,
		RepoEnv:       x.RepoEnv,
		Egress:        x.egress,
		Door:          x.door,
		KeepTerminals: x.shells.Keep,
		Count:         x.count,
		CountCheck:    x.countCheck,
		Hides:         x.Hides,
		Secrets:       x.Secrets,
		SecretStore:   x.SecretStore,
		Log:           x.Log,
		Now:           x.Now,
	}
}
