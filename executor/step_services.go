package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/services"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/service"
)

// newStarter returns the starter of the services of all callers.
func (x *Executor) newStarter() *services.Starter {
	return &services.Starter{Fleet: x.Fleet, Image: x.Image, Limits: x.ServiceLimits, Secrets: x.Secrets, Log: x.Log}
}

// newServices returns the services of a target. The run at work is told of those that end by themselves.
func (t *target) newServices() *services.Set {
	return t.x.services.NewSet(t.Caller.String(), func(what string) {
		t.tell(record.Event{Type: record.EventNote, Reason: record.NoteService, Message: text.Clip(what, 8<<10)})
	})
}

// startServices has the services of the repository and of a step run next to the step's container.
func (l *liveRun) startServices(ctx context.Context, t *target, lease *containers.Lease, s stepInfo) error {
	did, err := t.services.Ensure(ctx, lease, overlaid(t.settings().Services, s.Services))
	var failed *services.Failed
	if errors.As(err, &failed) {
		return &failure{record.ReasonService, l.x.Secrets.String(failed.Error())}
	}
	if err != nil || did == "" {
		return err
	}
	return l.Emit(record.Event{Type: record.EventContainer, Step: s.ID, Message: did}, false)
}

// endServices ends the services of a step. Those of the repository go on with the container.
func (l *liveRun) endServices(ctx context.Context, t *target, s stepInfo) {
	if len(s.Services) == 0 || l.x.ctx.Err() != nil {
		return // after a restart the step's command goes on with its services
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), worktree.Housekeeping)
	defer cancel()
	if err := t.services.Drop(ctx, s.Services); err != nil {
		l.x.Log.Warn("the services of a step end with the container", "run", l.Initial.Name(), "step", s.ID, "err", err)
	}
}

// allowed returns an error if a step names an image that its repository may not use.
func (t *target) allowed(s stepInfo) error {
	bounds := t.x.Settings.Bounds()
	images := []string{s.Image}
	for _, v := range s.Services {
		images = append(images, v.Image)
	}
	for _, image := range images {
		if image != "" && image != t.settings().Image && !bounds.AllowsImage(t.Repo.Name(), image) {
			return &failure{record.ReasonBadInput,
				fmt.Sprintf("%s wants the image %s: the server's `allow.images` does not list it", s.ID, image)}
		}
	}
	return nil
}

// overlaid returns the services of a repository with those of a step. A step's takes the place of the repository's of the same name.
func overlaid(list, step []service.Service) []service.Service {
	list = slices.DeleteFunc(slices.Clone(list), func(v service.Service) bool {
		return slices.ContainsFunc(step, func(own service.Service) bool { return own.Name == v.Name })
	})
	return append(list, step...)
}
