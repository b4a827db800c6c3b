package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
)

func watchCommand() command {
	var output bool
	return command{
		name: "watch", args: "[CALLER]",
		short: "follow the events of all callers, or of one",
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&output, "output", false, "show the output of the commands")
			fs.BoolVar(&e.json, "json", false, "events as JSON, one per line")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 1, "")
			if err != nil {
				return err
			}
			caller := ""
			if len(args) == 1 {
				caller = args[0]
			}
			if e.conn.own != nil {
				fmt.Fprintln(e.err, "ramus: no server was running, so this command starts one and shows the events of other commands meanwhile")
			}
			for ev, err := range c.Watch(ctx, caller) {
				if err != nil {
					return err
				}
				switch {
				case e.json:
					err = e.line(ev)
				case ev.Type == record.EventOutput:
					if output {
						_, err = fmt.Fprint(e.out, e.safe(ev.Message))
					}
				default:
					_, err = fmt.Fprintf(e.out, "%s  %s  %s\n", e.colour(dim, ev.Time.Local().Format("15:04:05")),
						e.colour("1", e.oneLine(ev.Run, 60)), e.oneLine(describe(ev), 160))
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// describe returns an event in one line.
func describe(ev record.Event) string {
	parts := []string{ev.Type, name(ev)}
	switch ev.Type {
	case record.EventStepStarted:
		parts = append(parts, ev.Command, ev.Task)
	case record.EventStepFinished:
		if ev.Exit != nil {
			parts = append(parts, fmt.Sprintf("exit %d", *ev.Exit))
		}
		parts = append(parts, ev.Reason, short(string(ev.Commit)))
	default:
		parts = append(parts, string(ev.State), ev.Reason, ev.Message)
	}
	return strings.Join(parts, " ")
}
