package past

import (
	"context"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/search"
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
	a, err := api.Search(c.R.Context(), c.Who, q)
	if err != nil {
		return err
	}
	return c.Reply(a)
}

// Search searches the runs that the caller of a request sees.
func (api *API) Search(ctx context.Context, who route.Who, q Search) (search.Answer, error) {
	query := search.Query{Words: q.Words, Repo: q.Repo, Max: q.Max, After: q.After, Sees: func(r record.Run) bool { return who.SeesRun(r) }}
	for _, k := range q.Kinds {
		query.Kinds = append(query.Kinds, search.Kind(k))
	}
	if q.Repo != "" && !who.Sees(q.Repo) {
		return search.Answer{}, route.NotFound("repository", q.Repo)
	}
	if q.Caller != "" {
		st, err := api.caller(who, q.Caller)
		if err != nil {
			return search.Answer{}, err
		}
		query.Caller = st.Caller.String()
	}
	if q.Run != "" {
		r, err := api.Find.Run(ctx, who, q.Run)
		if err != nil {
			return search.Answer{}, err
		}
		query.Run = r.Name()
	}
	return api.Executor.Search(ctx, query, q.Whole)
}
