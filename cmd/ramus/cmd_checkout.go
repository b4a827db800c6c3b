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
		short: "bring a caller's branch into the git checkout you stand in",
		long: `
The branch is fetched and checked out under its own name, ramus/run-ID. Done
again, it is brought up to date; your own commits on it are never thrown away.`,
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
	return command{
		name: "clone", args: "CALLER [DIR]",
		short: "clone a caller's branch",
		long: `
As "git clone -b BRANCH" does, whose line "ramus run" prints. DIR is named after
the caller where it is left out.`,
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 1, 2, "CALLER"); err != nil {
				return err
			}
			st, from, err := branchOf(ctx, e, args[0])
			if err != nil {
				return err
			}
			dir := st.Caller.ID()
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
	var stop bool
	return command{
		name: "apply", args: "CALLER [--delete]",
		short: "stage what a caller changed in the git checkout you stand in",
		long: `
The changes are put into the work tree and the index, nothing is committed.
Where one does not fit, nothing at all is changed.`,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.BoolVar(&stop, "delete", false, "stop the caller's runs and remove its container afterwards")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 1, 1, "CALLER"); err != nil {
				return err
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			st, err := c.Caller(ctx, args[0])
			if err != nil {
				return err
			}
			remove := func() error {
				if !stop {
					return nil
				}
				_, err := c.StopCaller(ctx, st.Caller.String())
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
			// From the top: apply leaves out what lies outside the folder it is run in.
			top := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel")
			top.Env = e.environ
			root, err := top.Output()
			if err != nil {
				return fmt.Errorf("cannot apply here: this is no git checkout")
			}
			if err := e.git(ctx, &patch, "-C", string(bytes.TrimRight(root, "\n")), "apply", "--index", "--whitespace=nowarn", "-"); err != nil {
				return fmt.Errorf("the changes of %s do not fit here, nothing was changed: %w", st.Caller, err)
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
