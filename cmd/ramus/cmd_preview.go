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

	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/route"
)

func previewCommand() command {
	var listen string
	return command{
		name: "preview", args: "CALLER [PORT] [--listen ADDR]", short: "see what listens in a caller's container",
		long: `
Without PORT: lists the ports that something listens at, with links that show it
to whoever has them, where the server knows its address ("url").

With PORT: listens on this machine's loopback, at the same port when that is free,
and passes each connection on into the container, like "ssh -L": websockets and
the reloading of dev servers work. The container stays awake until an interrupt
ends the preview. No container is made or woken up for it: start the application
with "ramus exec CALLER --background".`,
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
					return usage("%q is no port; want 1 to 65535", args[1])
				}
				port = int(n)
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			e.conn.leave = true // to look at it is not to end it
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
			p := &preview{env: e, client: c, caller: st.Caller.String(), port: port}
			return p.run(ctx, listen, list)
		},
	}
}

// ports lists what listens.
func (e *env) ports(list []gateway.Port) error {
	if e.json {
		return e.writeJSON(list)
	}
	var rows [][]string
	for _, p := range list {
		rows = append(rows, []string{strconv.Itoa(p.Port), p.URL})
	}
	return e.table([]string{"PORT", "LINK"}, rows)
}

// preview passes connections on to a port of a container.
type preview struct {
	*env
	client *client.Client
	caller string
	port   int
	said   sync.Mutex // one line at a time, for whoever has something to say
}

// previewLook is how often a preview looks whether its container is still there, which keeps that awake.
const previewLook = 15 * time.Second

// listenLocal listens at the address that was asked for, or at the port on the
// loopback, or, where that is taken, at any other one.
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

// run listens until ctx ends, which is how a preview ends, or the container is gone.
func (p *preview) run(ctx context.Context, address string, open []gateway.Port) error {
	l, err := listenLocal(ctx, address, p.port)
	if err != nil {
		return fmt.Errorf("cannot listen for the preview: %w", err)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	fmt.Fprintf(p.out, "http://%s/ shows port %d of %s\n", l.Addr(), p.port, p.caller)
	i := slices.IndexFunc(open, func(o gateway.Port) bool { return o.Port == p.port })
	switch {
	case i < 0:
		p.say(fmt.Sprintf("nothing listens at port %d yet", p.port))
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
			end(fmt.Errorf("cannot listen for the preview any more: %w", err))
			break
		}
		group.Go(func() { p.pass(ctx, conn) })
	}
	group.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// pass passes one connection on.
func (p *preview) pass(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	inside, err := p.client.DialPort(ctx, p.caller, p.port)
	if err != nil {
		if ctx.Err() == nil {
			p.say(err.Error())
		}
		return
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	gateway.Splice(conn, inside)
}

// watch looks whether the container is still there, and ends the preview when it is not.
func (p *preview) watch(ctx context.Context, end context.CancelCauseFunc) {
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
		case err != nil && !away: // the server; it may come back, and goes on with its containers
			p.say(err.Error())
		}
		away = err != nil
	}
}

func (p *preview) say(text string) {
	p.said.Lock()
	defer p.said.Unlock()
	fmt.Fprintf(p.err, "ramus: %s\n", p.safe(text))
}
