package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/tournament"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gitd"
)

func tournamentCommand() command {
	return command{
		name: "tournament", args: "begin|show|list|judge|take",
		short: "have several agents do one task side by side, and take the best result",
		subs: []command{tournamentBeginCommand(), tournamentShowCommand(), tournamentListCommand(), tournamentJudgeCommand(),
			tournamentTakeCommand()},
		usual: "begin",
	}
}

func tournamentBeginCommand() command {
	var (
		q        past.Tournament
		agents   string
		detached bool
	)
	return command{
		name: "begin", args: "TASK --agents A,B [-n N] [--of CALLER[@STEP]]",
		short: "have several agents do one task side by side",
		long: `
Each agent works N times, each time in a new caller that begins at the same commit: the
newest of the base, or that of --of. The entries are shown first, and ranked by
evidence at the end: the verdict, the checks, the size of the diff, the cost, and the
time. An entry that changed nothing comes after all that changed something and did not
fail. If a model is configured (llm), its opinion is shown at the end. It orders only
entries that are equal by evidence. TASK "-" reads the task from standard input. An interrupt ends the display, and
the entries go on. The word "begin" may be left out if TASK has a space.

  ramus tournament "make the tests pass" --agents claude,codex -n 2 --check lib_run_lint
  ramus tournament take calm-owl 3 --drop`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&agents, "agents", "", "`names` of the agents, separated by commas (default the only one)")
			fs.IntVar(&q.Each, "n", 1, "`number` of entries of each agent; at most 12 entries in all")
			fs.StringVar(&q.Of, "of", "", "`CALLER[@STEP|@COMMIT]` from which all entries are forked")
			fs.StringVar(&q.Repo, "repo", "", "`name` of the repository (default the caller's, or the only one)")
			fs.StringVar(&q.Base, "base", "", "`branch` from which the entries start")
			fs.Var((*listFlag)(&q.Checks), "check",
				"`name` of a task that checks each entry, in addition to the checks of the repository; may be repeated")
			fs.StringVar(&q.Name, "name", "", "`name` of the tournament, which begins those of its callers")
			fs.BoolVar(&q.Dry, "dry", false, "show the entries and run nothing")
			fs.BoolVar(&detached, "detach", false, "start the entries and return; needs a running server")
			setJSON(fs, e)
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "TASK")
			if err != nil {
				return err
			}
			if detached && e.conn.own != nil {
				return usage("--detach needs a running server: start `ramus serve` first")
			}
			if q.Task, err = prompt(e, args); err != nil {
				return err
			}
			if agents != "" {
				q.Agents = strings.Split(agents, ",")
			}
			q.Asker = asker(ctx, e)
			dry := q.Dry
			q.Dry = true
			plan, err := c.BeginTournament(ctx, q)
			if err != nil {
				return err
			}
			if dry && e.json {
				return e.writeJSON(plan)
			}
			e.tournamentPlan(plan)
			if dry {
				return nil
			}
			q.Dry, q.Name = false, plan.Name
			s, err := c.BeginTournament(ctx, q)
			if err == nil && !detached {
				if s, err = c.FollowTournament(ctx, s.Name, e.entryMoved); err == nil && s.Ended {
					s, err = c.JudgeTournament(ctx, s.Name)
				}
			}
			if err != nil {
				return err
			}
			if detached && !e.json {
				fmt.Fprintln(e.out, s.Name)
				return nil
			}
			return e.tournamentStanding(s)
		},
	}
}

func tournamentShowCommand() command {
	var follow bool
	return command{
		name: "show", args: "NAME [--follow]",
		short: "show the entries of a tournament, ranked by evidence",
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&follow, "follow", false, "wait until all entries have ended")
			setJSON(fs, e)
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "NAME")
			if err != nil {
				return err
			}
			var s tournament.Standing
			if follow {
				s, err = c.FollowTournament(ctx, args[0], e.entryMoved)
			} else {
				s, err = c.Tournament(ctx, args[0])
			}
			if err != nil {
				return err
			}
			return e.tournamentStanding(s)
		},
	}
}

