package bitbucket

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/rest"
)

// branch is an end of a pull request.
type branch struct {
	Branch struct {
		Name string `json:"name"`
	} `json:"branch"`
	Commit struct {
		Hash string `json:"hash"`
	} `json:"commit"`
	Repository struct {
		FullName string `json:"full_name"`
	} `json:"repository"`
}

// pull is a pull request in an answer.
type pull struct {
	ID          int    `json:"id"`
	Title       string `json:"title"`
	Description string `json:"description"`
	State       string `json:"state"` // OPEN, MERGED, DECLINED, SUPERSEDED
	Draft       bool   `json:"draft"`
	Author      user   `json:"author"`
	Source      branch `json:"source"`
	Destination branch `json:"destination"`
	Merge       *struct {
		Hash string `json:"hash"`
	} `json:"merge_commit"`
	Links struct {
		HTML struct {
			Href string `json:"href"`
		} `json:"html"`
	} `json:"links"`
	Reviewers    []user        `json:"reviewers"`
	Participants []participant `json:"participants"`
	Updated      time.Time     `json:"updated_on"`
}

// participant is somebody who takes part in a pull request, with the present verdict.
type participant struct {
	User     user      `json:"user"`
	Approved bool      `json:"approved"`
	State    string    `json:"state"` // approved, changes_requested, or empty
	At       time.Time `json:"participated_on"`
}

func (p *pull) pull() forge.Pull {
	out := forge.Pull{Number: p.ID, URL: p.Links.HTML.Href, Title: p.Title, Body: forge.Bounded(p.Description),
		Open: p.State == "OPEN", Draft: p.Draft,
		Merged: p.State == "MERGED", Head: p.Source.Branch.Name, HeadSHA: p.Source.Commit.Hash,
		Base: p.Destination.Branch.Name, Author: p.Author.UUID,
		UpdatedAt: p.Updated}
	if out.Merged && p.Merge != nil {
		out.MergeCommit = p.Merge.Hash
	}
	for _, u := range p.Reviewers {
		out.Requested = append(out.Requested, u.UUID)
	}
	return out
}

func (c *Client) pull(ctx context.Context, repo forge.Name, n int) (*pull, error) {
	var p pull
	err := c.do(ctx, "read a pull request", http.MethodGet, repo, nil, &p, func() bool { return p.ID == n },
		"pullrequests", number(n))
	return &p, err
}

// Pull returns a pull request.
func (c *Client) Pull(ctx context.Context, repo forge.Name, n int) (forge.Pull, error) {
	p, err := c.pull(ctx, repo, n)
	return p.pull(), err
}

// openPull returns the open pull request of a branch into a base.
func (c *Client) openPull(ctx context.Context, repo forge.Name, head, base string) (p forge.Pull, found bool, err error) {
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	all, err := list[pull](ctx, c, "look for a pull request", repo,
		`state="OPEN" AND source.branch.name="`+quoted.Replace(head)+`" AND destination.branch.name="`+
			quoted.Replace(base)+`"`, "pullrequests")
	for _, one := range all {
		// A fork may have a branch of the same name.
		if one.State == "OPEN" && one.Source.Branch.Name == head && one.Destination.Branch.Name == base &&
			strings.EqualFold(one.Source.Repository.FullName, one.Destination.Repository.FullName) {
			return one.pull(), true, nil
		}
	}
	return forge.Pull{}, false, err
}

const (
	maxTitle = 255
	maxText  = 32768 // characters of a body
)

// end returns the name of a branch as a request has it.
func end(name string) map[string]any {
	return map[string]any{"branch": map[string]string{"name": name}}
}

