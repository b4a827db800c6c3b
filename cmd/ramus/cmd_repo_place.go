package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ramus-dev/ramus/gateway"
)

func repoRemoveCommand() command {
	var force, yes bool
	return command{
		name: "rm", args: "NAME [--force] [--yes]", short: "remove a repository with its branches and runs",
		long: `
The branches, tags, runs and Git LFS objects of the repository are removed for good.
Artifacts of its runs go with the next "ramus prune". A repository in which a caller
works is not removed, unless --force stops the work first. Tokens for the repository
stay valid, and are those of a repository that gets its name later.`,
		set: func(fs *flag.FlagSet, e *env) {
			setJSON(fs, e)
			fs.BoolVar(&force, "force", false, "stop the callers that work in it")
			fs.BoolVar(&yes, "yes", false, "do not ask")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "NAME")
			if err != nil {
				return err
			}
			if !yes {
				if err := e.confirm("Remove the repository "+e.safe(args[0])+" with all branches and runs", args[0]); err != nil {
					return err
				}
			}
			done, err := c.RemoveRepo(ctx, args[0], force)
			if err != nil {
				return err
			}
			return e.moved(done, "removed "+done.Name)
		},
	}
}

func repoRenameCommand() command {
	return command{
		name: "rename", args: "NAME NEW", short: "give a repository another name", set: setJSON,
		long: `
Branches, runs and Git LFS objects stay. A repository in which a caller works is not
renamed. Containers of its callers end. Clones and tokens with the old name find nothing
any more, and configuration that has it must be changed.`,
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 2, 2, "NAME or NEW")
			if err != nil {
				return err
			}
			done, err := c.RenameRepo(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			return e.moved(done, done.Name+" is "+done.To+" now")
		},
	}
}

// moved prints the answer to a removal or a renaming.
func (e *env) moved(done gateway.RepoMoved, text string) error {
	if e.json {
		return e.writeJSON(done)
	}
	fmt.Fprintln(e.out, text)
	if done.Hint != "" {
		fmt.Fprintf(e.err, "ramus: %s\n", done.Hint)
	}
	return nil
}

// confirm asks a person at the terminal to type a name. Without a terminal it is an error of usage.
func (e *env) confirm(question, name string) error {
	if f, ok := e.in.(*os.File); !ok || !isTerminal(f) {
		return usage("nobody can be asked here: --yes confirms it")
	}
	fmt.Fprintf(e.err, "%s? Type its name to confirm: ", question)
	line, err := bufio.NewReader(io.LimitReader(e.in, 1<<10)).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("cannot read the answer: %w", err)
	}
	if strings.TrimSpace(line) != name {
		return &exitStatus{exitFailed, fmt.Errorf("nothing was removed")}
	}
	return nil
}
