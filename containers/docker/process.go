package docker

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/proc"
)

// process is process 1 of a container.
type process struct {
	pid   int    // number on the engine's host
	start uint64 // 0 if this process does not see the engine's processes
}

// Process returns process 1 of a container, as numbered on the engine's host. start is 0 if ramus runs in a container
// itself and so does not see the host's processes.
func (e *Engine) Process(ctx context.Context, id string) (pid int, start uint64, err error) {
	wrap := func(err error) error { return fmt.Errorf("cannot find the process of container %s: %w", id, err) }
	e.mu.Lock()
	p, known := e.process1[id]
	e.mu.Unlock()
	if !known {
		c, err := e.inspect(ctx, id)
		switch {
		case err != nil:
			return 0, 0, wrap(err)
		case c.State == nil || !c.State.Running || c.State.Pid <= 0:
			return 0, 0, wrap(fmt.Errorf("it has ended: %w", containers.ErrGone))
		}
		p = process{pid: c.State.Pid}
		dir, err := e.socketDir(ctx, c.ID)
		if err != nil {
			return 0, 0, wrap(err)
		}
		p.start = startOf(ctx, dir, p.pid)
		e.keepProcess(c.ID, p)
	}
	if p.ended() {
		return 0, 0, wrap(fmt.Errorf("it has ended: %w", containers.ErrGone))
	}
	return p.pid, p.start, nil
}

func (e *Engine) keepProcess(id string, p process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.process1 == nil {
		e.process1 = make(map[string]process)
	}
	e.process1[id] = p
}

// ended reports whether the process is known to have ended.
func (p process) ended() bool {
	if p.start == 0 {
		return false
	}
	start, err := proc.Start(p.pid)
	return err != nil || start != p.start
}

// endWait is the time that a process may take to disappear after its socket was closed. The kernel closes its files
// first, and ends the mounts and processes of the container later.
const endWait = time.Second

// endsSoon waits up to endWait for the end of a process at which nobody listens any more. It reports whether the
// process ended.
func (p process) endsSoon(ctx context.Context) bool {
	late := time.After(endWait)
	for p.start != 0 {
		if p.ended() {
			return true
		}
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// startOf returns the start time of process pid if it is the one that listens at the socket in dir. Only then the
// engine and this process number processes alike. Otherwise startOf returns 0.
func startOf(ctx context.Context, dir string, pid int) uint64 {
	conn, err := dialSocket(ctx, dir)
	if err != nil {
		return 0
	}
	defer conn.Close()
	cred, err := peer(conn)
	if err != nil || int(cred.Pid) != pid {
		return 0
	}
	start, err := proc.Start(pid)
	if err != nil {
		return 0
	}
	return start
}

// TaskUID returns the user of commands, as in the image.
func (e *Engine) TaskUID() int { return taskUID }

// Assign renames a container for its caller, in the background. The name is for people. The labels of a container
// cannot be changed, so List returns the old ones.
func (e *Engine) Assign(ctx context.Context, id, key string, _ map[string]string) error {
	e.undoing.Go(func() {
		ctx := context.WithoutCancel(ctx)
		leave, err := e.takeTurn(ctx, id)
		if err != nil {
			return
		}
		defer leave()
		err = e.ask(ctx, shortWait, "rename container "+id, func(ctx context.Context, api *client.Client) error {
			_, err := api.ContainerRename(ctx, id, client.ContainerRenameOptions{NewName: containerName(key)})
			return err
		})
		if err != nil && !errdefs.IsNotFound(err) {
			e.log().Warn("a container keeps the name it had before it got its caller", "id", id, "key", key, "err", err)
		}
	})
	return nil
}
