package containers

import (
	"context"
	"net"
	"time"
)

// Engine starts, finds and removes containers, and connects to the runner inside. The implementations are
// sandbox.Engine (bubblewrap), docker.Engine and kubernetes.Engine. All methods may be called concurrently.
//
// Optional abilities are interfaces of their own: [Sidecars], [Processes], [TaskUser], [Assigner], [Volumes], [Usages],
// [Images], [Refresher] and [Names]. An engine has an ability if it implements the interface. containerstest tests an
// engine and all its abilities.
type Engine interface {
	// Name returns "sandbox", "docker" or "kubernetes", for people and journals.
	Name() string
	// Check reports whether the engine can start containers here. The error says what to do.
	Check(ctx context.Context) error
	// Start makes a container with the runner as process 1. It returns when the runner can be dialled. After an error nothing
	// is left behind.
	Start(ctx context.Context, s Spec) (Container, error)
	// List returns the containers of one owner, running or dead, including those that an earlier process started.
	List(ctx context.Context, owner string) ([]Container, error)
	// Dial opens a stream to the runner of a running container.
	Dial(ctx context.Context, id string) (net.Conn, error)
	// Remove kills a container and frees everything it held, except Spec.Dir and the files that the container wrote
	// there. Removing a container that does not exist is no error.
	Remove(ctx context.Context, id string) error
	// Close releases the connections of the engine. Containers continue.
	Close() error
}

// Spec describes a container to start.
type Spec struct {
	// Key names the caller, as "run:fancy-mallard". The container always has Key as a label, and is called "container:" + Key
	// if the engine allows that name.
	Key string
	// Owner is the installation, a random id in the data folder. Several installations may share an engine. List
	// returns the containers of one Owner.
	Owner string
	// Image is the image to start from. The sandbox ignores it.
	Image string
	// Dir is a folder on the host with mode 0700 that belongs to this container alone until Remove. It has the sockets, and
	// the work tree of the sandbox. Kubernetes has nothing there.
	Dir string
	// ClientKey is the SSH public key, in the form of authorized_keys, that the runner lets in.
	ClientKey string
	// Env is added to the environment of every command, as "K=V".
	Env    []string
	Limits Limits
	// Labels are kept with the container. List returns them.
	Labels map[string]string
	// Program makes the container one for the program of its image, as a service has it. Its commands are the image's user, begin in
	// the image's folder, may write to the image's volumes and to /run, and may give files to other users and become them. Only
	// engines that are [Images] differ in that.
	Program bool
	// Delayed, if not nil, is called with the reason when a start takes long, and when the reason changes. The engine calls it
	// before Start returns.
	Delayed func(why string)
}

// Limits are the limits of one container. Fields that are zero take defaults.
type Limits struct {
	Memory   int64   `json:"memory"`    // bytes, swap included; default 2 GiB
	CPUs     float64 `json:"cpus"`      // default 2
	PIDs     int64   `json:"pids"`      // default 512
	Tmp      int64   `json:"tmp"`       // bytes of /tmp, which count as Memory; at most half of Memory; default 512 MiB
	FileSize int64   `json:"file_size"` // largest single file; default 8 GiB
	Output   int64   `json:"output"`    // bytes of stdout, and of stderr, kept per command; default 1 GiB
	// Disk is the number of bytes that the container may take on disk. It covers /work without the base layer below it,
	// /artifacts, /cache and the kept output. Commands of a container that takes more are killed with [ReasonDiskFull].
	// The [Fleet] enforces it. The default is 20 GiB. A negative value means no limit.
	Disk int64 `json:"disk"`
	// DiskFree is the number of bytes that must stay free on the file system of the work tree. A command that leaves
	// less is killed with [ReasonDiskFull]. The default is 512 MiB.
	DiskFree int64 `json:"disk_free"`
}

// WithDefaults returns l with defaults for the fields that are zero. Tmp is at most half of Memory. Files in /tmp count
// as memory and survive the command that wrote them, even if the kernel killed it for lack of memory. With a larger Tmp
// the kernel would kill the runner next.
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

// Container is an engine's record of a container.
type Container struct {
	ID      string
	Key     string // the caller
	Image   string // with digest where there is one
	Running bool
	Created time.Time
	Labels  map[string]string
}
