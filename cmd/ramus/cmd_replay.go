package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor/replay"
	"github.com/ramus-dev/ramus/gateway/past"
)

func replayCommand() command {
	var (
		q      past.Replay
		asJSON bool
	)
	return command{
		name: "replay", args: "RUN",
		short: "run the commands of a run again, and compare the results",
		long: `
Each command begins from the commit from which it began the first time, in a new
container. Its files, its exit status and its outputs are compared with those of the
first time, and the first line that differs is shown. The verdict is kept with the run.
Nothing that exists is changed.

Turns of agents, commands that were typed at a terminal, and commands that came with
variables or secrets are left out, because their beginning is not completely recorded.

The exit status is 0 if none of these commands differs, and 1 if one does.`,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.Var((*listFlag)(&q.Steps), "step", "`name` of a step to run again, in place of all; may be repeated")
			fs.IntVar(&q.Times, "times", 1, "`number` of times that each command is run, at most 10")
			fs.IntVar(&q.Width, "k", 4, "`number` of commands at once, at most 16")
			fs.BoolVar(&q.Dry, "dry", false, "show the commands and run nothing")
			fs.BoolVar(&asJSON, "json", false, "the verdict as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "RUN")
			if err != nil {
				return err
			}
			q.Asker = asker(ctx, e)
			var plan []replay.Command
			v, err := c.Replay(ctx, args[0], q, func(list []replay.Command) {
				plan = list
				e.replayPlan(list, q, asJSON)
			}, e.replayDone)
			switch {
			case err == nil && q.Dry && asJSON:
				return e.writeJSON(plan)
			case err != nil || q.Dry:
				return err
			case asJSON:
				err = e.writeJSON(v)
			default:
				e.replayVerdict(v)
			}
			if err == nil && slices.ContainsFunc(v.Commands, func(c replay.Checked) bool {
				return c.Result == replay.Differs && (len(q.Steps) == 0 || slices.Contains(q.Steps, c.Step))
			}) {
				return &exitStatus{code: exitFailed}
			}
			return err
		},
	}
}

// replayPlan shows the commands that will run on standard error. A dry request shows each on standard output, unless that
// has JSON.
func (e *env) replayPlan(list []replay.Command, q past.Replay, asJSON bool) {
	n := 0
	for _, c := range list {
		if c.Why == "" {
			n++
		}
		if q.Dry && !asJSON {
			fmt.Fprintf(e.out, "%s  %s  %s\n", e.oneLine(c.Step, 80), e.oneLine(c.Text, 120), e.oneLine(c.Why, 120))
		}
	}
	fmt.Fprintf(e.err, "running %d of %d commands again, %d at once", n, len(list), q.Width)
	if q.Times > 1 {
		fmt.Fprintf(e.err, ", %d times each", q.Times)
	}
	fmt.Fprintln(e.err)
}

// replayDone shows a command that is done on standard error.
func (e *env) replayDone(c replay.Checked) {
	var spent int64
	for _, t := range c.Tries {
		spent += t.DurationMS
	}
	fmt.Fprintf(e.err, "  %s  %s  %s  %s\n", e.replayResult(c.Result), took(time.Duration(spent)*time.Millisecond),
		e.oneLine(c.Step, 80), e.oneLine(c.Text, 120))
}

func (e *env) replayResult(r replay.Result) string {
	switch r {
	case replay.Differs:
		return e.colour(red, string(r))
	case replay.Same, replay.Reproducible:
		return e.colour(green, string(r))
	}
	return string(r)
}

// replayVerdict shows a verdict.
func (e *env) replayVerdict(v replay.Verdict) {
	for _, c := range v.Commands {
		switch c.Result {
		case replay.Differs:
			fmt.Fprintf(e.out, "%s differs: %s\n", e.oneLine(c.Step, 80), e.oneLine(c.Text, 200))
			for _, d := range c.Differences {
				fmt.Fprintf(e.out, "  %s\n", e.oneLine(d.String(), 600))
			}
		case replay.Left:
			fmt.Fprintf(e.out, "%s was left out: %s\n", e.oneLine(c.Step, 80), e.oneLine(c.Why, 300))
		}
	}
	fmt.Fprintf(e.out, "%s: %d same, %d different, %d left out\n", e.replayResult(v.Result),
		v.Count(replay.Same), v.Count(replay.Differs), v.Count(replay.Left))
}
