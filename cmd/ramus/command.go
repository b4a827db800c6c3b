package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// command is one subcommand with its help.
type command struct {
	name  string
	args  string // "CALLER [--patch]"
	short string // one line for the list
	long  string // the rest of its help
	// set declares the flags of the command, and run executes it. A command with subcommands has neither.
	set  func(*flag.FlagSet, *env)
	run  func(context.Context, *env, []string) error
	subs []command
	// usual is the subcommand that is meant if the first argument is a flag or has a space. Empty means none.
	usual string
	// rest means that the arguments after the first belong to another program, including flags.
	rest bool
}

// commands returns all subcommands, in the order in which help lists them.
func commands() []command {
	return []command{
		runCommand(), execCommand(), shellCommand(), agentCommand(), sayCommand(), followCommand(), psCommand(),
		logCommand(), diffCommand(), whyCommand(), bisectCommand(), radarCommand(), searchCommand(), reviewCommand(), evidenceCommand(), shareCommand(), verifyCommand(),
		artifactsCommand(), watchCommand(), mergeCommand(), undoCommand(), pickCommand(), replayCommand(), forkCommand(), exportCommand(), importCommand(),
		tournamentCommand(),
		applyCommand(), checkoutCommand(), cloneCommand(),
		stopCommand(), rmCommand(), retryCommand(), approveCommand(), rollbackCommand(), bgCommand(), previewCommand(),
		taskCommand(), triggerCommand(), mcpCommand(), linkBrowsersCommand(),
		checkCommand(), tasksCommand(), repoCommand(), configCommand(), secretCommand(), keysCommand(), tokenCommand(),
		openCommand(), peopleCommand(),
		serveCommand(), gitdCommand(), reloadCommand(), reindexCommand(), pruneCommand(), backupCommand(),
		restoreCommand(), standbyCommand(), promoteCommand(), replicaCommand(), nodeCommand(), doctorCommand(), completionCommand(), upgradeCommand(), versionCommand(),
	}
}

// usageError is a wrong command line.
type usageError struct {
	text string
	help string // the command whose help is suggested, as "ramus exec"
}

func (e *usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return &usageError{text: fmt.Sprintf(format, args...)} }

// run executes one command line and returns the exit status.
func run(ctx context.Context, args []string, io stdio, environ []string) int {
	e := newEnv(io, environ)
	err := dispatch(ctx, e, commands(), "ramus", args)
	if cerr := e.close(); err == nil {
		err = cerr
	}
	return e.report(err)
}

// dispatch finds the command, parses its flags and runs it.
func dispatch(ctx context.Context, e *env, table []command, path string, args []string) error {
	if len(args) == 0 {
		if path == "ramus" {
			overview(e.out)
			return &exitStatus{code: exitUsage}
		}
		return &usageError{"a subcommand is missing: " + strings.Join(names(table), ", "), path}
	}
	name := args[0]
	switch name {
	case "-h", "--help", "help":
		return help(e, table, path, args[1:])
	case "--version":
		name = "version"
	}
	i := slices.IndexFunc(table, func(c command) bool { return c.name == name })
	if i < 0 {
		text := fmt.Sprintf("unknown command %q", strings.TrimPrefix(path+" "+name, "ramus "))
		if near := nearest(name, names(table)); near != "" {
			text += fmt.Sprintf("; did you mean %q?", strings.TrimPrefix(path+" "+near, "ramus "))
		}
		return &usageError{text, path}
	}
	c := table[i]
	path += " " + name
	if c.subs != nil {
		args = args[1:]
		if c.usual != "" && len(args) > 0 && !slices.Contains([]string{"-h", "--help"}, args[0]) &&
			(strings.HasPrefix(args[0], "-") || strings.ContainsAny(args[0], " \n")) {
			args = append([]string{c.usual}, args...)
		}
		return dispatch(ctx, e, c.subs, path, args)
	}
	rest, err := c.parse(e, path, args[1:])
	if errors.Is(err, flag.ErrHelp) {
		c.help(e.out, path)
		return nil
	}
	if err == nil {
		err = c.run(ctx, e, rest)
	}
	var u *usageError
	if errors.As(err, &u) && u.help == "" {
		u.help = path
	}
	return err
}

