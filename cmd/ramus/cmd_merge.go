package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

func mergeCommand() command {
	var (
		m        record.Merge
		strategy string
	)
	return command{
		name: "merge", args: "CALLER [--into BRANCH] [--strategy S] [--delete]",
		short: "merge a caller's branch into its base",
		long: `
The strategies are rebase (replays the branch's commits), merge (a merge commit),
squash (one commit) and ff (only if the base has not moved). A conflict changes
nothing. The command then prints the files and exits with status 4.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&m.Into, "into", "", "target `branch` (default the base of the caller)")
			fs.StringVar(&strategy, "strategy", "", "rebase, merge, squash or ff (default rebase)")
			fs.StringVar(&m.Message, "message", "", "`text` of the merge or squash commit")
			fs.BoolVar(&m.Delete, "delete", false, "remove the branch and the container afterwards")
			fs.BoolVar(&e.json, "json", false, "the result as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 1, 1, "CALLER"); err != nil {
				return err
			}
			switch m.Strategy = gitd.Strategy(strategy); m.Strategy {
			case "", gitd.StrategyRebase, gitd.StrategyMerge, gitd.StrategySquash, gitd.StrategyFF:
			default:
				return usage("unknown strategy %q: want rebase, merge, squash or ff", strategy)
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			m.By = asker(ctx, e)
			r, err := c.Merge(ctx, args[0], m)
			if err != nil {
				return err
			}
			if e.json {
				if err := e.writeJSON(r); err != nil {
					return err
				}
			}
			switch {
			case len(r.Conflicts) > 0:
				if !e.json {
					fmt.Fprintln(e.out, "Conflict; nothing was changed. The files:")
					for _, path := range r.Conflicts {
						fmt.Fprintf(e.out, "  %s\n", e.oneLine(path, 400))
					}
					if r.At != "" {
						fmt.Fprintf(e.out, "at commit %s\n", short(string(r.At)))
					}
				}
				return &exitStatus{code: exitInTheWay}
			case e.json:
			case r.UpToDate:
				fmt.Fprintln(e.out, "There is nothing to merge.")
			default:
				fmt.Fprintf(e.out, "merged at %s\n", short(string(r.Commit)))
			}
			return nil
		},
	}
}
