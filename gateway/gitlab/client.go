package gitlab

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
const site = "GitLab"

// maxGroups is GitLab's limit for nested groups.
const maxGroups = 21

// Client uses GitLab's REST API. Its exported fields are its options and may be changed until the first call. Methods
// are safe for concurrent use. See [forge.Forge] for their errors.
type Client struct {
	URL   string // of the site, "https://gitlab.com"
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

	mu sync.Mutex // guards the field below
	// ids has the ids of users by their names in lower case.
	ids map[string]int64
}

var (
	_ forge.Forge   = (*Client)(nil)
	_ forge.Labeler = (*Client)(nil)
)

// Title returns "GitLab".
func (c *Client) Title() string { return site }

// FileURL returns the address of a file of a commit. Its content never changes.
func (c *Client) FileURL(repo forge.Name, commit, path string) string {
	u := url.URL{Path: "/" + repo.String() + "/-/raw/" + commit + "/" + path}
	return strings.TrimSuffix(c.URL, "/") + u.String()
}

func (c *Client) api() *rest.Client {
	c.once.Do(func() {
		c.rest = &rest.Client{Site: site, URL: strings.TrimSuffix(c.URL, "/") + "/api/v4", HTTP: c.HTTP, Log: c.Log,
			Now: c.Now, Sleep: c.Sleep,
			Authorize: func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+c.Token) }}
	})
	return c.rest
}

// request returns a request for an object below a project. parts are not escaped.
func (c *Client) request(what, method string, repo forge.Name, body any, parts ...string) (rest.Request, error) {
	if !repo.Valid(maxGroups) {
		return rest.Request{}, fmt.Errorf("cannot %s: %w", what, c.api().Refuse("%.200q is no name of a repository", repo))
	}
	return rest.Request{What: what, Method: method, Body: body,
		Path: rest.Path(append([]string{"projects", repo.String()}, parts...)...)}, nil
}

// do makes a request below a project.
func (c *Client) do(ctx context.Context, what, method string, repo forge.Name, body, out any, check func() bool, parts ...string) error {
	r, err := c.request(what, method, repo, body, parts...)
	if err == nil {
		_, err = c.api().Do(ctx, r, out, check)
	}
	return err
}

// list returns a list below a project.
func list[T any](ctx context.Context, c *Client, what string, repo forge.Name, query url.Values, parts ...string) ([]T, error) {
	r, err := c.request(what, http.MethodGet, repo, nil, parts...)
	if err != nil {
		return nil, err
	}
	r.Query = query
	return rest.List[T](ctx, c.api(), r, "per_page")
}

// user is a user in an answer.
type user struct {
	ID       int64  `json:"id"`
	Username string `json:"username"`
	Bot      bool   `json:"bot"`
}

// isBot reports whether a user is an access token of a project or a group. Most answers tell it only by the name.
func (u user) isBot() bool {
	rest, ok := strings.CutPrefix(u.Username, "project_")
	if !ok {
		rest, ok = strings.CutPrefix(u.Username, "group_")
	}
	id, _, bot := strings.Cut(rest, "_bot")
	return u.Bot || ok && bot && id != "" && strings.Trim(id, "0123456789") == ""
}

// Me returns the name of the token's user.
func (c *Client) Me(ctx context.Context) (string, error) {
	return c.self.Get(func() (string, error) {
		var u user
		_, err := c.api().Do(ctx, rest.Request{What: "tell whose posts those of ramus are", Path: "/user"}, &u,
			func() bool { return u.Username != "" })
		return u.Username, err
	})
}

// userID returns the id of a user. Returns 0 if there is none.
func (c *Client) userID(ctx context.Context, name string) (int64, error) {
	key := strings.ToLower(name)
	c.mu.Lock()
	id := c.ids[key]
	c.mu.Unlock()
	if id != 0 {
		return id, nil
	}
	var found []user
	_, err := c.api().Do(ctx,
		rest.Request{What: "look for a user", Path: "/users", Query: url.Values{"username": {name}}}, &found, nil)
	if err != nil {
		return 0, err
	}
	for _, u := range found {
		if strings.EqualFold(u.Username, name) {
			c.mu.Lock()
			if c.ids == nil || len(c.ids) >= maxUsers {
				c.ids = map[string]int64{}
			}
			c.ids[key] = u.ID
			c.mu.Unlock()
			return u.ID, nil
		}
	}
	return 0, nil
}

const (
	maxUsers = 10_000 // cached ids
	// developer is the access level from which a user may push.
	developer = 30
)

