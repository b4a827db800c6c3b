package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/provenance"
	"github.com/ramus-dev/ramus/gateway/past"
)

func whyCommand() command {
	var (
		w                 past.Why
		porcelain, asJSON bool
	)
	return command{
		name: "why", args: "[CALLER|REF] PATH:LINE[-LINE]",
		short: "show why lines of a file are as they are",
		long: `
For each line the command that wrote it is shown, with its output, its prompt and its
agent, the person who asked, the pull request, and the checks that ran after it. git
finds the commit, through merges and renames of the file; ramus finds the step of the
run, and looks through squashes. Without CALLER and REF the file is that of the base.

With --porcelain the whole file is explained, in the format of "git blame
--porcelain" with further lines that begin with "ramus-".`,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.StringVar(&w.Repo, "repo", "", "`name` of the repository (default that of CALLER, or the only one)")
			fs.BoolVar(&porcelain, "porcelain", false, "explain the whole file, for programs")
			fs.BoolVar(&asJSON, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 2, "PATH:LINE")
			if err != nil {
				return err
			}
			if len(args) == 2 {
				w.Of = args[0]
			}
			if w.Path, w.Line, w.To, err = parseLines(args[len(args)-1]); err != nil {
				return err
			}
			if w.Line == 0 && !porcelain {
				return usage("the line is missing: want PATH:LINE, or --porcelain for the whole file")
			}
			w.Brief = porcelain
			a, err := c.Why(ctx, w)
			switch {
			case err != nil:
				return err
			case asJSON:
				return e.writeJSON(a)
			case porcelain:
				return e.whyPorcelain(a)
			}
			e.why(a)
			return nil
		},
	}
}

// parseLines parses "PATH", "PATH:LINE" and "PATH:FROM-TO". A path may have colons.
func parseLines(arg string) (path string, from, to int, err error) {
	at := strings.LastIndexByte(arg, ':')
	if at < 0 {
		return arg, 0, 0, nil
	}
	first, last, both := strings.Cut(arg[at+1:], "-")
	from, err = strconv.Atoi(first)
	if err != nil {
		return arg, 0, 0, nil
	}
	to = from
	if both {
		if to, err = strconv.Atoi(last); err != nil {
			return "", 0, 0, usage("%q are no lines: want PATH:LINE or PATH:FROM-TO", arg[at+1:])
		}
	}
	if from < 1 || to < from || at == 0 {
		return "", 0, 0, usage("%q are no lines of a file: want PATH:LINE or PATH:FROM-TO", arg)
	}
	return arg[:at], from, to, nil
}

// why shows an answer for people. A cause is shown once, after the lines that have it.
func (e *env) why(a provenance.Answer) {
	for i, l := range a.Lines {
		fmt.Fprintf(e.out, "%s  %s\n", e.colour(dim, fmt.Sprintf("%s:%d", e.oneLine(a.Path, 200), l.Line)),
			e.oneLine(l.Text, 160))
		if i+1 < len(a.Lines) && a.Lines[i+1].Cause == l.Cause {
			continue
		}
		e.cause(a.Causes[l.Cause], l, a.Path)
	}
}

