package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/client"
)

func taskCommand() command {
	var (
		s      gateway.Submission
		filter client.TaskFilter
		all    bool
		drop   bool
		key    string
	)
	asJSON := func(fs *flag.FlagSet, e *env) { fs.BoolVar(&e.json, "json", false, "as JSON") }
	return command{name: "task", args: "submit|status|list|retry|cancel|say", short: "hand software tasks to the engineer, and see what becomes of them", subs: []command{
		{
			name: "submit", args: "[--repo NAME] [--context TEXT] -- DESCRIPTION…",
			short: "hand over a task and print its id",
			long: `
The engineer's agent works on a branch of its own and opens a pull request; it
answers the review until the pull request is merged or closed. The command does
not wait for that. DESCRIPTION "-" reads it from standard input.

  ramus task submit --repo app --context 'src/date.ts, since 2.1' -- \
    Dates before 1970 are shown as 1970. They have to be shown as they are.`,
			rest: true,
			set: func(fs *flag.FlagSet, e *env) {
				fs.StringVar(&s.Repo, "repo", "", "`name` of the repository (default the engineer's)")
				fs.StringVar(&s.Base, "base", "", "`branch` to start from, and to merge into")
				fs.StringVar(&s.Agent, "agent", "", "`name` of the agent (default the engineer's)")
				fs.StringVar(&s.Context, "context", "", "`text` of what the agent should know: current and wanted behaviour, files")
				fs.StringVar(&s.Key, "key", "", "`id` of the submission; submitting twice with the same is one task")
				asJSON(fs, e)
			},
			run: func(ctx context.Context, e *env, args []string) (err error) {
				if s.Description, err = prompt(e, args); err != nil {
					return err
				}
				c, err := e.client(ctx)
				if err != nil {
					return err
				}
				s.Asker = asker(ctx, e)
				t, err := c.SubmitTask(ctx, s)
				if err != nil {
					return err
				}
				if e.json {
					return e.writeJSON(t)
				}
				fmt.Fprintln(e.out, t.ID)
				return nil
			},
		}, {
			name: "status", args: "TASK", short: "show one task", set: asJSON,
			run: onTask("TASK", func(ctx context.Context, c *client.Client, id string) (record.Task, error) { return c.Task(ctx, id) }),
		}, {
			name: "list", args: "[--repo NAME] [--status STATE] [--all]", short: "list tasks that are neither complete nor failed",
			set: func(fs *flag.FlagSet, e *env) {
				fs.StringVar(&filter.Repo, "repo", "", "only of this repository `name`")
				fs.StringVar(&filter.Status, "status", "", "only in this `state`: submitted, running, awaiting_review, addressing_comments, complete, failed")
				fs.BoolVar(&all, "all", false, "those that are over, too")
				fs.IntVar(&filter.Max, "n", 50, "at most `n` lines")
				asJSON(fs, e)
			},
			run: func(ctx context.Context, e *env, args []string) error {
				if err := want(args, 0, 0, ""); err != nil {
					return err
				}
				c, err := e.client(ctx)
				if err != nil {
					return err
				}
				filter.Active = !all && filter.Status == ""
				list, err := c.Tasks(ctx, filter)
				if err != nil {
					return err
				}
				if e.json {
					return e.writeJSON(list)
				}
				var rows [][]string
				for _, t := range list {
					rows = append(rows, []string{t.ID, t.Repo, string(t.Status), t.PRURL, e.oneLine(t.Description, 60), ago(t.CreatedAt)})
				}
				return e.table([]string{"TASK", "REPO", "STATUS", "PULL REQUEST", "DESCRIPTION", "SUBMITTED"}, rows)
			},
		}, {
			name: "retry", args: "TASK", short: "take a failed task up again where it stands", set: asJSON,
			run: onTask("TASK", func(ctx context.Context, c *client.Client, id string) (record.Task, error) {
				return c.RetryTask(ctx, id)
			}),
		}, {
			name: "cancel", args: "TASK [--drop]", short: "end a task and remove its container",
			long: `
Its branch is kept unless --drop is given; its pull request stays as it is.`,
			set: func(fs *flag.FlagSet, e *env) {
				fs.BoolVar(&drop, "drop", false, "remove the branch, too")
				asJSON(fs, e)
			},
			run: onTask("TASK", func(ctx context.Context, c *client.Client, id string) (record.Task, error) {
				return c.CancelTask(ctx, id, drop)
			}),
		}, {
			name: "say", args: "TASK -- TEXT…", short: "give a task something more to do, as a comment on its pull request would",
			long: `
TEXT "-" reads it from standard input. It is kept when the command returns.`,
			rest: true,
			set: func(fs *flag.FlagSet, e *env) {
				fs.StringVar(&key, "key", "", "`id` of what is said; saying it twice with the same says it once")
				asJSON(fs, e)
			},
			run: func(ctx context.Context, e *env, args []string) error {
				if len(args) == 0 || args[0] == "" {
					return usage("TASK is missing")
				}
				text, err := prompt(e, args[1:])
				if err != nil {
					return err
				}
				c, err := e.client(ctx)
				if err != nil {
					return err
				}
				t, err := c.SayTask(ctx, args[0], gateway.TaskMessage{Key: key, Text: text, By: asker(ctx, e)})
				if err != nil {
					return err
				}
				return e.showTask(t)
			},
		},
	}}
}

// onTask is a command that does one thing with one task and shows how it stands then.
func onTask(what string, do func(context.Context, *client.Client, string) (record.Task, error)) func(context.Context, *env, []string) error {
	return func(ctx context.Context, e *env, args []string) error {
		if err := want(args, 1, 1, what); err != nil {
			return err
		}
		c, err := e.client(ctx)
		if err != nil {
			return err
		}
		t, err := do(ctx, c, args[0])
		if err != nil {
			return err
		}
		return e.showTask(t)
	}
}

// showTask writes how a task stands.
func (e *env) showTask(t record.Task) error {
	if e.json {
		return e.writeJSON(t)
	}
	pr := t.PRURL
	if pr != "" && t.PRNumber > 0 {
		pr += " (#" + strconv.Itoa(t.PRNumber) + ")"
	}
	if t.Approved {
		pr += ", approved"
	}
	for _, row := range [][2]string{
		{"task", t.ID}, {"status", string(t.Status)}, {"error", t.Error}, {"pull request", pr},
		{"repository", t.Repo}, {"branch", t.Branch}, {"base", t.Base}, {"agent", t.AgentID}, {"parent", t.Parent},
		{"asked by", t.Asker.Name}, {"submitted", ago(t.CreatedAt)}, {"changed", ago(t.UpdatedAt)}, {"runs", strings.Join(t.Work, " ")},
		{"description", t.Description},
	} {
		if row[1] != "" {
			fmt.Fprintf(e.out, "%-13s %s\n", row[0], e.oneLine(row[1], 500))
		}
	}
	return nil
}
