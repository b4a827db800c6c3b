package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kube"
)

const (
	// execWait bounds the time until a command of this package runs in a pod.
	execWait = 30 * time.Second
	// probeWait bounds one attempt to reach a runner.
	probeWait = 2 * time.Second
	// maxSaid bounds the words of a failed command that are kept, in bytes.
	maxSaid = 4 << 10
)

// Dial opens a connection to the runner, through the API server. It outlives the streams that carry it. Returns
// [containers.ErrGone] with the reason if the pod has ended.
func (e *Engine) Dial(ctx context.Context, id string) (net.Conn, error) {
	c, err := e.dial(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("cannot reach container %s: %w", id, e.orGone(ctx, id, err))
	}
	return c, nil
}

// exec starts a command in a container of a pod.
func (e *Engine) exec(ctx context.Context, id, in string, input bool, stderr io.Writer,
	args ...string) (*kube.Exec, error) {
	api, err := e.client()
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, execWait)
	defer cancel()
	x, err := api.Exec(limited, kube.Command{Namespace: e.namespace(), Pod: id, Container: in, Args: args,
		Input: input, Stderr: stderr})
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return x, nil
}

// orGone replaces err by the end of the pod, if it has ended.
func (e *Engine) orGone(ctx context.Context, id string, err error) error {
	if id == "" || ctx.Err() != nil || errors.Is(err, containers.ErrGone) {
		return err
	}
	p, gerr := e.getPod(ctx, id)
	switch {
	case errors.Is(gerr, containers.ErrGone):
		why := ""
		e.watching(func(w *watch) { why = w.whyGone(id) })
		return errors.Join(goneError(why), err)
	case gerr != nil:
		return err
	}
	if why, ended := p.ended(); ended {
		return errors.Join(goneError(why), err)
	}
	return err
}

// greeted returns nil if the runner of a pod answers. It waits at most tryWait for a connection and again for the answer.
func (e *Engine) greeted(ctx context.Context, id string) error {
	c, err := e.dial(ctx, id)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, c.lose)
	defer stop()
	_ = c.SetReadDeadline(time.Now().Add(tryWait))
	var b [4]byte
	if _, err = io.ReadFull(c, b[:]); err == nil && string(b[:]) != "SSH-" {
		err = fmt.Errorf("it greets with %q", b)
	}
	return err
}

// perform runs a command in a container of a pod to its end, and returns its stdout, which max bounds. A nil stdin is
// none.
func (e *Engine) perform(ctx context.Context, id, in string, stdin []byte, max int64, args ...string) ([]byte, error) {
	words := &said{}
	x, err := e.exec(ctx, id, in, stdin != nil, words, args...)
	if err != nil {
		return nil, e.orGone(ctx, id, err)
	}
	defer x.Close()
	defer context.AfterFunc(ctx, func() { x.Close() })()
	if stdin != nil {
		// A command that does not read to the end is judged by its status.
		if _, err := x.Write(stdin); err == nil {
			_ = x.CloseWrite()
		}
	}
	var out bytes.Buffer
	_, err = io.Copy(&out, io.LimitReader(x, max))
	var exit *kube.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &exit):
		return nil, e.orGone(ctx, id, fmt.Errorf("%w: %s", err, words))
	case err != nil:
		return nil, e.orGone(ctx, id, unavailable(err))
	}
	return out.Bytes(), nil
}

// said keeps the first words of a command.
type said struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, p[:min(len(p), maxSaid-len(s.text))]...)
	return len(p), nil
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(string(s.text))
}
