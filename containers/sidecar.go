package containers

import (
	"context"
	"io"
	"time"
)

// BrowserDir is where the browser lane's program and its driver lie inside a
// sidecar: ramus-browser and driver/, of the image or, of the Sandbox, of a folder
// of the host's ([Sandbox.Browser]).
const BrowserDir = "/opt/ramus-browser"

// Sidecar is a program that runs in a container of its own beside another one,
// whose network it shares and nothing else: no file, no process, no user that the
// other could trace. It has no capabilities and no mounts; it can write only to
// /tmp and its home, which are memory and count as its own.
type Sidecar struct {
	Owner string // the installation, as in [Spec]; [Fleet.Beside] fills it in
	// Key names it for people, "browser:run:fancy-mallard".
	Key string
	// Image to start from; the Sandbox ignores it and shows the host's own programs.
	Image string
	Args  []string // the program and its arguments, no shell
	Env   []string // "K=V"
	// Limits: of these Memory (default 1 GiB), CPUs (default 2), PIDs (default 256)
	// and Tmp (default 512 MiB, at most half of Memory) count.
	Limits Limits
	Stdin  io.Reader // nil: empty
	Stdout io.Writer // nil: dropped
	Stderr io.Writer // nil: dropped
	// Unqueued does not wait for its turn among the checks: for a program that stays
	// as long as an agent works.
	Unqueued bool
}

// SidecarExit is how a sidecar ended.
type SidecarExit struct {
	Code     int    // 128+n when ended by signal n
	OOM      bool   // the kernel ended something in it because it had used its memory
	Image    string // with digest; of the Sandbox "sandbox"
	Memory   int64  // bytes, the most it used; 0: not known
	Duration time.Duration
}

// Beside runs a sidecar of a container to its end, in its turn: no more than
// [Fleet.Sidecars] run at once. See [Engine]. ctx bounds the waiting too.
func (f *Fleet) Beside(ctx context.Context, id string, s Sidecar) (SidecarExit, error) {
	panic("not built")
}
