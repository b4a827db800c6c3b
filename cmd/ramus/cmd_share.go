package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/ramus-dev/ramus/gateway/share"
)

func shareCommand() command {
	var (
		w            share.Wish
		revoke       string
		list, asJSON bool
	)
	return command{
		name: "share", args: "[RUN|CALLER]",
		short: "make a link for people who do not sign in",
		long: `
The link shows a run, the conversation of a caller or, with --at, one command of its
timeline. It changes nothing, ends after some days, and can be revoked at once. Everybody
who has it sees the prompts, the commands and their outputs. It is printed once.`,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.StringVar(&w.At, "at", "", "share the command with this `id` of the timeline of CALLER")
			fs.IntVar(&w.Days, "days", share.DefaultDays, "have the link open for `n` days, at most 90")
			fs.BoolVar(&list, "list", false, "list the links, of CALLER or of all")
			fs.StringVar(&revoke, "revoke", "", "revoke the link with this `id`")
			fs.BoolVar(&asJSON, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			least := 1
			if list || revoke != "" {
				least = 0
			}
			c, err := e.clientFor(ctx, args, least, 1, "RUN|CALLER")
			if err != nil {
				return err
			}
			switch {
			case list && revoke != "":
				return usage("--list and --revoke do not go together")
			case revoke != "":
				if len(args) > 0 {
					return usage("--revoke takes an id alone")
				}
				l, err := c.RevokeShare(ctx, revoke)
				if err != nil {
					return err
				}
				if asJSON {
					return e.writeJSON(l)
				}
				fmt.Fprintf(e.out, "revoked the link to %s, which was opened %s\n", l.Of(), plural(l.Opened, "time", "times"))
				return nil
			case list:
				of := ""
				if len(args) == 1 {
					of = args[0]
				}
				links, err := c.Shares(ctx, of)
				if err != nil {
					return err
				}
				if asJSON {
					return e.writeJSON(links)
				}
				e.shares(links)
				return nil
			}
			w.Of = args[0]
			l, err := c.Share(ctx, w)
			if err != nil {
				return err
			}
			if asJSON {
				return e.writeJSON(l)
			}
			fmt.Fprintln(e.out, l.URL)
			fmt.Fprintf(e.err, "%s %s is shared until %s; ramus share --revoke %s ends that\n", l.Kind, l.Of(), l.Expires.Format("2006-01-02 15:04 MST"), l.ID)
			return nil
		},
	}
}

// shares lists links for people.
func (e *env) shares(list []share.Link) {
	if len(list) == 0 {
		fmt.Fprintln(e.out, "no links")
	}
	for _, l := range list {
		fmt.Fprintf(e.out, "%s  %-8s until %s  opened %3d  %-12s %s  by %s\n", l.ID, l.State, l.Expires.Format("2006-01-02"), l.Opened, l.Kind, l.Of(),
			e.oneLine(l.By.Name, 60))
	}
}
