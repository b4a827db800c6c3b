package main

import (
	"context"
	"fmt"
	"strings"
)

func stopCommand() command {
	return command{
		name: "stop", args: "CALLER | CALLER/RUN",
		short: "stop a caller's runs and remove its container, or stop one run",
		long: `
The changes so far are committed first. The branch stays, and the next command of
the caller continues on it.`,
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "CALLER")
			if err != nil {
				return err
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
