package step

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

// newServices returns the services of a target. The run at work is told of those that end by themselves.
func (t *Target) newServices() *services.Set {
	return t.runner.Services.NewSet(t.Caller.String(), func(what string) {
		t.Tell(record.Event{Type: record.EventNote, Reason: record.NoteService, Message: text.Clip(what, 8<<10)})
	})
}

// StartServices has the services of the repository and of a step run next to the step's container.
func (l *Run) StartServices(ctx context.Context, t *Target, lease *containers.Lease, s Info) error {
	did, err := t.Services.Ensure(ctx, lease, overlaid(t.Settings().Services, s.Services))
	var failed *services.Failed
	if errors.As(err, &failed) {
		return &Failure{record.ReasonService, l.Runner.Secrets.String(failed.Error())}
	}
	if err != nil || did == "" {
		return err
	}
	return l.Emit(record.Event{Type: record.EventContainer, Step: s.ID, Message: did}, false)
}

// endServices ends the services of a step. Those of the repository go on with the container.
func (l *Run) endServices(ctx context.Context, t *Target, s Info) {
	if len(s.Services) == 0 || l.Runner.Context.Err() != nil {
		return // after a restart the step's command goes on with its services
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), worktree.Housekeeping)
	defer cancel()
	if err := t.Services.Drop(ctx, s.Services); err != nil {
		l.Runner.Log.Warn("the services of a step end with the container", "run", l.Initial.Name(), "step", s.ID, "err", err)
	}
}

// allowed returns an error if a step names an image that its repository may not use.
func (t *Target) allowed(s Info) error {
	bounds := t.runner.Settings.Bounds()
	images := []string{s.Image}
	for _, v := range s.Services {
		images = append(images, v.Image)
	}
	for _, image := range images {
		if image != "" && image != t.Settings().Image && !bounds.AllowsImage(t.Repo.Name(), image) {
			return &Failure{record.ReasonBadInput,
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
