package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/cgroup"
)

// BrowserImage is the image that make browser builds. A sidecar that names no image starts from it.
const BrowserImage = "ramus/browser:latest"

// Labels of sidecars. Containers of callers have none of them, so a search for those finds no sidecar.
const (
	labelSidecar      = "ramus.sidecar"       // the key of the sidecar
	labelSidecarOf    = "ramus.sidecar.of"    // the id of the container whose network the sidecar shares
	labelSidecarOwner = "ramus.sidecar.owner" // the installation
)

// RunSidecar runs a program in a container of its own in the network of another. The engine keeps none of its output.
func (e *Engine) RunSidecar(ctx context.Context, id string, s containers.Sidecar) (_ containers.SidecarExit, err error) {
	exit := containers.SidecarExit{}
	wrap := func(err error) error { return fmt.Errorf("docker: %w", err) }
	if err := s.Valid(); err != nil {
		return exit, wrap(err)
	}
	name := cmp.Or(s.Image, BrowserImage)
	image, err := e.findImage(ctx, name)
	if err != nil {
		return exit, wrap(err)
	}
	exit.Image = digested(name, image)
	m, err := e.machine(ctx)
	if err != nil {
		return exit, wrap(err)
	}
	if id != "" {
		// id may be abbreviated, but the value of a label may not.
		if id, err = e.running(ctx, id); err != nil {
			return exit, wrap(err)
		}
	}
	options := sidecarRecipe(id, s, image.ID, m.cpus)
	if id != "" {
		// A container that an earlier ramus made has a network of the engine, which brings its own hosts file.
		hosts, err := e.hosts(ctx, id)
		if err != nil {
			return exit, wrap(e.orGone(ctx, id, err))
		}
		if hosts != "" {
			options.HostConfig.Mounts = append(options.HostConfig.Mounts, hostsMount(hosts))
		}
	}
	e.setSidecars(options.Name, true)
	defer e.setSidecars(options.Name, false)
	made, err := e.create(ctx, options)
	if err != nil {
		return exit, wrap(e.orGone(ctx, id, err))
	}
	defer func() {
		// This runs also if ctx is done, because it ends the sidecar.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWait)
		defer cancel()
		if derr := e.destroy(undo, "remove sidecar "+made, made); derr != nil {
			err = errors.Join(err, wrap(derr))
		}
	}()
	if err := e.follow(ctx, made, s, &exit); err != nil {
		return containers.SidecarExit{Image: exit.Image}, wrap(e.orGone(ctx, id, err))
	}
	if id != "" && exit.Code == 128+9 {
		// The sidecar was killed, perhaps with its container.
		if _, err := e.running(ctx, id); err != nil {
			return exit, wrap(err)
		}
	}
	return exit, nil
}

// hosts returns the path of the hosts file of a container. Returns "" if the container has it from the engine.
func (e *Engine) hosts(ctx context.Context, id string) (string, error) {
	dir, err := e.socketDir(ctx, id)
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(dir), hostsName)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return path, nil
}

func (e *Engine) setSidecars(name string, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sidecars == nil {
		e.sidecars = make(map[string]bool)
	}
	if on {
		e.sidecars[name] = true
	} else {
		delete(e.sidecars, name)
	}
}

// running returns the full id of a container. Returns [containers.ErrGone] if it does not run.
func (e *Engine) running(ctx context.Context, id string) (string, error) {
	c, err := e.inspect(ctx, id)
	if err != nil {
		return "", err
	}
	if c.State == nil || !c.State.Running {
		return "", fmt.Errorf("container %s does not run: %w", id, containers.ErrGone)
	}
	return c.ID, nil
}

// orGone replaces err by the end of the container with the given id, if that container has ended.
func (e *Engine) orGone(ctx context.Context, id string, err error) error {
	if id == "" || ctx.Err() != nil {
		return err
	}
	if _, gone := e.running(ctx, id); errors.Is(gone, containers.ErrGone) {
		return fmt.Errorf("%w: %w", gone, err)
	}
	return err
}

