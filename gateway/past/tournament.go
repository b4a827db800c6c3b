package past

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/tournament"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Tournament asks several agents to do one task, each in a caller of its own.
type Tournament struct {
	Task string `json:"task"`
	// Agents are names of the configuration. None means its only one.
	Agents []string `json:"agents,omitempty"`
	Each   int      `json:"each,omitempty"` // entries of each agent; 1 if 0
	// Of is CALLER, CALLER@STEP or CALLER@COMMIT, from which all entries are forked. Empty is the base.
	Of     string      `json:"of,omitempty"`
	Repo   string      `json:"repo,omitempty"` // the caller's, or the only one, if empty
	Base   string      `json:"base,omitempty"` // branch; the repository's own if empty
	Checks []string    `json:"checks,omitempty"`
	Name   string      `json:"name,omitempty"` // drawn if empty; the same request again finds the same tournament
	Dry    bool        `json:"dry,omitempty"`  // answer with the plan alone
	Asker  gitd.Person `json:"asker,omitzero"`
}

// Take asks for the work of an entry.
type Take struct {
	Entry string `json:"entry"` // its number or its caller
	Drop  bool   `json:"drop,omitempty"`
	Dry   bool   `json:"dry,omitempty"` // answer with the plan alone
	record.Merge
}

// Took is the answer.
type Took struct {
	Entry record.Caller `json:"entry"`
	Agent string        `json:"agent"`
	Into  string        `json:"into"` // the branch that gets the entry
	// BackTo is where the branch goes first, if the tournament was forked from its caller. It is empty otherwise.
	BackTo gitd.Hash `json:"back_to,omitempty"`
	// Landed is the result of the merge. It is nil for a dry request. With conflicts nothing was changed.
	Landed *record.LandedAll `json:"landed,omitempty"`
	// Dropped are the callers whose branches were removed, or would be.
	Dropped []record.Caller `json:"dropped,omitempty"`
}

// InTheWay reports whether conflicts kept the entry from being merged.
func (t Took) InTheWay() bool { return t.Landed != nil && t.Landed.InTheWay() }

// TournamentLine is one line of a tournament that is followed. The last one has the standing.
type TournamentLine struct {
	Moved    *tournament.Result   `json:"moved,omitempty"` // an entry whose state changed
	Standing *tournament.Standing `json:"standing,omitempty"`
	Problem  *route.Problem       `json:"problem,omitempty"`
}

// tournamentRoutes returns the routes of tournaments.
func (api *API) tournamentRoutes() []route.Route {
	return []route.Route{
		{Method: "POST", Pattern: "/api/tournaments", Access: route.AccessWrite,
			Summary: "Have several agents do one task side by side, each in a caller of its own that begins at the same " +
				"commit",
			Request: Tournament{}, Response: tournament.Standing{}, Handle: api.beginTournament},
		{Method: "GET", Pattern: "/api/tournaments", Access: route.AccessRead,
			Summary: "The tournaments, the newest first", Query: tournamentsQuery{}, Response: []tournament.Record{},
			Handle: api.tournaments},
		{Method: "GET", Pattern: "/api/tournaments/{tournament}", Access: route.AccessRead,
			Summary:  "A tournament with its entries, ranked by evidence",
			Response: tournament.Standing{}, Handle: api.standing},
		{Method: "GET", Pattern: "/api/tournaments/{tournament}/follow", Access: route.AccessRead,
			Summary: "A tournament while its entries work; the stream ends with the places when all have ended or wait for " +
				"a person",
			Response: TournamentLine{}, Media: route.MediaLines, Handle: api.followTournament},
		{Method: "POST", Pattern: "/api/tournaments/{tournament}/judge", Access: route.AccessWrite,
			Summary: "Ask the configured model about the entries; its words are an opinion, and order only entries that " +
				"are equal by evidence",
			Response: tournament.Standing{}, Handle: api.judge},
		{Method: "POST", Pattern: "/api/tournaments/{tournament}/take", Access: route.AccessWrite,
			Summary: "Merge an entry into the base or, if the tournament was forked from a caller, into the caller's " +
				"branch; drop removes the branches of the others",
			Request: Take{}, Response: Took{}, Handle: api.takeCandidate},
	}
}

