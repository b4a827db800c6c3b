package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gateway/client"
)

func stopCommand() command {
	var turn bool
	return command{
		name: "stop", args: "CALLER | CALLER/RUN [--turn]",
		short: "stop a caller's runs and remove its container, or stop one run",
		long: `
The changes so far are committed first. The branch stays, and the next command of
the caller continues on it. With --turn only the turn of the run's agent ends. The
texts that wait for the agent are taken back and shown.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&turn, "turn", false, "stop the turn of the run's agent, and not the run")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "CALLER")
			if err != nil {
				return err
			}
			if turn {
				return stopTurn(ctx, e, c, args[0])
			}
			_, unknown := c.Caller(ctx, args[0])
			if strings.Contains(args[0], "/") || exitCode(unknown) == exitNotFound {
				r, err := c.StopRun(ctx, args[0])
				if err == nil {
					fmt.Fprintf(e.out, "%s is %s\n", r.Name(), state(r))
				}
				return err
			}
			st, err := c.StopCaller(ctx, args[0])
			if err == nil {
				fmt.Fprintf(e.out, "%s stopped; its branch is %s\n", st.Caller, st.Branch)
			}
			return err
		},
	}
}

// stopTurn stops the turn of a run's agent, and shows the texts that it did not get.
func stopTurn(ctx context.Context, e *env, c *client.Client, run string) error {
	done, err := c.StopTurn(ctx, run)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.out, "the turn of %s is stopped\n", done.Run)
	for _, p := range done.Back {
		fmt.Fprintf(e.out, "  not heard: %s\n", e.oneLine(p.Text, 500))
	}
	return nil
}
