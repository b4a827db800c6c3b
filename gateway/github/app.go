package github

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-github/v66/github"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/retry"
)

// App is a GitHub App that is installed in one account or several. Its exported fields are its options and may be
// changed until the first call. Methods are safe for concurrent use. They make one attempt. Retries are left to the
// caller.
type App struct {
	// ID is the App's id.
	ID int64
	// Installation is the id of the App's installation. If it is 0, GitHub is asked for that of a repository.
	Installation int64
	// Key is the App's private key. See [ParseKey].
	Key *rsa.PrivateKey
	// URL is the address of the API. The default is https://api.github.com/.
	URL string
	// HTTP is the client for the API. If it is nil, it is the default one. Each request ends after 30 s.
	HTTP *http.Client
	// Now is the clock. If it is nil, it is time.Now.
	Now func() time.Time

	once   sync.Once
	client *github.Client
	bad    error       // the error of an invalid URL
	lanes  retry.Lanes // one lane for each kind of token, so that each is requested once

	mu            sync.Mutex // guards the fields below
	tokens        map[tokenKey]issued
	installations map[string]int64 // by account
	login         string
}

type tokenKey struct {
	repo string // in lower case
	a    Access
}

// issued is the token of an installation, as GitHub issued it.
type issued struct {
	text    string
	expires time.Time
}

const (
	// assertionLife is the lifetime of an assertion. GitHub accepts at most 10 min by its own clock.
	assertionLife = 9 * time.Minute
	clockSkew     = time.Minute
	// tokenLeft is the minimum remaining lifetime of a returned token, because a clone may take that long. GitHub's
	// tokens last an hour.
	tokenLeft = 15 * time.Minute
	keyBits   = 2048 // minimum
)

// ParseKey reads the private key of an App in the format of GitHub, PEM with PKCS#1 or PKCS#8.
func ParseKey(text []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("cannot read the App's private key: it is no PEM block")
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		parsed, perr := x509.ParsePKCS8PrivateKey(block.Bytes)
		if perr != nil {
			return nil, fmt.Errorf("cannot read the App's private key: %w", err)
		}
		var ok bool
		if key, ok = parsed.(*rsa.PrivateKey); !ok {
			return nil, fmt.Errorf("cannot read the App's private key: %T is no RSA key", parsed)
		}
	}
	if key.N.BitLen() < keyBits {
		return nil, fmt.Errorf("cannot use the App's private key: it has %d bits, GitHub's have %d", key.N.BitLen(), keyBits)
	}
	return key, nil
}

// permissions returns the permissions of an access. Comments in a pull request's conversation and its labels need those
// of pull requests as well as those of issues.
func (a Access) permissions() (*github.InstallationPermissions, error) {
	read, write := "read", "write"
	switch a {
	case AccessRead:
		return &github.InstallationPermissions{Contents: &read}, nil
	case AccessWrite:
		return &github.InstallationPermissions{Contents: &write, PullRequests: &write}, nil
	case AccessInspect:
		return &github.InstallationPermissions{Contents: &read, PullRequests: &read, Issues: &read, Checks: &read,
			Actions: &read}, nil
	case AccessStatus:
		return &github.InstallationPermissions{Statuses: &write}, nil
	case AccessChecks:
		return &github.InstallationPermissions{Checks: &read}, nil
	}
	return nil, &forge.RefusedError{Forge: site, Message: fmt.Sprintf("%q is no access", string(a))}
}

// Token returns an installation token for one repository and the access a. It reuses an earlier one that lasts at least
// 15 more minutes. It refuses the zero Name, because a token without a repository would be valid for all.
func (a *App) Token(ctx context.Context, repo forge.Name, access Access) (string, error) {
	text, err := a.token(ctx, repo, access)
	if err != nil {
		return "", fmt.Errorf("cannot get a token of the GitHub App %d for %s: %w", a.ID, repo, plain(err))
	}
	return text, nil
}

