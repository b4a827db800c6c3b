package pushed

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// Starter starts the work that pushes ask for. The exported fields are options. Methods are safe for concurrent use.
type Starter struct {
	Executor *executor.Executor
	Find     *lookup.Lookup
	// Dir is the folder of notices. It is made for the first one.
	Dir string
	// Veil hides the work of other people, see [route.Mux.Veil]. Nil hides nothing.
	Veil func(g gitd.Grant, repo string) gitd.Veil
	Log  *slog.Logger

	mu   sync.Mutex               // guards the field below
	read map[gitd.Hash][]listener // the workflows with events of folders, by their trees
}

// Start starts the work of a push and shows it by out, until it ends, waits for a person, or ctx ends. With a nil out
// it returns when the run is durable. It is [gitd.Server.Pushed].
func (s *Starter) Start(ctx context.Context, p gitd.Push, out io.Writer) {
	show := &screen{out: out}
	ask, err := Parse(p.Options)
	for _, o := range ask.Ignored {
		show.line("the option %s means nothing here", o)
	}
	who := s.who(p.Grant)
	if err == nil && len(p.Refs) == 1 {
		if name, named := strings.CutPrefix(p.Refs[0].Name, gitd.AskRefs); named {
			ask, err = ask.byName(name)
		} else if strings.HasPrefix(p.Refs[0].Name, gitd.ReviewRefs) && ask.None() {
			ask.Task = testTask
		}
	}
	if err == nil && !ask.None() {
		err = s.start(ctx, who, p, ask, show)
	}
	if err != nil && ctx.Err() == nil {
		problem := route.AsProblem(err, who)
		s.Log.Info("the work of a push failed to start, or to be shown", "repo", p.Repo, "subject", who.Subject, "err", err)
		show.line("%s", problem.Detail)
		if problem.Hint != "" {
			show.line("%s", problem.Hint)
		}
	}
}

// who returns the person who pushed.
func (s *Starter) who(g gitd.Grant) route.Who {
	return route.Who{Subject: g.Subject, Repo: g.Repo, Scopes: g.Scopes, Read: g.Read, Write: g.Write, Name: g.Person.Name,
		Email: g.Person.Email}.Under(s.Veil)
}

func (s *Starter) start(ctx context.Context, who route.Who, p gitd.Push, ask Ask, show *screen) error {
	r, err := request(p, ask)
	if err != nil {
		return err
	}
	if err := s.Find.Bind(ctx, who, &r); err != nil {
		return err
	}
	run, err := s.Executor.Submit(ctx, r)
	if err != nil {
		return err
	}
	show.line("%s on %s", run.Name(), run.Branch)
	if ask.Detach || show.out == nil {
		show.line("`ramus follow %s` shows it", run.Name())
		return nil
	}
	for e, err := range s.Executor.Events(ctx, run.Name(), 0, true) {
		if err != nil {
			return err
		}
		show.event(e)
	}
	if ctx.Err() != nil {
		return nil // the person has gone, and the run goes on
	}
	if run, err = s.Executor.Run(ctx, run.Name()); err != nil {
		return err
	}
	show.end(run)
	return nil
}

// request returns the run that a push asks for. It begins at the commit that was pushed. A push to the branch of a
// caller is work of that caller, and one that names the work by its ref has the base of the repository. A push for review names its base.
func request(p gitd.Push, ask Ask) (record.Request, error) {
	r := record.Request{Repo: p.Repo}
	if len(p.Refs) != 1 {
		return r, fmt.Errorf("%w push: %d refs were changed, and work begins on one branch", record.ErrInvalid, len(p.Refs))
	}
	branch, ok := strings.CutPrefix(p.Refs[0].Name, "refs/heads/")
	switch {
	case strings.HasPrefix(p.Refs[0].Name, gitd.AskRefs):
		r.At, r.Anywhere = p.Refs[0].Commit, true
	case strings.HasPrefix(p.Refs[0].Name, gitd.ReviewRefs):
		r.At, r.Anywhere = p.Refs[0].Commit, true
		if r.Base = strings.TrimPrefix(p.Refs[0].Name, gitd.ReviewRefs); lookup.IsCallerBranch(r.Base) {
			return r, fmt.Errorf("%w push: %s is the branch of a caller, and no base", record.ErrInvalid, r.Base)
		}
	case !ok:
		return r, fmt.Errorf("%w push: %s is no branch, on which work could begin", record.ErrInvalid, p.Refs[0].Name)
	case lookup.IsCallerBranch(branch):
		caller, known := workspace.CallerOf(strings.TrimPrefix(branch, record.BranchPrefix))
		if !known {
			return r, fmt.Errorf("%w push: %s is no branch of a caller", record.ErrInvalid, branch)
		}
		r.Caller = caller
	default:
		r.Base, r.At = branch, p.Refs[0].Commit
	}
	switch {
	case ask.File != "":
		r.File, r.Input = ask.File, ask.Input
	case ask.Prompt != "":
		r.Agent = &record.AgentCall{Name: ask.Agent, Prompt: ask.Prompt}
	default:
		r.Task = &record.TaskCall{Name: ask.Task}
	}
	return r, nil
}