// CreatePull opens a pull request. If the branch has one already, CreatePull returns that one. Bitbucket does not
// refuse a second one, so it is looked for before.
func (c *Client) CreatePull(ctx context.Context, repo forge.Name, p forge.NewPull) (forge.Pull, error) {
	const what = "open a pull request"
	r, err := c.request(what, http.MethodPost, repo,
		map[string]any{"title": forge.Line(c.Secrets.String(p.Title), maxTitle), "description": c.text(p.Body, ""),
			"source": end(p.Head), "destination": end(p.Base), "draft": p.Draft}, "pullrequests")
	if err != nil {
		return forge.Pull{}, err
	}
	var there forge.Pull
	r.Done = func() (found bool, err error) {
		there, found, err = c.openPull(ctx, repo, p.Head, p.Base)
		return found, err
	}
	if found, err := r.Done(); found || err != nil {
		return there, err
	}
	var made pull
	_, err = c.api().Do(ctx, r, &made, func() bool { return made.ID != 0 })
	if there.Number != 0 {
		return there, err
	}
	return made.pull(), err
}

// EditPull replaces title and body. An empty one is not changed.
func (c *Client) EditPull(ctx context.Context, repo forge.Name, n int, title, body string) (forge.Pull, error) {
	p, err := c.change(ctx, "edit a pull request", repo, n, func(p *pull) {
		if title != "" {
			p.Title = forge.Line(c.Secrets.String(title), maxTitle)
		}
		if body != "" {
			p.Description = c.text(body, "")
		}
	})
	return p.pull(), err
}

// change changes title, description and reviewers. Bitbucket replaces all three.
func (c *Client) change(ctx context.Context, what string, repo forge.Name, n int, f func(*pull)) (*pull, error) {
	p, err := c.pull(ctx, repo, n)
	if err != nil {
		return p, err
	}
	f(p)
	reviewers := []map[string]string{}
	for _, u := range p.Reviewers {
		reviewers = append(reviewers, map[string]string{"uuid": u.UUID})
	}
	var out pull
	err = c.do(ctx, what, http.MethodPut, repo,
		map[string]any{"title": p.Title, "description": p.Description, "reviewers": reviewers}, &out,
		func() bool { return out.ID == n }, "pullrequests", number(n))
	return &out, err
}

