package main

import (
	"context"
	"fmt"
)

func reindexCommand() command {
	return command{
		name: "reindex", args: "",
		short: "rebuild the index from the repositories",
		long: `
All data of the index comes from the repositories. The index may be deleted at any
time, and is rebuilt automatically if it is missing or damaged.`,
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 0, "")
			if err != nil {
				return err
			}
			r, err := c.Reindex(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintln(e.out, count(r.Runs, "run"))
			return nil
		},
	}
}
