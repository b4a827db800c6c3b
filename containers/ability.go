package containers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/containers/layer"
)

// ErrLacks means that an engine does not have an ability.
var ErrLacks = errors.New("this engine cannot do that")

// Sidecars is the ability to run programs in the network of a container.
type Sidecars interface {
	// RunSidecar runs a program in a container of its own that shares the network of a running container and nothing
	// else. If id is "", the program has a loopback of its own. RunSidecar returns when the program has ended and
	// nothing of the sidecar is left. If ctx is done, it kills the program. Returns [ErrGone] if the container is gone.
	RunSidecar(ctx context.Context, id string, s Sidecar) (SidecarExit, error)
	// SweepSidecars removes the sidecars of an owner that an earlier process left.
	SweepSidecars(ctx context.Context, owner string) error
}

// Processes is the ability to name the processes of containers on the host.
type Processes interface {
	// Process returns the number of process 1 of a running container on the host, and its start time in clock ticks
	// since boot. Returns [ErrGone] if it has ended. The engine is asked only for containers that this value did not
	// start.
	Process(ctx context.Context, id string) (pid int, start uint64, err error)
}

// TaskUser is the ability to name the user of commands.
type TaskUser interface {
	// TaskUID returns the user of commands on the host. The group has the same number.
	TaskUID() int
}

// Assigner is the ability to give a container to a caller after it was started without one.
type Assigner interface {
	// Assign gives a container a key and labels, as far as the engine can. The name is for people. List returns the new key and
	// labels if the engine can change them.
	Assign(ctx context.Context, id, key string, labels map[string]string) error
}

// Volumes is the property of an engine that has files of containers in storage of its own, outside of Spec.Dir.
type Volumes interface {
	// Volumes returns the folders of every container that are in such storage, by their paths inside, and a folder of the host
	// on the file system of the storage. The folder is "" if it is not known or not on this machine.
	Volumes(ctx context.Context) (inside []string, storage string)
}

// Usages is the ability to measure the folders that [Volumes] names, for an engine whose containers are on other
// machines.
type Usages interface {
	// Usage returns the space that folders of a running container take. It stops counting above most files. Returns
	// [ErrGone] if the container is gone.
	Usage(ctx context.Context, id string, inside []string, most int64) (layer.Usage, error)
}

// Images is the ability to start containers from images.
type Images interface {
	// ImageProgram returns the program of an image. Returns [ErrUnavailable] if the engine does not have the image, and [ErrLacks] if
	// it starts containers from images without knowing their programs.
	ImageProgram(ctx context.Context, image string) (ImageProgram, error)
}

// Refresher is the ability to pull images.
type Refresher interface {
	// Refresh pulls the named images and all that containers were started from, or could not be started from because they were
	// missing. It leaves out images that come from no registry. It takes minutes, and Start does not wait for it. The error has
	// the images that could not be pulled, which stay as they are.
	Refresh(ctx context.Context, names []string) error
}

// ImageProgram is the program that an image runs by itself.
type ImageProgram struct {
	Entry, Args []string // the entry point and its arguments; each may be empty
}

// Names is the ability to give names to addresses inside a container.
type Names interface {
	// SetNames has a running container find hosts by name, apart from its own. It replaces the names of an earlier call. Returns
	// [ErrGone] if the container is gone.
	SetNames(ctx context.Context, id string, names map[string]netip.Addr) error
}

// AsSidecars returns e as [Sidecars], or an error that is [ErrLacks].
func AsSidecars(e Engine) (Sidecars, error) { return ability[Sidecars](e, "run sidecars") }

// AsProcesses returns e as [Processes], or an error that is [ErrLacks].
func AsProcesses(e Engine) (Processes, error) {
	return ability[Processes](e, "name processes of containers")
}

// AsTaskUser returns e as [TaskUser], or an error that is [ErrLacks].
func AsTaskUser(e Engine) (TaskUser, error) { return ability[TaskUser](e, "name the user of commands") }

// AsImages returns e as [Images], or an error that is [ErrLacks].
func AsImages(e Engine) (Images, error) { return ability[Images](e, "start containers from images") }

// AsNames returns e as [Names], or an error that is [ErrLacks].
func AsNames(e Engine) (Names, error) { return ability[Names](e, "name addresses in containers") }

func ability[A any](e Engine, does string) (A, error) {
	a, ok := e.(A)
	if !ok {
		return a, fmt.Errorf("engine %s cannot %s: %w", e.Name(), does, ErrLacks)
	}
	return a, nil
}

// WriteNames writes names into a hosts file in place, for engines that bind one into a container. Lines of the engine stay.
func WriteNames(path string, names map[string]netip.Addr) error {
	// Another file of that name would not be seen by the container, which has this one.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("cannot name addresses: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxHosts))
	if err != nil {
		return fmt.Errorf("cannot name addresses: %w", err)
	}
	own, _, _ := strings.Cut(string(text), namesMark)
	var b strings.Builder
	b.WriteString(own + namesMark)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&b, "%s\t%s\n", names[name], name)
	}
	if _, err = f.WriteAt([]byte(b.String()), 0); err == nil {
		err = f.Truncate(int64(b.Len()))
	}
	if err != nil {
		return fmt.Errorf("cannot name addresses: %w", err)
	}
	return nil
}

// namesMark is the line of a hosts file after which the names of [Names] begin. maxHosts bounds the file, in bytes.
const (
	namesMark = "# services\n"
	maxHosts  = 64 << 10
)

// Limits and features that some machines do not allow an engine. The sandbox names the missing ones for `ramus doctor`,
// and the conformance suite leaves out their tests.
const (
	AbilityMemory   = "memory limit"
	AbilityCPU      = "cpu limit"
	AbilityPIDs     = "pids limit by cgroup"
	AbilityTmpSize  = "limit of /tmp"
	AbilityNoUserNS = "user namespaces switched off inside"
	AbilitySidecar  = "sidecars"
	AbilityImage    = "images"
	AbilityRootUser = "root inside"
)
