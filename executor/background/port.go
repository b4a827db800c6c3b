package background

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/record"
)

// Ports returns the TCP ports that listen in a caller's container, without the door's and that of an agent's browser. The error is
// ErrGone if the caller has no container. A sleeping container is not woken.
func (p *Programs) Ports(ctx context.Context, c record.Caller) (ports []int, err error) {
	err = p.WithHost(ctx, c.String(), func(h *containers.Host) error {
		ports, err = h.Ports(ctx)
		ports = slices.DeleteFunc(ports, func(port int) bool { return port == browse.InteractivePort })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the open ports of %s: %w", c, err)
	}
	return ports, nil
}

// DialPort connects to a port of a caller's container, on its loopback. The container stays awake until the connection is closed,
// and [Programs.Close] closes it. The error is ErrGone if the caller has no container, and ErrNoPort if nothing listens at the port. ctx
// bounds the dialling alone.
func (p *Programs) DialPort(ctx context.Context, c record.Caller, port int) (net.Conn, error) {
	wrap := func(err error) error { return fmt.Errorf("cannot connect to port %d of %s: %w", port, c, err) }
	if port < 1 || port > 65535 {
		return nil, wrap(fmt.Errorf("%w port: want 1 to 65535", record.ErrInvalid))
	}
	if port == browse.InteractivePort {
		// A person at an agent's browser acts in the container. A viewer must not.
		return nil, wrap(fmt.Errorf("%w: it is the agent's browser's", containers.ErrNoPort))
	}
	lease, err := p.Adopt(ctx, c.String())
	if err != nil {
		return nil, wrap(err)
	}
	conn, err := lease.Host.Dial(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, containers.ErrNoPort) {
		// A server that listens at "localhost" may listen on the other family alone.
		var also error
		if conn, also = lease.Host.Dial(ctx, net.JoinHostPort("::1", strconv.Itoa(port))); also == nil || !errors.Is(also, containers.ErrNoPort) {
			err = also
		}
	}
	if err != nil {
		lease.Release()
		return nil, wrap(err)
	}
	return p.keep(conn, lease, wrap)
}

// keep returns a connection that Close ends, with its lease.
func (p *Programs) keep(conn net.Conn, lease *containers.Lease, wrap func(error) error) (net.Conn, error) {
	c := &portConn{Conn: conn}
	c.end = sync.OnceValue(func() error {
		p.mu.Lock()
		delete(p.open, c)
		p.mu.Unlock()
		err := c.Conn.Close()
		lease.Release()
		return err
	})
	p.mu.Lock()
	closed := p.closed
	if !closed {
		if p.open == nil {
			p.open = make(map[*portConn]struct{})
		}
		p.open[c] = struct{}{}
	}
	p.mu.Unlock()
	if closed {
		_ = c.Close() // nobody has it yet
		return nil, wrap(record.ErrClosed)
	}
	return c, nil
}

// portConn is a connection to a port of a container, which keeps the container awake.
type portConn struct {
	net.Conn
	end func() error
}

// Close ends the connection, once.
func (c *portConn) Close() error { return c.end() }

// Close closes the connections to ports, and refuses later ones.
func (p *Programs) Close() {
	p.mu.Lock()
	p.closed = true
	var open []*portConn
	for c := range p.open {
		open = append(open, c)
	}
	p.mu.Unlock()
	for _, c := range open {
		_ = c.Close() // its users see the end of the connection
	}
}
