package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/seal"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gitd"
)

func verifyCommand() command {
	var key, since string
	return command{
		name: "verify", args: "REPO|RUN|FILE [--key FILE] [--since LINK] [--json]",
		short: "show whether sealed runs are as they were sealed, and whether one was taken out",
		long: `
Each sealed run is signed, and a link of a signed chain in its repository names it. The
runs are compared with the chain, and their files with their manifests. Everything that
is wrong is named, and the exit status is 1 then.

With --key, FILE is a clone with the refs refs/ramus/*, or a bundle, and no server is
needed. The key is a file of allowed signers, as /.well-known/allowed_signers has it.
--since takes the head that an earlier check printed. A chain that was cut since then
does not contain it.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&key, "key", "", "check a clone or a bundle with the signers in `file`")
			fs.StringVar(&since, "since", "", "a `link` that the chain must contain")
			fs.BoolVar(&e.json, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if key == "" {
				c, err := e.clientFor(ctx, args, 1, 1, "REPO|RUN")
				if err != nil {
					return err
				}
				return e.showReport(verifyNamed(ctx, c, args[0], since))
			}
			if len(args) != 1 {
				return &usageError{"want one FILE with --key", "ramus verify"}
			}
			return e.showReport(verifyFile(ctx, args[0], key, since))
		},
	}
}

// verifyNamed checks a run, or the repository if no run has this name.
func verifyNamed(ctx context.Context, c *client.Client, name, since string) (seal.Report, error) {
	q := past.Verify{Repo: name, Since: gitd.Hash(since)}
	_, err := c.Repo(ctx, name)
	if err != nil {
		if _, e := c.Run(ctx, name); e == nil {
			q.Repo, q.Run = "", name
		}
	}
	return c.Verify(ctx, q)
}

// verifyFile checks the chain of a clone or a bundle with the signers of a file. Files in an artifact store are not here.
func verifyFile(ctx context.Context, file, key, since string) (_ seal.Report, err error) {
	text, err := os.ReadFile(key)
	if err != nil {
		return seal.Report{}, fmt.Errorf("cannot verify %s: %w", file, err)
	}
	signers, err := gitd.ParseSigners(text, seal.Principal)
	if err != nil {
		return seal.Report{}, fmt.Errorf("cannot verify %s: %s: %w", file, key, err)
	}
	if file, err = filepath.Abs(file); err != nil {
		return seal.Report{}, err
	}
	dir, err := os.MkdirTemp("", "ramus-verify-")
	if err != nil {
		return seal.Report{}, err
	}
	defer os.RemoveAll(dir)
	git := &gitd.Server{Root: dir, Log: slog.New(slog.DiscardHandler)}
	if err := git.Open(ctx); err != nil {
		return seal.Report{}, err
	}
	defer func() { err = errors.Join(err, git.Close()) }()
	repo, err := git.ImportRefs(ctx, "clone", gitd.Upstream{URL: file}, "refs/ramus/")
	if err != nil {
		return seal.Report{}, fmt.Errorf("cannot verify %s: %w", file, err)
	}
	check := seal.Check{Repo: repo, Signers: signers, Since: gitd.Hash(since)}
	rep, err := check.Do(ctx)
	rep.Repo = file
	return rep, err
}

// showReport shows a report for people. The exit status is 1 if something is wrong.
func (e *env) showReport(rep seal.Report, err error) error {
	if err != nil {
		return err
	}
	if e.json {
		if err := e.writeJSON(rep); err != nil {
			return err
		}
	} else {
		e.showFaults(e.out, rep)
	}
	if !rep.OK() {
		return &exitStatus{code: 1}
	}
	return nil
}

// showFaults prints the faults of a report, and its numbers.
func (e *env) showFaults(out io.Writer, rep seal.Report) {
	for _, f := range rep.Faults {
		var at []string
		for _, s := range []string{f.Run, string(f.Commit[:min(10, len(f.Commit))]), f.File} {
			if s != "" {
				at = append(at, e.oneLine(s, 300))
			}
		}
		fmt.Fprintf(out, "%s  %s\n  %s\n", e.colour(red, string(f.What)), strings.Join(at, "  "), e.oneLine(f.Text, 500))
	}
	if rep.More > 0 {
		fmt.Fprintf(out, "and %d more\n", rep.More)
	}
	name := rep.Repo
	if rep.Run != "" {
		name += " " + rep.Run
	}
	words := []string{count(rep.Links, "link"), count(rep.Runs, "run"), count(rep.Files, "file")}
	for _, n := range []struct {
		n    int
		text string
	}{{rep.Adopted, "older than the chain"}, {rep.Imported, "imported"}, {rep.Pruned, "pruned"}, {rep.Working, "without a seal"},
		{rep.Hidden, "not shown to you"}, {rep.Elsewhere, "files in an artifact store that is not here"}} {
		if n.n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n.n, n.text))
		}
	}
	verdict := e.colour(green, "verified")
	if !rep.OK() {
		verdict = e.colour(red, fmt.Sprintf("%s wrong", count(len(rep.Faults)+rep.More, "thing")))
	}
	fmt.Fprintf(out, "%s: %s, %s\n", e.oneLine(name, 300), verdict, strings.Join(words, ", "))
	if rep.Head != "" {
		fmt.Fprintf(out, "head %s  %s\n", rep.Head, rep.Last.Local().Format(time.DateTime))
	}
}
