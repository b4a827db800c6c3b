package main

import (
	"context"
	"flag"
	"fmt"
)

func retryCommand() command {
	var o followOptions
	return command{
		name: "retry", args: "RUN",
		short: "start a failed run again where it failed",
		long: `
A workflow starts at the failed step, with the results of the steps before it. A
command starts from its beginning.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&o.output, "output", false, "show the output of the commands")
			fs.BoolVar(&e.json, "json", false, "events as JSON, one per line")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "RUN")
			if err != nil {
				return err
			}
			r, err := c.Retry(ctx, args[0])
			if err != nil {
				return err
			}
			if o.json = e.json; !o.json {
				fmt.Fprintf(e.out, "%s on %s, branch %s\n", e.colour("1", r.Name()), e.oneLine(r.Repo, 100), r.Branch)
			}
			return follow(ctx, e, c, r, o)
		},
	}
}
