package main

import (
	"context"
	"flag"
	"fmt"
)

func reloadCommand() command {
	return command{
		name: "reload", args: "",
		short: "have the running server read its configuration again",
		long: `
The configuration is checked first. If it has a mistake, the server goes on with the
one that it has, and the mistake is reported with line and column. Each changed key is
reported as applied, or as one that needs a restart. Running work is not disturbed.
SIGHUP does the same, and the server's log has the report.

These keys need no restart: agents, allow, egress, engineer, env, gate, keep, limits,
log.level, models.budget, models.*.prices, quotas, repos (but ssh_key), run_timeout,
slack.agent, slack.channels, slack.repo, slack.rules, slack.thread_replies,
tell_conflicts, timeout.
Containers that run keep their limits and env. Variables of the server's environment that override keys
do so here too.`,
		set: func(fs *flag.FlagSet, e *env) { fs.BoolVar(&e.json, "json", false, "as JSON") },
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 0, ""); err != nil {
				return err
			}
			// A wrong configuration must not keep this command from asking, so the data folder alone is read from it.
			c, err := runningServer(ctx, e)
			if err != nil {
				return err
			}
			r, err := c.Reload(ctx)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(r)
			}
			for _, key := range r.Applied {
				fmt.Fprintf(e.out, "%s: applied\n", key)
			}
			for _, key := range r.Restart {
				fmt.Fprintf(e.out, "%s: needs a restart\n", key)
			}
			if len(r.Applied)+len(r.Restart) == 0 {
				fmt.Fprintln(e.out, "nothing has changed")
			}
			return nil
		},
	}
}
