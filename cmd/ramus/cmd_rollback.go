package main

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/gateway"
)

func rollbackCommand() command {
	return command{
		name: "rollback", args: "CALLER COMMIT",
		short: "make a caller's branch look as it did at an earlier commit",
		long: `
By a new commit: nothing is lost, and rolling back the rollback is possible.`,
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 2, 2, "CALLER or COMMIT"); err != nil {
				return err
			}
			c, err := e.client(ctx)
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
