package docker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/ramus-dev/ramus/containers"
)

// Start makes a container and returns when its runner greets.
func (e *Engine) Start(ctx context.Context, s containers.Spec) (_ containers.Container, err error) {
	none := containers.Container{}
	if s.Key == "" || s.Owner == "" || s.Dir == "" {
		return none, errors.New("cannot start a container: a key, an owner and a folder are needed")
	}
	wrap := func(err error) error { return fmt.Errorf("docker: %w", err) }
	if s.Dir, err = filepath.Abs(s.Dir); err != nil {
		return none, wrap(err)
	}
	p := parts{name: e.image(s)}
	if p.runner, p.program, err = e.programs(); err != nil {
		return none, wrap(err)
	}
	if p.image, err = e.findImage(ctx, p.name); err != nil {
		return none, wrap(err)
	}
	machine, err := e.machine(ctx)
	if err != nil {
		return none, wrap(err)
	}
	p.cpus = machine.cpus
	options, err := recipe(s, p)
	if err != nil {
		return none, wrap(err)
	}
	run := filepath.Join(s.Dir, "run")
	if err := makeSocketDir(s.Dir, run); err != nil {
		return none, wrap(err)
	}
	defer func() {
		if err != nil {
			_ = removeShared(run)
		}
	}()
	if err := writeHosts(s); err != nil {
		return none, wrap(err)
	}

	e.setStarting(options.Name, true)
	defer e.setStarting(options.Name, false)
	id, err := e.create(ctx, options)
	if err != nil {
		return none, wrap(err)
	}
	defer func() {
		if err == nil {
			return
		}
		// The caller may have stopped waiting. The container is removed all the same.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWait)
		defer cancel()
		if rerr := e.Remove(undo, id); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}()
	e.keepDir(id, run)
	if err := e.startAndAwait(ctx, id, func(ctx context.Context) error { return e.greeted(ctx, id) }); err != nil {
		return none, wrap(err)
	}
	c, err := e.inspect(ctx, id)
	if err != nil {
		return none, wrap(err)
	}
	if c.State != nil && c.State.Running {
		e.keepProcess(id, process{c.State.Pid, startOf(ctx, run, c.State.Pid)})
	}
	created, err := time.Parse(time.RFC3339Nano, c.Created)
	if err != nil {
		return none, wrap(fmt.Errorf("cannot read the creation time %q: %w", c.Created, err))
	}
	return containers.Container{
		ID:      id,
		Key:     s.Key,
		Image:   options.Config.Labels[labelImage],
		Running: true,
		// Whole seconds, as List returns them.
		Created: created.UTC().Truncate(time.Second),
		Labels:  callersLabels(options.Config.Labels),
	}, nil
}

func (e *Engine) setStarting(name string, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.starting == nil {
		e.starting = make(map[string]bool)
	}
	if on {
		e.starting[name] = true
	} else {
		delete(e.starting, name)
	}
}

// makeSocketDir makes the folder that is shared with the container. The container's root may not write to folders of
// other users, and may be another user than root on the host. So the folder is open to all users, and the one above it
// is closed to them.
func makeSocketDir(dir, run string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	// An earlier container may have left a socket at which nobody answers.
	if err := os.RemoveAll(run); err != nil {
		return err
	}
	if err := os.Mkdir(run, 0o700); err != nil {
		return err
	}
	return os.Chmod(run, 0o777) // the umask limits the mode of Mkdir
}

// writeHosts writes the hosts file of a container, with the container's own name. It has only the IPv4 address. A
// server that is told to listen at "localhost" takes the first address of that name, while previews, checks and clients
// of the door use 127.0.0.1.
func writeHosts(s containers.Spec) error {
	path := filepath.Join(s.Dir, hostsName)
	err := os.WriteFile(path, []byte("127.0.0.1\tlocalhost "+hostname(s.Key)+"\n"), 0o644)
	if err == nil {
		err = os.Chmod(path, 0o644) // independent of the umask, because commands read it
	}
	return err
}

// removeShared deletes the files of a container in its folder on the host. run is the folder of its socket.
func removeShared(run string) error {
	err := os.Remove(filepath.Join(filepath.Dir(run), hostsName))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(run))
}

// findImage returns the description of an image, the one that its name means. It never pulls one, because that takes minutes and
// nobody should wait for it.
func (e *Engine) findImage(ctx context.Context, name string) (client.ImageInspectResult, error) {
	id := e.pinned(name)
	image, err := e.inspectImage(ctx, cmp.Or(id, name))
	if errdefs.IsNotFound(err) && id != "" {
		image, err = e.inspectImage(ctx, name) // somebody removed the image
	}
	switch {
	case err == nil:
		e.pin(name, image.ID)
	case errdefs.IsNotFound(err):
		e.pin(name, "")
	}
	switch {
	case errdefs.IsNotFound(err) && name == DefaultImage:
		return image, fmt.Errorf("the image %s does not exist here; make image builds it: %w: %w", name,
			containers.ErrUnavailable, err)
	case errdefs.IsNotFound(err) &&
		(strings.HasPrefix(name, "ramus/browser:") || strings.HasPrefix(name, "ramus/task-browser:")):
		return image, fmt.Errorf("the image %s does not exist here; make browser builds it: %w: %w", name,
			containers.ErrUnavailable, err)
	case errdefs.IsNotFound(err) && e.Pin:
		return image, fmt.Errorf("the image %s does not exist here; it is pulled at the next refresh (image_refresh), or by docker pull %s: %w: %w", name, name, containers.ErrUnavailable, err)
	case errdefs.IsNotFound(err):
		return image, fmt.Errorf("the image %s does not exist here; docker pull %s fetches it: %w: %w", name, name,
			containers.ErrUnavailable, err)
	case err != nil:
		return image, err
	case image.Os != "" && image.Os != "linux":
		return image, fmt.Errorf("the image %s is for %s", name, image.Os)
	}
	return image, nil
}

