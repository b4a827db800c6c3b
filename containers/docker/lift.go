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

// labelLift is the label of the container of a [Lift]. Its value is the owner. Other containers do not have it, so
// nothing that looks for callers' containers finds this one.
const labelLift = "ramus.layers"

// Lift runs `ramus layers` for a [layer.Helper] in a container with root's rights. The container sees the host's
// processes, and of the host's files only the data folder of ramus.
type Lift struct {
	Engine *Engine
	// Owner is the installation. Up removes an earlier container of the same Owner before it starts another.
	Owner string
}

var _ layer.Lift = Lift{}

// liftProgram is the path of ramus's binary in the container.
const liftProgram = "/.ramus"

// Up starts the container. See [layer.Lift].
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
	// Any image works, because nothing of it runs.
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

// Down removes the container. See [layer.Lift].
func (l Lift) Down(ctx context.Context) error {
	if err := l.Engine.destroyLabelled(ctx, labelLift+"="+l.Owner, nil); err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	return nil
}

// Near reports whether processes of this machine reach the engine by a socket file, and whether this process sees the
// engine's own processes. It does not see them if it runs in a container itself.
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
	// The kernel reports number 0 for a process that this process cannot see.
	return true, cred.Pid != 0, nil
}

// peer returns the credentials of the process that listens at the other side of conn.
func peer(conn net.Conn) (*unix.Ucred, error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.New("it is not a unix socket")
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

// liftRecipe returns the options of the container. image is an id.
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
			UsernsMode:     "host", // on an engine that maps users, this container is not mapped
			ReadonlyRootfs: true,
			// The container ends with the ramus that it works for, and is removed then.
			AutoRemove: true,
			CapDrop:    []string{"ALL"},
			CapAdd: []string{
				"SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE", // to mount, in the namespaces of other processes
				// The kernel changes the files of an overlay with the rights of the process that mounted it.
				"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "MKNOD", "SETFCAP",
			},
			// The usual filters refuse mounts.
			SecurityOpt:   []string{"seccomp=unconfined", "apparmor=unconfined", "label=disable", "no-new-privileges"},
			LogConfig:     container.LogConfig{Type: "none"},
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			Init:          &no,
			Mounts: []mount.Mount{
				{Type: mount.TypeBind, Source: program, Target: liftProgram, ReadOnly: true},
				{Type: mount.TypeBind, Source: root, Target: root,
					BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate}},
			},
			Resources: container.Resources{
				PidsLimit: &limit,
				Ulimits:   []*container.Ulimit{{Name: "core", Soft: 0, Hard: 0}},
			},
		},
	}
}
