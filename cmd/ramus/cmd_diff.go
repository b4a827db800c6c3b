package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"strings"
)

func diffCommand() command {
	var (
		stat, asJSON bool
		in           string
	)
	return command{
		name: "diff", args: "CALLER [--stat] [--in REPO] [PATH…]",
		short: "show the changes of a caller",
		long: `
The changes are those from the point where the branch left the base to the head of
the branch. In a file or a pipe they are a patch for "git apply" that includes
binary files.`,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.BoolVar(&stat, "stat", false, "show a diffstat instead of a patch")
			fs.StringVar(&in, "in", "", "`name` of an additional repository of the caller (default its own)")
			fs.BoolVar(&asJSON, "json", false, "the changed files as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return usage("CALLER is missing")
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			if in != "" {
				if asJSON {
					return usage("--json goes without --in")
				}
				return diffIn(ctx, e, args, in, stat)
			}
			if asJSON {
				changes, err := c.Changes(ctx, args[0])
				if err != nil {
					return err
				}
				return e.writeJSON(changes)
			}
			if !isTerminal(e.out) {
				return c.Diff(ctx, args[0], stat, args[1:], e.out)
			}
			w := &diffWriter{e: e}
			if err := c.Diff(ctx, args[0], stat, args[1:], w); err != nil {
				return err
			}
			return w.Close()
		},
	}
}

// diffIn shows the changes of a caller in an additional repository.
func diffIn(ctx context.Context, e *env, args []string, repo string, stat bool) error {
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	st, err := c.Caller(ctx, args[0])
	if err != nil {
		return err
	}
	if !isTerminal(e.out) {
		return c.DiffIn(ctx, repo, st.Caller.Branch(), stat, args[1:], e.out)
	}
	w := &diffWriter{e: e}
	if err := c.DiffIn(ctx, repo, st.Caller.Branch(), stat, args[1:], w); err != nil {
		return err
	}
	return w.Close()
}

// diffWriter makes a diff safe for a terminal, because it has text that commands wrote.
type diffWriter struct {
	e    *env
	line bytes.Buffer
}

func (w *diffWriter) Write(b []byte) (int, error) {
	n := len(b)
	for {
		line, rest, found := bytes.Cut(b, []byte("\n"))
		w.line.Write(line)
		if !found {
			return n, nil
		}
		if err := w.flush(); err != nil {
			return n, err
		}
		b = rest
	}
}

func (w *diffWriter) flush() error {
	text := w.e.safe(w.line.String())
	w.line.Reset()
	paint := ""
	switch {
	case strings.HasPrefix(text, "diff "), strings.HasPrefix(text, "+++"), strings.HasPrefix(text, "---"):
		paint = "1"
	case strings.HasPrefix(text, "+"):
		paint = green
	case strings.HasPrefix(text, "-"):
		paint = red
	case strings.HasPrefix(text, "@@"):
		paint = blue
	}
	if paint != "" {
		text = w.e.colour(paint, text)
	}
	_, err := io.WriteString(w.e.out, text+"\n")
	return err
}

// Close writes an incomplete last line.
func (w *diffWriter) Close() error {
	if w.line.Len() == 0 {
		return nil
	}
	return w.flush()
}
