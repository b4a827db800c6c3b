package docker

import (
	"bytes"
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
		// The caller may have given up already; what was begun is undone all the same.
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
		return none, wrap(fmt.Errorf("the engine says it was created at %q: %w", c.Created, err))
	}
	return containers.Container{
		ID:      id,
		Key:     s.Key,
		Image:   options.Config.Labels[labelImage],
		Running: true,
		// Whole seconds, as List tells them.
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

// makeSocketDir makes the folder that is shared with the container. The
// container's root has no right to write where others own, and may be another
// user than root on this side: so the folder is open to all, and the one above
// it closed.
func makeSocketDir(dir, run string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	// What an earlier container left could be a socket that answers for nobody.
	if err := os.RemoveAll(run); err != nil {
		return err
	}
	if err := os.Mkdir(run, 0o700); err != nil {
		return err
	}
	return os.Chmod(run, 0o777) // Mkdir's mode is cut by the umask
}

// writeHosts writes the names that a container knows, its own among them. The address is
// of version 4 alone: a server that is told to listen at "localhost" takes the first address
// of that name, and previews, checks and the door's clients ask at 127.0.0.1.
func writeHosts(s containers.Spec) error {
	path := filepath.Join(s.Dir, hostsName)
	err := os.WriteFile(path, []byte("127.0.0.1\tlocalhost "+hostname(s.Key)+"\n"), 0o644)
	if err == nil {
		err = os.Chmod(path, 0o644) // whatever the umask: it is read by commands
	}
	return err
}

// removeShared deletes what a container had of its folder on the host, by the one of its socket.
func removeShared(run string) error {
	err := os.Remove(filepath.Join(filepath.Dir(run), hostsName))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(run))
}

// findImage looks an image up; it never pulls one: that takes minutes and is
// for a person to decide.
func (e *Engine) findImage(ctx context.Context, name string) (client.ImageInspectResult, error) {
	var image client.ImageInspectResult
	err := e.ask(ctx, shortWait, "look at image "+name, func(ctx context.Context, api *client.Client) (err error) {
		image, err = api.ImageInspect(ctx, name)
		return err
	})
	switch {
	case errdefs.IsNotFound(err) && name == DefaultImage:
		return image, fmt.Errorf("the image %s is not there: make image builds it: %w: %w", name, containers.ErrUnavailable, err)
	case errdefs.IsNotFound(err) && (strings.HasPrefix(name, "ramus/browser:") || strings.HasPrefix(name, "ramus/task-browser:")):
		return image, fmt.Errorf("the image %s is not there: make browser builds it: %w: %w", name, containers.ErrUnavailable, err)
	case errdefs.IsNotFound(err):
		return image, fmt.Errorf("the image %s is not there: docker pull %s fetches it: %w: %w", name, name, containers.ErrUnavailable, err)
	case err != nil:
		return image, err
	case image.Os != "" && image.Os != "linux":
		return image, fmt.Errorf("the image %s is for %s", name, image.Os)
	}
	return image, nil
}

// machine is what the engine tells of where it runs.
type machine struct {
	cpus    int    // 0: it was not asked yet
	storage string // its own folder, where volumes lie
}

func (e *Engine) machine(ctx context.Context) (machine, error) {
	e.mu.Lock()
	known := e.runsOn
	e.mu.Unlock()
	if known.cpus > 0 {
		return known, nil
	}
	var info client.SystemInfoResult
	err := e.ask(ctx, shortWait, "ask the engine about its machine", func(ctx context.Context, api *client.Client) (err error) {
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

// Volumes are all that a container may write to: Docker keeps them in its own folder.
func (e *Engine) Volumes(ctx context.Context) (inside []string, storage string) {
	inside = []string{containers.WorkDir, containers.ArtifactsDir, containers.CacheDir}
	if _, here, err := e.Near(ctx); err != nil || !here {
		return inside, "" // a folder of that name would be another one
	}
	m, err := e.machine(ctx)
	if err != nil {
		return inside, ""
	}
	return inside, m.storage
}

// create makes the container. When the caller gives up in the middle the
// engine may make it all the same; the exchange is then seen through, in the
// background, and the container removed.
func (e *Engine) create(ctx context.Context, options client.ContainerCreateOptions) (string, error) {
	type answer struct {
		id  string
		err error
	}
	answers := make(chan answer) // unbuffered: an answer is taken by the caller or undone, never both
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
			e.log().Warn("a container that nobody waits for any more stays", "id", made.ID, "err", err)
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

// startAndAwait starts a container and returns when ready does without an error. The
// container keeps no log, so what its program says in despair is read as it
// says it.
func (e *Engine) startAndAwait(ctx context.Context, id string, ready func(context.Context) error) error {
	var attached client.ContainerAttachResult
	err := e.ask(ctx, shortWait, "attach to it", func(ctx context.Context, api *client.Client) (err error) {
		attached, err = api.ContainerAttach(ctx, id, client.ContainerAttachOptions{Stream: true, Stdout: true, Stderr: true})
		return err
	})
	if err != nil {
		return err
	}
	said := new(head)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stdcopy.StdCopy(said, said, attached.Reader)
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
	// A runner needs some 10 ms on an idle machine; pauses that double would add up to as much again.
	for pause := time.Millisecond; ; pause = min(pause+pause/4, 50*time.Millisecond) {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ended: // with the stream the container ends
			return e.whyEnded(ctx, id, said.String())
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// greeted tells whether the runner answers as an SSH server does.
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

// whyEnded describes a container that ended when it should have lived.
func (e *Engine) whyEnded(ctx context.Context, id, said string) error {
	said = strings.TrimSpace(strings.ToValidUTF8(said, "?"))
	if said != "" {
		said = ": " + said
	}
	c, err := e.inspect(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("the runner ended at once%s (%w)", said, err)
	case c.State == nil:
		return fmt.Errorf("the runner ended at once%s", said)
	case c.State.OOMKilled:
		return fmt.Errorf("the runner ended at once: the memory limit is too small for it%s", said)
	case c.State.Error != "":
		return fmt.Errorf("the runner ended at once with exit code %d: %s%s", c.State.ExitCode, c.State.Error, said)
	}
	return fmt.Errorf("the runner ended at once with exit code %d%s", c.State.ExitCode, said)
}

// head keeps the beginning of what is written to it.
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
