package gitlab

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
)

// mergeRequest is a merge request in an answer.
type mergeRequest struct {
	IID           int       `json:"iid"`
	URL           string    `json:"web_url"`
	Title         string    `json:"title"`
	Description   string    `json:"description"`
	State         string    `json:"state"` // opened, closed, locked, merged
	Draft         bool      `json:"draft"`
	MergeCommit   string    `json:"merge_commit_sha"`
	SquashCommit  string    `json:"squash_commit_sha"`
	SHA           string    `json:"sha"`
	Source        string    `json:"source_branch"`
	Target        string    `json:"target_branch"`
	SourceProject int64     `json:"source_project_id"`
	TargetProject int64     `json:"target_project_id"`
	Author        user      `json:"author"`
	Reviewers     []user    `json:"reviewers"`
	Labels        []string  `json:"labels"`
	UpdatedAt     time.Time `json:"updated_at"`
}

func (m *mergeRequest) pull() forge.Pull {
	out := forge.Pull{Number: m.IID, URL: m.URL, Title: m.Title, Body: forge.Bounded(m.Description),
		Open:  m.State == "opened" || m.State == "locked",
		Draft: m.Draft, Merged: m.State == "merged", Head: m.Source, HeadSHA: m.SHA, Base: m.Target,
		Author: m.Author.Username, Labels: m.Labels,
		UpdatedAt: m.UpdatedAt}
	if out.Merged { // a fast-forward makes no commit
		out.MergeCommit = cmp.Or(m.MergeCommit, m.SquashCommit, m.SHA)
	}
	for _, u := range m.Reviewers {
		out.Requested = append(out.Requested, u.Username)
	}
	return out
}

func number(n int) string { return strconv.Itoa(n) }

// mergeRequest returns a merge request.
func (c *Client) mergeRequest(ctx context.Context, repo forge.Name, n int) (*mergeRequest, error) {
	var m mergeRequest
	err := c.do(ctx, "read a merge request", http.MethodGet, repo, nil, &m, func() bool { return m.IID == n },
		"merge_requests", number(n))
	return &m, err
}

// Pull returns a merge request.
func (c *Client) Pull(ctx context.Context, repo forge.Name, n int) (forge.Pull, error) {
	m, err := c.mergeRequest(ctx, repo, n)
	return m.pull(), err
}

// openPull returns the open merge request of a branch into a base.
func (c *Client) openPull(ctx context.Context, repo forge.Name, head, base string) (p forge.Pull, found bool, err error) {
	all, err := list[mergeRequest](ctx, c, "look for a merge request", repo,
		url.Values{"state": {"opened"}, "source_branch": {head}, "target_branch": {base}}, "merge_requests")
	for _, m := range all {
		// A fork may have a branch of the same name.
		if m.Source == head && m.Target == base && m.SourceProject == m.TargetProject {
			return m.pull(), true, nil
		}
	}
	return forge.Pull{}, false, err
}

const (
	maxTitle = 255
	// maxText is ramus's own limit for a body, in characters. GitLab's is a million.
	maxText = 65536
	// draft begins the title of a draft.
	draft = "Draft: "
)

// CreatePull opens a merge request. If the branch has one already, CreatePull returns that one.
func (c *Client) CreatePull(ctx context.Context, repo forge.Name, p forge.NewPull) (forge.Pull, error) {
	title := forge.Line(c.Secrets.String(p.Title), maxTitle-len(draft))
	if p.Draft {
		title = draft + title
	}
	var made mergeRequest
	err := c.do(ctx, "open a merge request", http.MethodPost, repo,
		map[string]string{"source_branch": p.Head, "target_branch": p.Base, "title": title,
			"description": c.text(p.Body, "")},
		&made, func() bool { return made.IID != 0 }, "merge_requests")
	if !forge.HasStatus(err, http.StatusConflict) {
		return made.pull(), err
	}
	return forge.OrExisting(err, func() (forge.Pull, bool, error) { return c.openPull(ctx, repo, p.Head, p.Base) })
}

// EditPull replaces title and body. An empty one is not changed.
func (c *Client) EditPull(ctx context.Context, repo forge.Name, n int, title, body string) (forge.Pull, error) {
	change := map[string]any{}
	if title != "" {
		change["title"] = forge.Line(c.Secrets.String(title), maxTitle)
	}
	if body != "" {
		change["description"] = c.text(body, "")
	}
	m, err := c.edit(ctx, "edit a merge request", repo, n, change)
	return m.pull(), err
}

func (c *Client) edit(ctx context.Context, what string, repo forge.Name, n int, change map[string]any) (*mergeRequest, error) {
	var m mergeRequest
	err := c.do(ctx, what, http.MethodPut, repo, change, &m, func() bool { return m.IID == n }, "merge_requests", number(n))
	return &m, err
}

// AddLabels adds labels. Existing ones stay. GitLab makes those that the project does not have.
func (c *Client) AddLabels(ctx context.Context, repo forge.Name, n int, labels []string) error {
	if len(labels) == 0 {
		return nil
	}
	_, err := c.edit(ctx, "label a merge request", repo, n, map[string]any{"add_labels": strings.Join(labels, ",")})
	return err
}

// RequestReview requests a review from users, perhaps again. It leaves out users that GitLab does not know. Without a
// paid plan, GitLab keeps only one reviewer.
func (c *Client) RequestReview(ctx context.Context, repo forge.Name, n int, users []string) error {
	if len(users) == 0 {
		return nil
	}
	m, err := c.mergeRequest(ctx, repo, n)
	if err != nil {
		return err
	}
	var ids []int64
	var again []string
	for _, u := range m.Reviewers {
		ids = append(ids, u.ID)
	}
	known := len(ids)
	for _, name := range users {
		if !isUser(name) || strings.EqualFold(name, m.Author.Username) {
			continue
		}
		if slices.ContainsFunc(m.Reviewers, func(u user) bool { return strings.EqualFold(u.Username, name) }) {
			again = append(again, "@"+name)
			continue
		}
		id, err := c.userID(ctx, name)
		if err != nil {
			return err
		}
		if id != 0 {
			ids = append(ids, id)
		}
	}
	if len(ids) > known {
		if _, err := c.edit(ctx, "ask for a review", repo, n, map[string]any{"reviewer_ids": ids}); err != nil {
			return err
		}
	}
	if len(again) == 0 {
		return nil
	}
	// Only this command makes a reviewer of somebody who is one already. GitLab makes no note of it.
	return c.do(ctx, "ask for a review again", http.MethodPost, repo,
		map[string]string{"body": "/request_review " + strings.Join(again, " ")}, nil, nil,
		"merge_requests", number(n), "notes")
}
