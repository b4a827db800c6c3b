package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/client"
)

func psCommand() command {
	var (
		f    client.Filter
		runs bool
		used bool
	)
	return command{
		name: "ps", args: "[--repo NAME] [--live] [--runs] [--limits]",
		short: "list callers, or their runs, with their states",
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&f.Repo, "repo", "", "`name` of the only repository to list")
			fs.StringVar(&f.Caller, "caller", "", "the only `caller` to list")
			fs.StringVar(&f.State, "state", "",
				"the only `state` to list: submitted, running, awaiting_review, addressing_comments, complete, failed")
			fs.BoolVar(&f.Live, "live", false, "leave out what has ended")
			fs.BoolVar(&runs, "runs", false, "list runs instead of callers")
			fs.BoolVar(&used, "limits", false, "list how much of their quotas people and repositories use")
			fs.IntVar(&f.Max, "n", 50, "at most `n` lines")
			fs.BoolVar(&e.json, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 0, "")
			if err != nil {
				return err
			}
			if used {
				return listQuotas(ctx, e, c)
			}
			if runs {
				list, err := c.Runs(ctx, f)
				if err != nil {
					return err
				}
				if e.json {
					return e.writeJSON(list)
				}
				var rows [][]string
				for _, r := range list {
					rows = append(rows, []string{r.Name(), r.Repo, state(r), work(r), ago(r.CreatedAt)})
				}
				return e.table([]string{"RUN", "REPO", "STATE", "WORK", "CREATED"}, rows)
			}
			list, err := c.Callers(ctx, f)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(list)
			}
			head := []string{"CALLER", "REPO", "HEAD", "STATE", "LAST", "CONTAINER", "ACTIVE"}
			if slices.ContainsFunc(list, func(st executor.CallerStatus) bool { return st.Kept != "" }) {
				head = append(head, "KEPT")
			}
			var rows [][]string
			for _, st := range list {
				container, kept := "", ""
				if st.Kept != "" { // in the form of --fork
					kept = st.Caller.String() + "@" + short(string(st.Kept))
				}
				if st.Container != nil {
					container = st.Container.State
				}
				rows = append(rows, []string{st.Caller.String(), st.Repo, short(string(st.Head)), state(st.Last),
					work(st.Last), container, ago(latest(st.Last)), kept})
			}
			return e.table(head, rows)
		},
	}
}

// state returns a run's state, with the reason for a bad one.
func state(r record.Run) string {
	switch {
	case r.Reason != "":
		return string(r.State) + ": " + string(r.Reason)
	case r.Place > 0:
		return "queued"
	}
	return string(r.State)
}

// work returns a short description of a run's work, and its trigger.
func work(r record.Run) string {
	if name := r.Trigger(); name != "" {
		return workAlone(r) + " (trigger " + name + ")"
	}
	return workAlone(r)
}

func workAlone(r record.Run) string {
	switch {
	case r.Command != "":
		return r.Command
	case r.Task != nil:
		return r.Task.Name
	case r.Gate != nil:
		return r.Workflow + " at " + r.Gate.Step
	case r.Workflow != "" && r.Step != "" && !r.Ended():
		return r.Workflow + " at " + r.Step
	}
	return r.Workflow
}

// latest returns the time of the last change of a run.
func latest(r record.Run) time.Time {
	for _, t := range []time.Time{r.EndedAt, r.StartedAt} {
		if !t.IsZero() {
			return t
		}
	}
	return r.CreatedAt
}

// listQuotas prints how much of their quotas people and repositories use.
func listQuotas(ctx context.Context, e *env, c *client.Client) error {
	list, err := c.Quotas(ctx)
	if err != nil {
		return err
	}
	if e.json {
		return e.writeJSON(list)
	}
	of := func(n, most int) string {
		if most == 0 {
			return strconv.Itoa(n)
		}
		return fmt.Sprintf("%d of %d", n, most)
	}
	var rows [][]string
	for _, u := range list {
		cost := fmt.Sprintf("%.2f", float64(u.CostMicros)/1e6)
		if u.Rule.CostMicros > 0 {
			cost += fmt.Sprintf(" of %.2f", float64(u.Rule.CostMicros)/1e6)
		}
		rows = append(rows, []string{u.Kind, u.Name, of(u.Callers, u.Rule.Callers), of(u.Runs, u.Rule.Runs),
			of(u.Queue, u.Rule.Queue), cost})
	}
	return e.table([]string{"KIND", "NAME", "CALLERS", "RUNS", "QUEUED", "COST"}, rows)
}
