package github

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/google/go-github/v66/github"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/internal/text"
)

// SignIn determines the identity of a person at GitHub, by the web application flow of OAuth (RFC 6749, with PKCE, RFC
// 7636), of a GitHub App or an OAuth App. It stores nothing. The user's token serves for three requests, and is then
// revoked or left to the caller. The exported fields are options and may be changed until the first call. Methods are
// safe for concurrent use.
//
// See https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps.
type SignIn struct {
	URL          string // of the page for people; default https://github.com
	API          string // default https://api.github.com/
	ClientID     string
	ClientSecret string
	HTTP         *http.Client     // if nil, the default one
	Now          func() time.Time // if nil, time.Now
	Log          *slog.Logger     // if nil, slog.Default
}

// Attempt is one sign-in in progress. It belongs to the browser that started it.
type Attempt struct {
	State    string // returned with the code, and proves that it is the same browser
	Verifier string // required to use the code
}

// scopes are those that an OAuth App requests. Those of a GitHub App are set at GitHub.
const scopes = "read:user user:email read:org"

// Begin returns the URL of the page at GitHub for the person. redirect is the URL to which the person returns.
func (s *SignIn) Begin(a Attempt, redirect string) string {
	sum := sha256.Sum256([]byte(a.Verifier))
	q := url.Values{"client_id": {s.ClientID}, "redirect_uri": {redirect}, "scope": {scopes}, "state": {a.State},
		"allow_signup":   {"false"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}}
	return s.site("/login/oauth/authorize") + "?" + q.Encode()
}

func (s *SignIn) site(path string) string {
	return strings.TrimSuffix(cmp.Or(s.URL, "https://github.com"), "/") + path
}

// User is a user of GitHub.
type User struct {
	ID    int64  `json:"id"` // stable, even if the login changes
	Login string `json:"login"`
	Name  string `json:"name,omitempty"` // as the person writes it
	// Email is the verified primary address, or the no-reply address of GitHub, which attributes commits as well.
	Email string `json:"email"`
	// Organizations are those of the user, as far as the App may know them.
	Organizations []string `json:"organizations,omitempty"`
}

// Finish returns the user who came back with a code. It revokes the user's token.
func (s *SignIn) Finish(ctx context.Context, a Attempt, code, redirect string) (User, error) {
	u, token, err := s.FinishKeeping(ctx, a, code, redirect)
	if token != "" {
		s.Revoke(ctx, token)
	}
	return u, err
}

// FinishKeeping is Finish, except that it returns the user's token, with which [SignIn.Ask] asks again. The caller
// revokes it, also after an error.
func (s *SignIn) FinishKeeping(ctx context.Context, a Attempt, code, redirect string) (_ User, token string, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	token, err = s.exchange(ctx, a, code, redirect)
	if err != nil {
		return User{}, "", fmt.Errorf("cannot exchange the code of a sign-in: %w", plain(err))
	}
	u, err := s.user(ctx, token)
	return u, token, err
}

// Ask returns the owner of a token of [SignIn.FinishKeeping]. The error is [forge.ErrRefused] if GitHub no longer takes
// the token.
func (s *SignIn) Ask(ctx context.Context, token string) (User, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	return s.user(ctx, token)
}

// Revoke revokes a token. The person does not have to know whether that succeeds, so an error is logged.
func (s *SignIn) Revoke(ctx context.Context, token string) {
	if err := s.revoke(context.WithoutCancel(ctx), token); err != nil {
		cmp.Or(s.Log, slog.Default()).WarnContext(ctx, "cannot revoke the token of a sign-in", "err", plain(err))
	}
}

