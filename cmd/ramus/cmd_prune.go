package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

func pruneCommand() command {
	var ask executor.Pruning
	return command{
		name: "prune", args: "[--dry-run] [--repo NAME] [KIND...]",
		short: "remove what is old and not needed any more",
		long: `
Of each kind stays what is younger, or among more of the newest, than the
configuration says below keep. Without a kind, all are looked at:

  branches   ramus/* of callers that have ended, and what was saved of their
             lost containers; whatever its age, a branch goes whose commits
             are all in its base
  runs       journals and evidence of callers whose branch is gone. A request
             that is repeated with the same key runs again then
  browser    what browsers saw of trees, to be compared with; as old as runs
  layers     work trees and dependencies that containers begin with; made again where needed
  artifacts  large files that no run names any more
  objects    commits and files in git that nothing has named for two weeks.
             All of the repository is read and written; pushes wait meanwhile

A caller stays as it is while it works, waits for a person, or has a container;
so do runs that their origin was not told of. What came from people is never
touched: other branches, tags. Nothing is removed but by this command.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&ask.DryRun, "dry-run", false, "remove nothing, and print what would go")
			fs.StringVar(&ask.Repo, "repo", "", "only of this repository `name`; artifacts belong to none")
			fs.BoolVar(&e.json, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			ask.Kinds = args
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			list, err := c.Prune(ctx, ask)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(list)
			}
			var rows [][]string
			for _, p := range list {
				name := strings.TrimPrefix(strings.TrimPrefix(p.Name, "refs/heads/"), "refs/ramus/")
				size := ""
				if p.Bytes > 0 {
					size = bytesize.Text(p.Bytes)
				}
				rows = append(rows, []string{p.Kind, p.Repo, name, size, ago(p.Time), p.Why})
			}
			if len(rows) > 0 {
				if err := e.table([]string{"KIND", "REPO", "NAME", "SIZE", "LAST", "WHY"}, rows); err != nil {
					return err
				}
			}
			verb := "removed"
			if ask.DryRun {
				verb = "to be removed"
			}
			fmt.Fprintf(e.err, "%s %s\n", count(len(list), "thing"), verb)
			return nil
		},
	}
}
