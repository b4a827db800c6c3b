package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/trigger"
)

func triggerCommand() command {
	return command{
		name: "trigger", args: "ls|run|pause|resume", short: "list the triggers of the server, run, pause and resume them",
		subs: []command{
			triggerListCommand(), triggerRunCommand(),
			triggerChangeCommand("pause", "have a trigger start nothing until it is resumed", (*client.Client).PauseTrigger),
			triggerChangeCommand("resume", "resume a paused trigger, and forget its failures",
				(*client.Client).ResumeTrigger),
		},
	}
}

func triggerListCommand() command {
	return command{
		name: "ls", args: "", short: "list triggers, with their states and last runs", set: setJSON,
		long: `
A trigger is paused after three failed runs in a row, and "ramus trigger resume"
resumes it. NEXT is the next time of a schedule.`,
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 0, ""); err != nil {
				return err
			}
			c, err := runningServer(ctx, e)
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := c.Triggers(ctx)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(list)
			}
			var rows [][]string
			for _, s := range list {
				rows = append(rows, triggerRow(e, s))
			}
			return e.table([]string{"TRIGGER", "REPO", "CAUSE", "WORK", "STATE", "NEXT", "LAST RUN", "ENDED"}, rows)
		},
	}
}

func triggerRow(e *env, s trigger.Status) []string {
	text := "ready"
	switch {
	case !s.Paused.IsZero() && s.Failures > 0:
		text = fmt.Sprintf("paused after %d failures", s.Failures)
	case !s.Paused.IsZero():
		text = "paused"
	case s.Active > 0:
		text = fmt.Sprintf("%d at work", s.Active)
	case s.Failures > 0:
		text = fmt.Sprintf("ready, %d failed", s.Failures)
	}
	if s.Refused > 0 {
		text += fmt.Sprintf(", %d events refused", s.Refused)
	}
	next, last, ended := "", "", ""
	if !s.Next.IsZero() {
		next = s.Next.Local().Format("2006-01-02 15:04")
	}
	if s.Last != nil {
		last, ended = s.Last.Name(), state(*s.Last)
	}
	return []string{s.Name, s.Repo, e.oneLine(s.Cause, 60), e.oneLine(s.Work, 60), text, next, last, ended}
}

func triggerRunCommand() command {
	var (
		r      trigger.RunRequest
		values inputFlag
	)
	return command{
		name: "run", args: "NAME [--input K=V]…", short: "start the work of a trigger now, and print its run",
		long: `
It works for a paused trigger too, so that a repair can be tried before it is
resumed. The command does not wait for the work. "ramus follow RUN" shows it.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.Var(&values, "input", "`K=V` sets an input of the workflow to text, K:=JSON to any value; may be repeated")
			fs.StringVar(&r.Key, "key", "", "`id` of the event; a second request with the same id starts nothing")
			setJSON(fs, e)
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 1, 1, "NAME"); err != nil {
				return err
			}
			c, err := runningServer(ctx, e)
			if err != nil {
				return err
			}
			defer c.Close()
			r.Values, r.Asker = values, asker(ctx, e)
			run, err := c.RunTrigger(ctx, args[0], r)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(run)
			}
			fmt.Fprintln(e.out, run.Name())
			return nil
		},
	}
}

// triggerChangeCommand returns a command that changes the state of one trigger.
func triggerChangeCommand(name, short string, change func(*client.Client, context.Context, string) (trigger.Status, error)) command {
	return command{
		name: name, args: "NAME", short: short, set: setJSON,
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 1, 1, "NAME"); err != nil {
				return err
			}
			c, err := runningServer(ctx, e)
			if err != nil {
				return err
			}
			defer c.Close()
			s, err := change(c, ctx, args[0])
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(s)
			}
			if s.Paused.IsZero() {
				fmt.Fprintf(e.out, "%s is ready\n", s.Name)
				return nil
			}
			fmt.Fprintf(e.out, "%s is paused since %s\n", s.Name, s.Paused.Local().Format(time.DateTime))
			return nil
		},
	}
}
