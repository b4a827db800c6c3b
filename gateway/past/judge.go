package past

import (
	"context"
	"errors"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/tournament"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/internal/text"
)

// judgeTimeout bounds a question to a model, so that nobody waits long for an opinion.
const judgeTimeout = 2 * time.Minute

func (api *API) judge(c *route.Call) error {
	s, err := api.Judge(c.R.Context(), c.Who, c.R.PathValue("tournament"))
	if err != nil {
		return err
	}
	return c.Reply(s)
}

// Judge asks the configured model about the entries of a tournament that has ended, and keeps its opinion. Nothing is asked
// if there is no model, an opinion on the same work, or nothing to compare. A model that does not answer is no error, see
// [tournament.Standing.Unjudged].
func (api *API) Judge(ctx context.Context, who route.Who, name string) (tournament.Standing, error) {
	repo, r, err := api.tournament(ctx, who, name)
	if err != nil {
		return tournament.Standing{}, err
	}
	for _, e := range r.Entries {
		if err := who.CheckChange(r.Repo, e.Caller.Branch()); err != nil {
			return tournament.Standing{}, err
		}
	}
	s, err := tournament.Look(ctx, repo, api.Executor, r)
	model := api.Executor.LLM
	if err != nil || model == nil || s.Opinion != nil {
		return s, err
	}
	if !api.judging.TryLock() {
		s.Unjudged = "another tournament is judged at the moment"
		return s, nil
	}
	defer api.judging.Unlock()
	bounded, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	o, err := tournament.Judge(bounded, repo, s, api.Executor.Secrets.String,
		func(ctx context.Context, q tournament.Question) (string, error) {
			return model.Ask(ctx, executor.LLMCall{System: q.System, Prompt: q.Prompt, Schema: q.Schema})
		}, api.Now().UTC())
	switch {
	case ctx.Err() != nil:
		return s, context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		s.Unjudged = "the model did not answer in time"
		return s, nil
	case err != nil:
		s.Unjudged = text.Visible(text.Clip(api.Executor.Secrets.String(err.Error()), 500))
		return s, nil
	case o == nil:
		return s, nil
	}
	r, err = api.book().Change(ctx, repo, r.Name, func(r *tournament.Record) error {
		r.Opinion = o
		return nil
	})
	if err != nil {
		return s, err
	}
	return tournament.Look(ctx, repo, api.Executor, r)
}
