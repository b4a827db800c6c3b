package main

import (
	"context"
	"flag"
	"fmt"
)

func bgCommand() command {
	var follow bool
	return command{name: "bg", args: "list|logs|stop", short: "list, read and stop background processes of a caller",
		subs: []command{
			{
				name: "list", args: "CALLER", short: "list background processes",
				set: func(fs *flag.FlagSet, e *env) { fs.BoolVar(&e.json, "json", false, "as JSON") },
				run: func(ctx context.Context, e *env, args []string) error {
					c, err := e.clientFor(ctx, args, 1, 1, "CALLER")
					if err != nil {
						return err
					}
					e.conn.leave = true // listing processes must not end them
					list, err := c.Processes(ctx, args[0])
					if err != nil {
						return err
					}
					if e.json {
						return e.writeJSON(list)
					}
					var rows [][]string
					for _, p := range list {
						st := "running"
						if !p.Running {
							st = fmt.Sprintf("exit %d", p.Exit.Code)
						}
						rows = append(rows, []string{p.ID, st, ago(p.Started), p.Line})
					}
					return e.table([]string{"PROCESS", "STATE", "STARTED", "COMMAND"}, rows)
				},
			}, {
				name: "logs", args: "CALLER PROCESS [--follow]", short: "show the output of a background process",
				set: func(fs *flag.FlagSet, _ *env) {
					fs.BoolVar(&follow, "follow", false, "continue until the process ends")
				},
				run: func(ctx context.Context, e *env, args []string) error {
					c, err := e.clientFor(ctx, args, 2, 2, "CALLER or PROCESS")
					if err != nil {
						return err
					}
					e.conn.leave = true
					return c.ProcessOutput(ctx, args[0], args[1], follow, e.out, e.err)
				},
			}, {
				name: "stop", args: "CALLER PROCESS", short: "end a background process",
				run: func(ctx context.Context, e *env, args []string) error {
					c, err := e.clientFor(ctx, args, 2, 2, "CALLER or PROCESS")
					if err != nil {
						return err
					}
					e.conn.leave = true
					return c.StopProcess(ctx, args[0], args[1])
				},
			},
		}}
}