// sidecarRecipe returns the options of a sidecar. image is an id.
func sidecarRecipe(id string, s containers.Sidecar, image string, cpus int) client.ContainerCreateOptions {
	limits := s.Bounds()
	network := container.NetworkMode("none")
	if id != "" {
		network = container.NetworkMode("container:" + id)
	}
	// The engine's own init is process 1. It adopts orphans. A signal that process 1 would not receive ends the
	// program, whose exit code is then 128+n.
	yes := true
	// A folder in memory belongs to the task's user, with any user of the image.
	tmpfs := func(mode string, size int64) string {
		return fmt.Sprintf("rw,exec,nosuid,nodev,mode=%s,uid=%d,gid=%d,size=%d", mode, taskUID, taskGID, size)
	}
	return client.ContainerCreateOptions{
		Name: strings.Replace(containerName(s.Key), "container-", "sidecar-", 1),
		Config: &container.Config{
			Image:      image,
			User:       fmt.Sprintf("%d:%d", taskUID, taskGID),
			WorkingDir: "/",
			Env:        append([]string{"HOME=" + containers.SidecarHome}, s.Env...),
			Entrypoint: s.Args[:1],
			Cmd:        s.Args[1:],
			Labels: map[string]string{
				labelSidecar: s.Key, labelSidecarOf: id, labelSidecarOwner: s.Owner,
			},
			OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
			StopSignal:  "SIGKILL",
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		},
		HostConfig: &container.HostConfig{
			NetworkMode:    network,
			IpcMode:        container.IPCModePrivate,
			CgroupnsMode:   container.CgroupnsModePrivate,
			ReadonlyRootfs: true,
			CapDrop:        []string{"ALL"},
			SecurityOpt:    []string{"no-new-privileges"},
			LogConfig:      container.LogConfig{Type: "none"},
			RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
			Init:           &yes,
			OomScoreAdj:    500,
			ShmSize:        min(limits.Memory/8, maxShm),
			Tmpfs: map[string]string{
				"/tmp":                 tmpfs("1777", limits.Tmp),
				containers.SidecarHome: tmpfs("0700", min(limits.Tmp, maxHome)),
			},
			Resources: container.Resources{
				Memory:     limits.Memory,
				MemorySwap: limits.Memory,
				NanoCPUs:   int64(min(limits.CPUs, float64(cpus)) * 1e9),
				PidsLimit:  &limits.PIDs,
				Ulimits:    []*container.Ulimit{{Name: "core", Soft: 0, Hard: 0}},
			},
		},
	}
}

const (
	maxShm  = 256 << 20 // enough for a browser, which keeps its windows in shared memory
	maxHome = 64 << 20  // caches of fonts and shaders
)

