package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/ramus-dev/ramus/containers"
)

// The sides of the container half.
const (
	sideRun   = "docker run"
	sideExec  = "docker exec"
	sideClone = "docker run, clone"
	sideFloor = "plain process"
)

// engineAPI drives the container engine by its API, as the docker program does, without the time that this program
// takes to start. It labels and removes its containers.
type engineAPI struct {
	api   *client.Client
	image string
}

// label is on all containers that are made for comparison.
const label = "ramus.bench"

// engineAPI returns the connection to the engine. Scenarios that need the engine or the image cannot run without them.
func (b *bench) engineAPI(ctx context.Context) (*engineAPI, error) {
	if b.api != nil {
		return b.api, nil
	}
	api, err := client.New(client.FromEnv)
	if err != nil {
		return nil, unable("no container engine: %v", err)
	}
	if _, err := api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return nil, unable("no container engine answers: %v", err)
	}
	if _, err := api.ImageInspect(ctx, b.image); err != nil {
		return nil, unable("the image %s is not there, make image builds it: %v", b.image, err)
	}
	b.api = &engineAPI{api, b.image}
	return b.api, nil
}

// options returns the options of a container that runs args without a network.
func (e *engineAPI) options(binds []string, args ...string) client.ContainerCreateOptions {
	return client.ContainerCreateOptions{
		Config: &container.Config{
			Image: e.image, Cmd: args, User: "0:0", WorkingDir: containers.WorkDir, AttachStdout: true, AttachStderr: true,
			Labels: map[string]string{label: fmt.Sprint(os.Getpid())},
			// The bound repositories belong to the user who runs the bench.
			Env: []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
		},
		HostConfig: &container.HostConfig{NetworkMode: "none", Binds: binds},
	}
}

// run runs `docker run --rm --network none IMAGE args` and returns the time until its first output. It waits for the
// end of the container. The time does not include its removal.
func (e *engineAPI) run(ctx context.Context, binds []string, args ...string) (first time.Duration, out string, err error) {
	w, err := e.runTo(ctx, binds, args...)
	if err != nil {
		return 0, "", err
	}
	return w.first, w.text.String(), nil
}

// runToEnd is run for the time until the last output.
func (e *engineAPI) runToEnd(ctx context.Context, binds []string, args ...string) (last time.Duration, out string, err error) {
	w, err := e.runTo(ctx, binds, args...)
	if err != nil {
		return 0, "", err
	}
	return w.last, w.text.String(), nil
}

func (e *engineAPI) runTo(ctx context.Context, binds []string, args ...string) (_ *firstWriter, err error) {
	begin := time.Now()
	made, err := e.api.ContainerCreate(ctx, e.options(binds, args...))
	if err != nil {
		return nil, err
	}
	defer func() { err = joined(err, e.remove(ctx, made.ID)) }()
	attached, err := e.api.ContainerAttach(ctx, made.ID,
		client.ContainerAttachOptions{Stream: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, err
	}
	defer attached.Close()
	if _, err := e.api.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return nil, err
	}
	w := &firstWriter{begin: begin}
	if _, err := stdcopy.StdCopy(w, w, attached.Reader); err != nil {
		return nil, err
	}
	if w.first == 0 {
		return nil, fmt.Errorf("%q printed nothing", args)
	}
	return w, nil
}

// stay starts a container that waits for execs until the scenario ends.
func (b *bench) stay(ctx context.Context, e *engineAPI, binds ...string) (string, error) {
	made, err := e.api.ContainerCreate(ctx, e.options(binds, "sleep", "infinity"))
	if err != nil {
		return "", err
	}
	b.onExit(func(ctx context.Context) error { return e.remove(ctx, made.ID) })
	_, err = e.api.ContainerStart(ctx, made.ID, client.ContainerStartOptions{})
	return made.ID, err
}

// exec works like `docker exec`. It creates an exec, attaches, reads to the end and requests the exit code.
func (e *engineAPI) exec(ctx context.Context, id string, out io.Writer, args ...string) error {
	made, err := e.api.ExecCreate(ctx, id,
		client.ExecCreateOptions{Cmd: args, WorkingDir: containers.WorkDir, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	attached, err := e.api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return err
	}
	var said strings.Builder
	_, err = stdcopy.StdCopy(out, &said, attached.Reader)
	attached.Close()
	if err != nil {
		return err
	}
	state, err := e.api.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	if err == nil && state.ExitCode != 0 {
		err = fmt.Errorf("%q ended with exit code %d: %s", args, state.ExitCode, said.String())
	}
	return err
}

func (e *engineAPI) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	_, err := e.api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) { // removed, or being removed
		return nil
	}
	return err
}

// list returns the containers that have a label.
func (e *engineAPI) list(ctx context.Context, label string) ([]container.Summary, error) {
	r, err := e.api.ContainerList(ctx,
		client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", label)})
	return r.Items, err
}

// firstWriter keeps text and records when its first byte came, and its last.
type firstWriter struct {
	begin       time.Time
	first, last time.Duration
	text        strings.Builder
}

func (w *firstWriter) Write(p []byte) (int, error) {
	if len(p) > 0 {
		w.last = time.Since(w.begin)
		if w.first == 0 {
			w.first = w.last
		}
	}
	return w.text.Write(p)
}
