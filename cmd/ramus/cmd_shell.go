package main

import (
	"context"
	"flag"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/terminal"
)

func shellCommand() command {
	var (
		r     terminal.Request
		fresh bool
		watch bool
		close bool
	)
	return command{
		name: "shell", args: "CALLER [--repo NAME]",
		short: "open a terminal of a caller; each command that is typed there is committed",
		long: `
CALLER is a run or a conversation, or any unique part of its name. With --repo it
is a complete name, and "new", or a name that is not taken, makes a new caller.

The command goes on in an open terminal of the caller, or opens one. Typed commands
become commits, which "ramus log" lists. The keys "~." at the beginning of a line leave
the terminal, which goes on. Another "ramus shell" finds it as it was left. If the
connection or the server is lost, the command connects again for as long as it takes.

  ramus shell new --repo app
  ramus shell fancy-mallard --terminal 2`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&r.Repo, "repo", "", "`name` of the repository of a new caller")
			fs.StringVar(&r.Base, "base", "", "`branch` from which a new caller starts")
			fs.Var(&forkFlag{&r.Fork}, "fork",
				"`CALLER[@COMMIT]`, or CALLER@STEP, from which a new caller starts, with the memory of its agents")
			fs.StringVar(&r.Name, "terminal", "", "`name` of the terminal; it is opened if there is none")
			fs.BoolVar(&fresh, "new", false, "open another terminal")
			fs.BoolVar(&watch, "watch", false, "show the terminal, and type nothing")
			fs.BoolVar(&close, "close", false, "end the program of the terminal")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "CALLER")
			if err != nil {
				return err
			}
			caller := args[0]
			if close {
				e.conn.leave = true
				if r.Name == "" {
					return usage("--close needs --terminal")
				}
				return c.CloseTerminal(ctx, caller, r.Name)
			}
			if !fresh && r.Name == "" && r.Repo == "" && caller != lookup.NewCaller {
				open, err := c.Terminals(ctx, caller)
				if err != nil {
					return err
				}
				for _, t := range open {
					if t.State.Running && t.Command == "" {
						r.Name = t.Name
						break
					}
				}
			}
			r.Asker = asker(ctx, e)
			return attachTerminal(ctx, e, caller, r, watch)
		},
	}
}

// attachTerminal opens a terminal, and connects this process's terminal with it until its program ends.
func attachTerminal(ctx context.Context, e *env, caller string, r terminal.Request, watch bool) error {
	t := newTTY(e)
	t.client, t.watch, t.asker = e.conn.client, watch, r.Asker
	r.Rows, r.Cols = t.size()
	opened, err := t.client.OpenTerminal(ctx, caller, r)
	if err != nil {
		return err
	}
	e.conn.leave, e.conn.await = true, true
	t.caller, t.name = opened.Caller.String(), opened.Name
	exit, err := t.run(ctx)
	if err != nil || exit == nil {
		return err
	}
	if err := t.client.CloseTerminal(ctx, t.caller, t.name); err != nil {
		return err
	}
	e.conn.leave = e.keep
	return status(record.Result{ExitCode: *exit})
}
