package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/search"
	"github.com/ramus-dev/ramus/gateway/past"
)

func searchCommand() command {
	var (
		q      past.Search
		kinds  string
		asJSON bool
	)
	return command{
		name: "search", args: "WORD...",
		short: "find words in prompts, answers, commands, outputs and paths",
		long: `
All words must be in one line, or in one prompt or answer. Case does not matter. An
argument with spaces is found as it is. The newest runs come first, with at most ten
lines of each; --run shows all lines of one. A command is found once it has ended.
ramus log and ramus why go on from the run that is named.`,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.StringVar(&kinds, "kind", "", "limit the search to these `kinds`, separated by commas: "+kindNames())
			fs.StringVar(&q.Repo, "repo", "", "limit the search to a `repository`")
			fs.StringVar(&q.Caller, "caller", "", "limit the search to a `caller`")
			fs.StringVar(&q.Run, "run", "", "show all lines of a `run`")
			fs.IntVar(&q.Max, "max", 0, "show about `n` lines (default 50, at most 200)")
			fs.StringVar(&q.After, "after", "", "go on at the `place` that an earlier search printed")
			fs.BoolVar(&asJSON, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 16, "WORD...")
			if err != nil {
				return err
			}
			q.Words = searchWords(args)
			if kinds != "" {
				q.Kinds = strings.Split(kinds, ",")
			}
			a, err := c.Search(ctx, q)
			if err == nil && a.Behind > 0 {
				fmt.Fprintf(e.err, "reading %s\n", plural(a.Behind, "run", "runs"))
				q.Whole = true
				a, err = c.Search(ctx, q)
			}
			if err != nil {
				return err
			}
			if asJSON {
				err = e.writeJSON(a)
			} else {
				e.hits(a)
			}
			if err == nil && len(a.Hits) == 0 {
				return &exitStatus{code: 1}
			}
			return err
		},
	}
}

func kindNames() string {
	names := make([]string, len(search.Kinds))
	for i, k := range search.Kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}

// searchWords returns the words of a query. An argument with a space becomes one word.
func searchWords(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		if words[i] = a; strings.ContainsAny(a, " \t") && !strings.Contains(a, `"`) {
			words[i] = `"` + a + `"`
		}
	}
	return strings.Join(words, " ")
}

// hits shows the lines that a search found, for people.
func (e *env) hits(a search.Answer) {
	run := ""
	for _, h := range a.Hits {
		if h.Run != run {
			run = h.Run
			fmt.Fprintf(e.out, "%s  %s\n", e.colour("1", e.oneLine(run, 200)), e.oneLine(h.Repo, 200))
		}
		place := cmp.Or(h.Step, string(h.Kind))
		if h.Stream == "stderr" {
			place += ".stderr"
		}
		place += fmt.Sprintf(":%d", h.Line)
		fmt.Fprintf(e.out, "  %-8s %-16s %s\n", h.Kind, e.oneLine(place, 200), e.oneLine(h.Text, 400))
	}
	for _, name := range a.More {
		fmt.Fprintf(e.out, "%s has more: --run %s\n", e.oneLine(name, 200), e.oneLine(name, 200))
	}
	if a.Next != "" {
		fmt.Fprintf(e.out, "older runs: --after %s\n", a.Next)
	}
	if a.Cut > 0 {
		fmt.Fprintf(e.out, "%s too much text, of which the first 256 MiB are searched\n", plural(a.Cut, "run has", "runs have"))
	}
	if len(a.Hits) == 0 {
		fmt.Fprintln(e.err, "nothing was found")
	}
}