func (a *App) token(ctx context.Context, repo forge.Name, access Access) (string, error) {
	if err := a.setup(); err != nil {
		return "", err
	}
	if !isName(repo) {
		return "", &forge.RefusedError{Forge: site, Message: "that is no name of a repository"}
	}
	allowed, err := access.permissions()
	if err != nil {
		return "", err
	}
	key := tokenKey{strings.ToLower(repo.String()), access}
	leave, err := a.lanes.Enter(ctx, key.repo+" "+string(access), 1)
	if err != nil {
		return "", err
	}
	defer leave(0)
	a.mu.Lock()
	t, ok := a.tokens[key]
	a.mu.Unlock()
	if ok && a.Now().Add(tokenLeft).Before(t.expires) {
		return t.text, nil
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	installation, err := a.installation(ctx, repo)
	if err != nil {
		return "", err
	}
	made, _, err := a.client.Apps.CreateInstallationToken(ctx, installation, &github.InstallationTokenOptions{
		Repositories: []string{repo.Repo}, Permissions: allowed})
	if err != nil {
		if errors.Is(err, forge.ErrNotFound) {
			a.forgetInstallation(repo) // the App may be installed again
		}
		return "", err
	}
	if made.GetToken() == "" || made.GetExpiresAt().IsZero() {
		return "", errors.New("the answer has no token")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tokens == nil {
		a.tokens = make(map[tokenKey]issued)
	}
	maps.DeleteFunc(a.tokens, func(_ tokenKey, t issued) bool { return !a.Now().Before(t.expires) })
	a.tokens[key] = issued{made.GetToken(), made.GetExpiresAt().Time}
	return made.GetToken(), nil
}

// installation returns the id of the installation for a repository.
func (a *App) installation(ctx context.Context, repo forge.Name) (int64, error) {
	if a.Installation != 0 {
		return a.Installation, nil
	}
	account := strings.ToLower(repo.Owner)
	a.mu.Lock()
	id := a.installations[account]
	a.mu.Unlock()
	if id != 0 {
		return id, nil
	}
	found, _, err := a.client.Apps.FindRepositoryInstallation(ctx, repo.Owner, repo.Repo)
	if err != nil {
		return 0, fmt.Errorf("cannot find where it is installed for that repository: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.installations == nil {
		a.installations = make(map[string]int64)
	}
	a.installations[account] = found.GetID()
	return found.GetID(), nil
}

func (a *App) forgetInstallation(repo forge.Name) {
	a.mu.Lock()
	delete(a.installations, strings.ToLower(repo.Owner))
	a.mu.Unlock()
}

// Forget drops a token that GitHub no longer accepts.
func (a *App) Forget(text string) {
	a.mu.Lock()
	maps.DeleteFunc(a.tokens, func(_ tokenKey, t issued) bool { return t.text == text })
	a.mu.Unlock()
}

// Login returns the author of the App's posts, such as "ramus[bot]". The answer is cached.
func (a *App) Login(ctx context.Context) (string, error) {
	if err := a.setup(); err != nil {
		return "", err
	}
	a.mu.Lock()
	login := a.login
	a.mu.Unlock()
	if login != "" {
		return login, nil
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	app, _, err := a.client.Apps.Get(ctx, "")
	if err == nil && app.GetSlug() == "" {
		err = errors.New("the answer has no slug")
	}
	if err != nil {
		return "", fmt.Errorf("cannot tell the name of the GitHub App %d: %w", a.ID, plain(err))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.login = app.GetSlug() + "[bot]"
	return a.login, nil
}

func (a *App) setup() error {
	a.once.Do(func() {
		if a.Now == nil {
			a.Now = time.Now
		}
		a.lanes.Now, a.lanes.Sleep = a.Now, retry.Sleep
		var base *url.URL
		if base, a.bad = baseURL(a.URL); a.bad != nil {
			return
		}
		t := &asserting{app: a}
		if a.HTTP != nil {
			t.next = a.HTTP.Transport
		}
		a.client = github.NewClient(&http.Client{Transport: t, CheckRedirect: stay})
		a.client.BaseURL, a.client.UserAgent = base, "ramus"
	})
	return a.bad
}

// asserting adds an assertion to each request.
type asserting struct {
	app  *App
	next http.RoundTripper
}

func (t *asserting) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := t.app.assertion()
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+text)
	return send(r, t.next, t.app.Now)
}

// assertion returns a proof that its bearer is the App, valid for some minutes.
func (a *App) assertion() (string, error) {
	now := a.Now()
	assertion := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer: strconv.FormatInt(a.ID, 10),
		// In the past, in case GitHub's clock is behind the local one.
		IssuedAt: jwt.NewNumericDate(now.Add(-clockSkew)), ExpiresAt: jwt.NewNumericDate(now.Add(assertionLife - clockSkew)),
	})
	text, err := assertion.SignedString(a.Key)
	if err != nil {
		return "", &forge.RefusedError{Forge: site, Message: fmt.Sprintf("cannot sign an assertion: %v", err)}
	}
	return text, nil
}