func (api *API) beginTournament(c *route.Call) error {
	var q Tournament
	if err := c.ReadJSON(&q); err != nil {
		return err
	}
	s, err := api.Begin(c.R.Context(), c.Who, q)
	if err != nil {
		return err
	}
	return c.Reply(s)
}

// Begin begins a tournament. It returns when all entries are durable.
func (api *API) Begin(ctx context.Context, who route.Who, q Tournament) (tournament.Standing, error) {
	p, permit, err := api.planTournament(ctx, who, q)
	if err != nil {
		return tournament.Standing{}, err
	}
	repo, err := api.Git.Repo(p.Repo)
	if err != nil {
		return tournament.Standing{}, err
	}
	if have, err := tournament.Read(ctx, repo, p.Name); err == nil {
		if !have.Same(p) || !seesTournament(who, have) {
			return tournament.Standing{}, route.NewProblem(route.KindConflict, "there is a tournament %s already", p.Name)
		}
		if !q.Dry { // an entry may be missing because the machine had no room for it
			if have, err = api.book().Begin(context.WithoutCancel(ctx), repo, api.Executor, have, permit); err != nil {
				return tournament.Standing{}, err
			}
		}
		return tournament.Look(ctx, repo, api.Executor, have)
	} else if !errors.Is(err, gitd.ErrNotFound) {
		return tournament.Standing{}, err
	}
	for _, e := range p.Entries {
		if len(api.Executor.OfCaller(e.Caller)) > 0 {
			return tournament.Standing{}, route.NewProblem(route.KindConflict, "there is a caller %s already", e.Caller)
		}
	}
	r := tournament.Record{Plan: p}
	if q.Dry {
		return tournament.Look(ctx, repo, api.Executor, r)
	}

	// From here on the tournament is made as a whole, also if the client has gone.
	ctx = context.WithoutCancel(ctx)
	if err := api.hideEntries(ctx, p); err != nil {
		return tournament.Standing{}, err
	}
	book := api.book()
	if err := book.Make(ctx, repo, p); err != nil {
		return tournament.Standing{}, err
	}
	if r, err = book.Begin(ctx, repo, api.Executor, r, permit); err != nil {
		return tournament.Standing{}, err
	}
	return tournament.Look(ctx, repo, api.Executor, r)
}

func (api *API) book() *tournament.Book {
	return &tournament.Book{Bot: api.Executor.Bot, Now: api.Now}
}

// hideEntries makes the entries private if they are forked from a private caller, for the person who began that one.
func (api *API) hideEntries(ctx context.Context, p tournament.Plan) error {
	of, err := record.ParseCaller(p.Of)
	if err != nil || api.Privacy == nil || !api.Privacy.IsPrivate(of) {
		return nil
	}
	owner := p.By
	if runs := api.Executor.OfCaller(of); len(runs) > 0 {
		owner = runs[0].Asker
	}
	for _, e := range p.Entries {
		if err := api.Privacy.SetPrivate(ctx, e.Caller, p.Repo, true, owner); err != nil {
			return err
		}
	}
	return nil
}

// planTournament returns the plan that a request means, with the rights of its caller. Nothing is kept.
func (api *API) planTournament(ctx context.Context, who route.Who, q Tournament) (p tournament.Plan,
	permit func(record.Run, string) error, err error) {
	request := record.Request{Repo: q.Repo, Base: q.Base, Asker: q.Asker}
	if q.Of != "" {
		of, commit, _ := strings.Cut(q.Of, "@")
		request.Fork = &record.Fork{Of: of, Commit: gitd.Hash(commit)}
	}
	if request.Repo == "" && request.Fork == nil {
		repo, err := api.repo(ctx, who, "")
		if err != nil {
			return p, nil, err
		}
		request.Repo = repo.Name()
	}
	if err := api.Find.Bind(ctx, who, &request); err != nil {
		return p, nil, err
	}
	p = tournament.Plan{Name: q.Name, Repo: request.Repo, Base: request.Base, Task: q.Task, Checks: q.Checks,
		By: request.Asker, Time: api.Now().UTC()}
	repo, err := api.Find.Repo(who, p.Repo)
	if err != nil {
		return p, nil, err
	}
	if err := api.placeTournament(ctx, repo, &p, request.Fork); err != nil {
		return p, nil, err
	}
	if p.Name == "" {
		p.Name = record.NewID(2)
	}
	if first, err := record.RunCaller(p.Name + "-1"); err == nil {
		if err := who.CheckChange(p.Repo, first.Branch()); err != nil {
			return p, nil, err
		}
	}
	agents, err := api.agents(q.Agents)
	if err != nil {
		return p, nil, err
	}
	for _, check := range p.Checks {
		if !slices.Contains(executor.TaskNames(), check) {
			return p, nil, route.NewProblem(route.KindInvalid, "there is no task %.100q to check with", check).
				WithHint("`ramus tasks` lists them")
		}
	}
	p = redact.Clean(api.Executor.Secrets, p)
	if err := p.SetEntries(agents, max(q.Each, 1)); err != nil {
		return p, nil, err
	}
	for _, e := range p.Entries {
		if err := who.CheckChange(p.Repo, e.Caller.Branch()); err != nil {
			return p, nil, err
		}
	}
	return p, request.Permit, nil
}

