package bitbucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
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

const (
	// site is the title of this forge.
	site = "Bitbucket"
	// DefaultURL is the address of the API.
	DefaultURL = "https://api.bitbucket.org/2.0"
)

// Client uses Bitbucket's REST API. Its exported fields are its options and may be changed until the first call.
// Methods are safe for concurrent use. See [forge.Forge] for their errors.
type Client struct {
	URL string // of the API; default [DefaultURL]
	Web string // of the site; default https://bitbucket.org
	// User is the e-mail address of the user of an API token. It is empty for an access token.
	User  string
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

var _ forge.Forge = (*Client)(nil)

// Title returns "Bitbucket".
func (c *Client) Title() string { return site }

// FileURL returns the address of a file of a commit. Its content never changes.
func (c *Client) FileURL(repo forge.Name, commit, path string) string {
	u := url.URL{Path: "/" + repo.String() + "/raw/" + commit + "/" + path}
	return strings.TrimSuffix(cmp.Or(c.Web, "https://bitbucket.org"), "/") + u.String()
}

func (c *Client) api() *rest.Client {
	c.once.Do(func() {
		c.rest = &rest.Client{Site: site, URL: cmp.Or(c.URL, DefaultURL), HTTP: c.HTTP, Log: c.Log, Now: c.Now,
			Sleep: c.Sleep,
			Authorize: func(r *http.Request) {
				if c.User != "" {
					r.SetBasicAuth(c.User, c.Token)
				} else {
					r.Header.Set("Authorization", "Bearer "+c.Token)
				}
			}}
	})
	return c.rest
}

// request returns a request for an object below a repository. parts are not escaped.
func (c *Client) request(what, method string, repo forge.Name, body any, parts ...string) (rest.Request, error) {
	if !repo.Valid(1) {
		return rest.Request{}, fmt.Errorf("cannot %s: %w", what, c.api().Refuse("%.200q is no name of a repository", repo))
	}
	return rest.Request{What: what, Method: method, Body: body,
		Path: rest.Path(append([]string{"repositories", repo.Owner, repo.Repo}, parts...)...)}, nil
}

// do makes a request below a repository.
func (c *Client) do(ctx context.Context, what, method string, repo forge.Name, body, out any, check func() bool, parts ...string) error {
	r, err := c.request(what, method, repo, body, parts...)
	if err == nil {
		_, err = c.api().Do(ctx, r, out, check)
	}
	return err
}

// list returns a list below a repository. filter is a query of Bitbucket's, or "".
func list[T any](ctx context.Context, c *Client, what string, repo forge.Name, filter string, parts ...string) ([]T, error) {
	r, err := c.request(what, http.MethodGet, repo, nil, parts...)
	if err != nil {
		return nil, err
	}
	r.Query = url.Values{"pagelen": {"50"}}
	if filter != "" {
		r.Query.Set("q", filter)
	}
	return rest.ListValues[T](ctx, c.api(), r)
}

// user is a user in an answer.
type user struct {
	UUID     string `json:"uuid"`
	Nickname string `json:"nickname"`
	Display  string `json:"display_name"`
	Type     string `json:"type"`
}

func (u user) shown() string { return cmp.Or(u.Nickname, u.Display) }

// isBot reports whether a user is an app.
func (u user) isBot() bool { return u.Type != "" && u.Type != "user" }

// isUUID reports whether text can be the UUID of a user, "{…}".
func isUUID(text string) bool {
	return len(text) == 38 && text[0] == '{' && text[37] == '}' && strings.Trim(text[1:37], "0123456789abcdef-") == ""
}

// Me returns the UUID of the token's user.
func (c *Client) Me(ctx context.Context) (string, error) {
	return c.self.Get(func() (string, error) {
		var u user
		_, err := c.api().Do(ctx, rest.Request{What: "tell whose posts those of ramus are", Path: "/user"}, &u,
			func() bool { return u.UUID != "" })
		return u.UUID, err
	})
}

// CanWrite reports whether a user may push to the repository.
func (c *Client) CanWrite(ctx context.Context, repo forge.Name, uuid string) (bool, error) {
	if !isUUID(uuid) {
		return false, nil
	}
	const what = "tell what a user may do"
	if _, err := c.request(what, http.MethodGet, repo, nil); err != nil {
		return false, err
	}
	all, err := rest.ListValues[struct {
		Permission string `json:"permission"`
		User       user   `json:"user"`
	}](ctx, c.api(), rest.Request{What: what,
		Path:  rest.Path("workspaces", repo.Owner, "permissions", "repositories", repo.Repo),
		Query: url.Values{"pagelen": {"50"}, "q": {`permission>"read"`}}})
	if errors.Is(err, forge.ErrNotFound) {
		return false, nil
	}
	for _, p := range all {
		if p.User.UUID == uuid && (p.Permission == "write" || p.Permission == "admin") {
			return true, nil
		}
	}
	return false, err
}

// DeleteBranch deletes a branch. A missing branch is no error.
func (c *Client) DeleteBranch(ctx context.Context, repo forge.Name, branch string) error {
	if !forge.ValidRef(branch) {
		return fmt.Errorf("cannot delete a branch: %w", c.api().Refuse("%.200q is no name of a branch", branch))
	}
	err := c.do(ctx, "delete a branch", http.MethodDelete, repo, nil, nil, nil,
		append([]string{"refs", "branches"}, strings.Split(branch, "/")...)...)
	if !errors.Is(err, forge.ErrNotFound) {
		return err
	}
	// Bitbucket gives this answer also for a repository that the token may not see.
	return c.do(ctx, "delete a branch", http.MethodGet, repo, nil, nil, nil)
}

// status is a build status of a commit. It has no number.
type status struct {
	Key         string `json:"key"`
	Name        string `json:"name"`
	State       string `json:"state"`
	URL         string `json:"url"`
	Description string `json:"description"`
	Ref         string `json:"refname"`
	Updated     string `json:"updated_on"`
}

func (s status) check(commit string) forge.Check {
	out := forge.Check{ID: derived(commit, s.Key, s.State, s.Updated), Name: cmp.Or(s.Name, s.Key), Commit: commit,
		Branch: s.Ref, URL: s.URL,
		Title: forge.Bounded(s.Description), Status: "completed"}
	switch s.State {
	case "SUCCESSFUL":
		out.Conclusion = "success"
	case "FAILED":
		out.Conclusion = "failure"
	case "STOPPED":
		out.Conclusion = "cancelled"
	default:
		out.Status = "in_progress"
	}
	return out
}

// derived returns a number for an object without one.
func derived(parts ...string) int64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(strings.Join(parts, "\x00"))) // never fails
	return int64(sum.Sum64()>>2 | 1<<61)
}

