package browse

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Browser configures the browser.
type Browser struct {
	// Image of the browser's sidecar. The Sandbox uses the host's programs. Default ramus/browser:latest.
	Image  string
	Limits containers.Limits // of a sidecar; default 1 GiB, 2 CPUs, 256 processes
	// Timeout bounds one check in the browser. The default is 15 min.
	Timeout time.Duration
	// Grace is the time for a browser to start and to write its evidence, in addition to Timeout. It is also the time
	// until a browser is ended after that. The default is 30 s.
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
	// Browser configures the browser. If it is nil, checks end as UNVERIFIED.
	Browser *Browser
	// Fleet runs the browser's sidecars.
	Fleet *containers.Fleet
	// Bot is the author of the commits of baselines.
	Bot gitd.Person
	// Secrets are removed from evidence. Nil means that there are none.
	Secrets *redact.Secrets
	// Baselines is the number of baselines of a repository that are kept. The default is 200.
	Baselines int
	Log       *slog.Logger
	Now       func() time.Time

	once sync.Once
	turn chan struct{} // holds a value while a base is looked at
}

// takeTurn waits until no other check looks at a base. The container of such a look is beyond the capacity of the fleet, so
// there is one at a time. It also has the result of an equal look before it.
func (in *Inspector) takeTurn(ctx context.Context) (release func(), err error) {
	in.once.Do(func() { in.turn = make(chan struct{}, 1) })
	select {
	case in.turn <- struct{}{}:
		return func() { <-in.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
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