// placeTournament sets the commit at which the entries begin.
func (api *API) placeTournament(ctx context.Context, repo *gitd.Repo, p *tournament.Plan,
	fork *record.Fork) (err error) {
	if fork != nil {
		at, err := api.Executor.ForkStart(ctx, *fork)
		if err != nil {
			return err
		}
		st, err := api.Executor.Named(at.Of)
		if err != nil {
			return err
		}
		if st.Repo != p.Repo {
			return route.NewProblem(route.KindInvalid, "%s works on repository %s", st.Caller, st.Repo)
		}
		p.Of, p.At = at.Of, at.Commit
		if p.Base == "" {
			p.Base = st.Last.Base
		}
		return nil
	}
	if p.Base == "" {
		if p.Base, err = repo.Base(ctx); err != nil {
			return err
		}
	}
	p.At, err = repo.Resolve(ctx, "refs/heads/"+p.Base)
	return err
}

// agents returns the agents that a request means.
func (api *API) agents(names []string) ([]string, error) {
	known := api.Executor.AgentNames()
	if len(names) == 0 && len(known) == 1 {
		return known, nil
	}
	if len(names) == 0 {
		return nil, route.NewProblem(route.KindInvalid, "the agents are missing; known are %s", strings.Join(known, ", "))
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, route.NewProblem(route.KindInvalid, "there is no agent %.100q; known are %s", name,
				strings.Join(known, ", "))
		}
	}
	return names, nil
}

// seesTournament reports whether the caller of a request sees all entries of a tournament. The task and the ranking are
// about all of them.
func seesTournament(who route.Who, r tournament.Record) bool {
	return !slices.ContainsFunc(r.Entries,
		func(e tournament.Entry) bool { return !who.SeesBranch(r.Repo, e.Caller.Branch()) })
}

// tournament returns the tournament with a name, if the caller of the request sees it.
func (api *API) tournament(ctx context.Context, who route.Who, name string) (*gitd.Repo, tournament.Record, error) {
	all, err := api.Git.Repos(ctx)
	if err != nil {
		return nil, tournament.Record{}, err
	}
	for _, repo := range all {
		if !who.Sees(repo.Name()) {
			continue
		}
		r, err := tournament.Read(ctx, repo, name)
		if errors.Is(err, gitd.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, r, err
		}
		if seesTournament(who, r) {
			return repo, r, nil
		}
	}
	return nil, tournament.Record{}, route.NotFound("tournament", name)
}

// RepoOfTournament returns the repository of a tournament. Returns "" if there is no such tournament.
func (api *API) RepoOfTournament(ctx context.Context, name string) string {
	repo, _, err := api.tournament(ctx, route.Who{Repo: "*", Scopes: []string{gitd.ScopeAdmin}}, name)
	if err != nil {
		return ""
	}
	return repo.Name()
}

type tournamentsQuery struct {
	Repo string `json:"repo,omitempty" jsonschema:"only those of this repository"`
}

// maxTournaments bounds a list.
const maxTournaments = 200

func (api *API) tournaments(c *route.Call) error {
	var q tournamentsQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	list, err := api.Tournaments(c.R.Context(), c.Who, q.Repo)
	if err != nil {
		return err
	}
	return c.Reply(list)
}

