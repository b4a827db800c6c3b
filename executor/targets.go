package executor

import (
	"path/filepath"

	"github.com/ramus-dev/ramus/executor/images"
	"github.com/ramus-dev/ramus/executor/services"
	"github.com/ramus-dev/ramus/executor/step"
)

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
		Context:       x.life.ctx,
		Go:            x.life.wg.Go,
		Git:           x.Git,
		Fleet:         x.Fleet,
		Trees:         x.trees,
		Deps:          x.deps,
		Settings:      x.Settings,
		Services:      x.services,
		Builder:       x.newBuilder(),
		Inspector:     x.viewer.Inspector,
		Folder:        x.folder,
		Bucket:        x.artifacts.Bucket,
		Image:         x.Image,
		RepoEnv:       x.RepoEnv,
		Egress:        x.egress,
		Door:          x.door,
		KeepTerminals: x.shells.Keep,
		Count:         x.tally.count,
		CountCheck:    x.tally.countCheck,
		Hides:         x.Hides,
		Secrets:       x.Secrets,
		SecretStore:   x.SecretStore,
		Log:           x.Log,
		Now:           x.Now,
	}
}
