package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/ramus-dev/ramus/containers"
)

// With Engine.Pin the name of an image means one image until the next Refresh, even if its tag moves meanwhile.

// pullWait bounds the pull of one image.
const pullWait = 30 * time.Minute

// ownImages begins the names of the images that this project builds. No registry has them, and those of strangers with such a
// name are not pulled.
const ownImages = "ramus/"

// pinned returns the image that a name means, or "" if that is not decided yet.
func (e *Engine) pinned(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pins[name]
}

// pin sets the image of a name. An empty id means that the image is wanted and is not here.
func (e *Engine) pin(name, id string) {
	if !e.Pin {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pins == nil {
		e.pins = make(map[string]string)
	}
	if _, known := e.pins[name]; known || len(e.pins) < maxPins {
		e.pins[name] = id
	}
}

// maxPins bounds how many names are remembered.
const maxPins = 1000

// Refresh pulls the images with these names and those that containers were started from or needed. From then on each name means
// the image that was pulled. See [containers.Refresher].
func (e *Engine) Refresh(ctx context.Context, names []string) error {
	e.mu.Lock()
	all := slices.AppendSeq(slices.Clone(names), maps.Keys(e.pins))
	e.mu.Unlock()
	slices.Sort(all)
	var errs []error
	for _, name := range slices.Compact(all) {
		if err := e.refresh(ctx, name); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// refresh pulls one image. An image that was built here and comes from no registry only gets its present meaning.
func (e *Engine) refresh(ctx context.Context, name string) error {
	here, err := e.inspectImage(ctx, name)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("docker: %w", err)
	}
	missing := err != nil
	fixed := strings.Contains(name, "@") || strings.HasPrefix(name, "sha256:")
	if fixed || strings.HasPrefix(name, ownImages) || !missing && len(here.RepoDigests) == 0 {
		if !missing {
			e.pin(name, here.ID)
		}
		return nil
	}
	if err := e.pull(ctx, name); err != nil {
		return fmt.Errorf("docker: cannot pull the image %s: %w", name, err)
	}
	now, err := e.inspectImage(ctx, name)
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	if now.ID != here.ID {
		e.log().Info("an image was pulled", "image", digested(name, now))
	}
	e.pin(name, now.ID)
	return nil
}

// pull asks the engine to pull an image, and waits for it.
func (e *Engine) pull(ctx context.Context, name string) error {
	return e.ask(ctx, pullWait, "pull image "+name, func(ctx context.Context, api *client.Client) error {
		progress, err := api.ImagePull(ctx, name, client.ImagePullOptions{})
		if err != nil {
			return err
		}
		defer progress.Close()
		for m, err := range progress.JSONMessages(ctx) {
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case m.Error != nil:
				return m.Error
			}
		}
		return nil
	})
}

// inspectImage returns the description of an image. The error satisfies errdefs.IsNotFound if it is not here.
func (e *Engine) inspectImage(ctx context.Context, name string) (image client.ImageInspectResult, err error) {
	err = e.ask(ctx, shortWait, "look at image "+name, func(ctx context.Context, api *client.Client) (err error) {
		image, err = api.ImageInspect(ctx, name)
		return err
	})
	return image, err
}

var _ containers.Refresher = (*Engine)(nil)