// machine is the engine's description of its machine.
type machine struct {
	cpus    int    // 0 if the engine was not asked yet
	storage string // the engine's own folder, which has the volumes
}

func (e *Engine) machine(ctx context.Context) (machine, error) {
	e.mu.Lock()
	known := e.runsOn
	e.mu.Unlock()
	if known.cpus > 0 {
		return known, nil
	}
	var info client.SystemInfoResult
	err := e.ask(ctx, shortWait, "ask the engine about its machine",
		func(ctx context.Context, api *client.Client) (err error) {
			info, err = api.Info(ctx, client.InfoOptions{})
			return err
		})
	if err != nil {
		return machine{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runsOn = machine{max(info.Info.NCPU, 1), info.Info.DockerRootDir}
	return e.runsOn, nil
}

// Volumes returns all folders that a container may write to. Docker keeps them in its own folder.
func (e *Engine) Volumes(ctx context.Context) (inside []string, storage string) {
	inside = []string{containers.WorkDir, containers.ArtifactsDir, containers.CacheDir}
	if _, here, err := e.Near(ctx); err != nil || !here {
		return inside, "" // a folder of that name on this machine would be another one
	}
	m, err := e.machine(ctx)
	if err != nil {
		return inside, ""
	}
	return inside, m.storage
}

// create makes the container. If the caller stops waiting, the engine may make the container all the same. A goroutine
// then completes the exchange and removes the container.
func (e *Engine) create(ctx context.Context, options client.ContainerCreateOptions) (string, error) {
	type answer struct {
		id  string
		err error
	}
	answers := make(chan answer) // unbuffered, so that an answer is either taken by the caller or undone, never both
	gone := make(chan struct{})
	e.undoing.Go(func() {
		detached := context.WithoutCancel(ctx)
		var made client.ContainerCreateResult
		err := e.ask(detached, createWait, "create it", func(ctx context.Context, api *client.Client) (err error) {
			made, err = api.ContainerCreate(ctx, options)
			return err
		})
		select {
		case answers <- answer{made.ID, err}:
			return
		case <-gone:
		}
		if err != nil {
			return
		}
		limited, cancel := context.WithTimeout(detached, removeWait)
		defer cancel()
		if err := e.destroy(limited, "remove container "+made.ID, made.ID); err != nil {
			e.log().Warn("an abandoned container could not be removed", "id", made.ID, "err", err)
		}
	})
	select {
	case a := <-answers:
		return a.id, a.err
	case <-ctx.Done():
		close(gone)
		return "", fmt.Errorf("cannot create it: %w", context.Cause(ctx))
	}
}

// startAndAwait starts a container and returns when ready returns nil. The container keeps no log, so its first output
// is read while it is written, for the error.
func (e *Engine) startAndAwait(ctx context.Context, id string, ready func(context.Context) error) error {
	var attached client.ContainerAttachResult
	err := e.ask(ctx, shortWait, "attach to it", func(ctx context.Context, api *client.Client) (err error) {
		attached, err = api.ContainerAttach(ctx, id, client.ContainerAttachOptions{Stream: true, Stdout: true, Stderr: true})
		return err
	})
	if err != nil {
		return err
	}
	output := new(head)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stdcopy.StdCopy(output, output, attached.Reader)
	}()
	defer func() { attached.Close(); <-ended }()

	err = e.ask(ctx, createWait, "start it", func(ctx context.Context, api *client.Client) error {
		_, err := api.ContainerStart(ctx, id, client.ContainerStartOptions{})
		return err
	})
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, runnerWait, fmt.Errorf("the runner does not answer within %v", runnerWait))
	defer cancel()
	// A runner needs about 10 ms on an idle machine. Doubling pauses would add as much again.
	for pause := time.Millisecond; ; pause = min(pause+pause/4, 50*time.Millisecond) {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ended: // the stream ends with the container
			return e.whyEnded(ctx, id, output.String())
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// greeted returns nil if the runner answers like an SSH server.
func (e *Engine) greeted(ctx context.Context, id string) error {
	dir, err := e.socketDir(ctx, id)
	if err != nil {
		return err
	}
	conn, err := dialSocket(ctx, dir)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	var b [4]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return fmt.Errorf("the runner does not greet: %w", err)
	}
	if string(b[:]) != "SSH-" {
		return fmt.Errorf("the runner greets with %q", b)
	}
	return nil
}

// whyEnded returns an error for a container that ended too early. output is the beginning of its output.
func (e *Engine) whyEnded(ctx context.Context, id, output string) error {
	output = strings.TrimSpace(strings.ToValidUTF8(output, "?"))
	if output != "" {
		output = ": " + output
	}
	c, err := e.inspect(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("the runner ended at once%s (%w)", output, err)
	case c.State == nil:
		return fmt.Errorf("the runner ended at once%s", output)
	case c.State.OOMKilled:
		return fmt.Errorf("the runner ended at once: the memory limit is too small for it%s", output)
	case c.State.Error != "":
		return fmt.Errorf("the runner ended at once with exit code %d: %s%s", c.State.ExitCode, c.State.Error, output)
	}
	return fmt.Errorf("the runner ended at once with exit code %d%s", c.State.ExitCode, output)
}

// head keeps the first headLimit bytes written to it.
type head struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

const headLimit = 4 << 10

func (h *head) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Write(b[:min(len(b), headLimit-h.text.Len())])
	return len(b), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}
