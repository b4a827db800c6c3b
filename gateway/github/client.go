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
	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/internal/redact"
)

// DefaultURL is the address of GitHub's API.
const DefaultURL = "https://api.github.com/"

// Kinds of error of this package. A rate limit that lasts longer than the caller waits, and an API that is down, are
// neither.
var (
	// ErrNotFound means that the object does not exist, or that the token may not see it.
	ErrNotFound = errors.New("not found at GitHub")
	// ErrRefused means that GitHub refuses the request for good, because it is wrong or not allowed.
	ErrRefused = errors.New("refused by GitHub")
)

// RefusedError is a refusal of GitHub that a retry does not change. It is [ErrNotFound] or [ErrRefused].
type RefusedError struct {
	Status  int    // of HTTP; 0 if no request was made
	Message string // GitHub's message, with its messages about fields
	Needed  string // permissions of which one would have sufficed, such as "pull_requests=write"
	Request string // GitHub's id of the request, for its support
}

func (e *RefusedError) Error() string {
	text := e.Unwrap().Error()
	if e.Status != 0 {
		text += fmt.Sprintf(": status %d", e.Status)
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Needed != "" && e.Status == http.StatusForbidden {
		text += " (needs the permission " + e.Needed + ")"
	}
	return text
}

// Unwrap returns the kind of the error.
func (e *RefusedError) Unwrap() error {
	if e.Status == http.StatusNotFound || e.Status == http.StatusGone {
		return ErrNotFound
	}
	return ErrRefused
}

// OfToken reports whether GitHub refuses the token or its permissions, and not the request. Its administrator can fix
// that, and a retry then helps.
func (e *RefusedError) OfToken() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
}

// Client uses GitHub's REST API. Its exported fields are its options and may be changed until the first call. Methods
// are safe for concurrent use. They wait during rate limits (primary and secondary, by Retry-After and
// X-RateLimit-Reset) and outages of the API, until ctx ends. An error means that GitHub refused for good
// ([ErrNotFound], [ErrRefused]) or that ctx ended.
type Client struct {
	URL    string // of the API; default https://api.github.com/
	Tokens Tokens
	HTTP   *http.Client // if nil, one with a timeout of 30 s
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

	mu sync.Mutex // guards me
	me string
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
		return nil, &RefusedError{Message: fmt.Sprintf("%.200q is no URL of an API", text)}
	}
	return u, nil
}

// Me returns the author of the client's posts ("ramus[bot]").
func (c *Client) Me(ctx context.Context) (string, error) {
	c.mu.Lock()
	me := c.me
	c.mu.Unlock()
	if me != "" {
		return me, nil
	}
	err := c.call(ctx, request{what: "tell whose posts those of ramus are", free: true}, func(ctx context.Context, gh *github.Client) error {
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
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	c.me = me
	c.mu.Unlock()
	return me, nil
}

// CanWrite reports whether a user may push to the repository.
func (c *Client) CanWrite(ctx context.Context, repo Name, user string) (bool, error) {
	if !isLogin(user) {
		return false, nil // an App, or an invalid name
	}
	var level string
	err := c.call(ctx, request{what: "tell what a user may do", repo: repo}, func(ctx context.Context, gh *github.Client) error {
		p, _, err := gh.Repositories.GetPermissionLevel(ctx, repo.Owner, repo.Repo, user)
		level = p.GetPermission()
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	// GitHub reports its role maintain as "write" here, and triage as "read".
	return level == "admin" || level == "write", err
}

// DeleteBranch deletes a branch. A missing branch is no error.
func (c *Client) DeleteBranch(ctx context.Context, repo Name, branch string) error {
	if err := checkRef(branch); err != nil {
		return fmt.Errorf("cannot delete a branch: %w", err)
	}
	ref := "heads/" + branch
	err := c.call(ctx, request{what: "delete a branch", repo: repo, write: true}, func(ctx context.Context, gh *github.Client) error {
		_, err := gh.Git.DeleteRef(ctx, repo.Owner, repo.Repo, ref)
		return err
	})
	if !hasStatus(err, http.StatusUnprocessableEntity) {
		return err
	}
	// GitHub gives this answer if the branch does not exist, and if a rule protects it.
	lookErr := c.call(ctx, request{what: "look for a branch", repo: repo}, func(ctx context.Context, gh *github.Client) error {
		_, _, err := gh.Git.GetRef(ctx, repo.Owner, repo.Repo, ref)
		return err
	})
	if errors.Is(lookErr, ErrNotFound) {
		return nil
	}
	return err
}
