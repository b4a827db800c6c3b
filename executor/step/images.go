package step

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/images"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/internal/text"
)

// buildLog is the log of a build that failed, in the container of the usual image.
const buildLog = containers.CacheDir + "/image-build.log"

// ImageOf returns the image of a step's container: the step's, the agent's, or that of the repository, which may have to be built. If that
// fails, it returns the usual image and the failure. With no image named, any is good.
func (l *Run) ImageOf(ctx context.Context, t *Target, s Info) (image string, failed *images.Failed, err error) {
	if image = cmp.Or(s.Image, l.Owner.Image()); image != "" {
		return image, nil, nil
	}
	now := t.Settings()
	if now.Container == nil && s.Usual {
		return now.Image, nil, nil
	}
	if now.Container == nil {
		return "", nil, nil
	}
	if !now.Container.File.Builds() {
		return now.Image, nil, nil
	}
	image, err = l.Runner.Builder.Image(ctx, wishOf(t, now), func() error {
		return l.Emit(record.Event{Type: record.EventContainer, Step: s.ID,
			Message: "builds the image of " + now.Container.File.Path}, false)
	})
	if errors.As(err, &failed) {
		return now.Image, failed, nil
	}
	return image, nil, err
}

func wishOf(t *Target, now settings.Settings) images.Wish {
	return images.Wish{Repo: t.Repo, Commit: now.Commit, File: now.Container.File, Dockerfile: now.Container.Dockerfile}
}

// Recovers puts the log of a build that failed into the container of the usual image, and tells the run.
func (l *Run) Recovers(ctx context.Context, lease *containers.Lease, s Info, failed *images.Failed) error {
	if failed == nil {
		return nil
	}
	message := fmt.Sprintf("%v; the container is of the usual image, with the builder's log in %s\n%s", failed,
		buildLog, text.End(failed.Log, 2<<10))
	for _, e := range l.Journalled() {
		if e.Type == record.EventNote && e.Reason == record.NoteRecovery {
			return nil
		}
	}
	if err := l.Emit(record.Event{Type: record.EventNote, Step: s.ID, Reason: record.NoteRecovery,
		Message: text.Clip(message, 8<<10)}, false); err != nil {
		return err
	}
	p, err := lease.Host.Start(ctx, containers.Command{ID: "image-build-log-" + l.Initial.ID,
		Shell: "cat > " + buildLog, Stdin: bytes.NewReader([]byte(failed.Error() + "\n" + failed.Log))})
	if err != nil {
		return err
	}
	_, err = p.Output(nil, nil)
	return err
}
