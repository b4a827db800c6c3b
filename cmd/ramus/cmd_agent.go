package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
)

func agentCommand() command {
	var (
		r        record.Request
		call     record.AgentCall
		detached bool
		o        followOptions
	)
	return command{
		name: "agent", args: "CALLER [--repo NAME] [--agent NAME] -- PROMPT…",
		short: "run a coding agent for a caller, and show its work",
		long: `
CALLER is a run or a conversation, or any unique part of its name. With --repo it
is a complete name, and "new", or a name that is not taken, makes a new caller.
PROMPT is the text for the agent. "-" reads it from standard input. The section
"agents" of the configuration has the agents.

The changes of the agent are committed after every turn. Text that arrives
meanwhile (ramus say) is its next turn. The agent's checks run after the last
turn. An interrupt stops the run.

With --plan the first turn makes a plan, and its changes are thrown away. The run
shows the plan and waits for ramus approve. --comment has remarks for the agent.

  ramus agent new --repo app -- make the tests pass
  ramus agent fancy-mallard -- now do the same for the other package`,
		rest: true,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&r.Repo, "repo", "", "`name` of the repository of a new caller")
			fs.StringVar(&r.Base, "base", "", "`branch` from which a new caller starts")
			fs.Var(&forkFlag{&r.Fork}, "fork",
				"`CALLER[@COMMIT]`, or CALLER@STEP, from which a new caller starts, with the memory of its agents")
			fs.StringVar(&call.Name, "agent", "", "`name` of the agent (default the only one)")
			fs.BoolVar(&call.Plan, "plan", false, "make a plan first, and work once a person has approved it")
			fs.StringVar(&r.Key, "key", "", "`id` of the run; a second request with the same id starts no second run")
			setWith(fs, &r.With)
			setGroup(fs, &r.Group, &r.CancelPrevious)
			setHanded(fs, e, &r.Secrets)
			fs.BoolVar(&detached, "detach", false, "start the run and return; needs a running server")
			fs.BoolVar(&o.output, "output", true, "show the output of the agent")
			fs.BoolVar(&e.json, "json", false, "events as JSON, one per line")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return usage("CALLER is missing")
			}
			var err error
			if call.Prompt, err = prompt(e, args[1:]); err != nil {
				return err
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			if detached && e.conn.own != nil {
				return usage("--detach needs a running server: start `ramus serve` first")
			}
			if err := callerOf(ctx, c, args[0], &r); err != nil {
				return err
			}
			r.Agent, r.Asker = &call, asker(ctx, e)
			run, err := c.Submit(ctx, r)
			if err != nil {
				return err
			}
			o.json, o.turns = e.json, true
			switch {
			case detached && o.json:
				return e.line(run)
			case detached:
				fmt.Fprintln(e.out, run.Name())
				return nil
			case !o.json:
				fmt.Fprintf(e.out, "%s on %s, branch %s\n", e.colour("1", run.Name()), e.oneLine(run.Repo, 100), run.Branch)
			}
			return follow(ctx, e, c, run, o)
		},
	}
}

func sayCommand() command {
	var key string
	var now bool
	return command{
		name: "say", args: "RUN [--now] -- TEXT…",
		short: "send text to the agent of a run, for its next turn",
		long: `
TEXT "-" reads it from standard input. It is stored when the command returns. It is
refused after the agent's last turn. Then ramus agent CALLER starts a new run.

With --now an agent that supports it takes the text into its turn. The turn of any
other agent is ended, its changes are committed, and the next turn has the text.`,
		rest: true,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&key, "key", "", "`id` of the text; a second request with the same id adds nothing")
			fs.BoolVar(&now, "now", false, "say it at once, before all that waits")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return usage("RUN is missing")
			}
			text, err := prompt(e, args[1:])
			if err != nil {
				return err
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			_, err = c.Say(ctx, args[0], record.Prompt{Key: key, Text: text, Now: now, By: asker(ctx, e), From: "cli"})
			return err
		},
	}
}

// prompt returns the text on a command line. The single word "-" means standard input.
func prompt(e *env, words []string) (string, error) {
	text := strings.Join(words, " ")
	if len(words) == 1 && words[0] == "-" {
		b, err := readInput(e, "-")
		if err != nil {
			return "", err
		}
		text = string(b)
	}
	if strings.TrimSpace(text) == "" {
		return "", usage("the text is missing")
	}
	return text, nil
}

// callerOf sets the caller of a request from a name that a person gave.
func callerOf(ctx context.Context, c *client.Client, name string, r *record.Request) error {
	if name == lookup.NewCaller {
		return nil
	}
	st, err := c.Caller(ctx, name)
	begin := r.Repo != "" || r.Fork != nil
	var p *route.Problem
	switch {
	case err == nil && begin && !st.Caller.Is(name):
		// The name is only a prefix of another caller's, so it is free.
	case err == nil && r.Repo != "" && r.Repo != st.Repo:
		return usage("%s works on repository %s, not on %s; leave --repo out, or give the caller another name", st.Caller, st.Repo,
			r.Repo)
	case err == nil:
		r.Caller, r.Repo = st.Caller, st.Repo
		return nil
	case !begin || !errors.As(err, &p) || p.Kind != route.KindNotFound && p.Kind != route.KindAmbiguous:
		return err
	}
	if !strings.Contains(name, ":") {
		name = "run:" + name
	}
	r.Caller, err = record.ParseCaller(name)
	return err
}
