// Package lookup finds runs, callers and repositories by name, for the callers of requests.
//
// # Invariants
//
// A caller gets only objects that its grant lets it see. Everything else is "not found". A partial name does not
// reveal the names of invisible objects that it matches. On a route for writers a caller gets only objects that it may
// change.
package lookup

import (
	"context"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Executor finds runs and callers by a part of their name that is unique.
type Executor interface {
	Run(ctx context.Context, name string) (record.Run, error)
	// Caller returns a caller and the state of its container.
	Caller(ctx context.Context, name string) (executor.CallerStatus, error)
	// Named is Caller by the index alone. It does not ask a container, which may answer late.
	Named(name string) (executor.CallerStatus, error)
	// OfCaller returns the runs of a caller by the index, the oldest first.
	OfCaller(caller record.Caller) []record.Run
}

// Lookup finds the objects that the caller of a request names. Methods are safe for concurrent use.
type Lookup struct {
	Executor Executor
	Git      *gitd.Server
}

// Repo returns a repository that the caller sees.
func (l *Lookup) Repo(who route.Who, name string) (*gitd.Repo, error) {
	if !who.Sees(name) {
		return nil, route.NotFound("repository", name)
	}
	return l.Git.Repo(name)
}

// PathRepo returns the repository that the path of a call names.
func (l *Lookup) PathRepo(c *route.Call) (*gitd.Repo, error) {
	return l.Repo(c.Who, c.R.PathValue("repo"))
}

// Revision returns the revision rev of a repository, resolved with the rights of the caller of the request. If rev is
// empty, the repository's base is resolved.
func (l *Lookup) Revision(ctx context.Context, who route.Who, r *gitd.Repo, rev string) (string, error) {
	if rev == "" {
		base, err := r.Base(ctx)
		if err != nil {
			return "", err
		}
		rev = "refs/heads/" + base
	}
	if who.ReadsAllIn(r.Name()) {
		return rev, nil
	}
	h, err := r.ResolveFor(ctx, who.GrantIn(r.Name()), rev)
	return string(h), err
}

// CheckBase returns an error if the caller may not see the branch that a run begins from. An empty base means the
// repository's own.
func (l *Lookup) CheckBase(ctx context.Context, who route.Who, repo, base string) error {
	if who.ReadsAllIn(repo) {
		return nil
	}
	if base == "" {
		r, err := l.Git.Repo(repo)
		if err != nil {
			return err
		}
		if base, err = r.Base(ctx); err != nil {
			return err
		}
	}
	if !who.SeesBranch(repo, base) {
		return route.NotFound("branch", base)
	}
	return nil
}

// Run returns a run that the caller sees.
func (l *Lookup) Run(ctx context.Context, who route.Who, name string) (record.Run, error) {
	r, err := l.Executor.Run(ctx, name)
	if err != nil {
		return r, who.HideMatches("run", name, err)
	}
	if !who.SeesRun(r) {
		return record.Run{}, route.NotFound("run", name)
	}
	return r, nil
}

// PathRun returns the run that the path of a call names. On a route for writers the caller must be allowed to change
// the run's branch.
func (l *Lookup) PathRun(c *route.Call) (record.Run, error) {
	r, err := l.Run(c.R.Context(), c.Who, c.R.PathValue("run"))
	if err == nil && c.Access == route.AccessWrite {
		err = c.Who.CheckChangeRun(r)
	}
	return r, err
}

// Caller returns a caller that the caller of the request sees.
func (l *Lookup) Caller(ctx context.Context, who route.Who, name string) (executor.CallerStatus, error) {
	st, err := l.Executor.Caller(ctx, name)
	return restrictCaller(who, name, st, err)
}

// restrictCaller returns st, or a "not found" problem if the caller of the request does not see it. name and err are
// the argument and the error of the search.
func restrictCaller(who route.Who, name string, st executor.CallerStatus, err error) (executor.CallerStatus, error) {
	if err != nil {
		return st, who.HideMatches("caller", name, err)
	}
	if !who.SeesCaller(st) {
		return executor.CallerStatus{}, route.NotFound("caller", name)
	}
	return st, nil
}

// PathCaller returns the caller that the path of a call names. On a route for writers the caller of the request must
// be allowed to change its branch.
func (l *Lookup) PathCaller(c *route.Call) (executor.CallerStatus, error) {
	st, err := l.Caller(c.R.Context(), c.Who, c.R.PathValue("caller"))
	if err == nil && c.Access == route.AccessWrite {
		err = c.Who.CheckChangeCaller(st)
	}
	return st, err
}

// NewCaller is the name, in a path, of a caller whose name the server chooses.
const NewCaller = "new"

// CallerOrNew returns the caller with the given name and its repository, or a new caller of that name. If repo or fork
// is set, a partial name is not completed, because the work would go to another caller with a longer name. For
// [NewCaller] the caller is zero.
func (l *Lookup) CallerOrNew(who route.Who, name, repo string, fork bool) (record.Caller, string, error) {
	if name == NewCaller {
		return record.Caller{}, repo, nil
	}

	// The index is enough. Every command comes through here, and a container that has just been lost would answer
	// late.
	st, err := l.Executor.Named(name)
	st, err = restrictCaller(who, name, st, err)
	var kind route.Kind
	if err != nil {
		kind = route.AsProblem(err, who).Kind
	}
	begins := repo != "" || fork
	switch {
	case err == nil && begins && !st.Caller.Is(name), begins && (kind == route.KindNotFound || kind == route.KindAmbiguous):
		// Callers with a longer name have nothing to do with the new one.
	case err == nil && repo != "" && repo != st.Repo:
		return record.Caller{}, "",
			route.NewProblem(route.KindConflict, "%s works on repository %s, not on %s", st.Caller, st.Repo, repo).
				WithHint("leave the repository out, or give the caller another name")
	case err == nil:
		return st.Caller, st.Repo, nil
	case kind == route.KindNotFound:
		return record.Caller{}, "", route.NotFound("caller", name).WithHint("name a repository to begin a new one")
	default:
		return record.Caller{}, "", err
	}

	full := name
	if !strings.Contains(full, ":") {
		full = "run:" + full
	}
	fresh, err := record.ParseCaller(full)
	return fresh, repo, err
}

// ReviewPrefix begins the ids of the callers that review pull requests for ramus. Nobody else begins such a caller.
const ReviewPrefix = "review-"

// Bind restricts a request to the rights of who. It fills in the repository and the asker that follow from the grant,
// completes partial names, and returns a problem for names of invisible objects. The request's Permit checks the
// planned run.
func (l *Lookup) Bind(ctx context.Context, who route.Who, r *record.Request) error {
	r.Asker = who.Person(r.Asker)
	if r.Repo != "" && !who.Sees(r.Repo) {
		return route.NotFound("repository", r.Repo)
	}
	for _, name := range r.With {
		if !who.Sees(name) {
			return route.NotFound("repository", name)
		}
	}
	if !r.Caller.IsZero() {
		// A caller without runs is a new one. The index is enough, for the reason given at CallerOrNew.
		if runs := l.Executor.OfCaller(r.Caller); len(runs) > 0 {
			switch last := runs[len(runs)-1]; {
			case !who.SeesRun(last):
				return route.NotFound("caller", r.Caller.String())
			case r.Repo == "":
				r.Repo = last.Repo
			}
		} else if strings.HasPrefix(r.Caller.ID(), ReviewPrefix) {
			return route.NewProblem(route.KindInvalid, "%s cannot begin: names with %s are those of reviews by ramus", r.Caller, ReviewPrefix).
				WithHint("choose another name")
		}
	}
	if r.Repo == "" && who.Repo != "*" {
		r.Repo = who.Repo
	}
	if r.Repo != "" {
		if err := l.CheckBase(ctx, who, r.Repo, r.Base); err != nil {
			return err
		}
	}
	r.Permit = who.CheckRun

	if r.Fork != nil {
		if err := l.bindStep(ctx, who, r.Fork); err != nil {
			return err
		}
		of, err := l.Caller(ctx, who, r.Fork.Of)
		if err != nil {
			return err
		}
		if r.Repo == "" {
			r.Repo = of.Repo
		}
		r.Fork.Of = of.Caller.String()
	}
	if r.Of != "" {
		of, err := l.Run(ctx, who, r.Of)
		if err != nil {
			return err
		}
		r.Of = of.Name()
	}
	return nil
}

// bindStep has a fork of a run begin at a step of that run.
func (l *Lookup) bindStep(ctx context.Context, who route.Who, f *record.Fork) error {
	if f.Commit == "" || !strings.Contains(f.Of, "/") {
		return nil
	}
	run, err := l.Run(ctx, who, f.Of)
	if err == nil {
		f.Of, f.Commit = run.Caller.String(), gitd.Hash(run.ID+"/"+string(f.Commit))
	}
	return err
}

// states are the states of runs and of tasks.
var states = []record.State{record.StateSubmitted, record.StateRunning, record.StateAwaitingReview,
	record.StateAddressingComments, record.StateComplete, record.StateFailed}

// ParseState returns the state with a name. Returns a problem if there is none. The empty name is the empty state.
func ParseState(name string) (record.State, error) {
	if state := record.State(name); name == "" || slices.Contains(states, state) {
		return state, nil
	}
	return "", route.NewProblem(route.KindInvalid, "unknown state %q: want one of %v", name, states)
}

// InboxRepo is the repository of mentions that are claimed for no repository, or for one that does not exist here. It
// has only the records of such runs and no branch, so nobody works on it.
const InboxRepo = "ramus-inbox"

// IsOwnRepo reports whether a repository has only records of ramus, so that nobody works on it.
func IsOwnRepo(name string) bool { return name == InboxRepo || name == gitd.PeopleRepo }

// IsCallerBranch reports whether a branch is one that callers work on. Such a branch must not be a base. Otherwise
// text that an agent wrote would become its own configuration, and others would get its work.
func IsCallerBranch(branch string) bool { return strings.HasPrefix(branch, "ramus/") }
