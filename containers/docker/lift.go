package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
)

// labelLift is on the container of a [Lift] alone: nothing that looks for callers'
// containers finds it. Its value is the owner.
const labelLift = "ramus.layers"

// Lift runs `ramus layers` for a [layer.Helper] in a container that is root beside the
// engine: it has the host's processes, and of its files ramus's data folder alone.
type Lift struct {
	Engine *Engine
	// Owner is the installation: what it left is ended before another one starts.
	Owner string
}

var _ layer.Lift = Lift{}

// liftProgram is where the container has ramus's binary.
const liftProgram = "/.ramus"

// Up starts the container; see [layer.Lift].
func (l Lift) Up(ctx context.Context, root string, args []string, ready func(context.Context) error) (err error) {
	e := l.Engine
	wrap := func(err error) error { return fmt.Errorf("docker: %w", err) }
	if l.Owner == "" {
		return wrap(errors.New("cannot start `ramus layers`: an owner is needed"))
	}
	_, program, err := e.programs()
	if err != nil {
		return wrap(err)
	}
	// Any image will do: nothing of it is run.
	image, err := e.findImage(ctx, e.image(containers.Spec{}))
	if err != nil {
		return wrap(err)
	}
	if err := l.Down(ctx); err != nil {
		return err
	}
	id, err := e.create(ctx, liftRecipe(l.Owner, image.ID, program, root, args))
	if err != nil {
		return wrap(err)
	}
	if err := e.startAndAwait(ctx, id, ready); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWait)
		defer cancel()
		return wrap(errors.Join(err, e.destroy(undo, "remove container "+id, id)))
	}
	return nil
}

// Down ends the container; see [layer.Lift].
func (l Lift) Down(ctx context.Context) error {
	if err := l.Engine.destroyLabelled(ctx, labelLift+"="+l.Owner, nil); err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	return nil
}

// Near tells whether the engine is one that this machine's processes reach by a socket
// file, and whether this process sees the engine's own processes: it does not when it
// runs in a container itself.
func (e *Engine) Near(ctx context.Context) (socket, processes bool, err error) {
	api, err := e.client()
	if err != nil {
		return false, false, err
	}
	scheme, path, _ := strings.Cut(api.DaemonHost(), "://")
	if scheme != "unix" {
		return false, false, nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return false, false, fmt.Errorf("cannot reach the Docker engine: %w: %w", containers.ErrUnavailable, err)
	}
	defer conn.Close()
	cred, err := peer(conn)
	if err != nil {
		return true, false, err
	}
	// The kernel has no number for a process that this one cannot see.
	return true, cred.Pid != 0, nil
}

// peer is the process that listens where conn leads.
func peer(conn net.Conn) (*unix.Ucred, error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.New("it is no unix socket")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) { cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	return cred, asked
}

// liftRecipe is what the engine is asked to create. image is an id.
func liftRecipe(owner, image, program, root string, args []string) client.ContainerCreateOptions {
	no := false
	limit := int64(256)
	return client.ContainerCreateOptions{
		Name: containerName("layers"),
		Config: &container.Config{
			Image:       image,
			User:        "0:0",
			WorkingDir:  "/",
			Entrypoint:  []string{liftProgram, "layers"},
			Cmd:         args,
			Labels:      map[string]string{labelLift: owner},
			StopSignal:  "SIGKILL",
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		},
		HostConfig: &container.HostConfig{
			NetworkMode:    "none",
			IpcMode:        container.IPCModePrivate,
			PidMode:        "host",
			UsernsMode:     "host", // an engine that maps users gives this one none of its own
			ReadonlyRootfs: true,
			// It ends with the ramus that it works for, and leaves nothing then.
			AutoRemove: true,
			CapDrop:    []string{"ALL"},
			CapAdd: []string{
				"SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE", // to mount, in the namespaces of others
				// What the kernel does to the files of an overlay it does with the rights of who
				// mounted it.
				"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "MKNOD", "SETFCAP",
			},
			// The usual filters refuse to mount.
			SecurityOpt:   []string{"seccomp=unconfined", "apparmor=unconfined", "label=disable", "no-new-privileges"},
			LogConfig:     container.LogConfig{Type: "none"},
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			Init:          &no,
			Mounts: []mount.Mount{
				{Type: mount.TypeBind, Source: program, Target: liftProgram, ReadOnly: true},
				{Type: mount.TypeBind, Source: root, Target: root, BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate}},
			},
			Resources: container.Resources{
				PidsLimit: &limit,
				Ulimits:   []*container.Ulimit{{Name: "core", Soft: 0, Hard: 0}},
			},
		},
	}
}
