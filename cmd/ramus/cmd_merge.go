package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

func mergeCommand() command {
	var (
		m        record.Merge
		strategy string
	)
	return command{
		name: "merge", args: "CALLER [--into BRANCH] [--strategy S] [--delete] [--pull-request | --here]",
		short: "merge a caller's branch into its base, or open a pull request",
		long: `
If the repository has an upstream, repos.NAME.merge in the configuration says what a
merge is. "push" merges, and upstream has the result before this server has it.
"pull-request" opens a pull request, or brings the open one up to date, and merges
nothing. "here" merges in this server alone. Without the key, pull requests are opened
if ramus has a token for the forge of the upstream, and merges are pushed otherwise.
--here merges in this server alone if the key is not set. The last line of the output
says where the result is.

The strategies are rebase (replays the branch's commits), merge (a merge commit),
squash (one commit) and ff (only if the base has not moved). A conflict changes
nothing. The command then prints the files and exits with status 4.

A caller with additional repositories is merged in all of them. Each is checked first,
and if one is in the way nothing is merged in any. If an upstream refuses after the
checks, the command names the repositories that have the work, and how to go back; the
same command again goes on with the rest.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&m.Into, "into", "", "target `branch` (default the base of the caller)")
			fs.StringVar(&strategy, "strategy", "", "rebase, merge, squash or ff (default rebase)")
			fs.StringVar(&m.Message, "message", "", "`text` of the merge or squash commit")
			fs.BoolVar(&m.Delete, "delete", false, "remove the branch and the container if the branch was merged")
			fs.BoolVar(&m.Propose, "pull-request", false,
				"open a pull request, or bring the open one up to date, and merge nothing")
			fs.BoolVar(&m.Here, "here", false, "merge in this server alone, although the repository has an upstream")
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
			case r.InTheWay():
				if !e.json {
					printConflicts(e, r)
				}
				return &exitStatus{code: exitInTheWay}
			case e.json:
			default:
				fmt.Fprintln(e.out, e.oneLine(r.String(), 1000*(1+len(r.With))))
			}
			return nil
		},
	}
}

// printConflicts prints the files that are in the way of a merge.
func printConflicts(e *env, r record.LandedAll) {
	fmt.Fprintln(e.out, "Conflict; nothing was changed. The files:")
	for _, one := range r.All() {
		for _, path := range one.Conflicts {
			fmt.Fprintf(e.out, "  %s\n", e.oneLine(path, 400))
		}
		at := ""
		if one.At != "" {
			at = "at commit " + short(string(one.At))
		}
		if one.Repo != "" && len(one.Conflicts) > 0 {
			at = strings.TrimSpace(at + " in " + one.Repo)
		}
		if at != "" {
			fmt.Fprintln(e.out, at)
		}
	}
}
