package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/bisect"
	"github.com/ramus-dev/ramus/executor/provenance"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/trial"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/tasks/browser"
)

func bisectCommand() command {
	var (
		b      past.Bisect
		task   string
		spec   string
		region string
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

With --spec a commit is bad if the pictures of a page differ from those of the good
commit. FILE is a spec of a browser check, as in .ramus/browser. The faults that the
browser sees do not count, and --region names the part of the pictures that does.

With CALLER the good commit is by default the one from which its branch began, and the
bad one its last. A branch needs --good.

  ramus bisect fancy-mallard -- go test ./...
  ramus bisect main --good v1.2 --task lib_run_tests
  ramus bisect fancy-mallard --spec page.yaml --region 0,0,1440,80`,
		rest: true,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.StringVar(&b.Repo, "repo", "", "`name` of the repository (default that of CALLER, or the only one)")
			fs.StringVar(&b.Good, "good", "", "`commit` at which the command succeeds")
			fs.StringVar(&b.Bad, "bad", "", "`commit` at which it fails (default the last one)")
			fs.StringVar(&task, "task", "", "`name` of a task of the library, in place of a command")
			fs.StringVar(&spec, "spec", "", "`file` of a browser check, in place of a command")
			fs.StringVar(&region, "region", "", "`left,top,width,height` in CSS pixels: the part of the pictures that counts")
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
			case spec != "" && (task != "" || len(cmd) > 0):
				return usage("--spec goes without a command and without --task")
			case region != "" && spec == "":
				return usage("--region goes with --spec FILE")
			case spec != "":
				text, err := readInput(e, spec)
				if err != nil {
					return err
				}
				if b.Picture, err = readPicture(spec, text, region); err != nil {
					return err
				}
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
			var plan trial.Plan
			found, err := c.Bisect(ctx, b, func(p trial.Plan) { plan = p; e.bisectPlan(p) }, e.bisectProgress)
			switch {
			case err == nil && b.Dry && asJSON:
				return e.writeJSON(plan)
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

// readPicture returns the picture of a spec file, and all its mistakes with their lines.
func readPicture(name string, text []byte, region string) (*trial.Picture, error) {
	if _, err := browser.Parse(name, text); err != nil {
		return nil, usage("%v", err)
	}
	p := &trial.Picture{Spec: string(text)}
	for field := range strings.SplitSeq(region, ",") {
		if region == "" {
			break
		}
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil {
			return nil, usage("--region %s: want left,top,width,height in pixels, like 0,0,1440,80", region)
		}
		p.Region = append(p.Region, n)
	}
	if _, err := p.Task(""); err != nil {
		return nil, usage("--region %s: want left,top,width,height in pixels, like 0,0,1440,80: %v", region, err)
	}
	return p, nil
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
		if f.Try.Why != "" {
			fmt.Fprintf(e.out, "  %-9s %s (%s)\n", "tried", e.oneLine(f.Try.Why, 300), f.Try.Run)
		}
		for line := range strings.Lines(f.Try.Stdout + f.Try.Stderr) {
			fmt.Fprintf(e.out, "  %-9s %s\n", "tried", strings.TrimRight(e.safe(line), "\n"))
		}
	}
	for _, p := range f.Pictures {
		for _, one := range []struct{ name, url string }{{"good", p.Good.URL}, {"bad", p.Bad.URL}, {"both", p.Diff.URL}} {
			if one.url != "" {
				fmt.Fprintf(e.out, "  %-9s %s  %s\n", one.name, e.oneLine(p.Viewport, 100), e.oneLine(one.url, 2000))
			}
		}
	}
	if f.Diff != "" {
		w := &diffWriter{e: e}
		_, _ = w.Write([]byte(f.Diff)) // the other lines ignore errors too
		_ = w.Close()
	}
}