// CanWrite reports whether a user may push to the repository.
func (c *Client) CanWrite(ctx context.Context, repo forge.Name, name string) (bool, error) {
	if !isUser(name) {
		return false, nil
	}
	id, err := c.userID(ctx, name)
	if err != nil || id == 0 {
		return false, err
	}
	var m struct {
		Username string `json:"username"`
		Level    int    `json:"access_level"`
		State    string `json:"state"`
	}
	err = c.do(ctx, "tell what a user may do", http.MethodGet, repo, nil, &m, nil, "members", "all",
		strconv.FormatInt(id, 10))
	if errors.Is(err, forge.ErrNotFound) {
		return false, nil
	}
	// The name is compared, because a name may be given to another user.
	return m.Level >= developer && m.State == "active" && strings.EqualFold(m.Username, name), err
}

// isUser reports whether text can be the name of a user.
func isUser(text string) bool { return forge.Name{Owner: text, Repo: "x"}.Valid(1) }

// DeleteBranch deletes a branch. A missing branch is no error.
func (c *Client) DeleteBranch(ctx context.Context, repo forge.Name, branch string) error {
	if !forge.ValidRef(branch) {
		return fmt.Errorf("cannot delete a branch: %w", c.api().Refuse("%.200q is no name of a branch", branch))
	}
	err := c.do(ctx, "delete a branch", http.MethodDelete, repo, nil, nil, nil, "repository", "branches", branch)
	if !errors.Is(err, forge.ErrNotFound) {
		return err
	}
	// GitLab gives this answer also for a repository that the token may not see.
	return c.do(ctx, "delete a branch", http.MethodGet, repo, nil, nil, nil)
}

// job is a job, or a commit status that another program made.
type job struct {
	ID           int64  `json:"id"`
	SHA          string `json:"sha"`
	Ref          string `json:"ref"`
	Status       string `json:"status"`
	Name         string `json:"name"`
	Description  string `json:"description"`
	TargetURL    string `json:"target_url"`
	AllowFailure bool   `json:"allow_failure"`
}

// Checks returns the newest job or commit status of each name.
func (c *Client) Checks(ctx context.Context, repo forge.Name, commit string) ([]forge.Check, error) {
	if !forge.ValidRef(commit) || strings.Contains(commit, "/") {
		return nil, fmt.Errorf("cannot list checks: %w", c.api().Refuse("%.200q is no name of a commit", commit))
	}
	all, err := list[job](ctx, c, "list checks", repo, nil, "repository", "commits", commit, "statuses")
	var out []forge.Check
	for _, j := range all {
		check := forge.Check{ID: j.ID, Name: j.Name, Commit: cmp.Or(j.SHA, commit), Branch: j.Ref, URL: j.TargetURL,
			Title: forge.Bounded(j.Description)}
		check.Status, check.Conclusion = conclusion(j.Status, j.AllowFailure)
		out = append(out, check)
	}
	return out, err
}

// SetStatus sets the status of ramus for a commit. GitLab refuses to set a state again that a status has.
func (c *Client) SetStatus(ctx context.Context, repo forge.Name, s forge.Status) error {
	if !forge.ValidRef(s.Commit) || strings.Contains(s.Commit, "/") {
		return fmt.Errorf("cannot set a status: %w", c.api().Refuse("%.200q is no name of a commit", s.Commit))
	}
	body := map[string]string{"state": s.State, "name": forge.StatusName, "description": c.Secrets.String(s.Line())}
	if s.State == forge.StatusFailure {
		body["state"] = "failed"
	}
	if s.URL != "" {
		body["target_url"] = s.URL
	}
	all, err := list[job](ctx, c, "read a status", repo, url.Values{"name": {forge.StatusName}}, "repository",
		"commits", s.Commit, "statuses")
	if err != nil {
		return err
	}
	for _, j := range all {
		was, how := conclusion(j.Status, false)
		if is, now := conclusion(body["state"], false); j.Name == forge.StatusName && was == is && how == now {
			return nil
		}
	}
	return c.do(ctx, "set a status", http.MethodPost, repo, body, nil, nil, "statuses", s.Commit)
}

// conclusion returns the status and conclusion of a job or pipeline.
func conclusion(status string, mayFail bool) (string, string) {
	switch status {
	case "success", "skipped":
		return "completed", status
	case "failed":
		if mayFail {
			return "completed", "neutral"
		}
		return "completed", "failure"
	case "canceled":
		return "completed", "cancelled"
	case "manual":
		return "completed", "action_required"
	}
	return "in_progress", ""
}
