package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gateway"
)

func repoCommand() command {
	asJSON := func(fs *flag.FlagSet, e *env) { fs.BoolVar(&e.json, "json", false, "as JSON") }
	return command{name: "repo", args: "create|import|list|refresh", short: "create, import, list and refresh repositories", subs: []command{
		{
			name: "create", args: "NAME", short: "make an empty repository", set: asJSON,
			run: func(ctx context.Context, e *env, args []string) error {
				if err := want(args, 1, 1, "NAME"); err != nil {
					return err
				}
				return createRepo(ctx, e, gateway.CreateRepo{Name: args[0]})
			},
		}, {
			name: "import", args: "NAME PATH-OR-URL", short: "make a repository from another, with its branches and tags", set: asJSON,
			long: `
The source is whatever git can clone. "ramus repo refresh" fetches from there
again. An import that fails leaves nothing behind.`,
			run: func(ctx context.Context, e *env, args []string) error {
				if err := want(args, 2, 2, "NAME or PATH-OR-URL"); err != nil {
					return err
				}
				return createRepo(ctx, e, gateway.CreateRepo{Name: args[0], Source: absolute(args[1])})
			},
		}, {
			name: "list", args: "", short: "list repositories", set: asJSON,
			run: func(ctx context.Context, e *env, args []string) error {
				if err := want(args, 0, 0, ""); err != nil {
					return err
				}
				c, err := e.client(ctx)
				if err != nil {
					return err
				}
				list, err := c.Repos(ctx)
				if err != nil {
					return err
				}
				if e.json {
					return e.writeJSON(list)
				}
				var rows [][]string
				for _, r := range list {
					at := r.CloneURL
					if at == "" {
						at = r.Dir
					}
					rows = append(rows, []string{r.Name, r.Base, short(string(r.Head)), at, r.Upstream})
				}
				return e.table([]string{"REPO", "BASE", "HEAD", "AT", "UPSTREAM"}, rows)
			},
		}, {
			name: "refresh", args: "NAME", short: "fast-forward the base from where it was imported", set: asJSON,
			long: `
A base that has diverged from its upstream is an error: nothing is forced.`,
			run: func(ctx context.Context, e *env, args []string) error {
				if err := want(args, 1, 1, "NAME"); err != nil {
					return err
				}
				c, err := e.client(ctx)
				if err != nil {
					return err
				}
				r, err := c.RefreshRepo(ctx, args[0], e.progressLine)
				switch {
				case err != nil:
					return err
				case e.json:
					return e.writeJSON(r)
				case r.Old == r.New:
					fmt.Fprintf(e.out, "%s is up to date at %s\n", r.Branch, short(string(r.New)))
				default:
					fmt.Fprintf(e.out, "%s moved from %s to %s\n", r.Branch, short(string(r.Old)), short(string(r.New)))
				}
				return nil
			},
		},
	}}
}

func createRepo(ctx context.Context, e *env, n gateway.CreateRepo) error {
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	r, err := c.CreateRepo(ctx, n, e.progressLine)
	if err != nil {
		return err
	}
	if e.json {
		return e.writeJSON(r)
	}
	fmt.Fprintf(e.out, "%s is ready, base %s %s\n", r.Name, r.Base, short(string(r.Head)))
	return nil
}

// progressLine shows what git tells of its progress: to a log what is done, on a
// terminal each line over the one before.
func (e *env) progressLine(text string) {
	if terminal(e.err) {
		fmt.Fprintf(e.err, "\r\x1b[K%s", e.oneLine(text, 78))
		if strings.HasSuffix(text, "done.") {
			fmt.Fprintln(e.err)
		}
		return
	}
	if !strings.Contains(text, "% (") || strings.HasSuffix(text, "done.") {
		fmt.Fprintln(e.err, e.oneLine(text, 200))
	}
}
