package past

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/provenance"
	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// API serves the routes of the past.
type API struct {
	Executor *executor.Executor
	Git      *gitd.Server
	Find     *lookup.Lookup
	// Privacy keeps which callers are private. Nil means none.
	Privacy workspace.Privacy
	Now     func() time.Time
	// Links signs the links to pictures. Nil means that answers have none.
	Links *links.Signer
	// Branches finds the branches that do not merge.
	Branches *radar.Radar
	// Desk asks the other replicas of the installation. Nil means that this is the only server.
	Desk *gather.Desk

	taking  sync.Mutex // held while an entry of a tournament is taken
	judging sync.Mutex // held while a model is asked about a tournament

	asking   sync.Once // makes question
	question *gather.Question[Search, Found]
}

// Routes returns the routes.
func (api *API) Routes() []route.Route {
	api.searching()
	return slices.Concat([]route.Route{
		{Method: "GET", Pattern: "/api/why", Access: route.AccessRead,
			Summary: "The cause of lines of a file: the command, its output, the prompt, the person, and the " +
				"checks after it",
			Query: Why{}, Response: provenance.Answer{}, Handle: api.why},
		{Method: "POST", Pattern: "/api/bisect", Access: route.AccessWrite,
			Summary: "Find the first bad commit by a command or a task, several commits at once; the answer streams " +
				"progress, and hanging up stops it",
			Request: Bisect{}, Response: BisectLine{}, Media: route.MediaLines, Handle: api.bisect},
		api.radarRoute(), api.searchRoute(), api.verifyRoute(), api.forkRoute(),
	}, api.undoRoutes(), api.replayRoutes(), api.tournamentRoutes())
}

// Why asks for the causes of lines.
type Why struct {
	Of    string `json:"of,omitempty" jsonschema:"a caller, or a branch, tag, ref or commit; the base if empty"`
	Repo  string `json:"repo,omitempty" jsonschema:"the repository; the caller's, or the only one, if empty"`
	Path  string `json:"path" jsonschema:"the file, from the root of the repository"`
	Line  int    `json:"line,omitempty" jsonschema:"the line, from 1; all lines if 0"`
	To    int    `json:"to,omitempty" jsonschema:"the last line; the same one if 0"`
	Brief bool   `json:"brief,omitempty" jsonschema:"without outputs and checks"`
}

func (api *API) why(c *route.Call) error {
	var w Why
	if err := c.ReadQuery(&w); err != nil {
		return err
	}
	a, err := api.Why(c.R.Context(), c.Who, w)
	if err != nil {
		return err
	}
	return c.Reply(a)
}

// Why explains lines of a file.
func (api *API) Why(ctx context.Context, who route.Who, w Why) (provenance.Answer, error) {
	if w.Path == "" {
		return provenance.Answer{}, route.NewProblem(route.KindInvalid, "the path is missing: which file?")
	}
	if w.Line < 0 || w.To != 0 && w.To < max(w.Line, 1) {
		return provenance.Answer{}, route.NewProblem(route.KindInvalid, "the lines %d to %d are no part of a file",
			w.Line, w.To)
	}
	if w.To == 0 {
		w.To = w.Line
	}
	repo, rev, err := api.findRevision(ctx, who, w.Of, w.Repo)
	if err != nil {
		return provenance.Answer{}, err
	}
	reader := &provenance.Reader{Runs: api.Executor}
	return reader.Explain(ctx, provenance.Question{Repo: repo, Rev: rev, Path: w.Path, From: w.Line, To: w.To,
		Brief: w.Brief, Sees: who.SeesRun})
}

// findRevision returns the repository and the revision that a caller of a request means. The whole name of a caller goes
// before a revision, and a revision before a part of a caller's name.
func (api *API) findRevision(ctx context.Context, who route.Who, of, name string) (*gitd.Repo, string, error) {
	st, cerr := api.caller(who, of)
	if cerr == nil && st.Caller.Is(of) {
		return api.placeOf(ctx, who, st, name)
	}
	repo, err := api.repo(ctx, who, name)
	if err == nil {
		rev, err := api.Find.Revision(ctx, who, repo, of)
		if err == nil {
			_, err = repo.Resolve(ctx, rev)
		}
		if err == nil || of == "" || !errors.Is(err, gitd.ErrNotFound) && !isKind(err, who, route.KindNotFound) {
			return repo, rev, err
		}
	}
	if of == "" {
		return nil, "", err
	}
	if cerr == nil {
		return api.placeOf(ctx, who, st, name)
	}
	if !isKind(cerr, who, route.KindNotFound) {
		return nil, "", cerr
	}
	if err != nil {
		return nil, "", err
	}
	return nil, "", route.NewProblem(route.KindNotFound, "%q is neither a caller nor a revision of %s", of,
		repo.Name()).
		WithHint("`ramus ps` lists the callers; another repository needs its name")
}

// isKind reports whether an error is a problem of a kind.
func isKind(err error, who route.Who, kind route.Kind) bool {
	return route.AsProblem(err, who).Kind == kind
}

// caller returns a caller that the caller of the request sees.
func (api *API) caller(who route.Who, name string) (executor.CallerStatus, error) {
	if name == "" {
		return executor.CallerStatus{}, route.NotFound("caller", name)
	}
	st, err := api.Executor.Named(name)
	if err != nil {
		return st, who.HideMatches("caller", name, err)
	}
	if !who.SeesCaller(st) {
		return executor.CallerStatus{}, route.NotFound("caller", name)
	}
	return st, nil
}

// placeOf returns the branch of a caller, or its last commit if the branch was deleted.
func (api *API) placeOf(ctx context.Context, who route.Who, st executor.CallerStatus,
	name string) (*gitd.Repo, string, error) {
	if name == "" {
		name = st.Repo
	}
	repo, err := api.Find.Repo(who, name)
	if err != nil {
		return nil, "", err
	}
	branch := "refs/heads/" + st.Branch
	_, err = repo.Resolve(ctx, branch)
	if errors.Is(err, gitd.ErrNotFound) && name == st.Repo && st.Last.Head != "" {
		return repo, string(st.Last.Head), nil
	}
	return repo, branch, err
}

// repo returns the repository with a name. The empty name is the only one that the caller of the request sees.
func (api *API) repo(ctx context.Context, who route.Who, name string) (*gitd.Repo, error) {
	if name == "" && who.Account == nil && who.Repo != "*" {
		name = who.Repo
	}
	if name != "" {
		return api.Find.Repo(who, name)
	}
	all, err := api.Git.Repos(ctx)
	if err != nil {
		return nil, err
	}
	var only *gitd.Repo
	for _, r := range all {
		if lookup.IsOwnRepo(r.Name()) || !who.Sees(r.Name()) {
			continue
		}
		if only != nil {
			return nil, route.NewProblem(route.KindInvalid, "the repository is missing: there are several").
				WithHint("`ramus repo list` shows them")
		}
		only = r
	}
	if only == nil {
		return nil, route.NewProblem(route.KindNotFound, "there is no repository")
	}
	return only, nil
}
