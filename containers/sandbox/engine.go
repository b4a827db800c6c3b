package sandbox

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/cgroup"
)

// DefaultUID is the user of the host that containers run as if ramus is root and [Engine.UID] is zero. It is in a range
// that no distribution assigns. It is not "nobody", which other daemons use. They could trace a container, and an
// escaped command could trace them.
const DefaultUID = 60999

// Engine is a [containers.Engine] made of bubblewrap. The zero value with Dir set is ready to use. Fields must not change after
// the first call.
type Engine struct {
	// Dir has one folder for each container, with its state and its socket. Dir has mode 0700. It is made if it does not exist.
	Dir string
	// Runner is the program whose subcommand `runner` becomes process 1. It must be static, or its libraries must be
	// below /usr. The default is this program.
	Runner string
	// Program is the program that commands find at [containers.Program]. Default: Runner.
	Program string
	// ReadOnly are paths of the host, such as a module cache. Containers see them read-only at the same paths. Paths that do not
	// exist are left out.
	ReadOnly []string
	// Browser is a folder of the host with the program and the driver of browser checks. `make browser` fills one.
	// Sidecars see it at [containers.BrowserDir]. If it is empty, sidecars have no browser.
	Browser string
	// Bwrap is the program of bubblewrap. Default: "bwrap", found in PATH.
	Bwrap string
	// UID is the number of the user and of the group that containers run as if ramus is root. Default: [DefaultUID]. If ramus is
	// not root, containers run as the user of ramus.
	UID int
	// Log gets the failures that no caller gets. If it is nil, they are discarded.
	Log *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time

	assigning sync.Mutex // held while a state that exists is written again

	mu       sync.Mutex // guards the fields below
	probed   *bwrapProbe
	cgroups  *cgroup.Root // nil until probed; the zero value if there are none
	starting map[string]bool
	sidecars map[string]*run // the sidecars of this process, by id
}

var _ interface {
	containers.Engine
	containers.Sidecars
	containers.Processes
	containers.TaskUser
	containers.Assigner
	containers.Names
} = (*Engine)(nil)

// Name returns "sandbox".
func (s *Engine) Name() string { return "sandbox" }

// Close does nothing. Containers continue, and the engine has nothing open.
func (s *Engine) Close() error { return nil }

// TaskUID returns the user that containers run as.
func (s *Engine) TaskUID() int {
	uid, _ := s.user()
	return uid
}

func (s *Engine) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s *Engine) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.New(slog.DiscardHandler)
}

// user returns the user that bubblewrap runs as, and whether that is not the user of ramus.
func (s *Engine) user() (id int, other bool) {
	if os.Geteuid() != 0 {
		return os.Geteuid(), false
	}
	if s.UID != 0 {
		return s.UID, true
	}
	return DefaultUID, true
}

// runnerPath returns the absolute path of Runner.
func (s *Engine) runnerPath() (string, error) {
	if s.Runner != "" {
		return filepath.Abs(s.Runner)
	}
	return os.Executable()
}

// home returns the folder of a container below Dir.
func (s *Engine) home(id string) string { return filepath.Join(s.Dir, id) }
