package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway"
)

func logCommand() command {
	var (
		patch, output, reverse bool
		most                   int
	)
	return command{
		name: "log", args: "CALLER [--patch] [--output]",
		short: "show all commands of a caller with their commits",
		long: `
The newest comes first, like in git log. Commands without changes have no commit.
Commits that a command made itself have entries of their own.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&patch, "patch", false, "with the output of each command and the changes of each commit")
			fs.BoolVar(&patch, "p", false, "short for --patch")
			fs.BoolVar(&output, "output", false, "with the end of the output of each command")
			fs.BoolVar(&reverse, "reverse", false, "oldest first")
			fs.IntVar(&most, "n", 0, "at most `n` entries (default 200)")
			fs.BoolVar(&e.json, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "CALLER")
			if err != nil {
				return err
			}
			entries, err := c.Log(ctx, args[0], patch, most)
			if err != nil {
				return err
			}
			if reverse {
				slices.Reverse(entries)
			}
			if e.json {
				return e.writeJSON(entries)
			}
			for _, l := range entries {
				e.entry(l, output || patch)
			}
			return nil
		},
	}
}

// entry shows an entry of the log and, if output is true, its output and its patch.
func (e *env) entry(l gateway.LogEntry, output bool) {
	hash := strings.Repeat("·", 10)
	if l.Commit != nil {
		hash = short(string(l.Commit.Hash))
	}
	what := l.Command
	if what == "" {
		what = l.Task
	}
	if what == "" && l.Commit != nil {
		what = l.Commit.Subject
	}
	exit := ""
	if l.Exit != nil {
		exit = fmt.Sprintf("exit %d", *l.Exit)
		if *l.Exit != 0 {
			exit = e.colour(red, exit)
		}
	}
	if l.Reason != "" {
		exit += " " + l.Reason
	}
	fmt.Fprintf(e.out, "%s  %s  %-8s %6s  %s%s\n", e.colour(yellow, hash), e.colour(dim, l.Time.Local().Format("15:04:05")),
		exit, took(time.Duration(l.TookMS)*time.Millisecond), e.node(l.Node), e.oneLine(what, 160))
	if !output {
		return
	}
	p := &progress{env: e}
	p.tail(l.Stdout)
	p.tail(l.Stderr)
	if l.Patch != "" {
		w := &diffWriter{e: e}
		fmt.Fprintln(e.out)
		_, _ = w.Write([]byte(l.Patch)) // the other lines of the log ignore errors too
		_ = w.Close()
		if l.PatchCut {
			fmt.Fprintln(e.out, "… (cut)")
		}
		fmt.Fprintln(e.out)
	}
}

func (e *env) node(n string) string {
	if n == "" {
		return ""
	}
	return e.colour(blue, e.oneLine(n, 24)) + "  "
}
