package containers

import (
	"context"
	"net"
	"time"
)

// Engine starts, finds and removes containers. Implementations: Sandbox
// (bubblewrap) and docker.Engine. All methods are safe for concurrent use.
type Engine interface {
	// Name is "sandbox" or "docker", for people and journals.
	Name() string
	// Check tells whether the engine can start containers here; the error says what to do.
	Check(ctx context.Context) error
	// Start makes a container whose process 1 is the runner and returns when
	// the runner can be dialled. On error nothing is left behind.
	Start(ctx context.Context, s Spec) (Container, error)
	// List finds the containers of one owner, running or dead, also those an earlier process started.
	List(ctx context.Context, owner string) ([]Container, error)
	// Dial opens a stream to the runner of a running container.
	Dial(ctx context.Context, id string) (net.Conn, error)
	// Remove kills the container and frees everything it held but Spec.Dir, which is left
	// to who gave it, with what the container wrote there. Removing one that is gone is no error.
	Remove(ctx context.Context, id string) error
	// Beside runs a program in a container of its own that shares the network of a
	// running container and nothing else; with id "" it has a loopback of its own.
	// It returns when the program has ended, or ctx has, which kills it; nothing of
	// the sidecar is left then. A container that is gone is [ErrGone].
	Beside(ctx context.Context, id string, s Sidecar) (SidecarExit, error)
	// Process is process 1 of a running container as the host counts, and its start time
	// in clock ticks since boot; [ErrGone] when it has ended. It asks the engine only
	// about containers that this value did not start.
	Process(ctx context.Context, id string) (pid int, start uint64, err error)
	// TaskUID is who commands in this engine's containers are, as the host counts; the group
	// has the same number.
	TaskUID() int
	// Assign gives a container that was started without a caller the one it is for, as
	// far as the engine can: List tells the new key and labels from then on where it can; the
	// name is for people.
	Assign(ctx context.Context, id, key string, labels map[string]string) error
	// Volumes are the folders of every container, by their paths inside, that lie in storage of
	// the engine's own and not in Spec.Dir, and a folder of the host on the file system of
	// that storage, "" where it is not known or not here.
	Volumes(ctx context.Context) (inside []string, storage string)
	// SweepSidecars removes the sidecars of an owner that an earlier process left.
	SweepSidecars(ctx context.Context, owner string) error
	// Close releases the engine's own connections; containers go on.
	Close() error
}

// Spec describes a container.
type Spec struct {
	// Key names the caller, "run:fancy-mallard"; the container is "container:" + Key
	// where the engine's rules for names allow it, and is labelled with Key always.
	Key string
	// Owner is the installation (a random id in the data folder): an engine
	// shared by several never shows one the other's containers.
	Owner string
	// Image to start from; the Sandbox ignores it.
	Image string
	// Dir is a folder on the host, mode 0700, that belongs to this container
	// alone until Remove: sockets, and where the Sandbox keeps the work tree.
	Dir string
	// ClientKey is the SSH public key (authorized_keys form) the runner lets in.
	ClientKey string
	// Env is added to the environment of every command, "K=V".
	Env    []string
	Limits Limits
	// Labels are kept with the container and come back from List.
	Labels map[string]string
}

// Limits of one container. Zero fields take defaults.
type Limits struct {
	Memory   int64   `json:"memory"`    // bytes, swap included; default 2 GiB
	CPUs     float64 `json:"cpus"`      // default 2
	PIDs     int64   `json:"pids"`      // default 512
	Tmp      int64   `json:"tmp"`       // bytes of /tmp, which are memory: never more than half of it; default 512 MiB
	FileSize int64   `json:"file_size"` // largest single file; default 8 GiB
	Output   int64   `json:"output"`    // bytes of stdout, and of stderr, kept per command; default 1 GiB
	// Disk is how many bytes the container may take on disk, in /work without the base layer
	// that it lies over, /artifacts, /cache and the output that is kept. Who goes over it is
	// killed and reports [ReasonDiskFull]; see [Fleet], which looks after it. Default 20 GiB,
	// negative is no bound.
	Disk int64 `json:"disk"`
	// DiskFree is how much the file system of the work tree must keep free; a
	// command that goes below is killed and reports [ReasonDiskFull]. Default 512 MiB.
	DiskFree int64 `json:"disk_free"`
}

// WithDefaults fills in what was left zero, and keeps Tmp to half of Memory:
// files there are memory, and stay when who wrote them is killed for it, so that
// the kernel would go on to the runner.
func (l Limits) WithDefaults() Limits {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&l.Memory, 2<<30)
	set(&l.PIDs, 512)
	set(&l.Tmp, 512<<20)
	set(&l.FileSize, 8<<30)
	set(&l.Output, 1<<30)
	set(&l.Disk, 20<<30)
	set(&l.DiskFree, 512<<20)
	if l.CPUs == 0 {
		l.CPUs = 2
	}
	l.Tmp = min(l.Tmp, l.Memory/2)
	return l
}

// Container is what an engine knows of one container.
type Container struct {
	ID      string
	Key     string // the caller
	Image   string // with digest where there is one
	Running bool
	Created time.Time
	Labels  map[string]string
}
