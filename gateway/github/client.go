package github

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/go-github/v66/github"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/internal/redact"
)

// DefaultURL is the address of GitHub's API.
const DefaultURL = "https://api.github.com/"

// site is the title of this forge.
const site = "GitHub"

// Client uses GitHub's REST API. Its exported fields are its options and may be changed until the first call. Methods
// are safe for concurrent use. They wait during rate limits (primary and secondary, by Retry-After and
// X-RateLimit-Reset) and outages of the API, until ctx ends. An error means that GitHub refused for good
// ([forge.ErrNotFound], [forge.ErrRefused]) or that ctx ended.
type Client struct {
	URL    string // of the API; default https://api.github.com/
	Tokens Tokens
	// Web is the URL of the pages for people. The default is https://github.com.
	Web  string
	HTTP *http.Client // if nil, one with a timeout of 30 s
	// Secrets are removed from all posts. It is nil if there are none.
	Secrets *redact.Secrets
	Log     *slog.Logger
	// Now and Sleep are the clock. A test replaces both or none.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
	// Patience is the longest pause that the client chooses itself. The default is 1 min.
	Patience time.Duration

	once  sync.Once
	base  *url.URL // URL with a slash at its end
	bad   error    // the error of an invalid URL
	lanes retry.Lanes
	kept  kept
	self  forge.Self
}

func (c *Client) setup() error {
	c.once.Do(func() {
		c.base, c.bad = baseURL(c.URL)
		c.HTTP = cmp.Or(c.HTTP, http.DefaultClient)
		c.Log = cmp.Or(c.Log, slog.Default())
		c.Patience = cmp.Or(c.Patience, time.Minute)
		if c.Now == nil {
			c.Now = time.Now
		}
		if c.Sleep == nil {
			c.Sleep = retry.Sleep
		}
		c.lanes.Now, c.lanes.Sleep = c.Now, c.Sleep
	})
	return c.bad
}

// baseURL returns the URL of an API with a slash at its end.
func baseURL(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSuffix(cmp.Or(text, DefaultURL), "/") + "/")
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, &forge.RefusedError{Forge: site, Message: fmt.Sprintf("%.200q is no URL of an API", text)}
	}
	return u, nil
}

// Title returns "GitHub".
func (c *Client) Title() string { return site }

// FileURL returns the address of a file of a commit. Its content never changes.
func (c *Client) FileURL(repo forge.Name, commit, path string) string {
	u := url.URL{Path: "/" + repo.Owner + "/" + repo.Repo + "/blob/" + commit + "/" + path, RawQuery: "raw=true"}
	return strings.TrimSuffix(cmp.Or(c.Web, "https://github.com"), "/") + u.String()
}

// Me returns the author of the client's posts ("ramus[bot]").
func (c *Client) Me(ctx context.Context) (string, error) {
	return c.self.Get(func() (string, error) { return c.askLogin(ctx) })
}

// askLogin asks for the author.
func (c *Client) askLogin(ctx context.Context) (me string, err error) {
	err = c.call(ctx, request{what: "tell whose posts those of ramus are", free: true},
		func(ctx context.Context, gh *github.Client) error {
			if own, ok := c.Tokens.(interface {
				Login(context.Context) (string, error)
			}); ok {
				login, err := own.Login(ctx)
				me = login
				return err
			}
			user, _, err := gh.Users.Get(ctx, "")
			if me = user.GetLogin(); err == nil && me == "" {
				return errEmpty
			}
			return err
		})
	return me, err
}

// CanWrite reports whether a user may push to the repository.
func (c *Client) CanWrite(ctx context.Context, repo forge.Name, user string) (bool, error) {
	if !isLogin(user) {
		return false, nil // an App, or an invalid name
	}
	var level string
	err := c.call(ctx, request{what: "tell what a user may do", repo: repo},
		func(ctx context.Context, gh *github.Client) error {
			p, _, err := gh.Repositories.GetPermissionLevel(ctx, repo.Owner, repo.Repo, user)
			level = p.GetPermission()
			return err
		})
	if errors.Is(err, forge.ErrNotFound) {
		return false, nil
	}
	// GitHub reports its role maintain as "write" here, and triage as "read".
	return level == "admin" || level == "write", err
}

// DeleteBranch deletes a branch. A missing branch is no error.
func (c *Client) DeleteBranch(ctx context.Context, repo forge.Name, branch string) error {
	if err := checkRef(branch); err != nil {
		return fmt.Errorf("cannot delete a branch: %w", err)
	}
	ref := "heads/" + branch
	err := c.call(ctx, request{what: "delete a branch", repo: repo, write: true},
		func(ctx context.Context, gh *github.Client) error {
			_, err := gh.Git.DeleteRef(ctx, repo.Owner, repo.Repo, ref)
			return err
		})
	if !forge.HasStatus(err, http.StatusUnprocessableEntity) {
		return err
	}
	// GitHub gives this answer if the branch does not exist, and if a rule protects it.
	lookErr := c.call(ctx, request{what: "look for a branch", repo: repo},
		func(ctx context.Context, gh *github.Client) error {
			_, _, err := gh.Git.GetRef(ctx, repo.Owner, repo.Repo, ref)
			return err
		})
	if errors.Is(lookErr, forge.ErrNotFound) {
		return nil
	}
	return err
}
