package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gateway/past"
)

func forkCommand() command {
	var q past.Fork
	return command{
		name: "fork", args: "CALLER[@STEP|@COMMIT] [NAME]",
		short: "begin a new caller at a step of another one",
		long: `
The new caller has the files and the memory of agents that the other one had when the
step began, so the step can be done in another way. With COMMIT it begins at the
commit, and otherwise at the newest one. RUN@STEP names a step of one run, and
CALLER@STEP the last step of that name. Nothing of the other caller changes.

  ramus fork otter@turn-2
  ramus agent again --fork otter@turn-2 -- "the same, without a new dependency"

A workflow begins again at a node with "ramus run --of RUN --from NODE", in a new
branch, with the results of the nodes before it.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&q.Dry, "dry", false, "show where it would begin, and begin nothing")
			fs.BoolVar(&e.json, "json", false, "the result as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 2, "CALLER")
			if err != nil {
				return err
			}
			if q.Of = args[0]; len(args) == 2 {
				q.Name = args[1]
			}
			plan := q
			plan.Dry = true
			f, err := c.Fork(ctx, plan)
			if err != nil {
				return err
			}
			memory := ""
			if f.Memory != "" {
				memory = ", with the memory of its agents"
			}
			fmt.Fprintf(e.err, "forking %s at %s%s\n  %s\n", f.Of, short(string(f.Commit)), memory, e.oneLine(f.Subject, 120))
			if !q.Dry {
				q.Asker = asker(ctx, e)
				if f, err = c.Fork(ctx, q); err != nil {
					return err
				}
			}
			switch _, name, _ := strings.Cut(f.Caller, ":"); {
			case e.json:
				return e.writeJSON(f)
			case q.Dry:
				fmt.Fprintln(e.out, f.Commit)
			default:
				fmt.Fprintf(e.out, "%s on %s, branch %s\n", e.colour("1", name), e.oneLine(f.Repo, 100), f.Branch)
			}
			return nil
		},
	}
}
