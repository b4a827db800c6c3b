package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/terminal"
)

func execCommand() command {
	var (
		x       gateway.ExecRequest
		timeout time.Duration
		stdin   bool
		tty     bool
		env_    listFlag
	)
	return command{
		name: "exec", args: "CALLER [--repo NAME] [--timeout D] -- CMD…",
		short: "run a command for a caller, and commit its changes",
		long: `
CALLER is a run or a conversation, or any unique part of its name. With --repo it
is a complete name, and "new", or a name that is not taken, makes a new caller.

One argument after -- is a shell line. Several are a program and its arguments,
without a shell. The output is printed while the command runs. An interrupt stops the
command. The exit status is that of the command, or 125 if ramus itself failed.

  ramus exec new --repo app -- 'go test ./... | tail'
  ramus exec fancy-mallard -- go test ./...`,
		rest: true,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&x.Repo, "repo", "", "`name` of the repository of a new caller")
			fs.StringVar(&x.Base, "base", "", "`branch` from which a new caller starts")
			setWith(fs, &x.With)
			fs.Var(&forkFlag{&x.Fork}, "fork",
				"`CALLER[@COMMIT]`, or CALLER@STEP, from which a new caller starts, with the memory of its agents")
			fs.DurationVar(&timeout, "timeout", 0, "stop the command after this `duration`")
			fs.StringVar(&x.Command.Dir, "dir", "", "`folder` of the work tree to run in")
			fs.Var(&env_, "env", "`K=V` for the command's environment; may be repeated")
			fs.BoolVar(&x.Command.Background, "background", false, "start the command and return; see ramus bg")
			fs.BoolVar(&x.Command.NoSetup, "no-setup", false,
				"use the container as it is, without the repository's setup commands")
			fs.BoolVar(&x.Command.Setup, "setup", false,
				"record the command as one that sets a container up, for ramus config import")
			fs.BoolVar(&x.Command.Pure, "pure", false,
				"the result follows from the files, the image and the dependencies; a known one is the answer")
			setFresh(fs, &x.Fresh)
			setGroup(fs, &x.Group, &x.CancelPrevious)
			setHanded(fs, e, &x.Secrets)
			fs.StringVar(&x.Key, "key", "", "`id` of the run; a second request with the same id starts no second run")
			fs.BoolVar(&stdin, "i", false, "pass standard input to the command")
			fs.BoolVar(&tty, "tty", false, "run the command in a terminal, as for an editor; see ramus shell")
			fs.BoolVar(&e.json, "json", false, "print the result as JSON at the end, on standard error")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return usage("CALLER is missing")
			}
			switch cmd := args[1:]; len(cmd) {
			case 0:
				return usage("the command is missing: ramus exec %s -- CMD…", args[0])
			case 1:
				x.Command.Shell = cmd[0]
			default:
				x.Command.Args = cmd
			}
			x.Command.Timeout, x.Command.Env = timeout, env_
			if tty {
				return executeInTerminal(ctx, e, args[0], x)
			}
			result, err := execute(ctx, e, args[0], x, stdin)
			if err != nil {
				var p *route.Problem
				switch {
				case errors.Is(err, context.Canceled):
					return err
				case errors.As(err, &p):
					return &exitStatus{exitExec, p}
				}
				return &exitStatus{exitExec, err}
			}
			return execResult(e, result, args[0] == lookup.NewCaller)
		},
	}
}

// executeInTerminal runs a command in a terminal of its own.
func executeInTerminal(ctx context.Context, e *env, caller string, x gateway.ExecRequest) error {
	if x.Command.Background || x.Command.Timeout > 0 || x.Group != "" || x.CancelPrevious || len(x.With) > 0 {
		return usage("--tty goes without --background, --timeout, --group, --cancel-previous and --with")
	}
	if _, err := e.client(ctx); err != nil {
		return err
	}
	return attachTerminal(ctx, e, caller,
		terminal.Request{Repo: x.Repo, Base: x.Base, Key: x.Key, Fork: x.Fork, Asker: asker(ctx, e),
			TerminalCall: record.TerminalCall{Command: &x.Command}}, false)
}

