package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

func serveCommand() command {
	var listen, ssh string
	var listenSet, sshSet bool
	var wait time.Duration
	return command{
		name: "serve", args: "[--listen ADDR] [--ssh ADDR] [--wait D]",
		short: "serve repositories and the API, and do the work, until stopped",
		long: `
Commands on this machine find it by the socket in the data folder; others by
RAMUS_URL and RAMUS_TOKEN ("ramus token create" makes one). An interrupt stops
it within a minute; containers stay, and the next server goes on with them.

One ramus at a time has the data folder. A command that has it while no server
runs gives it back when it ends; serve waits for that.`,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.Func("listen", "`address` for HTTP instead of the configuration's; empty: none", func(s string) error { listen, listenSet = s, true; return nil })
			fs.DurationVar(&wait, "wait", 10*time.Second, "wait so long for another ramus to give the data folder back")
			fs.Func("ssh", "`address` for SSH instead of the configuration's; empty: none", func(s string) error { ssh, sshSet = s, true; return nil })
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 0, ""); err != nil {
				return err
			}
			c, err := e.config()
			if err != nil {
				return err
			}
			if listenSet {
				c.Listen = listen
			}
			if sshSet {
				c.SSHListen = ssh
			}
			return serve(ctx, e, c, wait)
		},
	}
}

// Stopping: requests get the first, commands and containers the second.
const (
	requestsMay = 10 * time.Second
	commandsMay = 40 * time.Second
)

func serve(ctx context.Context, e *env, c Config, wait time.Duration) error {
	log := newLog(e.err, c.Log, slog.LevelDebug)
	lock, err := awaitFolder(ctx, e.err, c.Data, wait)
	if errors.Is(err, errLocked) {
		return &exitStatus{exitInTheWay, fmt.Errorf("cannot serve %s: another ramus%s has it", c.Data, owner(c.Data))}
	}
	if err != nil {
		return err
	}
	i, err := open(ctx, c, lock, e.environ, log)
	if err != nil {
		return err
	}
	f, err := i.listen(ctx, false)
	if err == nil {
		debug.FreeOSMemory() // what the start needed and nobody needs any more
		ended := make(chan error, 1)
		go func() { ended <- f.group.Wait() }()
		select {
		case <-ctx.Done():
			log.Info("stopping")
		case err = <-ended: // a listener broke: stop as a whole, never half
		}
		stopping, cancel := context.WithTimeout(context.Background(), requestsMay)
		err = errors.Join(err, f.shutdown(stopping))
		cancel()
	}
	closing, cancel := context.WithTimeout(context.Background(), commandsMay)
	defer cancel()
	return errors.Join(err, i.close(closing, true))
}
