package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// scenario is one thing to measure. Its rows are added to the bench's report.
type scenario struct {
	name, about string
	run         func(ctx context.Context, b *bench) error
}

// scenarios has the scenarios in the order of their runs and of the report.
var scenarios = []scenario{
	{"cold", "a new caller's first output, over the size of the repository", coldCaller},
	{"pool", "what a pool costs before, and a new caller without one", coldWithoutPool},
	{"warm", "commands in a container that is there", warmCommands},
	{"check", "a check whose result is known", knownChecks},
	{"commit", "what a commit after a command costs", commits},
	{"rebuild", "a container killed with -9, until its caller's next output", rebuild},
	{"deps", "a new caller's first output where the base has 20,000 files of dependencies", dependencies},
	{"burst", "20 new callers at once", burst},
	{"status", "git status inside, with and without fsmonitor", gitStatus},
	{"idle", "what containers cost that do nothing", idleContainers},
	{"clone", "32 clones at once", cloneStorm},
	{"branches", "32 clones of 32 different branches at once", branchStorm},
	{"refs", "advertisement and ls-refs", lsRefs},
	{"git", "stock git clones and fetches", realClones},
	{"push", "8 pushes at once", pushes},
	{"standby", "8 pushes at once to a server that a stand-by follows", followedPushes},
	{"aged", "a full clone after 200 small pushes", aged},
	{"stalled", "200 clients that stop reading", stalled},
	{"bisect", "the first bad of 256 commits", bisections},
	{"why", "the cause of each line of a file", whys},
	{"radar", "the conflicts of 100 live branches", radars},
	{"asked", "a push with options", askedPushes},
	{"growth-files", "growth: files of the repository", growthFiles},
	{"growth-change", "growth: files that the branch changes", growthChange},
	{"growth-callers", "growth: new callers at once", growthCallers},
	{"growth-branches", "growth: branches of the repository", growthBranches},
	{"engines", "containers on Kubernetes and on Docker, and plain pods", compareEngines},
	{"cluster", "growth: callers on Kubernetes, each in a pod on a simulated node", crowdInPods},
}

// bench is one run.
type bench struct {
	settings
	dir      string // for this run alone
	said     io.Writer
	report   report
	scenario string // the running scenario

	exits []func(context.Context) error

	repos map[string]*repository // by name; filled on first use
	api   *engineAPI
}

func (b *bench) sayf(format string, args ...any) {
	fmt.Fprintf(b.said, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// onExit registers f. It is called when the running scenario, or the run, has ended. The last one registered is called
// first.
func (b *bench) onExit(f func(context.Context) error) { b.exits = append(b.exits, f) }

func (b *bench) exit(ctx context.Context) error { return b.exitTo(ctx, 0) }

func (b *bench) exitTo(ctx context.Context, kept int) error {
	var errs []error
	for len(b.exits) > kept {
		last := len(b.exits) - 1
		f := b.exits[last]
		b.exits = b.exits[:last]
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

// unableError is the error of a scenario that this machine cannot run.
type unableError struct{ why string }

func (e *unableError) Error() string { return e.why }

func unable(format string, args ...any) error { return &unableError{fmt.Sprintf(format, args...)} }
