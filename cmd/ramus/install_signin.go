package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/audit"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/naming"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/privacy"
	"github.com/ramus-dev/ramus/gateway/pushed"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/session"
	"github.com/ramus-dev/ramus/gateway/share"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/gateway/sshdoor"
	"github.com/ramus-dev/ramus/gitd"
)

// PeopleConfig has the people who may sign in with a browser, and their roles.
type PeopleConfig struct {
	Admins  []string   `yaml:"admins"`
	Members []string   `yaml:"members"`
	Viewers []string   `yaml:"viewers"`
	Default string     `yaml:"default"`
	Idle    Duration   `yaml:"idle"`
	Life    Duration   `yaml:"life"`
	OIDC    OIDCConfig `yaml:"oidc"`
}

// OIDCConfig is a provider of OpenID Connect.
type OIDCConfig struct {
	Issuer           string   `yaml:"issuer"`
	ClientID         string   `yaml:"client_id"`
	ClientSecretEnv  string   `yaml:"client_secret_env"`
	ClientSecretFile string   `yaml:"client_secret_file"`
	Scopes           []string `yaml:"scopes"`
	Title            string   `yaml:"title"`
}

// WorkspacesConfig has the rights of people in the workspaces of others.
type WorkspacesConfig struct {
	Write string `yaml:"write"`
}

// WebConfig configures the pages for browsers.
type WebConfig struct {
	ContentURL string `yaml:"content_url"`
	JS         string `yaml:"js"`
}

// accountRules returns the rules of a configuration. The users and organizations of github.sign_in get the role that
// matches its scopes.
func accountRules(c Config) (account.Rules, error) {
	var r account.Rules
	var err error
	for _, x := range []struct {
		key  string
		text []string
		to   *[]account.Rule
	}{{"admins", c.SignIn.Admins, &r.Admins}, {"members", c.SignIn.Members, &r.Members},
		{"viewers", c.SignIn.Viewers, &r.Viewers}} {
		if *x.to, err = account.ParseRules(x.text); err != nil {
			return r, fmt.Errorf("cannot use sign_in.%s: %w", x.key, err)
		}
	}
	if c.SignIn.Default != "none" {
		r.Default = route.Role(c.SignIn.Default) // one of a closed list
	}

	old, to := c.GitHub.SignIn, &r.Viewers
	switch {
	case slices.Contains(old.Scopes, gitd.ScopeAdmin):
		to = &r.Admins
	case slices.Contains(old.Scopes, gitd.ScopeWrite):
		to = &r.Members
	}
	for _, login := range old.Users {
		*to = append(*to, account.Rule{Provider: account.ProviderGitHub, Fact: account.FactLogin, Value: login})
	}
	for _, org := range old.Organizations {
		*to = append(*to, account.Rule{Provider: account.ProviderGitHub, Fact: account.FactOrg, Value: org})
	}
	return r, nil
}

// letsGitHub reports whether a rule of sign_in lets anybody at GitHub in.
func (c PeopleConfig) letsGitHub() bool {
	return c.Default != "none" || slices.ContainsFunc(slices.Concat(c.Admins, c.Members, c.Viewers), func(rule string) bool {
		return strings.HasPrefix(rule, account.ProviderGitHub+":")
	})
}

// newOIDC returns the provider of OpenID Connect. Returns nil if there is none.
func newOIDC(c OIDCConfig, secret *secrets) (*signin.OIDC, error) {
	text, err := secret.value("sign_in.oidc.client_secret", c.ClientSecretEnv, c.ClientSecretFile)
	if err != nil {
		return nil, err
	}
	if c.Issuer == "" && c.ClientID == "" && text == "" {
		return nil, nil
	}
	u, err := url.Parse(c.Issuer)
	switch {
	case c.Issuer == "" || c.ClientID == "":
		return nil, errors.New("sign_in.oidc needs issuer and client_id")
	case err != nil || u.Host == "" || u.Scheme != "https" && !isLoopback(u):
		return nil, fmt.Errorf("cannot use sign_in.oidc.issuer: %q is no https URL", c.Issuer)
	}
	return &signin.OIDC{Issuer: c.Issuer, ClientID: c.ClientID, ClientSecret: text, Scopes: c.Scopes, Title: c.Title}, nil
}

// isLoopback reports whether a URL leads to this machine, so that nobody listens in.
func isLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

// recordSigner returns the signer of records about people. Returns nil if the Git server has one.
func recordSigner(git *gitd.Server, keys string) (*gitd.CommitSigner, error) {
	if git.Signer != nil {
		return nil, nil
	}
	return ownSigner(filepath.Join(keys, "records.pem"), "records of ramus")
}

// openAccounts opens the accounts of people.
func (i *installation) openAccounts(ctx context.Context, keys string) (err error) {
	rules, err := accountRules(i.config)
	if err != nil {
		return err
	}
	if i.records, err = recordSigner(i.git, keys); err != nil {
		return err
	}
	bot := gitd.Person{Name: i.config.Bot.Name, Email: i.config.Bot.Email}
	options := people.Options{Git: i.git, Signer: i.records, Committer: bot, Log: i.log}
	i.accounts = &account.Store{Options: options, Rules: rules}
	if err := i.accounts.Open(ctx); err != nil {
		return err
	}
	i.git.Bound = i.accounts.Bound
	names := &naming.Store{Options: options}
	if err := names.Open(ctx); err != nil {
		i.log.Error("sessions with agents have no names", "err", err)
	} else {
		i.names = names
	}
	shares := &share.Store{Options: options}
	if err := shares.Open(ctx); err != nil {
		i.log.Error("links for people who do not sign in do not open", "err", err)
	} else {
		i.shares = shares
	}
	return i.openPrivacy(ctx, options)
}

