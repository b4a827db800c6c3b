package main

import (
	"context"
	"flag"
	"fmt"
)

func followCommand() command {
	var o followOptions
	return command{
		name: "follow", args: "RUN",
		short: "show a run from its beginning to its end",
		long: `
Use it for a run that was started with --detach, or whose command was killed. If no
server runs, this command continues the run. An interrupt stops the run, as with
"ramus run".`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&o.output, "output", false, "show the output of the commands")
			fs.BoolVar(&e.json, "json", false, "events as JSON, one per line")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "RUN")
			if err != nil {
				return err
			}
			r, err := c.Run(ctx, args[0])
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
