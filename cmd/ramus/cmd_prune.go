package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/prune"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

func pruneCommand() command {
	var ask prune.Pruning
	return command{
		name: "prune", args: "[--dry-run] [--repo NAME] [KIND...]",
		short: "remove old data that is no longer needed",
		long: `
The section keep of the configuration sets for each kind the age up to which data is
kept, and the number of the newest that are kept. The kinds are (default all):

  branches   ramus/* of callers that have ended, and the work saved from their
             lost containers. A branch whose commits are all in its base is
             removed at any age. Branches of upstream that were pushed for
             pull requests go too, after the merge
  runs       journals and evidence of callers whose branch is gone, and the names of
             their sessions. A request that is repeated with the same key then
             runs again
  browser    pictures of trees for comparisons, with the age of runs
  layers     work trees and dependencies that containers start with. They are made
             again if needed
  artifacts  large files that no run refers to
  objects    commits and files in git without a reference for two weeks. The whole
             repository is read and written, and pushes wait meanwhile
  lfs        Git LFS objects that no commit in git names, unused for two weeks

A caller is not changed while it works, waits for a person, or has a container. Nor
are runs whose result was not reported yet. Other branches and tags, which people
made, are never changed. No other command removes such data.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&ask.DryRun, "dry-run", false, "remove nothing, and print what would be removed")
			fs.StringVar(&ask.Repo, "repo", "", "`name` of the only repository to prune; artifacts belong to none")
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
