package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/route"
)

// githubPatience limits how long a request for a list waits for GitHub.
const githubPatience = 30 * time.Second

// githubAPI lists the installations and repositories that ramus sees at GitHub.
type githubAPI struct {
	GitHub *github.Client // nil if ramus has no account at GitHub
}

// Routes returns the routes of lists from GitHub.
func (api *githubAPI) Routes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: "/api/github/installations", Access: route.AccessAdmin,
			Summary:  "The accounts that the GitHub App is installed in, with its permissions there",
			Response: []github.Installation{}, Handle: api.installations},
		{Method: "GET", Pattern: "/api/github/repos", Access: route.AccessAdmin,
			Summary: "The repositories that ramus may see at GitHub, of people and organizations",
			Query:   githubReposQuery{}, Response: []github.Repo{}, Handle: api.githubRepos},
	}
}

type githubReposQuery struct {
	Account string `json:"account,omitempty" jsonschema:"of this person or organization alone"`
}

func (api *githubAPI) installations(c *route.Call) error {
	return listFromGitHub(c, api.GitHub,
		func(ctx context.Context) ([]github.Installation, error) { return api.GitHub.Installations(ctx) })
}

func (api *githubAPI) githubRepos(c *route.Call) error {
	var q githubReposQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	return listFromGitHub(c, api.GitHub,
		func(ctx context.Context) ([]github.Repo, error) { return api.GitHub.Repos(ctx, q.Account) })
}

// listFromGitHub answers with a list that read gets from GitHub.
func listFromGitHub[T any](c *route.Call, client *github.Client, read func(context.Context) ([]T, error)) error {
	if client == nil {
		return route.NewProblem(route.KindInvalid,
			"ramus has no account at GitHub").WithHint("set github.app_id and github.key_env, or github.token_env")
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), githubPatience)
	defer cancel()
	list, err := read(ctx)
	switch {
	case errors.Is(err, forge.ErrRefused) || errors.Is(err, forge.ErrNotFound):
		return &route.Problem{Kind: route.KindConflict, Detail: err.Error(),
			Hint: "look at the App, or the token, that github in the configuration names", Cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &route.Problem{Kind: route.KindUnavailable, Detail: "GitHub does not answer",
			Hint: "try again in a moment", Cause: err}
	case err != nil:
		return err
	}
	if list == nil {
		list = []T{}
	}
	return c.Reply(list)
}
