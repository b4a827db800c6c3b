package github

import (
	"context"
	"net/http"

	"github.com/google/go-github/v66/github"
	"github.com/ramus-dev/ramus/gateway/forge"
)

// pullOf and similar functions accept nil, which is a null in the answer, or no answer at all.
func pullOf(p *github.PullRequest) forge.Pull {
	if p == nil {
		return forge.Pull{}
	}
	out := forge.Pull{
		Number: p.GetNumber(), URL: p.GetHTMLURL(), Title: p.GetTitle(), Body: forge.Bounded(p.GetBody()),
		Open:  p.GetState() == "open",
		Draft: p.GetDraft(), Merged: p.GetMerged() || !p.GetMergedAt().IsZero(),
		Head: p.GetHead().GetRef(), HeadSHA: p.GetHead().GetSHA(), Base: p.GetBase().GetRef(),
		Author:    p.GetUser().GetLogin(),
		UpdatedAt: p.GetUpdatedAt().Time,
	}
	if out.Merged { // before the merge it is a commit with which GitHub tests the merge
		out.MergeCommit = p.GetMergeCommitSHA()
	}
	for _, u := range p.RequestedReviewers {
		out.Requested = append(out.Requested, u.GetLogin())
	}
	for _, l := range p.Labels {
		out.Labels = append(out.Labels, l.GetName())
	}
	return out
}

// Pull returns a pull request.
func (c *Client) Pull(ctx context.Context, repo forge.Name, number int) (forge.Pull, error) {
	var out forge.Pull
	err := c.call(ctx, request{what: "read a pull request", repo: repo}, func(ctx context.Context, gh *github.Client) error {
		p, _, err := gh.PullRequests.Get(ctx, repo.Owner, repo.Repo, number)
		if out = pullOf(p); err == nil && out.Number != number {
			return errEmpty
		}
		return err
	})
	return out, err
}

// openPull returns the open pull request of a branch into a base.
func (c *Client) openPull(ctx context.Context, repo forge.Name, head, base string) (p forge.Pull, found bool, err error) {
	for one, err := range items(ctx, c, request{what: "look for a pull request", repo: repo},
		func(ctx context.Context, gh *github.Client, o github.ListOptions) ([]*github.PullRequest, *github.Response, error) {
			return gh.PullRequests.List(ctx, repo.Owner, repo.Repo,
				&github.PullRequestListOptions{State: "open", Head: repo.Owner + ":" + head, Base: base,
					Sort: "created", Direction: "desc", ListOptions: o})
		}) {
		if err != nil {
			return forge.Pull{}, false, err
		}
		// A fork may have a branch of the same name, and GitHub ignores invalid filters.
		if one.GetHead().GetRef() == head && one.GetHead().GetRepo().GetID() == one.GetBase().GetRepo().GetID() &&
			one.GetBase().GetRef() == base {
			return pullOf(one), true, nil
		}
	}
	return forge.Pull{}, false, nil
}

// CreatePull opens a pull request. If GitHub reports that the branch has one already, CreatePull returns that one. So a
// lost answer causes no second pull request.
func (c *Client) CreatePull(ctx context.Context, repo forge.Name, p forge.NewPull) (forge.Pull, error) {
	var out forge.Pull
	err := c.call(ctx, request{what: "open a pull request", repo: repo, write: true},
		func(ctx context.Context, gh *github.Client) error {
			made, _, err := gh.PullRequests.Create(ctx, repo.Owner, repo.Repo, &github.NewPullRequest{
				Title: github.String(c.title(p.Title)), Body: github.String(c.text(p.Body, "")), Head: &p.Head,
				Base: &p.Base, Draft: &p.Draft})
			if out = pullOf(made); err == nil && out.Number == 0 {
				return errEmpty
			}
			return err
		})
	if !forge.HasStatus(err, http.StatusUnprocessableEntity) {
		return out, err
	}
	return forge.OrExisting(err, func() (forge.Pull, bool, error) { return c.openPull(ctx, repo, p.Head, p.Base) })
}

// EditPull replaces title and body. An empty one is not changed.
func (c *Client) EditPull(ctx context.Context, repo forge.Name, number int, title, body string) (forge.Pull, error) {
	var change github.PullRequest
	if title != "" {
		change.Title = github.String(c.title(title))
	}
	if body != "" {
		change.Body = github.String(c.text(body, ""))
	}
	var out forge.Pull
	err := c.call(ctx, request{what: "edit a pull request", repo: repo, write: true},
		func(ctx context.Context, gh *github.Client) error {
			p, _, err := gh.PullRequests.Edit(ctx, repo.Owner, repo.Repo, number, &change)
			if out = pullOf(p); err == nil && out.Number != number {
				return errEmpty
			}
			return err
		})
	return out, err
}

// AddLabels adds labels. Existing ones stay.
func (c *Client) AddLabels(ctx context.Context, repo forge.Name, number int, labels []string) error {
	if len(labels) == 0 {
		return nil
	}
	return c.call(ctx, request{what: "label a pull request", repo: repo, write: true},
		func(ctx context.Context, gh *github.Client) error {
			_, _, err := gh.Issues.AddLabelsToIssue(ctx, repo.Owner, repo.Repo, number, labels)
			return err
		})
}

// RequestReview requests a review from users, perhaps again. It leaves out users that GitHub does not accept.
func (c *Client) RequestReview(ctx context.Context, repo forge.Name, number int, users []string) error {
	var ask []string
	for _, user := range users {
		if isLogin(user) { // an App is not a user
			ask = append(ask, user)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	request := func(users ...string) error {
		return c.call(ctx, request{what: "ask for a review", repo: repo, write: true},
			func(ctx context.Context, gh *github.Client) error {
				_, _, err := gh.PullRequests.RequestReviewers(ctx, repo.Owner, repo.Repo, number,
					github.ReviewersRequest{Reviewers: users})
				return err
			})
	}
	err := request(ask...)
	if !forge.HasStatus(err, http.StatusUnprocessableEntity) {
		return err
	}
	if len(ask) == 1 {
		return nil
	}
	// One of them is the author, or not a collaborator. GitHub then refuses the request as a whole.
	for _, user := range ask {
		if err := request(user); err != nil && !forge.HasStatus(err, http.StatusUnprocessableEntity) {
			return err
		}
	}
	return nil
}

// maxTitle is GitHub's limit in characters.
const maxTitle = 256

// title returns a text as one line of a title, without secrets.
func (c *Client) title(text string) string { return forge.Line(c.Secrets.String(text), maxTitle) }
