package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/ramus-dev/ramus/gateway/github"
)

// githubPatience is how long who asks for a list waits for GitHub.
const githubPatience = 30 * time.Second

func githubRoutes() []Route {
	return []Route{
		{Method: "GET", Pattern: "/api/github/installations", Access: AccessAdmin, Summary: "The accounts that the GitHub App is installed in, with its permissions there",
			Response: []github.Installation{}, Handle: (*call).installations},
		{Method: "GET", Pattern: "/api/github/repos", Access: AccessAdmin, Summary: "The repositories that ramus may see at GitHub, of people and organizations",
			Query: githubReposQuery{}, Response: []github.Repo{}, Handle: (*call).githubRepos},
	}
}

type githubReposQuery struct {
	Account string `json:"account,omitempty" jsonschema:"of this person or organization alone"`
}

func (c *call) installations() error {
	return fromGitHub(c, func(ctx context.Context) ([]github.Installation, error) { return c.GitHub.Installations(ctx) })
}

func (c *call) githubRepos() error {
	var q githubReposQuery
	if err := c.query(&q); err != nil {
		return err
	}
	return fromGitHub(c, func(ctx context.Context) ([]github.Repo, error) { return c.GitHub.Repos(ctx, q.Account) })
}

// fromGitHub answers with a list of GitHub's.
func fromGitHub[T any](c *call, read func(context.Context) ([]T, error)) error {
	if c.GitHub == nil {
		return problem(KindInvalid, "ramus is nobody at GitHub").withHint("set github.app_id and github.key_env, or github.token_env")
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), githubPatience)
	defer cancel()
	list, err := read(ctx)
	switch {
	case errors.Is(err, github.ErrRefused) || errors.Is(err, github.ErrNotFound):
		return &Problem{Kind: KindConflict, Detail: err.Error(), Hint: "look at the App, or the token, that github in the configuration names", cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Problem{Kind: KindUnavailable, Detail: "GitHub does not answer", Hint: "try again in a moment", cause: err}
	case err != nil:
		return err
	}
	if list == nil {
		list = []T{}
	}
	return c.reply(list)
}