func tournamentListCommand() command {
	return command{
		name: "list", args: "[REPO]",
		short: "list the tournaments, the newest first",
		set:   setJSON,
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 1, "[REPO]")
			if err != nil {
				return err
			}
			list, err := c.Tournaments(ctx, strings.Join(args, ""))
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(list)
			}
			var rows [][]string
			for _, r := range list {
				rows = append(rows, []string{r.Name, e.oneLine(r.Repo, 100), fmt.Sprint(len(r.Entries)), ago(r.Time), r.Taken.ID(),
					e.oneLine(r.Task, 60)})
			}
			return e.table([]string{"NAME", "REPO", "ENTRIES", "AGE", "TAKEN", "TASK"}, rows)
		},
	}
}

func tournamentJudgeCommand() command {
	return command{
		name: "judge", args: "NAME",
		short: "ask the configured model about the entries of a tournament",
		long: `
The model (llm in the configuration) gets the task, the results of the checks and the
diffs, without the names of the agents. Its words are an opinion. They order only
entries that are equal by evidence. An opinion counts until an entry changes.`,
		set: setJSON,
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "NAME")
			if err != nil {
				return err
			}
			s, err := c.JudgeTournament(ctx, args[0])
			if err != nil {
				return err
			}
			return e.tournamentStanding(s)
		},
	}
}

