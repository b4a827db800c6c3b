package main

import (
	"context"
	"flag"
	"os/user"

	"github.com/ramus-dev/ramus/executor/record"
)

func approveCommand() command {
	var (
		d      record.Decision
		reject bool
		o      followOptions
	)
	return command{
		name: "approve", args: "RUN [--reject] [--option ID] [--comment TEXT]",
		short: "answer the question of a waiting run, and follow the run",
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&reject, "reject", false, "reject instead of approving")
			fs.StringVar(&d.Option, "option", "", "`id` of the agent's option to choose, which then approves or rejects")
			fs.StringVar(&d.Comment, "comment", "", "`text` that the workflow and people can read")
			fs.StringVar(&d.Step, "step", "", "the `step` that asks, if several do")
			fs.StringVar(&d.By, "by", "", "`name` of the person who answers (default you)")
			fs.BoolVar(&o.output, "output", false, "show the output of the commands")
			fs.BoolVar(&e.json, "json", false, "events as JSON, one per line")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "RUN")
			if err != nil {
				return err
			}
			if d.Option != "" && reject {
				return usage("--option and --reject exclude each other")
			}
			if d.Approved = !reject && d.Option == ""; d.By == "" {
				d.By = asker(ctx, e).Name
			}
			if u, err := user.Current(); d.By == "" && err == nil {
				d.By = u.Username
			}
			before, err := c.Run(ctx, args[0])
			if err != nil {
				return err
			}
			seen, err := c.Journal(ctx, before.Name())
			if err != nil {
				return err
			}
			r, err := c.Decide(ctx, before.Name(), d)
			if err != nil {
				return err
			}
			o.json = e.json
			if len(seen) > 0 {
				o.after = seen[len(seen)-1].Seq
			}
			return follow(ctx, e, c, r, o)
		},
	}
}
