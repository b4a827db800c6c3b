package github

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-github/v66/github"
)

// Installation is an account in which the App is installed.
type Installation struct {
	ID           int64  `json:"id"`
	Account      string `json:"account"`
	Organization bool   `json:"organization,omitempty"` // not a person
	// All means that the App may see all repositories of the account, not only chosen ones.
	All         bool              `json:"all,omitempty"`
	Suspended   bool              `json:"suspended,omitempty"`
	Permissions map[string]string `json:"permissions"` // "contents": "write"
}

func installationOf(i *github.Installation) Installation {
	out := Installation{ID: i.GetID(), Account: i.GetAccount().GetLogin(),
		Organization: i.GetAccount().GetType() == "Organization",
		All:          i.GetRepositorySelection() == "all", Suspended: !i.GetSuspendedAt().IsZero(),
		Permissions: map[string]string{}}
	// go-github has a field for each permission. As JSON they are a map.
	if b, err := json.Marshal(i.GetPermissions()); err == nil {
		_ = json.Unmarshal(b, &out.Permissions)
	}
	return out
}

// Repo is a repository that ramus may see at GitHub.
type Repo struct {
	Name         string    `json:"name"` // OWNER/REPO
	Organization bool      `json:"organization,omitempty"`
	URL          string    `json:"url"` // for git
	Base         string    `json:"base"`
	Private      bool      `json:"private,omitempty"`
	Fork         bool      `json:"fork,omitempty"`
	Archived     bool      `json:"archived,omitempty"`
	PushedAt     time.Time `json:"pushed_at,omitzero"`
}

func repoOf(r *github.Repository) Repo {
	return Repo{Name: r.GetFullName(), Organization: r.GetOwner().GetType() == "Organization", URL: r.GetCloneURL(),
		Base:    r.GetDefaultBranch(),
		Private: r.GetPrivate(), Fork: r.GetFork(), Archived: r.GetArchived(), PushedAt: r.GetPushedAt().Time}
}

// Installations returns the App's installations, by account. A token has none.
func (c *Client) Installations(ctx context.Context) ([]Installation, error) {
	app, ok := c.Tokens.(*App)
	if !ok {
		return nil, nil
	}
	all, err := list(ctx, c, request{what: "list installations", free: true, tokens: app.assert}, installationOf,
		func(ctx context.Context, gh *github.Client, o github.ListOptions) ([]*github.Installation,
			*github.Response, error) {
			return gh.Apps.ListInstallations(ctx, &o)
		})
	slices.SortFunc(all, func(a, b Installation) int { return strings.Compare(a.Account, b.Account) })
	return all, err
}

// Repos returns the repositories of an account that ramus may see, by name. If account is "", it returns those of all.
func (c *Client) Repos(ctx context.Context, account string) ([]Repo, error) {
	var all []Repo
	if app, ok := c.Tokens.(*App); ok {
		installations, err := c.Installations(ctx)
		if err != nil {
			return nil, err
		}
		for _, i := range installations {
			if i.Suspended || account != "" && !strings.EqualFold(i.Account, account) {
				continue
			}
			some, err := list(ctx, c,
				request{what: "list the repositories of " + i.Account, free: true, tokens: app.listing(i.ID)}, repoOf,
				func(ctx context.Context, gh *github.Client, o github.ListOptions) ([]*github.Repository,
					*github.Response, error) {
					page, resp, err := gh.Apps.ListRepos(ctx, &o)
					if err != nil || page == nil {
						return nil, resp, err
					}
					return page.Repositories, resp, nil
				})
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	} else {
		var err error
		all, err = list(ctx, c, request{what: "list repositories", free: true}, repoOf,
			func(ctx context.Context, gh *github.Client, o github.ListOptions) ([]*github.Repository,
				*github.Response, error) {
				return gh.Repositories.ListByAuthenticatedUser(ctx,
					&github.RepositoryListByAuthenticatedUserOptions{ListOptions: o})
			})
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(r Repo) bool {
			owner, _, _ := strings.Cut(r.Name, "/")
			return account != "" && !strings.EqualFold(owner, account)
		})
	}
	slices.SortFunc(all, func(a, b Repo) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// assert returns an assertion in place of a token.
func (a *App) assert(context.Context) (string, error) {
	if err := a.setup(); err != nil {
		return "", err
	}
	return a.assertion()
}

// listing returns a function that returns a token for the names of all repositories of an installation, and for nothing
// else.
func (a *App) listing(installation int64) func(context.Context) (string, error) {
	var token string
	return func(ctx context.Context) (string, error) {
		if token != "" {
			return token, nil // for the next page
		}
		if err := a.setup(); err != nil {
			return "", err
		}
		made, _, err := a.client.Apps.CreateInstallationToken(ctx, installation, &github.InstallationTokenOptions{
			Permissions: &github.InstallationPermissions{Metadata: github.String("read")}})
		if err != nil {
			return "", fmt.Errorf("cannot get a token of the GitHub App %d for its installation %d: %w", a.ID,
				installation, plain(err))
		}
		token = made.GetToken()
		return token, nil
	}
}