// follow starts a sidecar that was made and feeds it. It returns when the sidecar has ended and all its output was
// passed on, or when ctx is done.
func (e *Engine) follow(ctx context.Context, id string, s containers.Sidecar, exit *containers.SidecarExit) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var attached client.ContainerAttachResult
	err := e.ask(ctx, shortWait, "attach to the sidecar", func(ctx context.Context, api *client.Client) (err error) {
		attached, err = api.ContainerAttach(ctx, id,
			client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
		return err
	})
	if err != nil {
		return err
	}
	var owned sync.WaitGroup
	defer func() {
		cancel(nil)
		attached.Close() // unblocks both directions
		owned.Wait()
	}()
	// awaitSidecar comes before the start, because a program may end before the engine can be asked about it.
	ended, err := e.awaitSidecar(ctx, id, &owned)
	if err != nil {
		return err
	}

	began := time.Now()
	err = e.ask(ctx, createWait, "start the sidecar", func(ctx context.Context, api *client.Client) error {
		_, err := api.ContainerStart(ctx, id, client.ContainerStartOptions{})
		return err
	})
	if err != nil {
		return err
	}
	copied := copyStreams(&attached, s, &owned, cancel)
	var peak atomic.Int64
	owned.Go(func() { e.measure(ctx, id, &peak) })

	select {
	case r := <-ended:
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r.err != nil {
			return fmt.Errorf("cannot wait for the sidecar: %w", r.err)
		}
		exit.Duration, exit.Code = time.Since(began), int(r.code)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-copied: // the stream ends with the container
	case <-ctx.Done():
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	c, err := e.inspect(ctx, id)
	if errors.Is(err, containers.ErrGone) { // the sidecar is gone, not the container whose network it shares
		return errors.New("it was removed while it ran")
	} else if err != nil {
		return err
	}
	exit.Memory = peak.Load()
	if c.State != nil && c.State.OOMKilled {
		// The sidecar used all the memory of its limit, even if less was measured.
		exit.OOM, exit.Memory = true, s.Bounds().Memory
	}
	return nil
}

// sidecarEnd is the end of a sidecar.
type sidecarEnd struct {
	code int64
	err  error
}

// awaitSidecar waits for the end of a sidecar that is about to start. The channel gets one value, at the latest when ctx is done.
func (e *Engine) awaitSidecar(ctx context.Context, id string, owned *sync.WaitGroup) (<-chan sidecarEnd, error) {
	api, err := e.client()
	if err != nil {
		return nil, err
	}
	ended := make(chan sidecarEnd, 1)
	wait := api.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	owned.Go(func() { // exactly one of the two channels gets a value
		select {
		case r := <-wait.Result:
			if r.Error != nil {
				ended <- sidecarEnd{err: errors.New(r.Error.Message)}
				return
			}
			ended <- sidecarEnd{code: r.StatusCode}
		case err := <-wait.Error:
			ended <- sidecarEnd{err: fmt.Errorf("%w: %w", containers.ErrUnavailable, err)}
		}
	})
	return ended, nil
}

// copyStreams connects the streams of a sidecar with those of s. copied is closed when all output was passed on. A stream of s that
// fails cancels the sidecar.
func copyStreams(attached *client.ContainerAttachResult, s containers.Sidecar, owned *sync.WaitGroup, cancel context.CancelCauseFunc) (copied chan struct{}) {
	copied = make(chan struct{})
	owned.Go(func() {
		defer close(copied)
		stdout, stderr := orDiscard(s.Stdout), orDiscard(s.Stderr)
		if _, err := stdcopy.StdCopy(stdout, stderr, attached.Reader); err != nil {
			cancel(fmt.Errorf("cannot pass on its output: %w", err))
		}
	})
	go func() { // may outlive the sidecar, while a Read of Stdin blocks; see [containers.Sidecar]
		if s.Stdin != nil {
			if err := s.Feed(attached.Conn); err != nil {
				cancel(err)
				return
			}
		}
		attached.CloseWrite()
	}()
	return copied
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// measure records the highest memory use of a sidecar, about once a second. The kernel keeps the peak between two
// readings. The engine's own statistics do not cover a container in the network of a container without one.
func (e *Engine) measure(ctx context.Context, id string, peak *atomic.Int64) {
	c, err := e.inspect(ctx, id)
	if err != nil || c.State == nil || c.State.Pid <= 0 {
		return // the sidecar may have ended, and the figure is only for people
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		n := cgroup.MemoryPeak(c.State.Pid, id)
		if n == 0 {
			return
		}
		peak.Store(max(peak.Load(), n))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// SweepSidecars removes the sidecars of an owner that no RunSidecar of this engine runs.
func (e *Engine) SweepSidecars(ctx context.Context, owner string) error {
	if owner == "" {
		return errors.New("cannot sweep sidecars: an owner is needed")
	}
	return e.destroyLabelled(ctx, labelSidecarOwner+"="+owner, func(name string) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.sidecars[name]
	})
}

// destroyLabelled removes the containers with a label, except those for which keep returns true. A nil keep keeps none.
func (e *Engine) destroyLabelled(ctx context.Context, label string, keep func(name string) bool) error {
	var found client.ContainerListResult
	err := e.ask(ctx, shortWait, "list containers", func(ctx context.Context, api *client.Client) (err error) {
		found, err = api.ContainerList(ctx,
			client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", label)})
		return err
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range found.Items {
		if keep != nil && len(c.Names) > 0 && keep(strings.TrimPrefix(c.Names[0], "/")) {
			continue
		}
		errs = append(errs, e.destroy(ctx, "remove container "+c.ID, c.ID))
	}
	return errors.Join(errs...)
}
