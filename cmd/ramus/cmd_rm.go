package main

import (
	"context"
	"flag"
	"fmt"
)

func rmCommand() command {
	return command{
		name: "rm", args: "CALLER",
		short: "stop a caller's runs and remove its container and branch",
		long: `
Changes that are not committed are committed first, and the work that was saved for the
caller is removed too. The runs stay, and through them the commits: the command prints
the last one. "ramus prune" removes runs. Branches of upstream stay. Of an additional
repository the runs keep the patches, and its commits end with the branch.`,
		set: func(fs *flag.FlagSet, e *env) { fs.BoolVar(&e.json, "json", false, "the result as JSON") },
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "CALLER")
			if err != nil {
				return err
			}
			done, err := c.RemoveCaller(ctx, args[0])
			if err != nil {
				return err
			}
			switch {
			case e.json:
				return e.writeJSON(done)
			case done.Head == "":
				fmt.Fprintf(e.out, "%s has no branch any more\n", done.Caller)
			default:
				fmt.Fprintf(e.out, "removed %s; its branch %s was at %s\n", done.Caller, done.Branch,
					short(string(done.Head)))
			}
			for _, in := range done.With {
				if !e.json && in.Head != "" {
					fmt.Fprintf(e.out, "its branch in %s was at %s\n", in.Repo, short(string(in.Head)))
				}
			}
			return nil
		},
	}
}
