// Package github speaks to GitHub: here as an App that is installed in an
// account, which gets tokens that let git read a repository for an hour.
//
// The App's private key signs short-lived assertions (RS256 JWTs), each good for
// asking for tokens alone; a token is asked for one repository and for reading
// its contents, whatever more the installation may do.
package github

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-github/v66/github"

	"github.com/ramus-dev/ramus/gitd"
)

// App is one installation of a GitHub App. Its exported fields are its options
// and may be changed until the first call. Methods are safe for concurrent use.
type App struct {
	// ID is the App's id, Installation the id of its installation.
	ID, Installation int64
	// Key is the App's private key; see [ParseKey].
	Key *rsa.PrivateKey
	// URL of the API; default https://api.github.com/.
	URL string
	// HTTP is the client for the API; nil: one with a time-out of 30 s.
	HTTP *http.Client
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mu     sync.Mutex // guards all below; held while a token is asked for, so that it is asked for once
	client *github.Client
	tokens map[string]token // by repository
}

type token struct {
	text    string
	expires time.Time
}

const (
	// assertionLife is how long an assertion is good for; GitHub takes 10 min at
	// most, and counts from its own clock.
	assertionLife = 9 * time.Minute
	clockSkew     = time.Minute
	// tokenLeft is how long a token that is handed out is good for at least: a
	// clone may take so long. GitHub's live an hour.
	tokenLeft   = 15 * time.Minute
	requestTime = 30 * time.Second
	keyBits     = 2048 // at least
)

// ParseKey reads the private key of an App, as GitHub gives it out: PEM, PKCS#1 or PKCS#8.
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

// Credential is what lets git read the repository at upstream, a URL such as
// https://github.com/acme/app.git. It is a token that was made before, as long
// as that is good for a while.
func (a *App) Credential(ctx context.Context, upstream string) (gitd.Credential, error) {
	repo, err := repository(upstream)
	if err != nil {
		return gitd.Credential{}, err
	}
	text, err := a.Token(ctx, repo)
	return gitd.Credential{User: "x-access-token", Password: text}, err
}

// repository is the last part of a repository's URL: an installation is in one account.
func repository(upstream string) (string, error) {
	u, err := url.Parse(upstream)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return "", fmt.Errorf("cannot get a token for %.200q: want an https:// URL", upstream)
	}
	path := strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")
	name := path[strings.LastIndexByte(path, '/')+1:]
	if name == "" {
		return "", fmt.Errorf("cannot get a token for %.200q: it names no repository", upstream)
	}
	return name, nil
}

// Token is an installation token that reads the contents of one repository, by
// its name without the owner.
func (a *App) Token(ctx context.Context, repo string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t, ok := a.tokens[repo]; ok && a.now().Add(tokenLeft).Before(t.expires) {
		return t.text, nil
	}
	t, err := a.mint(ctx, repo)
	if err != nil {
		return "", fmt.Errorf("cannot get a token of the GitHub App %d for %s: %w", a.ID, repo, err)
	}
	if a.tokens == nil {
		a.tokens = make(map[string]token)
	}
	a.tokens[repo] = t
	return t.text, nil
}

func (a *App) now() time.Time {
	if a.Now == nil {
		return time.Now()
	}
	return a.Now()
}

// mint asks for a token. Called under mu.
func (a *App) mint(ctx context.Context, repo string) (token, error) {
	if a.client == nil {
		if err := a.dial(); err != nil {
			return token{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	read := "read"
	t, _, err := a.client.Apps.CreateInstallationToken(ctx, a.Installation, &github.InstallationTokenOptions{
		Repositories: []string{repo}, Permissions: &github.InstallationPermissions{Contents: &read}})
	if err != nil {
		return token{}, err
	}
	if t.GetToken() == "" || t.GetExpiresAt().IsZero() {
		return token{}, errors.New("the answer has no token")
	}
	return token{t.GetToken(), t.GetExpiresAt().Time}, nil
}

func (a *App) dial() error {
	base := a.URL
	if base == "" {
		base = "https://api.github.com/"
	}
	u, err := url.Parse(strings.TrimSuffix(base, "/") + "/")
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("%q is no URL of GitHub's API", a.URL)
	}
	plain := a.HTTP
	if plain == nil {
		plain = &http.Client{}
	}
	own := *plain
	own.Transport = &asserting{app: a, next: own.Transport}
	// A redirect would carry the assertion to whoever is named there.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	a.client = github.NewClient(&own)
	a.client.BaseURL, a.client.UserAgent = u, "ramus"
	return nil
}

// asserting puts an assertion into each request.
type asserting struct {
	app  *App
	next http.RoundTripper
}

func (t *asserting) RoundTrip(r *http.Request) (*http.Response, error) {
	now := t.app.now()
	assertion := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer: strconv.FormatInt(t.app.ID, 10),
		// In the past, for a clock that is behind ours.
		IssuedAt: jwt.NewNumericDate(now.Add(-clockSkew)), ExpiresAt: jwt.NewNumericDate(now.Add(assertionLife - clockSkew)),
	})
	text, err := assertion.SignedString(t.app.Key)
	if err != nil {
		return nil, fmt.Errorf("cannot sign an assertion: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+text)
	next := t.next
	if next == nil {
		next = http.DefaultTransport
	}
	return next.RoundTrip(r)
}
