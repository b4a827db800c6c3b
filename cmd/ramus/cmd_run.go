package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/client"
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
		name: "run", args: "[FILE] [--repo NAME] [--input K=V]… [--from NODE [--of RUN]]",
		short: "run a workflow and show its progress",
		long: `
FILE is a workflow on this machine ("-" is standard input), or with --in-repo a
path in the repository's base. The run gets a branch of its own, ramus/run-ID,
with a commit for every command that changed files.

With --of and --from the workflow of that run begins again at a node or a step, and
needs no FILE. The results of the steps before it are taken over.

The command prints the result at the end, and the line that clones the branch. The
exit status is 0 if the run is complete or waits for a person, and 1 if it failed.
An interrupt stops the run and commits its changes so far.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&r.Repo, "repo", "", "`name` of the repository (default the workflow's own)")
			fs.StringVar(&r.Base, "base", "",
				"`branch` from which the run starts (default the workflow's, or the repository's base)")
			fs.Var(&inputs, "input", "`K=V` sets an input to text, K:=JSON to any value; may be repeated")
			fs.StringVar(&r.From, "from", "", "`node` to start at, with the earlier results of the run --of")
			fs.StringVar(&r.Of, "of", "", "the `run` to resume (default the last ended run of this workflow)")
			fs.StringVar(&caller, "caller", "", "`caller` to work for, on its branch (default a new one)")
			fs.StringVar(&r.Key, "key", "", "`id` of the run; a second request with the same id starts no second run")
			setFresh(fs, &r.Fresh)
			setWith(fs, &r.With)
			setGroup(fs, &r.Group, &r.CancelPrevious)
			setHanded(fs, e, &r.Secrets)
			fs.BoolVar(&fromBase, "in-repo", false, "read FILE from the repository's base")
			fs.BoolVar(&detached, "detach", false, "start the run and return; needs a running server")
			fs.BoolVar(&o.output, "output", false, "show the output of the commands")
			fs.BoolVar(&e.json, "json", false, "events as JSON, one per line")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if r.Of != "" && r.From == "" {
				return usage("--of needs --from, the node to start at")
			}
			least := 1
			if r.Of != "" && r.From != "" {
				least = 0
			}
			if err := want(args, least, 1, "FILE"); err != nil {
				return err
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
				if err := setWorkflow(ctx, e, &r, name, fromBase); err != nil {
					return err
				}
			}
			if len(inputs) > 0 {
				r.Input = inputs
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			if detached && e.conn.own != nil {
				return usage("--detach needs a running server: start `ramus serve` first")
			}
			if err := setCaller(ctx, c, &r, caller); err != nil {
				return err
			}
			r.Asker = asker(ctx, e)
			run, err := c.Submit(ctx, r)
			if err != nil {
				return withName(err, name, fromBase)
			}
			o.json = e.json
			if detached {
				return e.begun(run)
			}
			if !o.json {
				fmt.Fprintf(e.out, "%s on %s, branch %s\n", e.colour("1", run.Name()), e.oneLine(run.Repo, 100), run.Branch)
			}
			return follow(ctx, e, c, run, o)
		},
	}
}

// setWorkflow sets the workflow of a request: a file of the base, or a local one with its sub-workflows.
func setWorkflow(ctx context.Context, e *env, r *record.Request, name string, fromBase bool) error {
	if fromBase {
		r.File = name
		return nil
	}
	text, err := readInput(e, name)
	if errors.Is(err, fs.ErrNotExist) {
		return &unreadable{fmt.Errorf("%w; --in-repo reads a file of the repository's base", err)}
	}
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return &unreadable{fmt.Errorf("%s is empty", name)}
	}
	r.Workflow, r.Sub = string(text), subWorkflows(ctx, name, text)
	return nil
}

// setCaller sets the caller of a request. name is that of an existing caller, or empty.
func setCaller(ctx context.Context, c *client.Client, r *record.Request, name string) error {
	if name == "" {
		return nil
	}
	st, err := c.Caller(ctx, name)
	if err != nil {
		return err
	}
	r.Caller, r.Repo = st.Caller, st.Repo
	return nil
}

// begun prints a run that nobody waits for.
func (e *env) begun(run record.Run) error {
	if e.json {
		return e.line(run)
	}
	_, err := fmt.Fprintln(e.out, run.Name())
	return err
}

// withName replaces the name that a sent file has on the server by the name that the person gave.
func withName(err error, name string, fromBase bool) error {
	var p *route.Problem
	if errors.As(err, &p) && !fromBase && name != "" {
		for i := range p.Problems {
			if p.Problems[i].File == "workflow.yaml" {
				p.Problems[i].File = name
			}
		}
	}
	return err
}

// subWorkflows returns the sub-workflows in the folder of a file that the file uses, directly or not. Others are read
// from the repository.
func subWorkflows(ctx context.Context, name string, text []byte) map[string]string {
	found := map[string]string{}
	sibling := siblings(name)
	load := func(id string) ([]byte, error) {
		b, err := sibling(id)
		if err == nil {
			found[id] = string(b)
		}
		return b, err
	}
	// Parse is called only for the names that it loads. The server knows more and reports the mistakes.
	_, _ = workflow.Parse(ctx, name, text, workflow.Options{Load: load, LLM: true})
	return found
}

// inputFlag collects the values of --input.
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
			return fmt.Errorf("the value of %s is not JSON: %w", name, err)
		}
		(*i)[name] = v
		return nil
	}
	(*i)[key] = text
	return nil
}

// largestInput bounds files that are sent to a server, in bytes.
const largestInput = 12 << 20

// readInput reads a file that a person named. "-" is standard input.
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

// asker returns the person who asks, from the configuration of git. Commits name them as author. Returns the zero
// Person if git has no name or no address.
func asker(ctx context.Context, e *env) gitd.Person {
	var p gitd.Person
	for key, into := range map[string]*string{"user.name": &p.Name, "user.email": &p.Email} {
		cmd := exec.CommandContext(ctx, "git", "config", "--get", key)
		cmd.Env = e.environ
		if b, err := cmd.Output(); err == nil { // an error means that nothing is configured or git is missing
			*into = strings.TrimSpace(string(b))
		}
	}
	if p.Name == "" || p.Email == "" {
		return gitd.Person{}
	}
	return p
}

// absolute returns the absolute form of a path that exists. It returns other text unchanged, as it may be a URL.
func absolute(path string) string {
	if _, err := os.Stat(path); err != nil {
		return path
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
