package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/ramus-dev/ramus/containers"
)

// DefaultImage is the image that make image builds.
const DefaultImage = "ramus/task:latest"

// Time limits for one request. The context of a caller may have a shorter one. An engine that takes longer counts as
// unavailable.
const (
	shortWait  = 15 * time.Second // for requests that the engine answers from memory
	createWait = time.Minute      // also for starting; runtimes are slow on a loaded machine
	removeWait = time.Minute      // killing, unmounting and deleting volumes
	runnerWait = 30 * time.Second // from the start of the container to the runner's greeting

	// removePatience is the time for which a refused removal is retried.
	removePatience = 30 * time.Second
)

// Engine is a [containers.Engine] over a Docker Engine. The zero value is ready to use. Fields must not change after
// the first call.
type Engine struct {
	// Host is the engine's address, as "unix:///var/run/docker.sock". If it is empty, DOCKER_HOST and its related
	// variables apply, and then the usual socket.
	Host string
	// Runner is the program whose `runner` subcommand becomes process 1. It must be static and executable for everyone.
	// The default is this program.
	Runner string
	// Program is the program at [containers.Program]. It must be static and executable for everyone. The default is
	// Runner.
	Program string
	// Image is used for a Spec without one. The default is [DefaultImage].
	Image string
	// Pin has the name of an image mean the same image until the next Refresh. Otherwise the engine is asked at each start.
	Pin bool
	// Log gets errors that no caller gets. If it is nil, they are discarded.
	Log *slog.Logger

	requests atomic.Int64 // number of requests to the engine so far

	mu       sync.Mutex // guards the fields below
	api      *client.Client
	runsOn   machine
	pins     map[string]string // ids of images by name; empty for an image that is not here
	starting map[string]bool   // names of containers that Start has not returned yet
	dirs     map[string]string // folder of the socket on the host by container id, for Dial
	process1 map[string]process
	sidecars map[string]bool // names of sidecars whose RunSidecar has not returned
	turns    map[string]turn // by id of containers that are being renamed or removed
	undoing  sync.WaitGroup  // work that no caller awaits
}

var _ interface {
	containers.Engine
	containers.Sidecars
	containers.Processes
	containers.TaskUser
	containers.Assigner
	containers.Volumes
	containers.Images
	containers.Names
} = (*Engine)(nil)

// Name returns "docker".
func (e *Engine) Name() string { return "docker" }

// Close waits for clean-ups in progress and closes the engine's connections. Containers continue.
func (e *Engine) Close() error {
	e.undoing.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.api == nil {
		return nil
	}
	return e.api.Close()
}

func (e *Engine) log() *slog.Logger {
	if e.Log != nil {
		return e.Log
	}
	return slog.New(slog.DiscardHandler)
}

func (e *Engine) image(s containers.Spec) string {
	switch {
	case s.Image != "":
		return s.Image
	case e.Image != "":
		return e.Image
	}
	return DefaultImage
}

// client returns the one client, which the first call makes. So an engine that is down when ramus starts is used once
// it is up.
func (e *Engine) client() (*client.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.api != nil {
		return e.api, nil
	}
	opts := []client.Opt{client.FromEnv}
	if e.Host != "" {
		opts = append(opts, client.WithHost(e.Host))
	}
	api, err := client.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("cannot use the Docker engine's address: %w", err)
	}
	switch scheme, _, _ := strings.Cut(api.DaemonHost(), "://"); scheme {
	case "unix", "tcp", "http", "https":
	default:
		return nil, fmt.Errorf("cannot use %s: the engine must run on this machine, unix:///path", api.DaemonHost())
	}
	e.api = api
	return api, nil
}

// ask runs one exchange with the engine within a time limit. what names the attempt in errors.
func (e *Engine) ask(ctx context.Context, limit time.Duration, what string, exchange func(context.Context, *client.Client) error) error {
	api, err := e.client()
	if err != nil {
		return fmt.Errorf("cannot %s: %w", what, err)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	e.requests.Add(1)
	err = exchange(limited, api)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("cannot %s: %w", what, context.Cause(ctx))
	case limited.Err() != nil:
		return fmt.Errorf("cannot %s: no answer from %s within %v: %w", what, api.DaemonHost(), limit,
			containers.ErrUnavailable)
	case !answered(err):
		return fmt.Errorf("cannot %s: %w: %w", what, containers.ErrUnavailable, err)
	}
	return fmt.Errorf("cannot %s: %w", what, err)
}

// answered reports whether err is a refusal of the engine. Otherwise the engine is not there, or went away in the
// middle of an answer.
func answered(err error) bool {
	if client.IsErrConnectionFailed(err) {
		return false
	}
	for _, is := range []func(error) bool{
		errdefs.IsInvalidArgument, errdefs.IsNotFound, errdefs.IsConflict, errdefs.IsPermissionDenied,
		errdefs.IsUnauthorized, errdefs.IsNotImplemented, errdefs.IsInternal, errdefs.IsNotModified,
	} {
		if is(err) {
			return true
		}
	}
	return false
}