func tournamentTakeCommand() command {
	var (
		q        past.Take
		strategy string
	)
	return command{
		name: "take", args: "NAME ENTRY [--drop]",
		short: "merge an entry of a tournament",
		long: `
ENTRY is the number of an entry, or its caller. It is merged into the base as by "ramus
merge". If the tournament was forked from a caller, that one goes back to the commit of
the fork and gets the entry by a merge; its own later commits stay in its history.
With --drop the branches of the other entries are removed. Their runs stay. The same
command with --drop removes them later. All of it is shown first.

A conflict changes nothing, and the exit status is 4.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&q.Drop, "drop", false, "remove the branches of the other entries")
			fs.BoolVar(&q.Dry, "dry", false, "show what would be merged and removed, and change nothing")
			fs.StringVar(&q.Into, "into", "", "target `branch` (default the base, or the branch of the caller)")
			fs.StringVar(&strategy, "strategy", "", "rebase, merge, squash or ff (default rebase)")
			fs.BoolVar(&q.Here, "here", false, "merge in this server alone, although the repository has an upstream")
			setJSON(fs, e)
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 2, 2, "NAME or ENTRY")
			if err != nil {
				return err
			}
			q.Entry, q.Strategy, q.By = args[1], gitd.Strategy(strategy), asker(ctx, e)
			plan := q
			plan.Dry = true
			took, err := c.TakeEntry(ctx, args[0], plan)
			if err != nil {
				return err
			}
			e.takePlan(took)
			if !q.Dry {
				if took, err = c.TakeEntry(ctx, args[0], q); err != nil {
					return err
				}
			}
			if e.json {
				if err := e.writeJSON(took); err != nil {
					return err
				}
			}
			switch {
			case took.InTheWay():
				if !e.json {
					printConflicts(e, *took.Landed)
				}
				return &exitStatus{code: exitInTheWay}
			case e.json || q.Dry:
				return nil
			}
			fmt.Fprintf(e.out, "%s: %s\n", took.Entry.ID(), e.oneLine(took.Landed.String(), 1000*(1+len(took.Landed.With))))
			for _, one := range took.Dropped {
				fmt.Fprintf(e.out, "dropped %s\n", one.ID())
			}
			return nil
		},
	}
}

// takePlan shows on standard error the changes of taking an entry.
func (e *env) takePlan(t past.Took) {
	back := ""
	if t.BackTo != "" {
		back = ", which goes back to " + short(string(t.BackTo)) + " first"
	}
	fmt.Fprintf(e.err, "taking %s of %s into %s%s\n", t.Entry.ID(), e.oneLine(t.Agent, 80), e.oneLine(t.Into, 100), back)
	for _, one := range t.Dropped {
		fmt.Fprintf(e.err, "  its branch goes: %s\n", one.ID())
	}
}

// tournamentPlan shows the entries that will begin on standard error.
func (e *env) tournamentPlan(s tournament.Standing) {
	from := s.Base
	if s.Of != "" {
		from = s.Of
	}
	fmt.Fprintf(e.err, "%s on %s, %s from %s of %s\n", s.Name, e.oneLine(s.Repo, 100), plural(len(s.Entries), "entry", "entries"),
		short(string(s.At)), e.oneLine(from, 100))
	for _, one := range s.Entries {
		fmt.Fprintf(e.err, "  %s  %s\n", one.Caller.ID(), one.Agent)
	}
}

// entryMoved shows an entry that began or ended on standard error.
func (e *env) entryMoved(r tournament.Result) {
	fmt.Fprintf(e.err, "  %s  %s  %s\n", r.Caller.ID(), r.Agent, e.entryState(r))
}

// entryState returns the verdict of an entry, or its state if it has none.
func (e *env) entryState(r tournament.Result) string {
	state := cmp.Or(string(r.Verdict), string(r.State), "not begun")
	switch {
	case r.Refused != "":
		return e.colour(red, "refused")
	case r.Verdict == record.VerdictFailed:
		return e.colour(red, state)
	case r.Verdict == record.VerdictVerified:
		return e.colour(green, state)
	case r.State == record.StateAwaitingReview:
		return "waits for a person"
	}
	return state
}

// tournamentStanding shows the places of a tournament.
func (e *env) tournamentStanding(s tournament.Standing) error {
	if e.json {
		return e.writeJSON(s)
	}
	var rows [][]string
	for _, p := range s.Places {
		row := []string{"", p.Caller.ID(), p.Agent, e.entryState(p.Result), "", "", "", "", string(p.By)}
		if p.Place > 0 {
			row[0] = fmt.Sprint(p.Place)
			row[4] = checksOf(p.Result)
			row[5] = fmt.Sprintf("%s +%d -%d", count(p.Files, "file"), p.Added, p.Deleted)
			row[7] = took(time.Duration(p.DurationMS) * time.Millisecond)
		}
		if p.CostMicros > 0 {
			row[6] = fmt.Sprintf("%.2f", float64(p.CostMicros)/1e6)
		}
		if p.Caller == s.Taken {
			row[8] = strings.TrimPrefix(row[8]+", taken", ", ")
		}
		if p.Dropped {
			row[8] = strings.TrimPrefix(row[8]+", dropped", ", ")
		}
		rows = append(rows, row)
	}
	if err := e.table([]string{"PLACE", "ENTRY", "AGENT", "VERDICT", "CHECKS", "DIFF", "COST", "TIME", "DECIDED BY"}, rows); err != nil {
		return err
	}
	for _, p := range s.Places {
		if p.Error != "" {
			fmt.Fprintf(e.out, "%s: %s\n", p.Caller.ID(), e.oneLine(p.Error, 300))
		}
	}
	if o := s.Opinion; o != nil {
		var order []string
		for _, c := range o.Order {
			order = append(order, c.ID())
		}
		fmt.Fprintf(e.out, "opinion of a model, no evidence: %s\n  %s\n", strings.Join(order, ", "), e.oneLine(o.Words, 2000))
	}
	if s.Unjudged != "" {
		fmt.Fprintf(e.err, "no opinion of the model: %s\n", e.oneLine(s.Unjudged, 500))
	}
	return nil
}

// checksOf returns the numbers of an entry's checks.
func checksOf(r tournament.Result) string {
	var parts []string
	if r.Passed > 0 {
		parts = append(parts, fmt.Sprintf("%d passed", r.Passed))
	}
	if r.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", r.Failed))
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}