// setWith declares the flag for additional repositories.
func setWith(fs *flag.FlagSet, with *[]string) {
	fs.Var((*listFlag)(with), "with",
		"`name` of an additional repository that the caller works in, in $RAMUS_REPOS/NAME; may be repeated")
}

// setFresh declares the flag for checks that run although their results are known.
func setFresh(fs *flag.FlagSet, fresh *bool) {
	fs.BoolVar(fresh, "fresh", false, "run checks although their results are known")
}

// setGroup declares the flags for runs that do not work at the same time.
func setGroup(fs *flag.FlagSet, group *string, cancel *bool) {
	fs.StringVar(group, "group", "", "`name` of the runs of the repository of which one works at a time")
	fs.BoolVar(cancel, "cancel-previous", false,
		"stop the unfinished runs of the group; without a group those of the workflow, or of the caller")
}

func execute(ctx context.Context, e *env, caller string, x gateway.ExecRequest, stdin bool) (record.Result, error) {
	c, err := e.client(ctx)
	if err != nil {
		return record.Result{}, err
	}
	if x.Command.Background {
		e.conn.leave = true // the process must outlive this command, and so must a server of this command
	}
	x.Asker = asker(ctx, e)
	o := client.ExecOptions{Stdout: e.out, Stderr: e.err}
	if stdin {
		o.Stdin = readerOnly{e.in}
	}
	return c.Exec(ctx, caller, x, o)
}

// readerOnly prevents net/http from closing standard input.
type readerOnly struct{ io.Reader }

// execResult prints the result of a command, apart from the command's own output.
func execResult(e *env, r record.Result, fresh bool) error {
	if e.json {
		err := (&env{stdio: stdio{out: e.err}}).line(r)
		return errors.Join(err, status(r))
	}
	if isTerminal(e.err) || fresh { // the name of a new caller appears nowhere else
		text := fmt.Sprintf("%s: exit %d in %s", r.Run, r.ExitCode, took(time.Duration(r.DurationMS)*time.Millisecond))
		if r.Reason != "" {
			text += ", " + r.Reason
		}
		if r.Commit != "" {
			text += ", commit " + short(string(r.Commit))
		}
		for _, m := range r.With {
			if m.Commit != "" {
				text += ", commit " + short(string(m.Commit)) + " in " + m.Repo
			}
		}
		fmt.Fprintln(e.err, e.colour(dim, e.oneLine(text, 300)))
	} else if r.Reason != "" && !record.Reason(r.Reason).Uncommitted() {
		fmt.Fprintf(e.err, "ramus: the command was ended: %s\n", e.oneLine(r.Reason, 100))
	}
	if r.Reused != nil {
		fmt.Fprintf(e.err, "ramus: %s\n", e.oneLine(knownFrom(r.Reused), 500))
	}
	if r.Message != "" {
		fmt.Fprintf(e.err, "ramus: %s\n", e.oneLine(r.Message, 2000))
	}
	if hint := record.Reason(r.Reason).Hint(); hint != "" && record.Reason(r.Reason).Uncommitted() {
		fmt.Fprintf(e.err, "ramus: %s\n", hint)
	}
	return status(r)
}

// status returns an error with the exit status of a command. It is the command's own, or 125 if a part of its changes
// did not reach the branch.
func status(r record.Result) error {
	if record.Reason(r.Reason).Uncommitted() || r.ExitCode == 0 && r.Reason != "" {
		return &exitStatus{code: exitExec}
	}
	if r.ExitCode != 0 {
		return &exitStatus{code: r.ExitCode}
	}
	return nil
}

// listFlag collects the values of a flag that may be repeated.
type listFlag []string

func (l *listFlag) String() string { return "" }

// Set adds a value.
func (l *listFlag) Set(s string) error { *l = append(*l, s); return nil }
