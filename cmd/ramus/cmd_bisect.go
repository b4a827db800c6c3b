package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/bisect"
	"github.com/ramus-dev/ramus/executor/provenance"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/trial"
	"github.com/ramus-dev/ramus/gateway/past"
)

func bisectCommand() command {
	var (
		b      past.Bisect
		task   string
		asJSON bool
		limit  time.Duration
	)
	return command{
		name: "bisect", args: "CALLER|REF [--good A] [--bad B] -- CMD…",
		short: "find the first commit at which a command fails",
		long: `
Several commits are tried at once, each in a container of its own: 4 commits at once
need at most 4 rounds for 256 steps. Exit status 0 is good, 125 means that the commit
cannot be tried, and 1 to 127 are bad. Results belong to the files of a commit, and are
kept, so nothing is tried twice. The answer is the commit, with its command, its
output, its prompt, its person and its diff. Nothing that exists is changed.

With CALLER the good commit is by default the one from which its branch began, and the
bad one its last. A branch needs --good.

  ramus bisect fancy-mallard -- go test ./...
  ramus bisect main --good v1.2 --task lib_run_tests`,
		rest: true,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.StringVar(&b.Repo, "repo", "", "`name` of the repository (default that of CALLER, or the only one)")
			fs.StringVar(&b.Good, "good", "", "`commit` at which the command succeeds")
			fs.StringVar(&b.Bad, "bad", "", "`commit` at which it fails (default the last one)")
			fs.StringVar(&task, "task", "", "`name` of a task of the library, in place of a command")
			fs.IntVar(&b.Width, "k", 4, "`number` of commits at once, at most 16")
			fs.DurationVar(&limit, "timeout", 0,
				"stop a command after this `duration`; the commit counts as one that cannot be tried")
			fs.BoolVar(&b.Fresh, "fresh", false, "ignore the results of earlier searches")
			fs.BoolVar(&b.Dry, "dry", false, "show the plan and run nothing")
			fs.BoolVar(&asJSON, "json", false, "the answer as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return usage("CALLER or REF is missing")
			}
			b.Of, b.Asker = args[0], asker(ctx, e)
			switch cmd := args[1:]; {
			case task != "" && len(cmd) > 0:
				return usage("--task goes without a command")
			case task != "":
				b.Task = &record.TaskCall{Name: task}
			case len(cmd) == 0:
				return usage("the command is missing: ramus bisect %s -- CMD…", args[0])
			case len(cmd) == 1:
				b.Command = &record.Command{Shell: cmd[0], Timeout: limit}
			default:
				b.Command = &record.Command{Args: cmd, Timeout: limit}
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			found, err := c.Bisect(ctx, b, e.bisectPlan, e.bisectProgress)
			switch {
			case err != nil || b.Dry:
				return err
			case asJSON:
				return e.writeJSON(found)
			}
			e.bisectFound(found)
			return nil
		},
	}
}

// bisectPlan shows a plan on standard error.
func (e *env) bisectPlan(p trial.Plan) {
	fmt.Fprintf(e.err, "%d steps from %s (good) to %s (bad), %d at once, about %d rounds", p.Steps,
		short(string(p.Good)), short(string(p.Bad)), p.Width, p.Rounds)
	if p.Known > 0 {
		fmt.Fprintf(e.err, "; the results of %d are known", p.Known)
	}
	fmt.Fprintln(e.err)
}

// bisectProgress shows a round on standard error.
func (e *env) bisectProgress(p trial.Progress) {
	if !p.Ended {
		fmt.Fprintf(e.err, "round %d, %d steps are left\n", p.Round, p.Left)
		return
	}
	for _, t := range p.Tries {
		result := string(t.Result)
		switch t.Result {
		case bisect.Good:
			result = e.colour(green, result)
		case bisect.Bad:
			result = e.colour(red, result)
		}
		fmt.Fprintf(e.err, "  %s  %-4s  %6s  %s\n", short(string(t.Commit)), result,
			took(time.Duration(t.DurationMS)*time.Millisecond), e.oneLine(t.Why, 120))
	}
}

// bisectFound shows an answer.
func (e *env) bisectFound(f past.BisectFound) {
	if f.First == nil {
		fmt.Fprintf(e.out, "one of %d commits is the first bad one; the others cannot be tried:\n", len(f.Left))
		for _, st := range f.Left {
			fmt.Fprintf(e.out, "  %s\n", st.Commit)
		}
		return
	}
	fmt.Fprintf(e.out, "%s is the first bad commit (%d rounds, %d tries)\n", f.First.Commit, f.Rounds, f.Tries)
	if f.Cause != nil {
		e.cause(*f.Cause, provenance.Line{}, "")
	}
	if f.Try != nil {
		for line := range strings.Lines(f.Try.Stdout + f.Try.Stderr) {
			fmt.Fprintf(e.out, "  %-9s %s\n", "tried", strings.TrimRight(e.safe(line), "\n"))
		}
	}
	if f.Diff != "" {
		w := &diffWriter{e: e}
		_, _ = w.Write([]byte(f.Diff)) // the other lines ignore errors too
		_ = w.Close()
	}
}
