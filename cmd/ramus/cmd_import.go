package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/ramus-dev/ramus/gateway/export"
)

func importCommand() command {
	var q export.Import
	return command{
		name: "import", args: "FILE --repo REPO [--new] [--as CALLER]",
		short: "take a file of `ramus export` of another server in",
		long: `
The repository has commits in common with the file. With --new it is made, with the
base of the file. The caller keeps its name, or gets a number if the name is taken. It
has the branch and the records of the runs.

The runs are marked as imported. They are the words of another server: none of them is
verified here, none can be retried, and nobody gets a right by them. A caller that was
private on its server is private here.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&q.Repo, "repo", "", "the `repository`")
			fs.BoolVar(&q.New, "new", false, "make the repository")
			fs.StringVar(&q.Caller, "as", "", "another `name` for the caller")
			fs.BoolVar(&q.Public, "public", false, "show a caller that was private on its server to everybody")
			fs.BoolVar(&e.json, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "FILE")
			if err != nil {
				return err
			}
			if q.Repo == "" {
				return usage("which repository? --repo names it")
			}
			f, err := os.Open(args[0])
			if err != nil {
				return fmt.Errorf("cannot import: %w", err)
			}
			defer f.Close()
			done, err := c.Import(ctx, q, f)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(done)
			}
			for _, text := range done.LeftOut {
				fmt.Fprintf(e.err, "not in the file: %s\n", e.oneLine(text, 300))
			}
			name := done.Caller.String()
			if done.Caller != done.Was {
				name += " (it was " + done.Was.String() + ")"
			}
			fmt.Fprintf(e.out, "%s on %s, branch %s, %d runs, imported\n", name, e.oneLine(done.Repo, 100), done.Branch, len(done.Runs))
			return nil
		},
	}
}