// Tournaments returns the newest 200 tournaments that the caller of a request sees, the newest first. An empty repo means all
// repositories.
func (api *API) Tournaments(ctx context.Context, who route.Who, repo string) ([]tournament.Record, error) {
	all, err := api.Git.Repos(ctx)
	if err != nil {
		return nil, err
	}
	list := []tournament.Record{}
	for _, r := range all {
		if !who.Sees(r.Name()) || repo != "" && repo != r.Name() {
			continue
		}
		some, err := tournament.List(ctx, r)
		if err != nil {
			return nil, err
		}
		list = append(list, slices.DeleteFunc(some, func(t tournament.Record) bool { return !seesTournament(who, t) })...)
	}
	slices.SortStableFunc(list, func(a, b tournament.Record) int { return b.Time.Compare(a.Time) })
	return list[:min(len(list), maxTournaments)], nil
}

func (api *API) standing(c *route.Call) error {
	s, err := api.Standing(c.R.Context(), c.Who, c.R.PathValue("tournament"))
	if err != nil {
		return err
	}
	return c.Reply(s)
}

// Standing returns a tournament with its places.
func (api *API) Standing(ctx context.Context, who route.Who, name string) (tournament.Standing, error) {
	repo, r, err := api.tournament(ctx, who, name)
	if err != nil {
		return tournament.Standing{}, err
	}
	return tournament.Look(ctx, repo, api.Executor, r)
}

func (api *API) followTournament(c *route.Call) error {
	name := c.R.PathValue("tournament")
	if _, err := api.Standing(c.R.Context(), c.Who, name); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(c.R.Context())
	defer cancel(nil)
	w := c.BeginStream(route.MediaLines)
	s, err := api.Follow(ctx, c.Who, name, func(r tournament.Result) {
		if err := w.WriteLine(TournamentLine{Moved: &r}); err != nil {
			cancel(err) // the client has gone
		}
	})
	if err != nil {
		return w.WriteLine(TournamentLine{Problem: route.AsProblem(err, c.Who)})
	}
	return w.WriteLine(TournamentLine{Standing: &s})
}