// cause shows a cause.
func (e *env) cause(c provenance.Cause, l provenance.Line, path string) {
	row := func(head, text string) {
		if text != "" {
			fmt.Fprintf(e.out, "  %-9s %s\n", head, text)
		}
	}
	row("commit", fmt.Sprintf("%s  %s  %s", e.colour(yellow, short(string(c.Commit))),
		c.When.Local().Format("2006-01-02 15:04:05"), e.oneLine(c.Subject, 120)))
	row("author", e.oneLine(c.Author.Name, 80))
	if l.Path != path {
		row("was", e.oneLine(fmt.Sprintf("%s:%d", l.Path, l.Was), 200))
	}
	for _, s := range c.Squashes {
		row("squashed", "as a part of "+short(string(s)))
	}
	if c.Was != "" {
		row("copy of", short(string(c.Was)))
	}
	if c.Claimed != "" {
		row("note", "the commit names "+e.oneLine(c.Claimed, 120)+", and no record that you see has it")
	}
	if !c.Known() {
		row("command", "none is known")
		return
	}
	what := c.Command
	if what == "" {
		what = c.Task
	}
	row("command", e.oneLine(what, 200))
	if c.Inside {
		row("", "it made the commit itself")
	}
	row("result", e.whyResult(c))
	row("run", e.oneLine(strings.TrimSpace(c.Run+"  "+c.Step), 200))
	row("agent", e.oneLine(c.Agent, 80))
	for _, p := range c.Prompts {
		row("prompt", e.oneLine(p.Text, 400))
	}
	row("asked by", e.oneLine(c.Person.Name, 80))
	if c.Origin != nil {
		row("asked in", e.oneLine(c.Origin.Source+"  "+c.Origin.Session, 200))
	}
	if c.Ticket != nil {
		row("issue", e.oneLine(c.Ticket.Key+"  "+c.Ticket.URL, 200))
	}
	if c.Pull != nil {
		row("pull", e.oneLine(fmt.Sprintf("#%d  %s", c.Pull.Number, c.Pull.URL), 200))
	}
	for _, check := range c.Checks {
		row("check", e.oneLine(strings.TrimSpace(fmt.Sprintf("%s %s  %s  %s", check.Check, check.Result, check.Command,
			check.Why)), 200))
	}
	for _, out := range []string{c.Stdout, c.Stderr} {
		for line := range strings.Lines(out) {
			row("output", strings.TrimRight(e.safe(line), "\n"))
		}
	}
}

// whyResult returns the result of a step in a line.
func (e *env) whyResult(c provenance.Cause) string {
	var parts []string
	if c.Exit != nil {
		exit := fmt.Sprintf("exit %d", *c.Exit)
		if *c.Exit != 0 {
			exit = e.colour(red, exit)
		}
		parts = append(parts, exit)
	}
	if c.Reason != "" {
		parts = append(parts, e.oneLine(c.Reason, 60))
	}
	if c.DurationMS > 0 {
		parts = append(parts, took(time.Duration(c.DurationMS)*time.Millisecond))
	}
	return strings.Join(parts, "  ")
}

// whyPorcelain writes an answer in the format of git blame --porcelain. Everything that is known of a commit is written
// with its first line.
func (e *env) whyPorcelain(a provenance.Answer) error {
	w := bufio.NewWriter(e.out)
	shown := make([]bool, len(a.Causes))
	for _, l := range a.Lines {
		c := a.Causes[l.Cause]
		fmt.Fprintf(w, "%s %d %d\n", c.Commit, l.Was, l.Line)
		if !shown[l.Cause] {
			shown[l.Cause] = true
			for _, row := range whyRows(c) {
				if text := e.oneLine(row[1], 4096); text != "" {
					fmt.Fprintf(w, "%s %s\n", row[0], text)
				}
			}
			if c.First {
				fmt.Fprintln(w, "boundary")
			}
		}
		fmt.Fprintf(w, "filename %s\n\t%s\n", e.oneLine(l.Path, 4096), l.Text)
	}
	return w.Flush()
}

// whyRows returns the known facts of a cause as keys and values.
func whyRows(c provenance.Cause) [][2]string {
	rows := [][2]string{{"author", c.Author.Name}, {"author-mail", "<" + c.Author.Email + ">"},
		{"committer-time", strconv.FormatInt(c.When.Unix(), 10)}, {"committer-tz", "+0000"}, {"summary", c.Subject},
		{"ramus-run", c.Run}, {"ramus-step", c.Step}, {"ramus-command", c.Command}, {"ramus-task", c.Task}}
	if c.Exit != nil {
		rows = append(rows, [2]string{"ramus-exit", strconv.Itoa(*c.Exit)})
	}
	rows = append(rows, [2]string{"ramus-agent", c.Agent}, [2]string{"ramus-person", c.Person.Name},
		[2]string{"ramus-claimed", c.Claimed})
	for _, p := range c.Prompts {
		rows = append(rows, [2]string{"ramus-prompt", p.Text})
	}
	if c.Pull != nil {
		rows = append(rows, [2]string{"ramus-pull-request", c.Pull.URL})
	}
	for _, s := range c.Squashes {
		rows = append(rows, [2]string{"ramus-squash", string(s)})
	}
	return rows
}