// List returns the containers of one owner, the newest last. It leaves out containers that Start has not returned yet.
func (e *Engine) List(ctx context.Context, owner string) ([]containers.Container, error) {
	if owner == "" {
		return nil, errors.New("cannot list containers: an owner is needed")
	}
	var found client.ContainerListResult
	err := e.ask(ctx, shortWait, "list containers", func(ctx context.Context, api *client.Client) (err error) {
		found, err = api.ContainerList(ctx, client.ContainerListOptions{
			All:     true,
			Filters: make(client.Filters).Add("label", labelOwner+"="+owner),
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []containers.Container
	for _, c := range found.Items {
		if slices.ContainsFunc(c.Names, func(name string) bool { return e.starting[strings.TrimPrefix(name, "/")] }) {
			continue
		}
		list = append(list, containers.Container{
			ID:      c.ID,
			Key:     c.Labels[labelKey],
			Image:   c.Labels[labelImage],
			Running: c.State == container.StateRunning,
			Created: time.Unix(c.Created, 0).UTC(),
			Labels:  callersLabels(c.Labels),
		})
	}
	slices.SortStableFunc(list, func(a, b containers.Container) int { return a.Created.Compare(b.Created) })
	return list, nil
}

// Remove kills the container and its sidecars, and deletes its volumes and its files on the host. It returns when they
// are gone, even if another caller was removing the container already.
func (e *Engine) Remove(ctx context.Context, id string) error {
	what := "remove container " + id
	dir, err := e.socketDir(ctx, id)
	if err != nil && !errors.Is(err, containers.ErrGone) {
		return fmt.Errorf("cannot %s: %w", what, err)
	}
	leave, err := e.takeTurn(ctx, id)
	if err != nil {
		return fmt.Errorf("cannot %s: %w", what, err)
	}
	err = e.destroy(ctx, what, id)
	leave()
	if err != nil {
		return err
	}
	e.mu.Lock()
	delete(e.dirs, id)
	delete(e.process1, id)
	e.mu.Unlock()
	if dir != "" {
		if err := removeShared(dir); err != nil {
			return fmt.Errorf("cannot %s: its folder stays: %w", what, err)
		}
	}
	// The sidecars come last. One that is being made meanwhile finds no network to share.
	return e.destroyLabelled(ctx, labelSidecarOf+"="+id, nil)
}

// turn serializes operations that the engine must not run at once. If it renames a container that it removes, it may
// list the container until the engine is restarted.
type turn struct {
	place chan struct{} // holds a value while a goroutine has the turn
	n     int           // number of goroutines that have the turn or wait for it
}

// takeTurn waits until no other goroutine renames or removes a container. leave ends the turn.
func (e *Engine) takeTurn(ctx context.Context, id string) (leave func(), err error) {
	count := func(by int) turn {
		e.mu.Lock()
		defer e.mu.Unlock()
		t, ok := e.turns[id]
		if !ok {
			t.place = make(chan struct{}, 1)
		}
		t.n += by
		if e.turns == nil {
			e.turns = make(map[string]turn)
		}
		if e.turns[id] = t; t.n == 0 {
			delete(e.turns, id)
		}
		return t
	}
	t := count(+1)
	select {
	case t.place <- struct{}{}:
		return func() { <-t.place; count(-1) }, nil
	case <-ctx.Done():
		count(-1)
		return nil, context.Cause(ctx)
	}
}

// destroy kills a container of any kind and deletes its volumes.
func (e *Engine) destroy(ctx context.Context, what, id string) error {
	patience := time.After(removePatience)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := e.ask(ctx, removeWait, what, func(ctx context.Context, api *client.Client) error {
			_, err := api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			return err
		})
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		// A conflict means that another removal is in progress, an internal error that a mount is still busy. Both are
		// temporary.
		if !errdefs.IsConflict(err) && !errdefs.IsInternal(err) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-patience:
			return err
		case <-ctx.Done():
			return fmt.Errorf("cannot %s: %w", what, context.Cause(ctx))
		}
	}
}

// inspect returns the engine's description of a container. Returns [containers.ErrGone] if it does not exist.
func (e *Engine) inspect(ctx context.Context, id string) (container.InspectResponse, error) {
	var found client.ContainerInspectResult
	err := e.ask(ctx, shortWait, "look at container "+id, func(ctx context.Context, api *client.Client) (err error) {
		found, err = api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		return err
	})
	if errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) {
		return found.Container, fmt.Errorf("%w: %w", containers.ErrGone, err)
	}
	return found.Container, err
}

// socketDir returns the folder of a container's socket on the host. It comes from the container's mounts, so only the
// engine has to remember it.
func (e *Engine) socketDir(ctx context.Context, id string) (string, error) {
	e.mu.Lock()
	dir, ok := e.dirs[id]
	e.mu.Unlock()
	if ok {
		return dir, nil
	}
	c, err := e.inspect(ctx, id)
	if err != nil {
		return "", err
	}
	for _, m := range c.Mounts {
		if m.Destination == insideSocketDir && filepath.IsAbs(m.Source) {
			e.keepDir(c.ID, m.Source)
			return m.Source, nil
		}
	}
	return "", fmt.Errorf("container %s is not one of ramus: nothing is mounted at %s", id, insideSocketDir)
}

func (e *Engine) keepDir(id, dir string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dirs == nil {
		e.dirs = make(map[string]string)
	}
	e.dirs[id] = dir
}

// Requests returns the number of requests to the engine so far. Tests use it to show that fast paths make none.
func (e *Engine) Requests() int64 { return e.requests.Load() }
