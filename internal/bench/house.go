package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/client"
)

// house is a ramus that serves from its own data folder, and a client of it.
type house struct {
	*server
	b      *bench
	data   string
	client *client.Client
	api    *engineAPI // nil with the Sandbox
	pool   int
	// poolless is true if no container was ever seen to wait for a caller.
	poolless bool
	callers  atomic.Int64
	named    string
}

// house starts a ramus whose pool has the given depth.
func (b *bench) house(ctx context.Context, name string, pool int, env ...string) (*house, error) {
	api, err := b.engineAPI(ctx)
	if err != nil && b.engine == "docker" {
		return nil, err
	}
	h := &house{b: b, api: api, pool: pool, named: name}
	if b.engine != "docker" {
		h.api = nil
	}
	if h.data, err = os.MkdirTemp(b.dir, "data-"); err != nil {
		return nil, err
	}
	b.onExit(func(context.Context) error { return os.RemoveAll(h.data) })
	// clean runs after the server has stopped, which leaves containers for its next start.
	b.onExit(h.clean)
	env = append([]string{"RAMUS_DATA=" + h.data, "RAMUS_LISTEN=", "RAMUS_ENGINE=" + b.engine, "RAMUS_IMAGE=" + b.image,
		fmt.Sprintf("RAMUS_POOL=%d", pool), "RAMUS_CAPACITY=250", "RAMUS_SLEEP_AFTER=2h", "RAMUS_LOG_LEVEL=warn",
		"DOCKER_HOST=" + os.Getenv("DOCKER_HOST"),
		"RAMUS_WORK_TREE=" + cmp.Or(os.Getenv("RAMUS_WORK_TREE"), "auto")}, env...)
	if os.Getenv("DOCKER_HOST") == "" {
		env = without(env, "DOCKER_HOST=")
	}
	if h.server, err = b.start(ctx, sideRamus, env, nil, b.ramus, "serve"); err != nil {
		return nil, err
	}
	h.client = client.Socket(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(h.data, "ramus.sock"))
	})
	b.onExit(h.dismiss)
	for begin := time.Now(); ; {
		if _, err = h.client.Health(ctx); err == nil {
			return h, nil
		}
		select {
		case <-h.ended:
			h.ended <- nil
			return nil, fmt.Errorf("ramus serve ended at once: %s", h.log)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Since(begin) > starting {
			return nil, fmt.Errorf("ramus serve does not answer: %w: %s", err, h.log)
		}
	}
}

