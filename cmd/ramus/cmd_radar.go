package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gitd"
)

func radarCommand() command {
	var (
		q                past.Radar
		asJSON, exitCode bool
	)
	return command{
		name: "radar", args: "[REPO]",
		short: "show the branches that do not merge with each other",
		long: `
git merges each pair of the live branches of REPO, and each of them with the base, and
keeps none of the results. A branch is live if it has commits that the base lacks, and
has changed in the last 30 days; the 100 newest are compared. A pair in conflict is
shown with its files and lines.`,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.StringVar(&q.Of, "of", "", "limit the conflicts to those of a `caller` or branch")
			fs.BoolVar(&exitCode, "exit-code", false, "exit with 1 if there is a conflict")
			fs.BoolVar(&asJSON, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 1, "[REPO]")
			if err != nil {
				return err
			}
			if len(args) == 1 {
				q.Repo = args[0]
			}
			rep, err := c.Radar(ctx, q)
			if err != nil {
				return err
			}
			if asJSON {
				err = e.writeJSON(rep)
			} else {
				e.radar(rep)
			}
			if err == nil && exitCode && len(rep.Conflicts) > 0 {
				return &exitStatus{code: 1}
			}
			return err
		},
	}
}

// radar shows a report for people.
func (e *env) radar(rep radar.Report) {
	for _, c := range rep.Conflicts {
		fmt.Fprintf(e.out, "%s  %s  %s\n", e.oneLine(c.One, 200), e.colour(red, "conflicts with"), e.oneLine(c.Other, 200))
		for _, f := range c.Files {
			fmt.Fprintf(e.out, "  %s\n", e.oneLine(f.Path, 300)+e.regions(f))
		}
		if c.More > 0 {
			fmt.Fprintf(e.out, "  and %d more files\n", c.More)
		}
	}
	if rep.MoreConflicts > 0 {
		fmt.Fprintf(e.out, "and %d more conflicts\n", rep.MoreConflicts)
	}
	fmt.Fprintf(e.out, "%s: %s, %s, %s\n", e.oneLine(rep.Repo, 100),
		plural(len(rep.Branches)+rep.MoreBranches, "live branch", "live branches"),
		count(rep.Pairs, "pair"), count(len(rep.Conflicts)+rep.MoreConflicts, "conflict"))
	if rep.MoreBranches > 0 {
		fmt.Fprintf(e.out, "the %d newest were compared\n", len(rep.Branches))
	}
}

// regions returns the lines of a conflict, or its kind.
func (e *env) regions(f gitd.CollidingFile) string {
	if len(f.Regions) == 0 {
		if f.Kind == "" {
			return ""
		}
		return "  " + e.oneLine(f.Kind, 60)
	}
	text := ""
	for i, r := range f.Regions {
		separator := ","
		if i == 0 {
			separator = "  lines"
		}
		text += fmt.Sprintf("%s %s and %s", separator, lineRange(r.Ours), lineRange(r.Theirs))
	}
	return text
}

// lineRange returns a range of lines as FROM-TO, as one line, or as the place between two lines.
func lineRange(l gitd.LineRange) string {
	switch {
	case l.To < l.From:
		return fmt.Sprintf("none before %d", l.From)
	case l.To == l.From:
		return fmt.Sprint(l.From)
	}
	return fmt.Sprintf("%d-%d", l.From, l.To)
}