func names(table []command) []string {
	var list []string
	for _, c := range table {
		list = append(list, c.name)
	}
	return list
}

// flags returns the flags of the command and those of every command.
func (c command) flags(e *env, path string) *flag.FlagSet {
	fs := flag.NewFlagSet(path, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // report prints errors
	fs.StringVar(&e.dataFlag, "data", "", "data `folder` (default $RAMUS_DATA, or ~/.local/share/ramus)")
	fs.StringVar(&e.configFlag, "config", "",
		"configuration `file` (default $RAMUS_CONFIG, or ramus.yaml in the data folder)")
	fs.BoolVar(&e.keep, "keep", false, "keep containers for the next command if this one starts the server itself")
	if c.set != nil {
		c.set(fs, e)
	}
	return fs
}

// parse reads flags and arguments in any order. "--" ends the flags.
func (c command) parse(e *env, path string, args []string) ([]string, error) {
	fs := c.flags(e, path)
	var rest []string
	for {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			text := err.Error()
			if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
				var known []string
				fs.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
				text = fmt.Sprintf("unknown flag --%s", name)
				if near := nearest(name, known); near != "" {
					text += fmt.Sprintf("; did you mean --%s?", near)
				}
			}
			return nil, &usageError{text, path}
		}
		left := fs.Args()
		// flag.Parse stopped at "--" if it is right before the rest.
		if ended := len(args) - len(left); len(left) == 0 || ended > 0 && args[ended-1] == "--" {
			return append(rest, left...), nil
		}
		rest = append(rest, left[0])
		if args = left[1:]; c.rest && len(rest) == 2 {
			return append(rest, args...), nil
		}
	}
}

// want checks the number of arguments.
func want(args []string, least, most int, what string) error {
	switch {
	case len(args) < least:
		return usage("%s is missing", what)
	case len(args) > most:
		return usage("unexpected argument %q", args[most])
	case slices.Contains(args, ""):
		return usage("an argument is empty") // in a path of the API it would make another route
	}
	return nil
}

func overview(w io.Writer) {
	fmt.Fprint(w, `ramus runs commands on a branch of a repository that it serves, in a disposable
container, and commits after every command.

Usage: ramus COMMAND [ARGUMENTS]

`)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-13s %s\n", c.name, c.short)
	}
	fmt.Fprint(w, `
"ramus COMMAND -h" shows the help of a command. Names of callers, runs and commits may
be abbreviated. With RAMUS_URL and RAMUS_TOKEN commands use that server, otherwise
the one of the data folder. If none runs, a command starts its own.
`)
}

// help is `ramus help COMMAND…`.
func help(e *env, table []command, path string, args []string) error {
	for _, name := range args {
		i := slices.IndexFunc(table, func(c command) bool { return c.name == name })
		if i < 0 {
			return &usageError{fmt.Sprintf("unknown command %q", name), path}
		}
		path += " " + name
		if c := table[i]; c.subs == nil {
			c.help(e.out, path)
			return nil
		}
		table = table[i].subs
	}
	if path == "ramus" {
		overview(e.out)
		return nil
	}
	fmt.Fprintf(e.out, "Usage: %s COMMAND [ARGUMENTS]\n\n", path)
	for _, c := range table {
		fmt.Fprintf(e.out, "  %-8s %s\n", c.name, c.short)
	}
	return nil
}

func (c command) help(w io.Writer, path string) {
	fmt.Fprintf(w, "Usage: %s %s\n\n%s\n", path, c.args, sentence(c.short))
	if c.long != "" {
		fmt.Fprintf(w, "\n%s\n", strings.Trim(c.long, "\n"))
	}
	fmt.Fprintln(w, "\nFlags:")
	c.flags(newEnv(stdio{}, nil), path).VisitAll(func(f *flag.Flag) {
		kind, text := flag.UnquoteUsage(f)
		head := "--" + f.Name
		if len(f.Name) == 1 {
			head = head[1:]
		}
		if kind != "" {
			head += " " + kind
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" && !strings.Contains(text, "(default") {
			text += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		fmt.Fprintf(w, "  %-18s %s\n", head, text)
	})
}

func sentence(s string) string {
	return strings.ToUpper(s[:1]) + s[1:] + "."
}
