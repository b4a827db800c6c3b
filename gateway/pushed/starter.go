package pushed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// Executor is the part of the executor that the work of pushes needs.
type Executor interface {
	// Submit starts a run. It returns the run with the key of the request if there is one.
	Submit(ctx context.Context, r record.Request) (record.Run, error)
	Run(ctx context.Context, name string) (record.Run, error)
	// Events returns the events of a run after a sequence number. If follow is set, it waits for those that come.
	Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error]
}

// Starter starts the work that pushes ask for. The exported fields are options. Methods are safe for concurrent use.
type Starter struct {
	Executor Executor
	Find     *lookup.Lookup
	// Dir is the folder of notices. It is made for the first one.
	Dir string
	// Veil hides the work of other people, see [route.Mux.Veil]. Nil hides nothing.
	Veil func(g gitd.Grant, repo string) gitd.Veil
	Log  *slog.Logger

	mu   sync.Mutex               // guards the field below
	read map[gitd.Hash][]listener // the workflows with events of folders, by their trees
}

// Expect looks for the work that a push asks for, and for workflows of the base that it starts. It keeps a notice of the push until
// all of that is claimed. It is [gitd.Server.Expect].
func (s *Starter) Expect(ctx context.Context, p gitd.Push) (gitd.Happened, error) {
	n := &notice{Key: newKey(), Repo: p.Repo, Grant: p.Grant, Options: p.Options, Refs: p.Refs}
	ask, askErr := n.ask()
	keep, err := s.look(ctx, n)
	if err != nil {
		return nil, err
	}
	if askErr == nil && !ask.None() {
		keep = keepSafe
	}
	if keep == keepNothing && len(p.Options) == 0 && askErr == nil {
		return nil, nil
	}
	file, err := s.keep(n, keep)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, p gitd.Push, out io.Writer) func(context.Context, io.Writer) {
		if len(p.Refs) == 0 && len(n.Refs) > 0 { // it was refused
			s.drop(file)
			return nil
		}
		n.Refs = p.Refs
		run, done := s.start(ctx, n, &screen{out: out})
		if ask.None() {
			if done {
				s.drop(file)
			}
			return nil
		}
		return func(ctx context.Context, out io.Writer) {
			if done {
				s.drop(file)
			}
			if run != nil && !ask.Detach && out != nil {
				s.follow(ctx, *run, s.who(n.Grant), &screen{out: out})
			}
		}
	}, nil
}

// start claims all work of a push that has changed refs. It works at the commits that were pushed, with the rights of the person
// who pushed. A person who leaves does not stop it. It returns the run that the push asks for, if it has begun, and false if
// some of the work should be tried again.
func (s *Starter) start(ctx context.Context, n *notice, show *screen) (run *record.Run, done bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startingWithin)
	defer cancel()
	who := s.who(n.Grant)
	ask, err := n.ask()
	for _, o := range ask.Ignored {
		show.line("the option %s means nothing here", o)
	}
	done = s.startEvents(ctx, who, n, show)
	if err == nil && !ask.None() {
		run, err = s.startAsked(ctx, who, n, ask, show)
	}
	if err == nil {
		return run, done
	}
	again := !route.IsLasting(err)
	s.showError(n.Repo, who, err, show)
	if again {
		show.line("the next start of the server tries it again")
	}
	return nil, done && !again
}

// showError shows why the work of a push did not start, or cannot be shown.
func (s *Starter) showError(repo string, who route.Who, err error, show *screen) {
	s.Log.Info("the work of a push failed to start, or to be shown", "repo", repo, "subject", who.Subject, "err", err)
	problem := route.AsProblem(err, who)
	show.line("%s", problem.Detail)
	if problem.Hint != "" {
		show.line("%s", problem.Hint)
	}
}

// who returns the person who pushed.
func (s *Starter) who(g gitd.Grant) route.Who {
	return route.Who{Subject: g.Subject, Repo: g.Repo, Scopes: g.Scopes, Read: g.Read, Write: g.Write, Name: g.Person.Name,
		Email: g.Person.Email}.Under(s.Veil)
}

// startAsked starts the work that a push asks for.
func (s *Starter) startAsked(ctx context.Context, who route.Who, n *notice, ask Ask, show *screen) (*record.Run, error) {
	r, err := request(gitd.Push{Repo: n.Repo, Refs: n.Refs}, ask)
	if err != nil {
		return nil, err
	}
	r.Key = n.Key
	if err := s.Find.Bind(ctx, who, &r); err != nil {
		return nil, err
	}
	run, err := s.Executor.Submit(ctx, r)
	if err != nil {
		return nil, err
	}
	show.line("%s on %s", run.Name(), run.Branch)
	if ask.Detach {
		show.line("`ramus follow %s` shows it", run.Name())
	}
	return &run, nil
}

// follow shows a run until it ends, waits for a person, or ctx ends.
func (s *Starter) follow(ctx context.Context, run record.Run, who route.Who, show *screen) {
	var failed error
	for e, err := range s.Executor.Events(ctx, run.Name(), 0, true) {
		if err != nil {
			failed = err
			break
		}
		show.event(e)
	}
	if ctx.Err() != nil {
		return // the person has gone, and the run goes on
	}
	now, err := s.Executor.Run(ctx, run.Name())
	if failed = errors.Join(failed, err); failed != nil {
		s.showError(run.Repo, who, failed, show)
		return
	}
	show.end(now)
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
