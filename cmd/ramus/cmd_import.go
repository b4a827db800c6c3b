package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	parcel "github.com/ramus-dev/ramus/executor/export"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/export"
)

func importCommand() command {
	var q export.Import
	return command{
		name: "import", args: "FILE|LINK --repo REPO [--new] [--as CALLER]",
		short: "take a file of `ramus export` of another server in",
		long: `
The repository has commits in common with the file. With --new it is made, with the
base of the file. The caller keeps its name, or gets a number if the name is taken. It
has the branch and the records of the runs.

The runs are marked as imported. They are the words of another server: none of them is
verified here, none can be retried, and nobody gets a right by them. A caller that was
private on its server is private here.

LINK is a link of "ramus export --link", which this server opens. --dry checks the file
and shows where it would go.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&q.Repo, "repo", "", "the `repository`")
			fs.BoolVar(&q.New, "new", false, "make the repository")
			fs.StringVar(&q.Caller, "as", "", "another `name` for the caller")
			fs.BoolVar(&q.Public, "public", false, "show a caller that was private on its server to everybody")
			fs.BoolVar(&q.Dry, "dry", false, "show where the file would go, and change nothing")
			fs.BoolVar(&e.json, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "FILE or LINK")
			if err != nil {
				return err
			}
			if q.Repo == "" {
				return usage("which repository? --repo names it")
			}
			done, err := importFrom(ctx, c, q, args[0])
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
			end := "imported"
			if q.Dry {
				end = "not imported yet"
			}
			fmt.Fprintf(e.out, "%s on %s, branch %s, %d runs, %s\n", name, e.oneLine(done.Repo, 100), done.Branch, len(done.Runs), end)
			return nil
		},
	}
}

// importFrom imports a file of this machine, or the one that a link leads to.
func importFrom(ctx context.Context, c *client.Client, q export.Import, from string) (parcel.Imported, error) {
	if strings.HasPrefix(from, "http://") || strings.HasPrefix(from, "https://") {
		return c.ImportLink(ctx, q, from)
	}
	f, err := os.Open(from)
	if err != nil {
		return parcel.Imported{}, fmt.Errorf("cannot import: %w", err)
	}
	defer f.Close()
	return c.Import(ctx, q, f)
}
