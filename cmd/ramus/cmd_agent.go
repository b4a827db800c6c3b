package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/client"
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
		short: "let a coding agent work for a caller, and show it",
		long: `
CALLER is a run or a conversation, or any unique part of its name. With --repo it
is a whole name, and "new", or a name that is free, begins a new caller there.
PROMPT is what the agent is told; "-" reads it from standard input. Which agents
there are stands in the configuration, under "agents".

What the agent changes is committed after every turn; what is said to it
meanwhile (ramus say) is its next turn; after the last one come the agent's
checks. An interrupt stops it.

  ramus agent new --repo app -- make the tests pass
  ramus agent fancy-mallard -- now do the same for the other package`,
		rest: true,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&r.Repo, "repo", "", "`name` of the repository of a new caller")
			fs.StringVar(&r.Base, "base", "", "`branch` that a new caller starts from")
			fs.Var(&forkFlag{&r.Fork}, "fork", "`CALLER[@COMMIT]` that a new caller starts from, with what its agents remember")
			fs.StringVar(&call.Name, "agent", "", "`name` of the agent (default the only one)")
			fs.StringVar(&r.Key, "key", "", "`id` of the run; asking twice with the same starts it once")
			fs.BoolVar(&detached, "detach", false, "start it and return; needs a server that stays")
			fs.BoolVar(&o.output, "output", true, "show what the agent prints")
			fs.BoolVar(&e.json, "json", false, "events as JSON, one a line")
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
				return usage("--detach needs a server that stays: start `ramus serve` first")
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
	return command{
		name: "say", args: "RUN -- TEXT…",
		short: "say something to the agent of a run, for its next turn",
		long: `
TEXT "-" reads it from standard input. It is kept when the command returns; when
the agent has had its last turn already, it is refused: ramus agent CALLER begins
a new run.`,
		rest: true,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&key, "key", "", "`id` of what is said; saying it twice with the same says it once")
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
			_, err = c.Say(ctx, args[0], record.Prompt{Key: key, Text: text, By: asker(ctx, e)})
			return err
		},
	}
}

// prompt is what a person says on a command line.
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

// callerOf makes a request one of the caller that a person named.
func callerOf(ctx context.Context, c *client.Client, name string, r *record.Request) error {
	if name == gateway.NewCaller {
		return nil
	}
	st, err := c.Caller(ctx, name)
	begin := r.Repo != "" || r.Fork != nil
	var p *route.Problem
	switch {
	case err == nil && begin && !st.Caller.Is(name):
		// It is another's name, which is only longer.
	case err == nil && r.Repo != "" && r.Repo != st.Repo:
		return usage("%s works on repository %s, not on %s", st.Caller, st.Repo, r.Repo)
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
