package browse

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/internal/text"
)

// app is the application that serves a page, for as long as the page is looked at.
type app struct {
	host   *containers.Host
	id     string
	line   string
	before []int // ports that listened before it was started
	log    *text.Tail
	flush  func()
	detach context.CancelFunc
	done   chan struct{} // closed when it has ended, or when its end can no longer be observed
	// exit and err are its result. They are read after done is closed.
	exit containers.Exit
	err  error
}

// maxAppLog is how much is kept of the end of an application's output, in bytes.
const maxAppLog = 1 << 20

// start starts the application. In its environment dev servers neither open a browser nor wait for somebody who types. It chooses its port
// itself.
func (k *look) start(ctx context.Context, line string) (*app, error) {
	host := k.step.Host
	a := &app{host: host, id: k.step.NextID(), line: line, log: &text.Tail{Limit: maxAppLog}, done: make(chan struct{})}
	var err error
	if a.before, err = host.Ports(ctx); err != nil {
		return nil, fmt.Errorf("cannot start `%s`: %w", line, err)
	}
	var stdout, stderr io.Writer
	stdout, stderr, a.flush = k.in.Secrets.Writers(a.log, a.log)
	attach, detach := context.WithCancel(context.WithoutCancel(ctx))
	a.detach = detach
	// It runs in the background, because it may start the server of the page and end.
	p, err := host.Start(attach,
		containers.Command{ID: a.id, Shell: "unset PORT; " + line, Dir: k.spec.Dir, Background: true,
			Env: slices.Concat(k.step.Env, []string{"CI=true", "BROWSER=none"})})
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

// stop ends the application, and returns when it has ended.
func (a *app) stop(ctx context.Context) {
	// The command is ended even if ctx has ended. Otherwise it would continue to serve.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := a.host.Kill(ctx, a.id); err == nil {
		select {
		case <-a.done:
		case <-ctx.Done():
		}
	}
	a.detach()
	<-a.done
	a.flush()
	_ = a.host.Forget(ctx, a.id) // only memory is lost if the runner does not get it
}

// keepLog writes the application's output to the evidence. If the output was too long it begins at a line, because half a secret would not be
// found.
func (k *look) keepLog(a *app) error {
	printed := a.log.String()
	if a.log.Total() > int64(len(printed)) {
		_, printed, _ = strings.Cut(printed, "\n")
	}
	printed = k.secrets.String(printed)
	if printed == "" {
		return nil
	}
	k.check.Log = text.ClipEnd(strings.TrimRight(printed, "\n"), maxSaid)
	return os.WriteFile(filepath.Join(k.part, keptFolder, "app.log"), []byte(printed), 0o600)
}
