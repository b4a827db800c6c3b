package main

import (
	"context"
	"flag"
	"fmt"
)

func replicaCommand() command {
	return command{name: "replica", args: "list", short: "list the servers that answer as one", usual: "list",
		subs: []command{replicaListCommand()}}
}

func replicaListCommand() command {
	return command{
		name: "list", args: "", short: "list the replicas of the installation", set: setJSON,
		long: `
The epoch grows with each process that is a replica. A replica is away if no process
holds its lease. One that was killed is named as live until its lease ends. What
repositories lost with the volume of their replica is named until lost.json is removed
from its data folder, and the replica is started again.`,
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 0, "")
			if err != nil {
				return err
			}
			all, err := c.Replicas(ctx)
			if err != nil || e.json {
				return firstError(err, func() error { return e.writeJSON(all) })
			}
			for _, r := range all {
				state := "live"
				switch {
				case r.Self:
					state = "this one"
				case !r.Live:
					state = "away"
				}
				name := r.Name
				if name == "" {
					name = "the only server"
				}
				fmt.Fprintf(e.out, "%s  %s  epoch %d  %s  %s\n", name, state, r.Epoch, plural(r.Repos, "repository", "repositories"), r.URL)
			}
			losses, err := c.Losses(ctx)
			for _, l := range losses {
				fmt.Fprintf(e.out, "lost: %s\n", e.safe(l.String()))
			}
			return err
		},
	}
}

func repoMoveCommand() command {
	var to string
	return command{
		name: "move", args: "NAME --to REPLICA", short: "move a repository to another replica",
		long: `
Branches, tags, runs and artifacts go along. Containers of its callers end, as if they
went to sleep. A repository in which a run has not ended is not moved, and neither is one
with private workspaces, credentials of its own, or Git LFS objects outside of a store
that all replicas share (artifacts.url).

The repository is served all the time. Pushes wait for the last part of the copy, and
none that was acknowledged is lost. A server that is killed meanwhile leaves the
repository at the one or at the other replica.`,
		set: func(fs *flag.FlagSet, e *env) {
			setJSON(fs, e)
			fs.StringVar(&to, "to", "", "the `replica` that gets it")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if to == "" {
				return usage("--to is missing: `ramus replica list` shows the replicas")
			}
			c, err := e.clientFor(ctx, args, 1, 1, "NAME")
			if err != nil {
				return err
			}
			m, err := c.MoveRepo(ctx, args[0], to)
			if err != nil || e.json {
				return firstError(err, func() error { return e.writeJSON(m) })
			}
			fmt.Fprintf(e.out, "%s is at %s now, was at %s; requests waited %d ms\n", m.Repo, m.To, m.From, m.Held)
			return nil
		},
	}
}
