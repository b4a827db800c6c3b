package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/gitd"
)

func serveCommand() command {
	var listen, ssh string
	var listenSet, sshSet bool
	var wait time.Duration
	return command{
		name: "serve", args: "[--listen ADDR] [--ssh ADDR] [--wait D]",
		short: "serve repositories and the API, and execute runs, until stopped",
		long: `
Commands on this machine find the server by the socket in the data folder. Others use
RAMUS_URL and RAMUS_TOKEN ("ramus token create" makes one). An interrupt stops the
server within a minute. Containers stay, and the next server continues with them.
A server whose place another one took ("ramus promote") answers with that alone.

Only one ramus at a time uses the data folder. A command that uses it while no server
runs releases it when it ends. serve waits for that.`,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.Func("listen", "`address` for HTTP instead of the configuration's; \"\" for none",
				func(s string) error { listen, listenSet = s, true; return nil })
			fs.DurationVar(&wait, "wait", 10*time.Second, "how long to wait for another ramus to release the data folder")
			fs.Func("ssh", "`address` for SSH instead of the configuration's; \"\" for none",
				func(s string) error { ssh, sshSet = s, true; return nil })
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 0, ""); err != nil {
				return err
			}
			load := func() (Config, error) {
				c, err := e.config()
				if listenSet {
					c.Listen = listen
				}
				if sshSet {
					c.SSHListen = ssh
				}
				return c, err
			}
			return serve(ctx, e, load, wait)
		},
	}
}

// Time limits of stopping: requestsMay for requests, then commandsMay for commands and containers.
const (
	requestsMay = 10 * time.Second
	commandsMay = 40 * time.Second
)

func serve(ctx context.Context, e *env, load func() (Config, error), wait time.Duration) error {
	c, err := load()
	if err != nil {
		return err
	}
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	defer signal.Stop(again)
	log, level := newLog(e.err, c.Log, slog.LevelDebug)
	lock, err := awaitFolder(ctx, e.err, c.Data, wait)
	if errors.Is(err, errLocked) {
		return &exitStatus{exitInTheWay, fmt.Errorf("cannot serve %s: another ramus%s uses it", c.Data, owner(c.Data))}
	}
	if err != nil {
		return err
	}
	if fence, err := standby.ReadFence(c.Data); fence != nil || err != nil {
		if err != nil {
			return errors.Join(err, lock.Close())
		}
		return serveFenced(ctx, c, lock, log)
	}
	i, err := open(ctx, c, lock, e.environ, log, level)
	if errors.Is(err, gitd.ErrFenced) { // a peer told it
		return fenceAgain(ctx, c, log, err)
	}
	if err != nil {
		return err
	}
	i.load, i.owner = load, asker(ctx, e)
	i.gateway.Reload = i.reload
	f, err := i.listen(ctx, false)
	lost := false
	if err == nil {
		i.printLink(e.err)
		debug.FreeOSMemory() // returns the memory that only the start needed
		ended := make(chan error, 1)
		go func() { ended <- f.group.Wait() }()
		for serving := true; serving; {
			select {
			case <-again:
				if _, err := i.reload(ctx); err != nil {
					log.Error("cannot read the configuration again", "err", err)
				}
			case <-ctx.Done():
				log.Info("stopping")
				serving = false
			case err = <-ended: // a listener failed, so stop all of them
				serving = false
			case err = <-i.fenced:
				err, serving = placeStatus(err), false
			case err = <-i.replicas.lost():
				err, serving, lost = placeStatus(err), false, true
			}
		}
		stopping, cancel := context.WithTimeout(context.Background(), requestsMay)
		err = errors.Join(err, f.shutdown(stopping))
		cancel()
	}
	closing, cancel := context.WithTimeout(context.Background(), commandsMay)
	defer cancel()
	// The containers of a server whose place another one took have no work any more. Another process of the same replica
	// goes on with them.
	ended := errors.Is(err, gitd.ErrFenced) && !lost
	if closed := i.close(closing, !ended); closed != nil || !ended {
		return errors.Join(err, closed)
	}
	return fenceAgain(ctx, c, log, err)
}

// fenceAgain answers for a data folder that was closed because of a fence.
func fenceAgain(ctx context.Context, c Config, log *slog.Logger, fenced error) error {
	lock, err := lockFolder(c.Data)
	if err != nil {
		return fenced
	}
	return serveFenced(ctx, c, lock, log)
}
