package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/ramus-dev/ramus/gateway/past"
)

// setUndo declares the flags that undo and pick have in common.
func setUndo(fs *flag.FlagSet, e *env, u *past.Undo) {
	fs.StringVar(&u.Into, "into", "", "`branch` to change (default the base of the run)")
	fs.BoolVar(&u.Here, "here", false, "change this server's branch alone, although the repository has an upstream")
	fs.BoolVar(&u.Dry, "dry", false, "show the commits, and change nothing")
	fs.BoolVar(&e.json, "json", false, "the result as JSON")
}

func undoCommand() command {
	var u past.Undo
	return command{
		name: "undo", args: "RUN [--into BRANCH]",
		short: "take a merged run out of the base, although later work builds on it",
		long: `
One commit takes the changes of all commits of the run out, in whichever way they were
merged. It is pushed to the upstream as the policy of the repository says. If later
work changed the same lines, nothing is changed, and the files are shown with the runs
that changed them.`,
		set: func(fs *flag.FlagSet, e *env) { setUndo(fs, e, &u) },
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "RUN")
			if err != nil {
				return err
			}
			plan := u
			plan.Dry = true
			p, err := c.Undo(ctx, args[0], plan)
			if err != nil {
				return err
			}
			how := string(p.Work.How)
			if p.Work.As != "" {
				how += " as " + short(string(p.Work.As))
			}
			fmt.Fprintf(e.err, "taking %s of %s (%s) out of %s\n", commits(len(p.Work.Commits)), p.Work.Run, how,
				p.Work.Into)
			if p.Work.Undone != "" {
				fmt.Fprintf(e.err, "%s took them out before\n", short(string(p.Work.Undone)))
			}
			if u.Dry {
				return e.changed(p)
			}
			u.By = asker(ctx, e)
			done, err := c.Undo(ctx, args[0], u)
			if err != nil {
				return err
			}
			return e.changed(done)
		},
	}
}

func pickCommand() command {
	var p past.Pick
	return command{
		name: "pick", args: "RUN STEP… [--into BRANCH]",
		short: "bring only some steps of a run to the base",
		long: `
A step is named as in the journal, or by its commit, of which seven digits suffice
("ramus log" lists the commits). Each becomes a commit with its message and its person.
If a change cannot be applied, nothing is changed, and the files are shown with the runs
that changed them.`,
		set: func(fs *flag.FlagSet, e *env) { setUndo(fs, e, &p.Undo) },
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 2, 1001, "RUN and STEP")
			if err != nil {
				return err
			}
			p.Steps = args[1:]
			plan := p
			plan.Dry = true
			w, err := c.Pick(ctx, args[0], plan)
			if err != nil {
				return err
			}
			fmt.Fprintf(e.err, "bringing %s of %s to %s\n", commits(len(w.Work.Commits)), w.Work.Run, w.Work.Into)
			if p.Dry {
				return e.changed(w)
			}
			p.By = asker(ctx, e)
			done, err := c.Pick(ctx, args[0], p)
			if err != nil {
				return err
			}
			return e.changed(done)
		},
	}
}

// commits returns a number of commits in words.
func commits(n int) string {
	if n == 1 {
		return "1 commit"
	}
	return fmt.Sprintf("%d commits", n)
}

// changed shows the result of undo or pick. Conflicts are an exit status of their own.
func (e *env) changed(c past.Changed) error {
	if e.json {
		if err := e.writeJSON(c); err != nil {
			return err
		}
	} else if c.Landed == nil {
		for _, h := range c.Work.Commits {
			fmt.Fprintln(e.out, h)
		}
	} else if len(c.Landed.Conflicts) == 0 && c.Landed.UpToDate {
		fmt.Fprintf(e.out, "nothing to change: %s is like that already\n", c.Landed.Into)
	} else if len(c.Landed.Conflicts) == 0 {
		fmt.Fprintf(e.out, "%s is at %s\n", c.Landed.Into, short(string(c.Landed.Commit)))
	}
	if c.Landed == nil || len(c.Landed.Conflicts) == 0 {
		return nil
	}
	for _, b := range c.Blockers {
		fmt.Fprintf(e.err, "conflict in %s with %s %s  %s\n", e.oneLine(b.Path, 200), short(string(b.Commit)),
			e.oneLine(b.Run, 120), e.oneLine(b.Subject, 120))
	}
	return &exitStatus{exitInTheWay, errors.New(c.Landed.String())}
}
