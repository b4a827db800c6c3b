package executor

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/internal/text"
)

// app is the application that serves a page, for as long as the page is looked at.
type app struct {
	w      *work
	id     string
	line   string
	before []int // ports that listened before it was started
	log    *text.Tail
	flush  func()
	detach context.CancelFunc
	done   chan struct{} // closed when it has ended, or nothing more is heard of it
	// exit and err are how it ended; read after done.
	exit containers.Exit
	err  error
}

// maxAppLog is how much is kept of what an application prints, its end.
const maxAppLog = 1 << 20

// start starts the application. It gets the environment in which dev servers
// neither open a browser nor wait for somebody who types, and chooses its port itself.
func (k *look) start(ctx context.Context, line string) (*app, error) {
	w := k.w
	w.n++
	a := &app{w: w, id: w.id + "." + strconv.Itoa(w.n), line: line, log: &text.Tail{Limit: maxAppLog}, done: make(chan struct{})}
	var err error
	if a.before, err = w.host.Ports(ctx); err != nil {
		return nil, fmt.Errorf("cannot start `%s`: %w", line, err)
	}
	var stdout, stderr io.Writer
	stdout, stderr, a.flush = w.l.x.cleanCopy(a.log, a.log)
	attach, detach := context.WithCancel(context.WithoutCancel(ctx))
	a.detach = detach
	// In the background: it may start what serves the page and end.
	p, err := w.host.Start(attach, containers.Command{ID: a.id, Shell: "unset PORT; " + line, Dir: k.spec.Dir, Background: true,
		Env: append(w.l.x.trees.Identity.Env(w.l.claim.Asker), "CI=true", "BROWSER=none")})
	if err != nil {
		detach()
		return nil, fmt.Errorf("cannot start `%s`: %w", line, err)
	}
	go func() {
		defer close(a.done)
		a.exit, a.err = p.Output(stdout, stderr)
	}()
	return a, nil
}

// stop ends the application, and returns when it is over.
func (a *app) stop(ctx context.Context) {
	// Also when nobody waits for the check any more: it would go on serving.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := a.w.host.Kill(ctx, a.id); err == nil {
		select {
		case <-a.done:
		case <-ctx.Done():
		}
	}
	a.detach()
	<-a.done
	a.flush()
	_ = a.w.host.Forget(ctx, a.id) // only memory is lost when the runner does not hear it
}

// keepLog writes what the application printed into the evidence. Its beginning is cut
// off at a line where it was too long: half a secret would not be found.
func (k *look) keepLog(a *app) error {
	printed := a.log.String()
	if a.log.Total() > int64(len(printed)) {
		_, printed, _ = strings.Cut(printed, "\n")
	}
	printed = k.secrets.String(printed)
	if printed == "" {
		return nil
	}
	k.check.Log = text.ClipEnd(strings.TrimRight(printed, "\n"), maxBrowserSaid)
	return os.WriteFile(filepath.Join(k.part, keptFolder, "app.log"), []byte(printed), 0o600)
}
