package signin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"golang.org/x/oauth2"
)

// OIDC lets people in by a provider of OpenID Connect. The exported fields are options and may be changed until the
// first request. Methods are safe for concurrent use.
type OIDC struct {
	// Issuer is the URL of the provider, below which /.well-known/openid-configuration is.
	Issuer                 string
	ClientID, ClientSecret string
	// Scopes are asked for in addition to openid. Empty means profile and email.
	Scopes []string
	// Title names the provider on the page where people sign in. Empty means the host of the issuer.
	Title string
	// HTTP sends requests to the provider. Nil means a client of its own.
	HTTP *http.Client
	Log  *slog.Logger // nil discards

	asking atomic.Int32 // attempts that the provider is asked about

	mu       sync.Mutex // guards provider
	provider *oidc.Provider
}

const (
	oidcPath     = "/auth/oidc"
	oidcCallback = oidcPath + "/callback"
	// oidcWithin bounds the requests to the provider for one attempt, oidcAnswer the size of an answer, in bytes.
	oidcWithin = 15 * time.Second
	oidcAnswer = 1 << 20
	// maxOIDC bounds how many attempts the provider is asked about at once.
	maxOIDC = 16
)

// title returns the name of the provider for people.
func (o *OIDC) title() string {
	if o.Title != "" {
		return o.Title
	}
	return route.HostName(hostOf(o.Issuer))
}

// boundedTransport bounds the answers of a provider, which go-oidc reads as a whole.
type boundedTransport struct{ next http.RoundTripper }

func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, oidcAnswer), resp.Body}
	}
	return resp, err
}

// context returns a context whose requests to the provider are bounded.
func (o *OIDC) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, oidcWithin)
	client := &http.Client{Transport: boundedTransport{http.DefaultTransport}}
	if o.HTTP != nil {
		c := *o.HTTP
		c.Transport = boundedTransport{cmp.Or[http.RoundTripper](c.Transport, http.DefaultTransport)}
		client = &c
	}
	return oidc.ClientContext(ctx, client), cancel
}

// discover returns the provider, which is asked for its configuration once.
func (o *OIDC) discover(ctx context.Context) (*oidc.Provider, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.provider != nil {
		return o.provider, nil
	}
	// The keys of the provider are read again when it changes them, after this request.
	ctx = context.WithoutCancel(ctx)
	asking, cancel := context.WithTimeout(ctx, oidcWithin)
	defer cancel()
	p, err := oidc.NewProvider(asking, o.Issuer)
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s for its configuration: %w", o.Issuer, err)
	}
	o.provider = p
	return p, nil
}

func (o *OIDC) oauth(p *oidc.Provider, redirect string) *oauth2.Config {
	scopes := append([]string{oidc.ScopeOpenID}, o.Scopes...)
	if len(o.Scopes) == 0 {
		scopes = append(scopes, "profile", "email")
	}
	return &oauth2.Config{ClientID: o.ClientID, ClientSecret: o.ClientSecret, Endpoint: p.Endpoint(),
		RedirectURL: redirect, Scopes: scopes}
}

// beginSignIn returns the URL at the provider for the person.
func (o *OIDC) beginSignIn(ctx context.Context, a attempt, redirect string, again bool) (string, error) {
	ctx, cancel := o.context(ctx)
	defer cancel()
	p, err := o.discover(ctx)
	if err != nil {
		return "", err
	}
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(a.Verifier), oidc.Nonce(a.nonce())}
	if again {
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"))
	}
	return o.oauth(p, redirect).AuthCodeURL(a.State, options...), nil
}

// finish returns the person who came back with a code.
func (o *OIDC) finish(ctx context.Context, a attempt, code, redirect string) (account.Identity, error) {
	ctx, cancel := o.context(ctx)
	defer cancel()
	p, err := o.discover(ctx)
	if err != nil {
		return account.Identity{}, err
	}
	token, err := o.oauth(p, redirect).Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return account.Identity{}, fmt.Errorf("cannot exchange the code of a sign-in: %w", err)
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return account.Identity{}, fmt.Errorf("%w: the answer has no ID token", errOIDC)
	}
	id, err := p.Verifier(&oidc.Config{ClientID: o.ClientID}).Verify(ctx, raw)
	if err != nil {
		return account.Identity{}, fmt.Errorf("%w: %w", errOIDC, err)
	}
	if id.Nonce != a.nonce() {
		return account.Identity{}, fmt.Errorf("%w: the ID token is of another attempt", errOIDC)
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return account.Identity{}, fmt.Errorf("%w: %w", errOIDC, err)
	}
	if p.UserInfoEndpoint() != "" {
		// Some providers have the name and the address there alone.
		info, err := p.UserInfo(ctx, oauth2.StaticTokenSource(token))
		if err != nil {
			return account.Identity{}, fmt.Errorf("cannot ask who signed in: %w", err)
		}
		if info.Subject != id.Subject {
			return account.Identity{}, fmt.Errorf("%w: two answers name different people", errOIDC)
		}
		if err := info.Claims(&claims); err != nil {
			return account.Identity{}, fmt.Errorf("%w: %w", errOIDC, err)
		}
	}
	return oidcIdentity(id.Issuer, id.Subject, claims)
}