// RequestReview makes users reviewers. Bitbucket has no second request. RequestReview leaves out users that Bitbucket
// does not accept.
func (c *Client) RequestReview(ctx context.Context, repo forge.Name, n int, users []string) error {
	for _, uuid := range users {
		if !isUUID(uuid) {
			continue
		}
		p, err := c.pull(ctx, repo, n)
		if err != nil {
			return err
		}
		if p.Author.UUID == uuid || slices.ContainsFunc(p.Reviewers, func(u user) bool { return u.UUID == uuid }) {
			continue
		}
		// One request for each, because Bitbucket refuses a request as a whole.
		_, err = c.change(ctx, "ask for a review", repo, n,
			func(p *pull) { p.Reviewers = append(p.Reviewers, user{UUID: uuid}) })
		var refused *forge.RefusedError
		if errors.As(err, &refused) && refused.Status == http.StatusBadRequest {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// comment is a comment in an answer.
type comment struct {
	ID      int64 `json:"id"`
	Content struct {
		Raw string `json:"raw"`
	} `json:"content"`
	User    user      `json:"user"`
	Created time.Time `json:"created_on"`
	Deleted bool      `json:"deleted"`
	Pending bool      `json:"pending"`
	Parent  *struct {
		ID int64 `json:"id"`
	} `json:"parent"`
	Inline *struct {
		Path string `json:"path"`
		From int    `json:"from"`
		To   int    `json:"to"`
	} `json:"inline"`
	Links struct {
		HTML struct {
			Href string `json:"href"`
		} `json:"html"`
	} `json:"links"`
}

func (m comment) comment() forge.Comment {
	out := forge.Comment{ID: m.ID, Issue: m.Inline == nil, User: m.User.UUID, Shown: m.User.shown(),
		Bot: m.User.isBot(), Body: forge.Bounded(m.Content.Raw),
		URL: m.Links.HTML.Href, CreatedAt: m.Created}
	if m.Parent != nil {
		out.InReplyTo = m.Parent.ID
	}
	if in := m.Inline; in != nil {
		out.Path, out.Line, out.Side = in.Path, in.To, "RIGHT"
		if in.To == 0 && in.From != 0 {
			out.Line, out.Side = in.From, "LEFT"
		}
	}
	return out
}

// Comments returns all comments of a pull request, on lines and in the conversation, oldest first.
func (c *Client) Comments(ctx context.Context, repo forge.Name, n int) ([]forge.Comment, error) {
	all, err := list[comment](ctx, c, "list comments", repo, "", "pullrequests", number(n), "comments")
	if err != nil {
		return nil, err
	}
	var out []forge.Comment
	for _, m := range all {
		if !m.Deleted && !m.Pending {
			out = append(out, m.comment())
		}
	}
	slices.SortStableFunc(out, func(a, b forge.Comment) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return out, nil
}

// Reviews returns the present verdicts of people, oldest first. Bitbucket has no list of reviews.
func (c *Client) Reviews(ctx context.Context, repo forge.Name, n int) ([]forge.Review, error) {
	p, err := c.pull(ctx, repo, n)
	if err != nil {
		return nil, err
	}
	var out []forge.Review
	for _, one := range p.Participants {
		state := one.State
		if one.Approved {
			state = forge.ReviewApproved
		}
		if state != forge.ReviewApproved && state != forge.ReviewChanges {
			continue
		}
		out = append(out, forge.Review{ID: derived(one.User.UUID, state, one.At.UTC().Format(time.RFC3339Nano)),
			User: one.User.UUID, Shown: one.User.shown(),
			Bot: one.User.isBot(), State: state, SubmittedAt: one.At})
	}
	slices.SortStableFunc(out, func(a, b forge.Review) int { return a.SubmittedAt.Compare(b.SubmittedAt) })
	return out, nil
}

// Reply answers a comment in its thread, once for each mark.
func (c *Client) Reply(ctx context.Context, repo forge.Name, n int, to forge.Comment, body, mark string) (forge.Comment, error) {
	return c.post(ctx, "answer a comment", repo, n, to.ID, body, mark)
}

// Say posts a comment in the conversation, once for each mark.
func (c *Client) Say(ctx context.Context, repo forge.Name, n int, body, mark string) (forge.Comment, error) {
	return c.post(ctx, "comment on a pull request", repo, n, 0, body, mark)
}

func (c *Client) post(ctx context.Context, what string, repo forge.Name, n int, to int64, body, mark string) (forge.Comment, error) {
	write := func(ctx context.Context, trailer string, done func() (bool, error)) (forge.Comment, error) {
		in := map[string]any{"content": map[string]string{"raw": c.text(body, trailer)}}
		if to != 0 {
			in["parent"] = map[string]int64{"id": to}
		}
		r, err := c.request(what, http.MethodPost, repo, in, "pullrequests", number(n), "comments")
		if err != nil {
			return forge.Comment{}, err
		}
		r.Done = done
		var made comment
		_, err = c.api().Do(ctx, r, &made, func() bool { return made.ID != 0 })
		return made.comment(), err
	}
	return c.api().Post(ctx, rest.Post{What: what, Where: repo, Mark: mark, Trailer: trailer(mark), Me: c.Me, Write: write,
		Read: func(ctx context.Context) ([]forge.Comment, error) { return c.Comments(ctx, repo, n) }})
}

// trailer returns the last line of a post with a mark, a definition of a link that nobody uses. Unlike a comment of
// HTML, Bitbucket does not show it.
func trailer(mark string) string {
	if mark == "" {
		return ""
	}
	return "[//]: # (" + forge.Mark(mark) + ")"
}

// unfolded replaces the HTML of folded parts.
var unfolded = strings.NewReplacer("<details>\n<summary>", "**", "</summary>", "**", "\n</details>", "", "<details>",
	"", "</details>", "")

// text prepares a body for a post.
func (c *Client) text(body, trailer string) string {
	return forge.Body(unfolded.Replace(c.Secrets.String(body)), trailer, maxText, site)
}