// Checks returns the build statuses of a commit. Bitbucket keeps the newest of each key.
func (c *Client) Checks(ctx context.Context, repo forge.Name, commit string) ([]forge.Check, error) {
	if !forge.ValidRef(commit) || strings.Contains(commit, "/") {
		return nil, fmt.Errorf("cannot list checks: %w", c.api().Refuse("%.200q is no name of a commit", commit))
	}
	all, err := list[status](ctx, c, "list checks", repo, "", "commit", commit, "statuses")
	var out []forge.Check
	for _, s := range all {
		out = append(out, s.check(commit))
	}
	return out, err
}

// SetStatus sets the status of ramus for a commit. Bitbucket demands an address, which is that of the commit if there is no
// other.
func (c *Client) SetStatus(ctx context.Context, repo forge.Name, s forge.Status) error {
	if !forge.ValidRef(s.Commit) || strings.Contains(s.Commit, "/") {
		return fmt.Errorf("cannot set a status: %w", c.api().Refuse("%.200q is no name of a commit", s.Commit))
	}
	state := map[string]string{forge.StatusSuccess: "SUCCESSFUL", forge.StatusFailure: "FAILED",
		forge.StatusPending: "INPROGRESS"}[s.State]
	body := map[string]string{"key": forge.StatusName, "name": forge.StatusName, "state": state,
		"description": c.Secrets.String(s.Line()),
		"url":         cmp.Or(s.URL, "https://bitbucket.org/"+repo.String()+"/commits/"+s.Commit)}
	return c.do(ctx, "set a status", http.MethodPost, repo, body, nil, nil, "commit", s.Commit, "statuses", "build")
}

func number(n int) string { return strconv.Itoa(n) }
