package past

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/search"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Search asks for the lines of runs that have certain words.
type Search struct {
	// Words are separated by spaces. Quotes keep spaces. Case does not matter. One word must have at least three letters.
	Words  string   `json:"q" jsonschema:"words that a line must have, separated by spaces; quotes keep spaces"`
	Kinds  []string `json:"kind,omitempty" jsonschema:"prompt, answer, command, output, path, subject or person; all if empty"`
	Repo   string   `json:"repo,omitempty" jsonschema:"a repository; all if empty"`
	Caller string   `json:"caller,omitempty" jsonschema:"a caller; all if empty"`
	Run    string   `json:"run,omitempty" jsonschema:"a run, of which all lines are wanted; all runs if empty"`
	// Max bounds the hits. A run's hits are not divided, so that there may be 10 more.
	Max   int    `json:"max,omitempty" jsonschema:"how many; 50 if 0, 200 at most"`
	After string `json:"after,omitempty" jsonschema:"next of an earlier answer"`
	// Whole waits until the index has all runs. Otherwise [search.Answer.Behind] is how many it lacks.
	Whole bool `json:"whole,omitempty" jsonschema:"wait until all runs can be found"`
}

func (api *API) searchRoute() route.Route {
	return route.Route{Method: "GET", Pattern: "/api/search", Access: route.AccessRead,
		Summary: "The lines of prompts, answers, commands, outputs, paths and subjects that have certain words, of the newest runs first",
		Query:   Search{}, Response: search.Answer{}, Handle: api.search}
}

func (api *API) search(c *route.Call) error {
	var q Search
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	f, err := api.Search(c.R.Context(), c.Who, q)
	if err != nil {
		return err
	}
	gather.SetMissing(c.W.Header(), f.Missing)
	return c.Reply(f.Answer)
}

// Found is an answer with the runs that have its hits, by name.
type Found struct {
	search.Answer
	Runs map[string]record.Run
}

// Search searches the runs of all replicas that the caller of a request sees.
func (api *API) Search(ctx context.Context, who route.Who, q Search) (Found, error) {
	ctx, lack := gather.Collect(ctx)
	parts, err := api.searching().Ask(ctx, who, q)
	if err != nil {
		return Found{}, err
	}
	f := merge(parts, cmp.Or(q.Max, search.DefaultHits))
	f.Missing = lack.Names()
	return f, nil
}

// searching returns the question that each replica answers by searchHere.
func (api *API) searching() *gather.Question[Search, Found] {
	api.asking.Do(func() { api.question = gather.New(api.Desk, "search", api.searchHere) })
	return api.question
}

// merge makes one answer of those of replicas, the newest runs first. It has most hits, or some more of the last run.
func merge(parts []gather.Part[Found], most int) Found {
	if len(parts) == 1 {
		return parts[0].Answer
	}
	all := Found{Answer: search.Answer{Hits: []search.Hit{}}, Runs: map[string]record.Run{}}
	hits, more := map[string][]search.Hit{}, map[string]bool{}
	var runs []record.Run
	next := time.Time{}
	for _, p := range parts {
		a := p.Answer
		all.Behind, all.Cut = all.Behind+a.Behind, all.Cut+a.Cut
		for _, h := range a.Hits {
			if r, ok := a.Runs[h.Run]; ok && hits[h.Run] == nil {
				runs = append(runs, r)
			}
			hits[h.Run] = append(hits[h.Run], h)
		}
		for _, name := range a.More {
			more[name] = true
		}
		// A replica has shown nothing that is older than its next place, so all begin there again.
		if at, ok := search.TimeOf(a.Next); ok && at.After(next) {
			next = at
		}
	}
	slices.SortFunc(runs, func(a, b record.Run) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(b.Name(), a.Name()))
	})
	for _, r := range runs {
		if r.CreatedAt.Before(next) {
			break
		}
		if len(all.Hits) >= most {
			next = r.CreatedAt
			break
		}
		all.Hits, all.Runs[r.Name()] = append(all.Hits, hits[r.Name()]...), r
		if more[r.Name()] {
			all.More = append(all.More, r.Name())
		}
	}
	if !next.IsZero() {
		all.Next = search.PlaceOf(next)
	}
	return all
}

// searchHere searches the runs of this replica.
func (api *API) searchHere(ctx context.Context, who route.Who, q Search) (Found, error) {
	query := search.Query{Words: q.Words, Repo: q.Repo, Max: q.Max, After: q.After, Sees: func(r record.Run) bool { return who.SeesRun(r) }}
	for _, k := range q.Kinds {
		query.Kinds = append(query.Kinds, search.Kind(k))
	}
	if q.Repo != "" && !who.Sees(q.Repo) {
		return Found{}, route.NotFound("repository", q.Repo)
	}
	if q.Caller != "" {
		st, err := api.caller(who, q.Caller)
		if err != nil {
			return Found{}, err
		}
		query.Caller = st.Caller.String()
	}
	if q.Run != "" {
		r, err := api.Find.Run(ctx, who, q.Run)
		if err != nil {
			return Found{}, err
		}
		query.Run = r.Name()
	}
	a, err := api.Executor.Search.Search(ctx, query, q.Whole)
	f := Found{Answer: a, Runs: map[string]record.Run{}}
	for _, h := range a.Hits {
		if _, ok := f.Runs[h.Run]; ok {
			continue
		}
		slash := strings.LastIndex(h.Run, "/")
		if c, err := record.ParseCaller(h.Run[:max(slash, 0)]); err == nil {
			if r, ok := api.Executor.Find(c, h.Run[slash+1:]); ok {
				f.Runs[h.Run] = r
			}
		}
	}
	return f, err
}