// Follow waits until the entries of a tournament have ended or wait for a person. tell is called with each that begins
// or ends, by one goroutine at a time.
func (api *API) Follow(ctx context.Context, who route.Who, name string,
	tell func(tournament.Result)) (tournament.Standing, error) {
	repo, r, err := api.tournament(ctx, who, name)
	if err != nil {
		return tournament.Standing{}, err
	}
	// After a kill the server begins the missing entries some time after its start. They may begin here as well.
	if r, err = api.book().Begin(context.WithoutCancel(ctx), repo, api.Executor, r, nil); err != nil {
		return tournament.Standing{}, err
	}
	var all sync.WaitGroup
	var telling sync.Mutex
	for i := range r.Entries {
		one := r
		one.Entries = r.Entries[i : i+1]
		all.Go(func() {
			show := func() {
				s, err := tournament.Look(ctx, repo, api.Executor, one)
				if err == nil {
					telling.Lock()
					tell(s.Places[0].Result)
					telling.Unlock()
				}
			}
			show()
			if s, err := tournament.Look(ctx, repo, api.Executor, one); err != nil || s.Ended {
				return
			}
			if _, err := api.Executor.Settled(ctx, one.Entries[0].Caller, tournament.RunID); err == nil {
				show()
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return tournament.Standing{}, context.Cause(ctx)
	}
	return api.Standing(ctx, who, name)
}

func (api *API) takeCandidate(c *route.Call) error {
	var q Take
	if err := c.ReadJSON(&q); err != nil {
		return err
	}
	took, err := api.Take(c.R.Context(), c.Who, c.R.PathValue("tournament"), q)
	if err != nil {
		return err
	}
	return c.Reply(took)
}

// Take merges an entry. If the tournament was forked from a caller, the caller goes back to the commit of the fork, and
// gets the entry's commits. It may be repeated. A dry request changes nothing.
func (api *API) Take(ctx context.Context, who route.Who, name string, q Take) (Took, error) {
	repo, r, err := api.tournament(ctx, who, name)
	if err != nil {
		return Took{}, err
	}
	e, ok := r.Entry(q.Entry)
	if !ok {
		return Took{}, route.NotFound("entry", q.Entry)
	}
	for _, one := range r.Entries {
		if err := who.CheckChange(r.Repo, one.Caller.Branch()); err != nil && (q.Drop || one == e) {
			return Took{}, err
		}
	}
	s, err := tournament.Look(ctx, repo, api.Executor, r)
	if err != nil {
		return Took{}, err
	}
	for _, p := range s.Places {
		if p.Caller == e.Caller && !p.Ended {
			return Took{}, route.NewProblem(route.KindConflict, "%s has not ended", e.Caller)
		}
	}
	merge := q.Merge
	merge.By, merge.ByID = who.Person(q.By), ""
	merge.Delete = false // only after the tournament has the result
	var into record.Caller
	if merge.Into == "" && r.Of != "" {
		if into, err = record.ParseCaller(r.Of); err != nil {
			return Took{}, err
		}
		merge.Into = into.Branch()
	}
	merge.Into = cmp.Or(merge.Into, r.Base)
	if err := who.CheckChange(r.Repo, merge.Into); err != nil {
		return Took{}, err
	}

	out := Took{Entry: e.Caller, Agent: e.Agent, Into: merge.Into}
	if !into.IsZero() && r.Taken.IsZero() {
		out.BackTo = r.At
	}
	var drops []record.Caller
	for _, one := range r.Entries {
		if one.Caller == e.Caller && q.Delete || one.Caller != e.Caller && q.Drop && one.Refused == "" {
			drops = append(drops, one.Caller)
		}
	}
	if q.Dry {
		out.Dropped = drops
		return out, r.CheckTake(e.Caller)
	}

	api.taking.Lock()
	defer api.taking.Unlock()
	book := api.book()
	if r, err = book.Claim(ctx, repo, r.Name, e.Caller); err != nil {
		return Took{}, err
	}
	ctx = context.WithoutCancel(ctx)
	if !into.IsZero() && r.Taken.IsZero() {
		err = api.goBack(ctx, repo, into, r.At, e, &merge)
	}
	if err == nil {
		var landed record.LandedAll
		landed, err = api.Executor.Merge(ctx, e.Caller.String(), merge)
		out.Landed = &landed
	}
	switch {
	case err != nil:
		return out, errors.Join(err, book.Settle(ctx, repo, r.Name, e.Caller, err))
	case out.InTheWay():
		return out, book.Settle(ctx, repo, r.Name, e.Caller, record.ErrConflict)
	}
	if !who.Admin() {
		out.Landed.Upstream = "" // it may be a path of this machine
	}
	if err := book.Settle(ctx, repo, r.Name, e.Caller, nil); err != nil {
		return out, err
	}
	for _, one := range drops {
		_, err := api.Executor.Remove(ctx, one.String(), who.Person(q.By))
		if err != nil && !errors.Is(err, record.ErrNotFound) {
			return out, fmt.Errorf("%s was taken, but %s was not dropped: %w", e.Caller, one, err)
		}
		out.Dropped = append(out.Dropped, one)
	}
	return out, nil
}

// goBack moves the branch of the caller that an entry was forked from to the commit of the fork, unless the branch has
// the entry already. The branch gets the entry by a merge then. A rebase would leave out the changes that the caller made
// after the fork as well, since the history of the branch has them.
func (api *API) goBack(ctx context.Context, repo *gitd.Repo, of record.Caller, at gitd.Hash, e tournament.Entry,
	m *record.Merge) error {
	head, err := repo.Resolve(ctx, "refs/heads/"+e.Caller.Branch())
	if err != nil {
		return err
	}
	tip, err := repo.Resolve(ctx, "refs/heads/"+of.Branch())
	if err != nil {
		return err
	}
	common, err := repo.MergeBase(ctx, string(head), string(tip))
	if err != nil || tip == at || common == head && head != at {
		return err
	}
	m.Strategy = cmp.Or(m.Strategy, gitd.StrategyMerge)
	if m.Strategy != gitd.StrategyMerge {
		return fmt.Errorf("cannot take %s: %w strategy %.20q: %s has worked on, and gets the entry by a merge alone",
			e.Caller, record.ErrInvalid, m.Strategy, of)
	}
	now, err := repo.TreeOf(ctx, tip)
	if err != nil {
		return err
	}
	then, err := repo.TreeOf(ctx, at)
	if err != nil || now == then {
		return err
	}
	_, err = api.Executor.Rollback(ctx, of.String(), string(at), m.By)
	return err
}
