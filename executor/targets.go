package executor

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/images"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
)

// newBuilder returns the builder of images that bases describe.
func (x *Executor) newBuilder() *images.Builder {
	return &images.Builder{Devcontainer: x.Containers.Devcontainer, Dir: filepath.Join(x.Data, "builds"), Secrets: x.Secrets,
		Log: x.Log, Now: x.Now}
}

// setServices sets the fields of Services that are no options of the executor.
func (x *Executor) setServices() {
	s := &x.Services
	s.Fleet, s.Image, s.Secrets, s.Log = x.Fleet, x.Containers.Image, x.Secrets, x.Log
}

// newRunner returns the runner of the steps of all runs.
func (x *Executor) newRunner() *step.Runner {
	return &step.Runner{
		Context:       x.life.ctx,
		Go:            x.life.wg.Go,
		Git:           x.Git,
		Fleet:         x.Fleet,
		Trees:         x.trees,
		Deps:          x.deps,
		Settings:      x.Settings,
		Services:      &x.Services,
		Builder:       x.newBuilder(),
		Inspector:     x.viewer.Inspector,
		Folder:        x.Folder,
		Bucket:        x.Artifacts.Bucket,
		Image:         x.Containers.Image,
		RepoEnv:       x.Containers.RepoEnv,
		Egress:        x.egress,
		Door:          x.door,
		KeepTerminals: x.Shells.Keep,
		Count:         x.tally.count,
		CountCheck:    x.tally.countCheck,
		Hides:         x.Hides,
		Secrets:       x.Secrets,
		SecretStore:   x.SecretStore,
		Log:           x.Log,
		Now:           x.Now,
	}
}

// awake returns a lease of a caller's container, which is made if there is none.
func (x *Executor) awake(ctx context.Context, c record.Caller, by gitd.Person) (*step.Target, *containers.Lease, error) {
	repo, base, err := x.HomeRepo(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	t := x.targets.Of(c, repo, base)
	lease, err := x.Fleet.Adopt(ctx, t.Request("", by, nil))
	if err != nil && !errors.Is(err, containers.ErrGone) {
		return nil, nil, err
	}
	if lease != nil && err == nil {
		t.Board(lease)
		return t, lease, nil
	}
	release, err := t.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	lease, _, err = t.Ready(ctx, "", by, nil)
	return t, lease, err
}