// openPrivacy opens the records of private workspaces. If they cannot be read, all work of callers is hidden from
// everybody but administrators.
func (i *installation) openPrivacy(ctx context.Context, options people.Options) error {
	began := func(c record.Caller) string {
		if runs := i.executor.OfCaller(c); len(runs) > 0 {
			return runs[0].Asker.ID
		}
		return ""
	}
	i.privacy = &privacy.Store{Options: options, Began: began, With: i.executor.WorksIn,
		OwnersOnly: i.config.Workspaces.Write == "owner"}
	if err := i.privacy.Open(ctx); err != nil {
		i.log.Error("the work of everybody is hidden from all but administrators", "err", err)
	}
	i.hides.store.Store(i.privacy)
	i.git.Veil = i.privacy.Veil
	i.git.Workspaces = &sshdoor.Door{Executor: i.executor, Veil: i.privacy.Veil, Log: i.log}
	i.pushed = &pushed.Starter{Executor: i.executor, Find: &lookup.Lookup{Executor: i.executor, Git: i.git}, Veil: i.privacy.Veil,
		Dir: filepath.Join(i.config.Data, "pushed"), Log: i.log}
	i.git.Expect = i.pushed.Expect
	return nil
}

// openPeople opens the sessions of people and the log of their actions.
func (i *installation) openPeople(owner gitd.Person) error {
	db, lost, err := session.OpenFile(filepath.Join(i.config.Data, "web.db"))
	if err != nil {
		return err
	}
	i.web = db
	if lost != nil {
		i.log.Warn("the file of sessions was damaged and is put aside; people sign in again", "err", lost)
	}
	c := i.config.SignIn
	sessions := &session.Store{DB: db, Idle: time.Duration(c.Idle), Life: time.Duration(c.Life)}
	if err := sessions.Open(); err != nil {
		return err
	}
	i.actions = &audit.Log{Git: i.git, Signer: i.records, Author: i.accounts.Committer, Log: i.log}
	i.actions.Open()
	i.executor.SecretStore.SetAudit(recordedUses{i.actions})
	i.people = &signin.People{Accounts: i.accounts, Sessions: sessions, Actions: i.actions, OIDC: i.oidc, Owner: owner,
		Log: i.log, Now: time.Now}
	i.accounts.Changed = i.people.Changed
	return nil
}

// printLink prints the link that signs in the owner of the data folder, unless [installation.ownersAddress] is empty.
func (i *installation) printLink(out io.Writer) {
	address := i.ownersAddress()
	if address == "" {
		return
	}
	link, _ := i.people.OwnerLink(address, "")
	fmt.Fprintf(out, "ramus: sign in at %s (once, within ten minutes; `ramus open` makes another link)\n", link)
}

// ownersAddress returns the URL at which a browser of this machine reaches the pages. Returns "" if people sign in by
// the configuration, or if more than this machine reaches the server.
func (i *installation) ownersAddress() string {
	switch {
	case i.gateway.Loopback == "" || i.oidc != nil || i.forges.hub.signIn != nil:
		return ""
	case i.domain != nil && i.domain.Local():
		return i.domain.Pages()
	case i.config.URL != "":
		return ""
	}
	return i.gateway.Loopback
}

// closePeople closes the sessions and the log.
func (i *installation) closePeople() error {
	err := i.actions.Close()
	if i.shares != nil {
		err = errors.Join(err, i.shares.Close())
	}
	if i.web != nil {
		err = errors.Join(err, i.web.Close())
	}
	return err
}

// contentURL returns the origin of content: that of the configuration, or a host of the domain or of the previews'
// domain, or a host of the loopback if only this machine reaches the server. Returns "" if there is none.
func contentURL(c Config, loopback string) (string, error) {
	if c.Web.ContentURL != "" {
		u, err := url.Parse(c.Web.ContentURL)
		own, _ := url.Parse(c.URL)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
			strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
			return "", fmt.Errorf("cannot use web.content_url: %q is no origin such as https://content.example.org",
				c.Web.ContentURL)
		case own != nil && strings.EqualFold(own.Hostname(), u.Hostname()):
			return "", fmt.Errorf("cannot use web.content_url: %s is the host of ramus itself, and cookies ignore ports", u.Hostname())
		}
		return u.Scheme + "://" + u.Host, nil
	}
	if d := parsedDomain(c); d != nil {
		return d.Content(), nil
	}
	if c.Preview.URL != "" {
		return strings.Replace(c.Preview.URL, "{label}", "content", 1), nil
	}
	if u, err := url.Parse(cmp.Or(c.URL, loopback)); err == nil && isLoopback(u) {
		host := "content.localhost"
		if u.Port() != "" {
			host += ":" + u.Port()
		}
		return "http://" + host, nil
	}
	return "", nil
}
