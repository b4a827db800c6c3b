package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

func forkCommand() command {
	var asJSON bool
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

A workflow begins again at a node with "ramus run FILE --of RUN --from NODE", in a new
branch, with the results of the nodes before it.`,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.BoolVar(&asJSON, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 2, "CALLER")
			if err != nil {
				return err
			}
			var f *record.Fork
			if err := (&forkFlag{&f}).Set(args[0]); err != nil {
				return usage("%s: %v", args[0], err)
			}
			of, run, ofRun := strings.Cut(f.Of, "/")
			st, err := c.Caller(ctx, of)
			if err != nil {
				return err
			}
			if ofRun && f.Commit != "" {
				f.Commit = gitd.Hash(run + "/" + string(f.Commit))
			}
			w := workspace.Wish{From: st.Caller.Slug(), Commit: f.Commit}
			if len(args) == 2 {
				w.Name = args[1]
			}
			made, err := c.CreateWorkspace(ctx, w)
			if err != nil {
				return err
			}
			if asJSON {
				return e.writeJSON(made)
			}
			fmt.Fprintf(e.out, "%s on %s, branch %s\n", e.colour("1", made.Name), e.oneLine(made.Repository, 100), made.Branch)
			return nil
		},
	}
}
