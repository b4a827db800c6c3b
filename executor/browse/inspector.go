package browse

import (
	"cmp"
	"io"
	"log/slog"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Browser says how pages are looked at.
type Browser struct {
	// Image of the browser's sidecar. The Sandbox uses the host's programs. Default ramus/browser:latest.
	Image  string
	Limits containers.Limits // of a sidecar; default 1 GiB, 2 CPUs, 256 processes
	// Timeout is the longest time of one check in the browser; default 15 min.
	Timeout time.Duration
	// Grace is the time for a browser to start and to write its evidence, in addition to its time, and once more until it is
	// ended; default 30 s.
	Grace time.Duration
}

func (b *Browser) timeout() time.Duration { return cmp.Or(b.Timeout, browserTimeout) }

// Bounds of checks.
const (
	browserTimeout = 15 * time.Minute
	browserGrace   = 30 * time.Second
	maxCheckData   = 1 << 20 // bytes of a check in the journal, 2,000 names of files among them
	maxSaid        = 4 << 10 // bytes of a command's output in a reason or a Log
)

// Inspector does checks for the runs of a server. Its fields are its options. Methods are safe for concurrent use.
type Inspector struct {
	// Browser says how pages are looked at. nil: there is no browser, and checks end as UNVERIFIED.
	Browser *Browser
	// Fleet runs the browser's sidecars.
	Fleet *containers.Fleet
	// Bot is the author of the commits of baselines.
	Bot gitd.Person
	// Secrets are removed from evidence. nil: there are none.
	Secrets *redact.Secrets
	// Baselines is how many baselines of a repository are kept; default 200.
	Baselines int
	Log       *slog.Logger
	Now       func() time.Time
}

// sidecar returns the sidecar that runs the browser's program with args.
func (in *Inspector) sidecar(key string, stdout, stderr io.Writer, args ...string) containers.Sidecar {
	return containers.Sidecar{
		Key:    key,
		Image:  in.Browser.Image,
		Limits: in.Browser.Limits,
		Args:   append([]string{containers.BrowserDir + "/ramus-browser"}, args...),
		Stdout: stdout,
		Stderr: stderr,
	}
}
