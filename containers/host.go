package containers

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// Paths inside every container.
const (
	WorkDir      = "/work"      // the caller's work tree
	ArtifactsDir = "/artifacts" // files a command wants kept
	CacheDir     = "/cache"     // package managers' caches; HOME is /cache/home
	DoorAddr     = "127.0.0.1:7070"
)

// The kinds of error of this package.
var (
	// ErrGone: the container or its runner is not there any more.
	ErrGone = errors.New("container is gone")
	// ErrUnavailable: the engine does not answer.
	ErrUnavailable = errors.New("container engine unavailable")
	// ErrUnknownCommand: the runner remembers no command of that id.
	ErrUnknownCommand = errors.New("unknown command")
	// ErrImpostor: what answered has not the host key the runner had.
	ErrImpostor = errors.New("the runner is not the one that was started")
	// ErrBusy: the queue for a container is full.
	ErrBusy = errors.New("too many callers are waiting")
)

// Host is an SSH connection to the runner in one container. Methods are safe
// for concurrent use. When the connection breaks every method fails with an
// error that is [ErrGone].
type Host struct{}

// Pin remembers a runner's SSH host key, so that nothing inside a container
// can take the runner's place later. First use stores, later uses compare.
type Pin interface {
	Key() []byte // nil when none is stored yet
	Store(key []byte) error
}

// Dialer says how to open a Host.
type Dialer struct {
	Engine Engine
	// Signer is the private half of Spec.ClientKey.
	Signer ssh.Signer
	Pin    Pin
	// Door answers what the container asks at 127.0.0.1:7070; nil closes it.
	Door http.Handler
}

// Dial connects to the runner in a container. It tries again until the runner
// answers, the container is found to be gone, or ctx ends; the connection
// outlives ctx. A runner whose host key is not the pinned one is refused with
// [ErrImpostor].
func (d *Dialer) Dial(ctx context.Context, id string) (*Host, error) { panic("not built") }

// NewHost is Dial over a connection that is there already. On error conn is closed.
func (d *Dialer) NewHost(ctx context.Context, conn net.Conn, c Container) (*Host, error) {
	panic("not built")
}

// Command is one command line for a container.
type Command struct {
	// ID names the command while the runner remembers it: [A-Za-z0-9._-]{1,64}, unique in the container.
	ID string
	// Args is run without a shell. Shell, when Args is empty, is run by `sh -c`.
	Args  []string
	Shell string
	Dir   string   // below /work; default /work
	Env   []string // "K=V", after the container's own
	Stdin io.Reader
	// TTY asks for a terminal; stdout then carries both streams.
	TTY *Window
	// Timeout kills the whole process group (and what left it by setsid) with
	// SIGTERM, and Grace later with SIGKILL. Zero: no limit.
	Timeout time.Duration
	Grace   time.Duration // default 5 s
	// Background commands may outlive later commands and count as activity;
	// foreground commands take what they started with them when they end.
	Background bool
}

// Window is a terminal's size and kind.
type Window struct {
	Rows, Cols int
	Term       string // TERM; default xterm-256color
}

// Reasons why a command ended other than by itself.
const (
	ReasonTimeout  = "timeout"
	ReasonKilled   = "killed"    // by Process.Kill or Host.Kill
	ReasonDiskFull = "disk_full" // see Limits.DiskFree
	ReasonMemory   = "memory"    // the kernel's out-of-memory killer
)

// Exit is how a command ended.
type Exit struct {
	Code     int           // 0-255; 128+n when ended by signal n; 126/127 when it could not start
	Signal   string        // "KILL", … or ""
	Reason   string        // one of the Reason constants, or "" when it ended by itself
	Duration time.Duration // measured by the runner
	// Stdout and Stderr count all bytes written; more than Limits.Output of
	// either were dropped after that many.
	Stdout, Stderr int64
}

// CommandState is what the runner remembers of a command.
type CommandState struct {
	ID         string
	Started    time.Time
	Background bool
	Running    bool
	Exit       Exit // when not Running
	Line       string
}

// Process is a command as seen from outside. Its output is read from the
// runner's memory, so it may be attached any number of times.
type Process struct{}

// Start runs a command. Its context ends the attachment, not the command.
func (h *Host) Start(ctx context.Context, c Command) (*Process, error) { panic("not built") }

// Attach follows a remembered command again, its output from the given offsets on.
func (h *Host) Attach(ctx context.Context, id string, stdout, stderr int64) (*Process, error) {
	panic("not built")
}

// Output copies the command's output to the writers and returns how it ended.
// It returns early with the context's error, or ErrGone; the command goes on then.
// A nil writer discards.
func (p *Process) Output(stdout, stderr io.Writer) (Exit, error) { panic("not built") }

// Resize tells a terminal its new size.
func (p *Process) Resize(w Window) error { panic("not built") }

// Commands lists what the runner remembers, oldest first.
func (h *Host) Commands(ctx context.Context) ([]CommandState, error) { panic("not built") }

// Kill ends a command as a timeout would, with reason "killed".
func (h *Host) Kill(ctx context.Context, id string) error { panic("not built") }

// Forget frees the output of a command that has ended.
func (h *Host) Forget(ctx context.Context, id string) error { panic("not built") }

// Files opens SFTP, served by a child process of the task's user that cannot
// leave /work, /artifacts, /cache and /tmp by "..", absolute path or symlink.
func (h *Host) Files(ctx context.Context) (*sftp.Client, error) { panic("not built") }

// Dial connects to a port inside the container ("127.0.0.1:5173").
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) { panic("not built") }

// Ports lists the TCP ports that listen inside, the door's left out.
func (h *Host) Ports(ctx context.Context) ([]int, error) { panic("not built") }

// Done is closed when the connection is lost.
func (h *Host) Done() <-chan struct{} { panic("not built") }

// Container tells which container this is.
func (h *Host) Container() Container { panic("not built") }

// Close ends the connection; the container and its commands go on.
func (h *Host) Close() error { panic("not built") }