// furnished returns a house with a repository whose base layer is made.
func (b *bench) furnished(ctx context.Context, name string, pool int, s shape) (*house, *repository, error) {
	r, err := b.repository(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	h, err := b.house(ctx, name, pool)
	if err != nil {
		return nil, nil, err
	}
	_, err = h.take(ctx, r)
	return h, r, err
}

func without(list []string, item string) []string {
	out := list[:0:0]
	for _, s := range list {
		if s != item {
			out = append(out, s)
		}
	}
	return out
}

// dismiss removes the containers of all callers. It needs the running server.
func (h *house) dismiss(ctx context.Context) error {
	defer h.client.Close()
	list, err := h.client.Callers(ctx, client.Filter{Max: 1000})
	if err != nil {
		return err
	}
	return together(ctx, len(list), func(ctx context.Context, i int) error {
		_, err := h.client.StopCaller(ctx, list[i].Caller.String())
		return err
	})
}

// clean removes the containers that the server left in its pool.
func (h *house) clean(ctx context.Context) error {
	if h.api == nil {
		return nil
	}
	var errs []error
	for _, owner := range h.owners() {
		left, err := h.api.list(ctx, "ramus.owner="+owner)
		errs = append(errs, err)
		for _, c := range left {
			errs = append(errs, h.api.remove(ctx, c.ID))
		}
	}
	return errors.Join(errs...)
}

// owners returns the label values of this house's containers.
func (h *house) owners() []string {
	text, err := os.ReadFile(filepath.Join(h.data, "hosts", "owner"))
	if err != nil {
		return nil
	}
	return []string{strings.TrimSpace(string(text))}
}

// take imports a repository. It waits for a first caller, and until ramus has made the layer for later callers. took is
// the time of the latter, or 0 if nothing is made.
func (h *house) take(ctx context.Context, r *repository) (took time.Duration, err error) {
	if _, err := h.client.CreateRepo(ctx, gateway.CreateRepo{Name: r.name, Source: r.dir}, func(string) {}); err != nil {
		return 0, err
	}
	begin := time.Now()
	x, err := h.exec(ctx, h.name(), r.name, record.Command{Args: []string{"cat", markPath}})
	if err == nil {
		err = x.printed(markText)
	}
	if err != nil {
		return 0, err
	}
	if _, err := h.client.StopCaller(ctx, x.caller); err != nil {
		return 0, err
	}
	for waited := time.Now(); ; {
		switch made, begun := h.layer(r); {
		case made:
			return time.Since(begin), h.settled(ctx)
		case !begun && time.Since(waited) > 3*time.Second, time.Since(waited) > 2*time.Minute:
			h.b.sayf("%s has no base layer: new callers clone", r.name)
			return 0, h.settled(ctx)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// layer reports whether the base layer of a repository's tip exists, and whether any was begun.
func (h *house) layer(r *repository) (made, begun bool) {
	entries, err := os.ReadDir(filepath.Join(h.data, "layers", r.name))
	for _, e := range entries {
		made = made || strings.HasPrefix(e.Name(), r.tip)
	}
	return made, err == nil && len(entries) > 0
}

// name returns a name that no caller has.
func (h *house) name() string { return fmt.Sprintf("run:%s-%d", h.named, h.callers.Add(1)) }

// settled waits until the pool is full again, and then for a moment. The work for the next caller must not count as
// work for this one, nor for another side.
func (h *house) settled(ctx context.Context) error {
	if h.api == nil || h.pool == 0 || h.poolless {
		return pause(ctx, 300*time.Millisecond)
	}
	for begin := time.Now(); ; {
		waiting, err := h.waiting(ctx)
		if err != nil {
			return err
		}
		if waiting >= h.pool {
			return pause(ctx, 300*time.Millisecond) // started, and soon connected
		}
		if waiting == 0 && time.Since(begin) > 10*time.Second {
			h.b.sayf("no container waits in a pool")
			h.poolless = true
			return nil
		}
		if time.Since(begin) > 3*time.Minute {
			return fmt.Errorf("the pool is not full after three minutes: %d of %d", waiting, h.pool)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// waiting returns the number of running containers that no caller has.
func (h *house) waiting(ctx context.Context) (n int, err error) {
	list, err := h.client.Callers(ctx, client.Filter{Max: 1000})
	if err != nil {
		return 0, err
	}
	for _, c := range list {
		if c.Container != nil && c.Container.State != "queued" {
			n--
		}
	}
	for _, owner := range h.owners() {
		all, err := h.api.list(ctx, "ramus.owner="+owner)
		if err != nil {
			return 0, err
		}
		for _, c := range all {
			// A container that makes base layers has no caller either, but does not wait for one.
			making := slices.ContainsFunc(c.Names,
				func(name string) bool { return strings.HasPrefix(name, "/container-layer") })
			if c.State == "running" && !making {
				n++
			}
		}
	}
	return n, nil
}

// execution is the result of a command, with the times that its client measured.
type execution struct {
	*firstWriter
	caller string
	all    time.Duration
	result record.Result
}

func (x *execution) printed(want string) error {
	if got := x.text.String(); x.result.ExitCode != 0 || got != want {
		return fmt.Errorf("%s printed %q and ended with %d; want %q", x.caller, got[:min(len(got), 500)],
			x.result.ExitCode, want)
	}
	return nil
}

// exec runs a command for a caller. It creates the caller if none has that name.
func (h *house) exec(ctx context.Context, caller, repo string, c record.Command) (*execution, error) {
	x := &execution{firstWriter: &firstWriter{begin: time.Now()}, caller: caller}
	var err error
	x.result, err = h.client.Exec(ctx, caller, gateway.ExecRequest{Repo: repo, Command: c},
		client.ExecOptions{Stdout: x, Stderr: x})
	x.all = time.Since(x.begin)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", caller, err)
	}
	return x, nil
}

// newCaller runs a command for a new caller, and ends the caller.
func (h *house) newCaller(ctx context.Context, r *repository) (*execution, error) {
	x, err := h.exec(ctx, h.name(), r.name, record.Command{Args: []string{"cat", markPath}})
	if err != nil {
		return nil, err
	}
	if _, err := h.client.StopCaller(ctx, x.caller); err != nil {
		return nil, err
	}
	return x, x.printed(markText)
}

// cold returns a side whose rounds are new callers. It measures from the request to the first output.
func (h *house) cold(name string, r *repository) side {
	return side{name: name, settle: h.settled, round: func(ctx context.Context, _ int) ([]float64, error) {
		x, err := h.newCaller(ctx, r)
		if err != nil {
			return nil, err
		}
		return []float64{ms(x.first)}, nil
	}}
}

func joined(a, b error) error {
	if a == nil {
		return b
	}
	return errors.Join(a, b)
}

// execTo is exec for output that is too large to keep.
func (h *house) execTo(ctx context.Context, caller, repo string, c record.Command, w io.Writer) error {
	result, err := h.client.Exec(ctx, caller, gateway.ExecRequest{Repo: repo, Command: c},
		client.ExecOptions{Stdout: w, Stderr: io.Discard})
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("%s: exit code %d", caller, result.ExitCode)
	}
	return err
}
