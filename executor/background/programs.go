package background

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Programs reaches the programs in containers. Its exported fields are set before the first use. Methods are safe for
// concurrent use.
type Programs struct {
	// Adopt leases a caller's running container. The error wraps [containers.ErrGone] if it has none.
	Adopt func(ctx context.Context, caller string) (*containers.Lease, error)
	// Secrets are removed from the output of processes. Nil means that there are none.
	Secrets *redact.Secrets

	mu     sync.Mutex // guards all below
	closed bool
	open   map[*portConn]struct{}
}

// Processes returns a caller's background processes.
func (p *Programs) Processes(ctx context.Context, caller string) ([]containers.CommandState, error) {
	var list []containers.CommandState
	err := p.WithHost(ctx, caller, func(h *containers.Host) error {
		commands, err := h.Commands(ctx)
		for _, c := range commands {
			if c.Background {
				list = append(list, c)
			}
		}
		return err
	})
	if errors.Is(err, containers.ErrGone) {
		return nil, nil // no container, no processes
	}
	return list, err
}

// ProcessOutput copies the output of a background process, with follow until the process ends.
func (p *Programs) ProcessOutput(ctx context.Context, caller, id string, follow bool, stdout, stderr io.Writer) error {
	stdout, stderr, flush := p.Secrets.Writers(stdout, stderr)
	defer flush()
	return p.WithHost(ctx, caller, func(h *containers.Host) error {
		commands, err := h.Commands(ctx)
		if err != nil {
			return err
		}
		for _, c := range commands {
			if c.ID != id || !c.Background {
				continue
			}
			if c.Running && !follow {
				return printed(ctx, h, c, stdout, stderr)
			}
			process, err := h.Attach(ctx, id, 0, 0)
			if err != nil {
				return err
			}
			_, err = process.Output(stdout, stderr)
			return err
		}
		return fmt.Errorf("process %s of %s: %w", id, caller, record.ErrNotFound)
	})
}

// StopProcess ends one background process.
func (p *Programs) StopProcess(ctx context.Context, caller, id string) error {
	return p.WithHost(ctx, caller, func(h *containers.Host) error {
		if err := h.Kill(ctx, id); errors.Is(err, containers.ErrUnknownCommand) {
			return fmt.Errorf("process %s of %s: %w", id, caller, record.ErrNotFound)
		} else if err != nil {
			return err
		}
		return nil
	})
}

// WithHost calls f with a caller's running container. The error is ErrGone if it has none.
func (p *Programs) WithHost(ctx context.Context, caller string, f func(*containers.Host) error) error {
	lease, err := p.Adopt(ctx, caller)
	if err != nil {
		return err
	}
	defer lease.Release()
	return f(lease.Host)
}

// printed copies the output so far of a running process.
func printed(ctx context.Context, h *containers.Host, c containers.CommandState, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	left := &countdown{stdout: c.Exit.Stdout, stderr: c.Exit.Stderr, done: cancel}
	if left.stdout+left.stderr == 0 {
		return nil
	}
	process, err := h.Attach(ctx, c.ID, 0, 0)
	if err != nil {
		return err
	}
	_, err = process.Output(left.writer(stdout, &left.stdout), left.writer(stderr, &left.stderr))
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
