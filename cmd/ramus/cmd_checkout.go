package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
)

func checkoutCommand() command {
	return command{
		name: "checkout", args: "CALLER",
		short: "check out a caller's branch in the current git checkout",
		long: `
The branch is fetched and checked out under its own name, ramus/run-ID. A second
checkout updates it. Your own commits on it are never lost.`,
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 1, 1, "CALLER"); err != nil {
				return err
			}
			st, from, err := branchOf(ctx, e, args[0])
			if err != nil {
				return err
			}
			branch := st.Caller.Branch()
			if err := e.git(ctx, nil, "fetch", "--no-tags", "--", from, "refs/heads/"+branch); err != nil {
				return err
			}
			known := exec.CommandContext(ctx, "git", "rev-parse", "--verify", "--quiet", "refs/heads/"+branch)
			known.Env = e.environ
			if known.Run() != nil {
				return e.git(ctx, nil, "checkout", "--no-track", "-b", branch, "FETCH_HEAD")
			}
			if err := e.git(ctx, nil, "checkout", branch, "--"); err != nil {
				return err
			}
			return e.git(ctx, nil, "merge", "--ff-only", "FETCH_HEAD")
		},
	}
}

func cloneCommand() command {
	var in string
	return command{
		name: "clone", args: "CALLER [--in REPO] [DIR]",
		short: "clone a caller's branch",
		long: `
This is "git clone -b BRANCH" as printed by "ramus run". The default of DIR is the
name of the caller, or with --in that of the repository.`,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.StringVar(&in, "in", "", "`name` of an additional repository of the caller (default its own)")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 1, 2, "CALLER"); err != nil {
				return err
			}
			st, from, err := branchOf(ctx, e, args[0])
			if err != nil {
				return err
			}
			dir := st.Caller.ID()
			if in != "" {
				c, err := e.client(ctx)
				if err != nil {
					return err
				}
				if from, err = source(ctx, c, in); err != nil {
					return err
				}
				dir = in
			}
			if len(args) == 2 {
				dir = args[1]
			}
			if err := e.git(ctx, nil, "clone", "--branch", st.Caller.Branch(), "--", from, dir); err != nil {
				return err
			}
			fmt.Fprintln(e.out, filepath.Clean(dir))
			return nil
		},
	}
}

func applyCommand() command {
	var drop bool
	return command{
		name: "apply", args: "CALLER [--delete]",
		short: "stage the changes of a caller in the current git checkout",
		long: `
The changes are written to the work tree and the index. Nothing is committed. If
one change does not apply, none is made.`,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.BoolVar(&drop, "delete", false, "stop the caller's runs and remove its container and branch afterwards")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "CALLER")
			if err != nil {
				return err
			}
			st, err := c.Caller(ctx, args[0])
			if err != nil {
				return err
			}
			remove := func() error {
				if !drop {
					return nil
				}
				_, err := c.RemoveCaller(ctx, st.Caller.String())
				return err
			}
			var patch bytes.Buffer
			if err := c.Diff(ctx, st.Caller.String(), false, nil, &patch); err != nil {
				return err
			}
			if patch.Len() == 0 {
				fmt.Fprintf(e.out, "%s changed nothing\n", st.Caller)
				return remove()
			}
			// apply ignores changes outside the folder it runs in, so it must run in the top folder.
			top := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel")
			top.Env = e.environ
			root, err := top.Output()
			if err != nil {
				return fmt.Errorf("cannot apply here: this is not a git checkout")
			}
			if err := e.git(ctx, &patch, "-C", string(bytes.TrimRight(root, "\n")), "apply", "--index",
				"--whitespace=nowarn", "-"); err != nil {
				return fmt.Errorf("cannot apply the changes of %s, so nothing was changed: %w", st.Caller, err)
			}
			changes, err := c.Changes(ctx, st.Caller.String())
			if err != nil {
				return err
			}
			fmt.Fprintf(e.out, "staged %s of %s\n", count(len(changes), "changed file"), st.Caller)
			return remove()
		},
	}
}
