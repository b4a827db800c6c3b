package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/preview"
	"github.com/ramus-dev/ramus/gateway/route"
)

func previewCommand() command {
	var listen string
	return command{
		name: "preview", args: "CALLER [PORT] [--listen ADDR]", short: "show or forward the ports of a caller's container",
		long: `
Without PORT it lists the ports at which a program listens. If the server knows its
address ("url"), the list has links that work for everybody who has them.

With PORT it listens on this machine's loopback, at the same port if it is free,
and forwards each connection into the container, like "ssh -L". Websockets and the
reloading of dev servers work. The container stays awake until an interrupt ends the
preview. The command makes and wakes no container. Start the application with
"ramus exec CALLER --background".`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&listen, "listen", "", "listen at this `address`: a port, or HOST:PORT for other machines too")
			fs.BoolVar(&e.json, "json", false, "the list as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 1, 2, "CALLER"); err != nil {
				return err
			}
			port := 0
			if len(args) == 2 {
				n, err := strconv.ParseUint(args[1], 10, 16)
				if err != nil || n == 0 {
					return usage("%q is not a port; want 1 to 65535", args[1])
				}
				port = int(n)
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			e.conn.leave = true // looking at a container must not end it
			st, err := c.Caller(ctx, args[0])
			if err != nil {
				return err
			}
			list, err := c.Ports(ctx, st.Caller.String())
			if err != nil {
				return err
			}
			if port == 0 {
				return e.ports(list)
			}
			p := &portForward{env: e, client: c, caller: st.Caller.String(), port: port}
			return p.run(ctx, listen, list)
		},
	}
}

// ports prints the list of ports.
func (e *env) ports(list []preview.Port) error {
	if e.json {
		return e.writeJSON(list)
	}
	var rows [][]string
	for _, p := range list {
		rows = append(rows, []string{strconv.Itoa(p.Port), p.URL})
	}
	return e.table([]string{"PORT", "LINK"}, rows)
}

// portForward forwards connections to a port of a container.
type portForward struct {
	*env
	client *client.Client
	caller string
	port   int
	lines  sync.Mutex // for one line at a time
}

// previewLook is the pause between two checks that the container still exists. The checks keep the container awake.
const previewLook = 15 * time.Second

// listenLocal listens at address if it is not empty, otherwise at port on the loopback, or at another port if that one
// is taken.
func listenLocal(ctx context.Context, address string, port int) (net.Listener, error) {
	config := new(net.ListenConfig)
	if address != "" {
		if _, err := strconv.ParseUint(address, 10, 16); err == nil {
			address = net.JoinHostPort("127.0.0.1", address)
		}
		return config.Listen(ctx, "tcp", address)
	}
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
		return config.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	return l, err
}

// run listens until ctx ends, which ends a preview, or until the container is gone.
func (p *portForward) run(ctx context.Context, address string, open []preview.Port) error {
	l, err := listenLocal(ctx, address, p.port)
	if err != nil {
		return fmt.Errorf("cannot listen for the preview: %w", err)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	fmt.Fprintf(p.out, "http://%s/ shows port %d of %s\n", l.Addr(), p.port, p.caller)
	i := slices.IndexFunc(open, func(o preview.Port) bool { return o.Port == p.port })
	switch {
	case i < 0:
		p.warn(fmt.Sprintf("nothing listens at port %d yet", p.port))
	case open[i].URL != "":
		fmt.Fprintf(p.out, "for others, until %s: %s\n", open[i].Expires.Format(time.RFC3339), p.oneLine(open[i].URL, 2000))
	}
	var group sync.WaitGroup
	group.Go(func() {
		<-ctx.Done()
		l.Close()
	})
	group.Go(func() { p.watch(ctx, end) })
	for {
		conn, err := l.Accept()
		if err != nil {
			end(fmt.Errorf("the preview no longer listens: %w", err))
			break
		}
		group.Go(func() { p.forward(ctx, conn) })
	}
	group.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// forward forwards one connection.
func (p *portForward) forward(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	inside, err := p.client.DialPort(ctx, p.caller, p.port)
	if err != nil {
		if ctx.Err() == nil {
			p.warn(err.Error())
		}
		return
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	preview.Splice(conn, inside)
}

// watch ends the preview when the container is gone.
func (p *portForward) watch(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(previewLook)
	defer tick.Stop()
	away := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, err := p.client.Ports(ctx, p.caller)
		var refused *route.Problem
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &refused):
			end(err)
			return
		case err != nil && !away: // the server may come back, with its containers
			p.warn(err.Error())
		}
		away = err != nil
	}
}

func (p *portForward) warn(text string) {
	p.lines.Lock()
	defer p.lines.Unlock()
	fmt.Fprintf(p.err, "ramus: %s\n", p.safe(text))
}
