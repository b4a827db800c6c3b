package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

func runCommand() command {
	var (
		r                  record.Request
		o                  followOptions
		inputs             inputFlag
		caller             string
		fromBase, detached bool
	)
	return command{
		name: "run", args: "FILE [--repo NAME] [--input K=V]… [--from NODE [--of RUN]]",
		short: "run a workflow and show it line by line",
		long: `
FILE is a workflow on this machine ("-" is standard input), or with --in-repo a
path in the repository's base. The run gets a branch of its own, ramus/run-ID,
with a commit for every command that changed something.

At the end stands what it came to and the line that clones its branch. The exit
status is 0 when the run is complete or waits for a person, 1 when it failed.
An interrupt stops the run; what stands is committed.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&r.Repo, "repo", "", "`name` of the repository (default the workflow's own)")
			fs.StringVar(&r.Base, "base", "", "`branch` to start from (default the workflow's, or the repository's base)")
			fs.Var(&inputs, "input", "`K=V` sets an input to text, K:=JSON to any value; may be repeated")
			fs.StringVar(&r.From, "from", "", "`node` to begin at, with the results before it of --of taken over")
			fs.StringVar(&r.Of, "of", "", "the `run` that is resumed (default the last of this workflow that has ended)")
			fs.StringVar(&caller, "caller", "", "work for this `caller`, on its branch (default a new one)")
			fs.StringVar(&r.Key, "key", "", "`id` of the run; asking twice with the same starts it once")
			fs.BoolVar(&r.CancelPrevious, "cancel-previous", false, "stop runs of the same workflow that still wait or work")
			fs.BoolVar(&fromBase, "in-repo", false, "FILE is a path in the repository's base")
			fs.BoolVar(&detached, "detach", false, "start it and return; needs a server that stays")
			fs.BoolVar(&o.output, "output", false, "show what the commands print")
			fs.BoolVar(&e.json, "json", false, "events as JSON, one a line")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 1, 1, "FILE"); err != nil {
				return err
			}
			if r.Of != "" && r.From == "" {
				return usage("--of needs --from: at which node shall it begin?")
			}
			if fromBase {
				r.File = args[0]
			} else {
				text, err := readInput(e, args[0])
				if err != nil {
					return err
				}
				if len(text) == 0 {
					return &unreadable{fmt.Errorf("%s is empty", args[0])}
				}
				r.Workflow, r.Sub = string(text), subWorkflows(ctx, args[0], text)
			}
			if len(inputs) > 0 {
				r.Input = inputs
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			if detached && e.conn.own != nil {
				return usage("--detach needs a server that stays: start `ramus serve` first")
			}
			if caller != "" {
				st, err := c.Caller(ctx, caller)
				if err != nil {
					return err
				}
				r.Caller, r.Repo = st.Caller, st.Repo
			}
			r.Asker = asker(ctx, e)
			run, err := c.Submit(ctx, r)
			if err != nil {
				return named(err, args[0], fromBase)
			}
			o.json = e.json
			if detached {
				if o.json {
					return e.line(run)
				}
				fmt.Fprintln(e.out, run.Name())
				return nil
			}
			if !o.json {
				fmt.Fprintf(e.out, "%s on %s, branch %s\n", e.colour("1", run.Name()), e.oneLine(run.Repo, 100), run.Branch)
			}
			return follow(ctx, e, c, run, o)
		},
	}
}

// named gives the mistakes of a file that was sent the name that the person knows it by.
func named(err error, name string, fromBase bool) error {
	var p *route.Problem
	if errors.As(err, &p) && !fromBase {
		for i := range p.Problems {
			if p.Problems[i].File == "workflow.yaml" {
				p.Problems[i].File = name
			}
		}
	}
	return err
}

// subWorkflows collects the sub-workflows that lie beside a file and that it
// uses, directly or not. Those that do not are looked for in the repository.
func subWorkflows(ctx context.Context, name string, text []byte) map[string]string {
	found := map[string]string{}
	beside := besides(name)
	load := func(id string) ([]byte, error) {
		b, err := beside(id)
		if err == nil {
			found[id] = string(b)
		}
		return b, err
	}
	// Only for what it asks for: the server, which knows more, finds the mistakes.
	_, _ = workflow.Parse(ctx, name, text, workflow.Options{Load: load, LLM: true})
	return found
}

// inputFlag collects --input.
type inputFlag map[string]any

func (i *inputFlag) String() string { return "" }

// Set reads K=V or K:=JSON.
func (i *inputFlag) Set(s string) error {
	key, text, ok := strings.Cut(s, "=")
	if !ok || key == "" {
		return fmt.Errorf("want K=V or K:=JSON, not %q", s)
	}
	if *i == nil {
		*i = inputFlag{}
	}
	if name, isJSON := strings.CutSuffix(key, ":"); isJSON {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return fmt.Errorf("the value of %s is no JSON: %w", name, err)
		}
		(*i)[name] = v
		return nil
	}
	(*i)[key] = text
	return nil
}

// largestInput bounds files that are sent to a server.
const largestInput = 12 << 20

// readInput reads a file that a person named.
func readInput(e *env, name string) ([]byte, error) {
	in := e.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, &unreadable{fmt.Errorf("cannot read the file: %w", err)}
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, largestInput+1))
	if err != nil {
		return nil, &unreadable{fmt.Errorf("cannot read %s: %w", name, err)}
	}
	if len(b) > largestInput {
		return nil, &unreadable{fmt.Errorf("cannot read %s: it is larger than %d bytes", name, largestInput)}
	}
	return b, nil
}

// asker is who asks, as their git is configured; commits name them as author.
func asker(ctx context.Context, e *env) gitd.Person {
	var p gitd.Person
	for key, into := range map[string]*string{"user.name": &p.Name, "user.email": &p.Email} {
		cmd := exec.CommandContext(ctx, "git", "config", "--get", key)
		cmd.Env = e.environ
		if b, err := cmd.Output(); err == nil { // none is configured, or no git is there
			*into = strings.TrimSpace(string(b))
		}
	}
	if p.Name == "" || p.Email == "" {
		return gitd.Person{}
	}
	return p
}

// absolute makes a path that exists here independent of where we stand.
func absolute(path string) string {
	if _, err := os.Stat(path); err != nil {
		return path
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