// exchange returns the token for a code.
func (s *SignIn) exchange(ctx context.Context, a Attempt, code, redirect string) (string, error) {
	form := url.Values{"client_id": {s.ClientID}, "client_secret": {s.ClientSecret}, "code": {code},
		"redirect_uri": {redirect}, "code_verifier": {a.Verifier}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.site("/login/oauth/access_token"),
		strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	resp, err := anonymous{s}.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var said struct {
		Token       string `json:"access_token"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
		return "", fmt.Errorf("the answer is not GitHub's: %w", err)
	}
	if said.Token == "" {
		// GitHub refuses with status 200.
		return "", &forge.RefusedError{Forge: site, Status: resp.StatusCode,
			Message: text.Clip(said.Error+": "+said.Description, 500)}
	}
	return said.Token, nil
}

// anonymous is the transport of a sign-in. It sets bounds and the User-Agent.
type anonymous struct{ s *SignIn }

func (t anonymous) RoundTrip(r *http.Request) (*http.Response, error) {
	var next http.RoundTripper
	if t.s.HTTP != nil {
		next = t.s.HTTP.Transport
	}
	now := time.Now
	if t.s.Now != nil {
		now = t.s.Now
	}
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", "ramus")
	return send(r, next, now)
}

// api returns a client for the API.
func (s *SignIn) api() (*github.Client, error) {
	base, err := baseURL(s.API)
	if err != nil {
		return nil, err
	}
	gh := github.NewClient(&http.Client{Transport: anonymous{s}, CheckRedirect: stay})
	gh.BaseURL = base
	return gh, nil
}

// user returns the owner of a token.
func (s *SignIn) user(ctx context.Context, token string) (User, error) {
	gh, err := s.api()
	if err != nil {
		return User{}, err
	}
	gh = gh.WithAuthToken(token)
	me, _, err := gh.Users.Get(ctx, "")
	if err == nil && (!isLogin(me.GetLogin()) || me.GetID() == 0) {
		err = &forge.RefusedError{Forge: site, Message: "the answer names no user"}
	}
	if err != nil {
		return User{}, fmt.Errorf("cannot tell who signed in: %w", plain(err))
	}
	u := User{ID: me.GetID(), Login: me.GetLogin(), Name: oneLine(me.GetName())}
	host := "github.com"
	if site, err := url.Parse(s.site("")); err == nil {
		host = site.Hostname()
	}
	u.Email = strconv.FormatInt(u.ID, 10) + "+" + u.Login + "@users.noreply." + host
	page := &github.ListOptions{PerPage: pageSize}
	emails, _, err := gh.Users.ListEmails(ctx, page)
	if err != nil && !forge.HasStatus(err, http.StatusForbidden) && !forge.HasStatus(err, http.StatusNotFound) {
		return User{}, fmt.Errorf("cannot ask for the address of %s: %w", u.Login, plain(err))
	}
	for _, e := range emails {
		if e.GetPrimary() && e.GetVerified() && e.GetEmail() != "" && len(e.GetEmail()) <= 200 {
			u.Email = e.GetEmail()
		}
	}
	for {
		orgs, resp, err := gh.Organizations.List(ctx, "", page)
		if forge.HasStatus(err, http.StatusForbidden) || forge.HasStatus(err, http.StatusNotFound) {
			return u, nil // an App that may not read them has its users named one by one
		}
		if err != nil {
			return User{}, fmt.Errorf("cannot ask for the organizations of %s: %w", u.Login, plain(err))
		}
		for _, o := range orgs {
			u.Organizations = append(u.Organizations, o.GetLogin())
		}
		if resp.NextPage <= page.Page || len(u.Organizations) > maxItems {
			return u, nil
		}
		page.Page = resp.NextPage
	}
}

// maxName bounds the name of a person, in bytes.
const maxName = 150

// oneLine returns a name, which may be any text, as a part of one line of a commit or a log.
func oneLine(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, name)
	return text.Clip(strings.Join(strings.Fields(name), " "), maxName)
}

// revoke revokes a token.
func (s *SignIn) revoke(ctx context.Context, token string) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	gh, err := s.api()
	if err != nil {
		return err
	}
	r, err := gh.NewRequest(http.MethodDelete, "applications/"+url.PathEscape(s.ClientID)+"/token",
		map[string]string{"access_token": token})
	if err != nil {
		return err
	}
	r.SetBasicAuth(s.ClientID, s.ClientSecret)
	_, err = gh.Do(ctx, r, nil)
	return err
}
