package github

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/google/go-github/v66/github"
	"github.com/ramus-dev/ramus/gateway/forge"
)

func checkOf(r *github.CheckRun) forge.Check {
	if r == nil {
		return forge.Check{}
	}
	return forge.Check{ID: r.GetID(), Name: r.GetName(), Commit: r.GetHeadSHA(),
		Branch: r.GetCheckSuite().GetHeadBranch(), Status: r.GetStatus(),
		Conclusion: r.GetConclusion(), URL: r.GetHTMLURL(), Title: forge.Bounded(r.GetOutput().GetTitle()),
		Summary: forge.Bounded(r.GetOutput().GetSummary()),
		Text:    forge.Bounded(r.GetOutput().GetText()), Pulls: numbers(r.PullRequests)}
}

func numbers(pulls []*github.PullRequest) (out []int) {
	for _, p := range pulls {
		out = append(out, p.GetNumber())
	}
	return out
}

// Checks returns the newest check run of each name for a commit.
func (c *Client) Checks(ctx context.Context, repo forge.Name, commit string) ([]forge.Check, error) {
	if err := checkRef(commit); err != nil {
		return nil, fmt.Errorf("cannot list checks: %w", err)
	}
	return list(ctx, c, request{what: "list checks", repo: repo, need: AccessChecks}, checkOf,
		func(ctx context.Context, gh *github.Client, o github.ListOptions) ([]*github.CheckRun, *github.Response, error) {
			page, resp, err := gh.Checks.ListCheckRunsForRef(ctx, repo.Owner, repo.Repo, commit,
				&github.ListCheckRunsOptions{Filter: github.String("latest"), ListOptions: o})
			if err != nil || page == nil {
				return nil, resp, err
			}
			return page.CheckRuns, resp, nil
		})
}

// SetStatus sets the status of ramus for a commit. An App needs the permission to write commit statuses.
func (c *Client) SetStatus(ctx context.Context, repo forge.Name, s forge.Status) error {
	if err := checkRef(s.Commit); err != nil || strings.Contains(s.Commit, "/") {
		return fmt.Errorf("cannot set a status: %w",
			cmp.Or(err, error(&forge.RefusedError{Forge: site, Message: "that is no name of a commit"})))
	}
	out := &github.RepoStatus{State: github.String(s.State), Context: github.String(forge.StatusName),
		Description: github.String(c.Secrets.String(s.Line()))}
	if s.URL != "" {
		out.TargetURL = github.String(s.URL)
	}
	return c.call(ctx, request{what: "set a status", repo: repo, need: AccessStatus, write: true},
		func(ctx context.Context, gh *github.Client) error {
			_, _, err := gh.Repositories.CreateStatus(ctx, repo.Owner, repo.Repo, s.Commit, out)
			return err
		})
}
