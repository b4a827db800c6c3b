package gitea

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
)

// pull is a pull request in an answer.
type pull struct {
	Number      int    `json:"number"`
	URL         string `json:"html_url"`
	Title       string `json:"title"`
	Body        string `json:"body"`
	State       string `json:"state"`
	Draft       bool   `json:"draft"`
	Merged      bool   `json:"merged"`
	MergeCommit string `json:"merge_commit_sha"`
	User        user   `json:"user"`
	Head, Base  struct {
		Ref    string `json:"ref"`
		SHA    string `json:"sha"`
		RepoID int64  `json:"repo_id"`
	}
	Requested []user    `json:"requested_reviewers"`
	Labels    []label   `json:"labels"`
	UpdatedAt time.Time `json:"updated_at"`
}

type label struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

func (p *pull) pull() forge.Pull {
	out := forge.Pull{Number: p.Number, URL: p.URL, Title: p.Title, Body: forge.Bounded(p.Body),
		Open: p.State == "open", Draft: p.Draft, Merged: p.Merged,
		Head: p.Head.Ref, HeadSHA: p.Head.SHA, Base: p.Base.Ref, Author: p.User.Login, UpdatedAt: p.UpdatedAt}
	if p.Merged {
		out.MergeCommit = p.MergeCommit
	}
	for _, u := range p.Requested {
		out.Requested = append(out.Requested, u.Login)
	}
	for _, l := range p.Labels {
		out.Labels = append(out.Labels, l.Name)
	}
	return out
}

// Pull returns a pull request.
func (c *Client) Pull(ctx context.Context, repo forge.Name, n int) (forge.Pull, error) {
	var p pull
	err := c.do(ctx, "read a pull request", http.MethodGet, repo, nil, &p, func() bool { return p.Number == n },
		"pulls", number(n))
	return p.pull(), err
}

// openPull returns the open pull request of a branch into a base.
func (c *Client) openPull(ctx context.Context, repo forge.Name, head, base string) (p forge.Pull, found bool, err error) {
	all, err := list[pull](ctx, c, "look for a pull request", repo, "pulls")
	for _, one := range all {
		// A fork may have a branch of the same name.
		if one.State == "open" && one.Head.Ref == head && one.Base.Ref == base && one.Head.RepoID == one.Base.RepoID {
			return one.pull(), true, nil
		}
	}
	return forge.Pull{}, false, err
}

const (
	maxTitle = 255
	// maxText is ramus's own limit for a body, in characters. Gitea has none.
	maxText = 65536
	// draft begins the title of a draft.
	draft = "WIP: "
)

// CreatePull opens a pull request. If the branch has one already, CreatePull returns that one.
func (c *Client) CreatePull(ctx context.Context, repo forge.Name, p forge.NewPull) (forge.Pull, error) {
	title := forge.Line(c.Secrets.String(p.Title), maxTitle-len(draft))
	if p.Draft {
		title = draft + title
	}
	var made pull
	err := c.do(ctx, "open a pull request", http.MethodPost, repo,
		map[string]string{"head": p.Head, "base": p.Base, "title": title,
			"body": forge.Body(c.Secrets.String(p.Body), "", maxText, site)},
		&made, func() bool { return made.Number != 0 }, "pulls")
	if !forge.HasStatus(err, http.StatusConflict) {
		return made.pull(), err
	}
	return forge.OrExisting(err, func() (forge.Pull, bool, error) { return c.openPull(ctx, repo, p.Head, p.Base) })
}

// EditPull replaces title and body. An empty one is not changed.
func (c *Client) EditPull(ctx context.Context, repo forge.Name, n int, title, body string) (forge.Pull, error) {
	change := map[string]string{}
	if title != "" {
		change["title"] = forge.Line(c.Secrets.String(title), maxTitle)
	}
	if body != "" {
		change["body"] = forge.Body(c.Secrets.String(body), "", maxText, site)
	}
	var p pull
	err := c.do(ctx, "edit a pull request", http.MethodPatch, repo, change, &p, func() bool { return p.Number == n },
		"pulls", number(n))
	return p.pull(), err
}

// AddLabels adds labels. Existing ones stay. A label that the repository does not have is made.
func (c *Client) AddLabels(ctx context.Context, repo forge.Name, n int, names []string) error {
	if len(names) == 0 {
		return nil
	}
	known, err := list[label](ctx, c, "list labels", repo, "labels")
	if err != nil {
		return err
	}
	var ids []int64
	for _, name := range names {
		i := slices.IndexFunc(known, func(l label) bool { return strings.EqualFold(l.Name, name) })
		if i < 0 {
			var made label
			err := c.do(ctx, "make a label", http.MethodPost, repo, map[string]string{"name": name, "color": "#8250df"},
				&made, func() bool { return made.ID != 0 }, "labels")
			if err != nil {
				return err
			}
			known = append(known, made)
			i = len(known) - 1
		}
		ids = append(ids, known[i].ID)
	}
	return c.do(ctx, "label a pull request", http.MethodPost, repo, map[string][]int64{"labels": ids}, nil, nil,
		"issues", number(n), "labels")
}

// RequestReview requests a review from users, perhaps again. It leaves out users that Gitea does not accept.
func (c *Client) RequestReview(ctx context.Context, repo forge.Name, n int, users []string) error {
	for _, one := range users {
		if !isLogin(one) {
			continue
		}
		// One request for each, because Gitea refuses a request as a whole.
		err := c.do(ctx, "ask for a review", http.MethodPost, repo, map[string][]string{"reviewers": {one}}, nil, nil,
			"pulls", number(n), "requested_reviewers")
		if forge.HasStatus(err, http.StatusUnprocessableEntity) {
			continue
		}
		if errors.Is(err, forge.ErrNotFound) { // the user, or the pull request
			if _, err = c.Pull(ctx, repo, n); err == nil {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("cannot ask %s for a review: %w", one, err)
		}
	}
	return nil
}
