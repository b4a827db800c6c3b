package gitea

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/rest"
	"github.com/ramus-dev/ramus/internal/redact"
)

// site is the title of this forge.
const site = "Gitea"

// Client uses Gitea's REST API. Its exported fields are its options and may be changed until the first call. Methods
// are safe for concurrent use. See [forge.Forge] for their errors.
type Client struct {
	URL   string // of the site, "https://gitea.example.org"
	Token string
	HTTP  *http.Client // if nil, the default one
	// Secrets are removed from all posts. It is nil if there are none.
	Secrets *redact.Secrets
	Log     *slog.Logger
	// Now and Sleep are the clock. A test replaces both or none.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error

	once sync.Once
	rest *rest.Client
	self forge.Self
}

var (
	_ forge.Forge   = (*Client)(nil)
	_ forge.Labeler = (*Client)(nil)
)

// Title returns "Gitea".
func (c *Client) Title() string { return site }

// FileURL returns the address of a file of a commit. Its content never changes.
func (c *Client) FileURL(repo forge.Name, commit, path string) string {
	u := url.URL{Path: "/" + repo.Owner + "/" + repo.Repo + "/raw/commit/" + commit + "/" + path}
	return strings.TrimSuffix(c.URL, "/") + u.String()
}

func (c *Client) api() *rest.Client {
	c.once.Do(func() {
		c.rest = &rest.Client{Site: site, URL: strings.TrimSuffix(c.URL, "/") + "/api/v1", HTTP: c.HTTP, Log: c.Log,
			Now: c.Now, Sleep: c.Sleep,
			Authorize: func(r *http.Request) { r.Header.Set("Authorization", "token "+c.Token) }}
	})
	return c.rest
}

// do makes a request below a repository. parts are not escaped.
func (c *Client) do(ctx context.Context, what, method string, repo forge.Name, body, out any, check func() bool, parts ...string) error {
	path, err := c.path(what, repo, parts)
	if err != nil {
		return err
	}
	_, err = c.api().Do(ctx, rest.Request{What: what, Method: method, Path: path, Body: body}, out, check)
	return err
}

// path returns the path of an object below a repository.
func (c *Client) path(what string, repo forge.Name, parts []string) (string, error) {
	if !repo.Valid(1) {
		return "", fmt.Errorf("cannot %s: %w", what, c.api().Refuse("%.200q is no name of a repository", repo))
	}
	return rest.Path(append([]string{"repos", repo.Owner, repo.Repo}, parts...)...), nil
}

func list[T any](ctx context.Context, c *Client, what string, repo forge.Name, parts ...string) ([]T, error) {
	path, err := c.path(what, repo, parts)
	if err != nil {
		return nil, err
	}
	return rest.List[T](ctx, c.api(), rest.Request{What: what, Path: path}, "limit")
}

// user is a user in an answer.
type user struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
}

// Me returns the login of the token's user.
func (c *Client) Me(ctx context.Context) (string, error) {
	return c.self.Get(func() (string, error) {
		var u user
		_, err := c.api().Do(ctx, rest.Request{What: "tell whose posts those of ramus are", Path: "/user"}, &u,
			func() bool { return u.Login != "" })
		return u.Login, err
	})
}

// CanWrite reports whether a user may push to the repository.
func (c *Client) CanWrite(ctx context.Context, repo forge.Name, login string) (bool, error) {
	if !isLogin(login) {
		return false, nil
	}
	var p struct {
		Permission string `json:"permission"`
	}
	err := c.do(ctx, "tell what a user may do", http.MethodGet, repo, nil, &p, nil, "collaborators", login, "permission")
	if errors.Is(err, forge.ErrNotFound) {
		return false, nil
	}
	switch p.Permission {
	case "write", "admin", "owner":
		return true, err
	}
	return false, err
}

// isLogin reports whether text can be the name of a user.
func isLogin(text string) bool { return forge.Name{Owner: text, Repo: "x"}.Valid(1) }

// DeleteBranch deletes a branch. A missing branch is no error.
func (c *Client) DeleteBranch(ctx context.Context, repo forge.Name, branch string) error {
	if !forge.ValidRef(branch) {
		return fmt.Errorf("cannot delete a branch: %w", c.api().Refuse("%.200q is no name of a branch", branch))
	}
	// Gitea reads the rest of the path as the name, so that its slashes are not escaped.
	err := c.do(ctx, "delete a branch", http.MethodDelete, repo, nil, nil, nil,
		append([]string{"branches"}, strings.Split(branch, "/")...)...)
	if !errors.Is(err, forge.ErrNotFound) {
		return err
	}
	// Gitea gives this answer also for a repository that the token may not see.
	return c.do(ctx, "delete a branch", http.MethodGet, repo, nil, nil, nil)
}

// Checks returns the newest commit status of each context. Workflows of Gitea Actions are among them.
func (c *Client) Checks(ctx context.Context, repo forge.Name, commit string) ([]forge.Check, error) {
	if !forge.ValidRef(commit) || strings.Contains(commit, "/") {
		return nil, fmt.Errorf("cannot list checks: %w", c.api().Refuse("%.200q is no name of a commit", commit))
	}
	all, err := list[status](ctx, c, "list checks", repo, "commits", commit, "statuses")
	if err != nil {
		return nil, err
	}
	newest := map[string]status{}
	var order []string
	for _, s := range all {
		before, known := newest[s.Context]
		if !known {
			order = append(order, s.Context)
		}
		if !known || s.ID > before.ID {
			newest[s.Context] = s
		}
	}
	var checks []forge.Check
	for _, name := range order {
		checks = append(checks, newest[name].check(commit))
	}
	return checks, nil
}

// SetStatus sets the status of ramus for a commit.
func (c *Client) SetStatus(ctx context.Context, repo forge.Name, s forge.Status) error {
	if !forge.ValidRef(s.Commit) || strings.Contains(s.Commit, "/") {
		return fmt.Errorf("cannot set a status: %w", c.api().Refuse("%.200q is no name of a commit", s.Commit))
	}
	body := map[string]string{"state": s.State, "context": forge.StatusName, "description": c.Secrets.String(s.Line()),
		"target_url": s.URL}
	return c.do(ctx, "set a status", http.MethodPost, repo, body, nil, nil, "statuses", s.Commit)
}

// status is a commit status.
type status struct {
	ID          int64  `json:"id"`
	State       string `json:"status"`
	Context     string `json:"context"`
	Description string `json:"description"`
	TargetURL   string `json:"target_url"`
}

func (s status) check(commit string) forge.Check {
	out := forge.Check{ID: s.ID, Name: s.Context, Commit: commit, URL: s.TargetURL, Title: forge.Bounded(s.Description),
		Status: "completed"}
	switch s.State {
	case "pending":
		out.Status = "in_progress"
	case "failure", "error":
		out.Conclusion = "failure"
	case "warning":
		out.Conclusion = "neutral"
	default:
		out.Conclusion = cmp.Or(s.State, "neutral")
	}
	return out
}

func number(n int) string { return strconv.Itoa(n) }
