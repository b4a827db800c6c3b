package github

import (
	"context"
	"fmt"

	"github.com/google/go-github/v66/github"
)

// Check is a check run, or a workflow run, of a commit.
type Check struct {
	ID         int64  `json:"id"`
	Workflow   bool   `json:"workflow,omitempty"` // a workflow run, not a check run
	Name       string `json:"name"`
	Commit     string `json:"commit"`
	Branch     string `json:"branch,omitempty"`
	Status     string `json:"status"`               // queued, in_progress, completed
	Conclusion string `json:"conclusion,omitempty"` // success, failure, timed_out …
	URL        string `json:"url,omitempty"`
	Title      string `json:"title,omitempty"`
	Summary    string `json:"summary,omitempty"`
	Text       string `json:"text,omitempty"`
	Pulls      []int  `json:"pulls,omitempty"` // numbers of its pull requests
}

// Failed reports whether a check has ended with a failure.
func (c Check) Failed() bool {
	switch c.Conclusion {
	case "failure", "timed_out", "startup_failure":
		return c.Status == "completed"
	}
	return false // cancelled, stale and action_required are for people
}

func checkOf(r *github.CheckRun) Check {
	if r == nil {
		return Check{}
	}
	return Check{ID: r.GetID(), Name: r.GetName(), Commit: r.GetHeadSHA(), Branch: r.GetCheckSuite().GetHeadBranch(), Status: r.GetStatus(),
		Conclusion: r.GetConclusion(), URL: r.GetHTMLURL(), Title: bounded(r.GetOutput().GetTitle()), Summary: bounded(r.GetOutput().GetSummary()),
		Text: bounded(r.GetOutput().GetText()), Pulls: numbers(r.PullRequests)}
}

func numbers(pulls []*github.PullRequest) (out []int) {
	for _, p := range pulls {
		out = append(out, p.GetNumber())
	}
	return out
}

// Checks returns the newest check run of each name for a commit.
func (c *Client) Checks(ctx context.Context, repo Name, commit string) ([]Check, error) {
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