// errOIDC means that an answer of the provider is not valid.
var errOIDC = errors.New("the answer of the provider is not valid")

// oidcIdentity returns the identity of a subject of an issuer, with its claims. An address counts only if the provider
// has verified it.
func oidcIdentity(issuer, subject string, claims map[string]any) (account.Identity, error) {
	if subject == "" || len(subject) > 255 {
		return account.Identity{}, fmt.Errorf("%w: it names nobody", errOIDC)
	}
	i := account.Identity{Provider: account.ProviderOIDC, Subject: issuer + " " + subject,
		Facts: map[string][]string{"sub": {subject}}}
	text := func(name string) string { s, _ := claims[name].(string); return s }
	verified := claims["email_verified"] == true || text("email_verified") == "true"
	if verified {
		i.Email = text("email")
	}
	i.Name = cmp.Or(text("name"), text("preferred_username"))
	i.Login = cmp.Or(i.Email, text("preferred_username"), subject)
	for name, value := range claims {
		if name == "sub" || name == account.FactEmail && !verified {
			continue
		}
		if values := claimValues(value); len(values) > 0 {
			i.Facts[name] = values
		}
	}
	return i, nil
}

// claimValues returns the values of a claim as texts. Objects have none.
func claimValues(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case bool:
		return []string{strconv.FormatBool(v)}
	case float64:
		return []string{strconv.FormatFloat(v, 'f', -1, 64)}
	case json.Number:
		return []string{v.String()}
	case []any:
		var list []string
		for _, one := range v {
			if _, nested := one.([]any); !nested {
				list = append(list, claimValues(one)...)
			}
		}
		return list
	}
	return nil
}

func (api *API) beginOIDC(c *route.Call) error {
	if api.People == nil || api.People.OIDC == nil || c.Address() == "" {
		return route.NewProblem(route.KindInvalid,
			"nobody can sign in with OpenID Connect here").WithHint("set sign_in.oidc, and url")
	}
	if err := checkTransport(c); err != nil {
		return err
	}
	a := beginAttempt(c)
	to, err := api.People.OIDC.beginSignIn(c.R.Context(), a, c.Address()+oidcCallback, c.R.URL.Query().Get("again") != "")
	if err != nil {
		return oidcProblem(err, "try again in a moment")
	}
	page.MarkPrivate(c.W.Header())
	http.Redirect(c.W, c.R, to, http.StatusFound)
	return nil
}

func (api *API) finishOIDC(c *route.Call) error {
	if api.People == nil || api.People.OIDC == nil || c.Address() == "" {
		return route.NewProblem(route.KindInvalid,
			"nobody can sign in with OpenID Connect here").WithHint("set sign_in.oidc, and url")
	}
	if err := checkTransport(c); err != nil {
		return err
	}
	const again = "begin again at " + oidcPath
	a, err := endAttempt(c, again)
	if err != nil {
		return err
	}
	o, q := api.People.OIDC, c.R.URL.Query()
	if q.Get("code") == "" {
		return route.NewProblem(route.KindDenied, "%s did not let you sign in: %s", o.title(),
			render.ClipClean(q.Get("error"), 100)).WithHint(again)
	}
	defer o.asking.Add(-1)
	if o.asking.Add(1) > maxOIDC {
		return route.NewProblem(route.KindUnavailable, "too many people sign in at once").WithHint("try again in a moment")
	}
	i, err := o.finish(c.R.Context(), a, q.Get("code"), c.Address()+oidcCallback)
	if err != nil {
		return oidcProblem(err, again)
	}
	return api.People.letIn(c, i, a.To, nil)
}

// oidcProblem returns the problem of an attempt that failed.
func oidcProblem(err error, hint string) error {
	var refused *oauth2.RetrieveError
	var network net.Error
	switch {
	case errors.As(err, &refused) && refused.Response != nil && refused.Response.StatusCode < 500, errors.Is(err, errOIDC):
		return &route.Problem{Kind: route.KindDenied, Detail: "the provider of OpenID Connect refuses the sign-in",
			Hint: hint, Cause: err}
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return &route.Problem{Kind: route.KindUnavailable, Detail: "the provider of OpenID Connect does not answer",
			Hint: "try again in a moment", Cause: err}
	}
	return &route.Problem{Kind: route.KindUnavailable,
		Detail: "the provider of OpenID Connect gives no answer that can be used",
		Hint:   "try again in a moment; the server's log has the details", Cause: err}
}

// hostOf returns the host of a URL, or "" if there is none.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}
