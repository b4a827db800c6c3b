package main

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/gateway"
)

func rollbackCommand() command {
	return command{
		name: "rollback", args: "CALLER COMMIT",
		short: "restore the files of a caller's branch from an earlier commit",
		long: `
The command makes a new commit. Nothing is lost, and a rollback can be rolled back.`,
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 2, 2, "CALLER or COMMIT")
			if err != nil {
				return err
			}
			r, err := c.Rollback(ctx, args[0], gateway.Rollback{To: args[1], By: asker(ctx, e)})
			if err != nil {
				return err
			}
			fmt.Fprintf(e.out, "rolled back by commit %s\n", short(string(r.Commit)))
			return nil
		},
	}
}
