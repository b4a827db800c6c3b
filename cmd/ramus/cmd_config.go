package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gateway"
)

func configCommand() command {
	return command{
		name: "config", args: "show|import", short: "show the environment of a repository, and propose a change of it",
		subs: []command{configShowCommand(), configImportCommand()},
	}
}

func configShowCommand() command {
	var base string
	return command{
		name: "show", args: "REPO [--base BRANCH]", short: "show each value of a repository's environment, and its origin",
		long: `
The origin is a line of .ramus/config.yaml in the base, "server" for the server's
configuration, or "default". A value that the server does not allow is followed by the
reason. The exit status is 1 if the file has a mistake; the last good one is used then.`,
		set: func(fs *flag.FlagSet, e *env) {
			setJSON(fs, e)
			fs.StringVar(&base, "base", "", "`branch` whose configuration is read (default the repository's base)")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "REPO")
			if err != nil {
				return err
			}
			config, err := c.RepoConfig(ctx, args[0], base)
			if err != nil {
				return err
			}
			if err := e.showConfig(config); err != nil {
				return err
			}
			if config.Mistake != "" {
				return &exitStatus{exitFailed, fmt.Errorf("the configuration in %s of %s has a mistake:\n%s",
					short(string(config.Commit)), config.Base, config.Mistake)}
			}
			return nil
		},
	}
}

func (e *env) showConfig(c gateway.RepoConfig) error {
	if e.json {
		return e.writeJSON(c)
	}
	var rows [][]string
	for _, v := range c.Values {
		text, ok := v.Value.(string)
		if !ok {
			var b strings.Builder
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(v.Value); err != nil {
				return err
			}
			text = strings.TrimSpace(b.String())
		}
		rows = append(rows, []string{v.Key, e.oneLine(text, 100), v.Origin, e.oneLine(v.Note, 200)})
	}
	if err := e.table([]string{"KEY", "VALUE", "FROM", "NOTE"}, rows); err != nil {
		return err
	}
	if c.From != "" && c.From != c.Commit {
		fmt.Fprintf(e.err, "the file of %s is in effect\n", short(string(c.From)))
	}
	for _, w := range c.Warnings {
		fmt.Fprintln(e.err, e.oneLine(w, 300))
	}
	return nil
}

func configImportCommand() command {
	var o followOptions
	return command{
		name: "import", args: "CALLER",
		short: "propose what a caller found out about its environment as a change of its repository",
		long: `
The proposal is the .ramus/config.yaml on the caller's branch, with the commands of
"ramus exec --setup" added to its setup commands. It is a commit on the branch of a new
caller, which can be read (ramus diff), merged (ramus merge), or thrown away.`,
		set: setJSON,
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "CALLER")
			if err != nil {
				return err
			}
			run, err := c.ImportConfig(ctx, args[0], gateway.ImportConfig{Asker: asker(ctx, e)})
			if err != nil {
				return err
			}
			o.json = e.json
			if !o.json {
				fmt.Fprintf(e.out, "%s on %s, branch %s\n", e.colour("1", run.Name()), e.oneLine(run.Repo, 100), run.Branch)
			}
			return follow(ctx, e, c, run, o)
		},
	}
}
