package main

import (
	"context"
	"fmt"
)

func reindexCommand() command {
	return command{
		name: "reindex", args: "",
		short: "build the index anew from the repositories",
		long: `
The index holds nothing that the repositories do not: it may be deleted at any
time, and is built anew by itself where it is missing or damaged.`,
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 0, ""); err != nil {
				return err
			}
			c, err := e.client(ctx)
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
