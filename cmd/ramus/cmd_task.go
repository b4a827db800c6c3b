package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/engineer"
)

func taskCommand() command {
	return command{
		name: "task", args: "submit|status|list|retry|cancel|say",
		short: "submit software tasks to the engineer, and follow them",
		subs: []command{
			taskSubmitCommand(), taskStatusCommand(), taskListCommand(), taskRetryCommand(), taskCancelCommand(),
			taskSayCommand(),
		},
	}
}

func taskSubmitCommand() command {
	var s engineer.Submission
	return command{
		name: "submit", args: "[--repo NAME] [--context TEXT] -- DESCRIPTION…",
		short: "submit a task and print its id",
		long: `
The engineer's agent works on a branch of its own and opens a pull request. It
answers the review until the pull request is merged or closed. The command does
not wait for that. DESCRIPTION "-" reads it from standard input.

  ramus task submit --repo app --context 'src/date.ts, since 2.1' -- \
    Dates before 1970 are shown as 1970. They have to be shown as they are.`,
		rest: true,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&s.Repo, "repo", "", "`name` of the repository (default the engineer's)")
			fs.StringVar(&s.Base, "base", "", "`branch` to start from and to merge into")
			fs.StringVar(&s.Agent, "agent", "", "`name` of the agent (default the engineer's)")
			fs.StringVar(&s.Context, "context", "",
				"`text` with facts for the agent, such as current and wanted behaviour, files")
			fs.StringVar(&s.Key, "key", "",
				"`id` of the submission; a second submission with the same id makes no second task")
			setJSON(fs, e)
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
	}
}

func taskStatusCommand() command {
	return command{
		name: "status", args: "TASK", short: "show one task", set: setJSON,
		run: onTask("TASK", func(ctx context.Context, c *client.Client, id string) (record.Task,
			error) {
			return c.Task(ctx, id)
		}),
	}
}

func taskListCommand() command {
	var (
		filter client.TaskFilter
		all    bool
	)
	return command{
		name: "list", args: "[--repo NAME] [--status STATE] [--all]",
		short: "list tasks that are neither complete nor failed",
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&filter.Repo, "repo", "", "`name` of the only repository to list")
			fs.StringVar(&filter.Status, "status", "",
				"the only `state` to list: submitted, running, awaiting_review, addressing_comments, complete, failed")
			fs.BoolVar(&all, "all", false, "include finished tasks")
			fs.IntVar(&filter.Max, "n", 50, "at most `n` lines")
			setJSON(fs, e)
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 0, "")
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
				rows = append(rows, []string{t.ID, t.Repo, string(t.Status), t.PRURL, e.oneLine(t.Description, 60),
					ago(t.CreatedAt)})
			}
			return e.table([]string{"TASK", "REPO", "STATUS", "PULL REQUEST", "DESCRIPTION", "SUBMITTED"}, rows)
		},
	}
}

func taskRetryCommand() command {
	return command{
		name: "retry", args: "TASK", short: "continue a failed task", set: setJSON,
		run: onTask("TASK", func(ctx context.Context, c *client.Client, id string) (record.Task, error) {
			return c.RetryTask(ctx, id)
		}),
	}
}

func taskCancelCommand() command {
	var drop bool
	return command{
		name: "cancel", args: "TASK [--drop]", short: "end a task and remove its container",
		long: `
Its branch is kept unless --drop is given. Its pull request is not changed.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&drop, "drop", false, "remove the branch too")
			setJSON(fs, e)
		},
		run: onTask("TASK", func(ctx context.Context, c *client.Client, id string) (record.Task, error) {
			return c.CancelTask(ctx, id, drop)
		}),
	}
}

func taskSayCommand() command {
	var key string
	return command{
		name: "say", args: "TASK -- TEXT…", short: "send text to a task, like a comment on its pull request",
		long: `
TEXT "-" reads it from standard input. It is stored when the command returns.`,
		rest: true,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&key, "key", "", "`id` of the text; a second request with the same id adds nothing")
			setJSON(fs, e)
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
			t, err := c.SayTask(ctx, args[0], engineer.TaskMessage{Key: key, Text: text, By: asker(ctx, e)})
			if err != nil {
				return err
			}
			return e.showTask(t)
		},
	}
}

// onTask returns a function that calls do for one task and shows the task.
func onTask(what string, do func(context.Context, *client.Client, string) (record.Task, error)) func(context.Context, *env, []string) error {
	return func(ctx context.Context, e *env, args []string) error {
		c, err := e.clientFor(ctx, args, 1, 1, what)
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

// showTask writes the state of a task.
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
		{"asked by", t.Asker.Name}, {"submitted", ago(t.CreatedAt)}, {"changed", ago(t.UpdatedAt)},
		{"runs", strings.Join(t.Work, " ")},
		{"description", t.Description},
	} {
		if row[1] != "" {
			fmt.Fprintf(e.out, "%-13s %s\n", row[0], e.oneLine(row[1], 500))
		}
	}
	return nil
}
