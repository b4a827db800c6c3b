package web

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gateway/credential"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/token"
	"github.com/ramus-dev/ramus/gitd"
)

// The paths of the pages of credentials and tokens.
const (
	credentialsPath = "/settings/credentials"
	tokensPath      = "/settings/tokens"
)

// credentialsData is the data of the page of credentials.
type credentialsData struct {
	Rows  []credentialRow
	Types []string // of agents
	Admin bool
	Local bool // nobody in particular looks
	// Wrong has the mistakes of the form, by field. The fields keep their texts, except values.
	Wrong                     map[string]string
	Name, Agent, Hosts, Owner string
	Tried                     *credential.Verified
	TriedName                 string
}

// credentialRow is a credential in the list.
type credentialRow struct {
	secret.Secret
	Mine, Switches bool
	LastUse        *secret.Use
}

// credentialPages serves the credentials of a person.
type credentialPages struct {
	shell       *shell
	credentials *credential.API // nil means that there is no page of them
}

func (h *credentialPages) register(t *table) {
	t.page(credentialsPath, "The credentials of a person, without their values", h.credentialsPage)
	t.form(credentialsPath, "Store credentials, by their page", h.setCredentials)
	t.form(credentialsPath+"/{credential}/{action}", "Try, switch or remove a credential, by its page", h.credentialAction)
}

func (h *credentialPages) credentialsPage(c *route.Call) (*Page, error) {
	return h.credentialsWith(c, &credentialsData{Agent: "claude-code"})
}

// credentialsWith returns the page with the texts of its form.
func (h *credentialPages) credentialsWith(c *route.Call, d *credentialsData) (*Page, error) {
	if h.credentials == nil {
		return nil, route.NewProblem(route.KindNotFound, "this server keeps no credentials")
	}
	list, err := h.credentials.List(c.Who, credential.Query{})
	if err != nil {
		return nil, err
	}
	d.Types, d.Admin, d.Local = secret.AgentTypes(), c.Who.Admin(), c.Who.Local
	for _, x := range list {
		x.Problem = render.ClipClean(x.Problem, 300)
		row := credentialRow{Secret: x, Mine: x.Owner == secret.OfPerson(c.Who.Subject),
			Switches: x.Type != secret.TypeSecret && x.Type != secret.TypeForge && x.Problem == ""}
		if len(x.Uses) > 0 {
			row.LastUse = &x.Uses[0]
		}
		d.Rows = append(d.Rows, row)
	}
	p := &Page{Title: "Credentials", Nav: "settings", Template: "credentials", Data: d}
	if len(d.Wrong) > 0 {
		p.Status = 422
	}
	return p, nil
}

// setCredentials stores the key of an agent, a secret, or the text of a .env file.
func (h *credentialPages) setCredentials(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	if err := c.CheckRecent(); err != nil {
		return err
	}
	d := &credentialsData{Name: formText(c, "name", 100), Agent: formText(c, "agent", 40),
		Hosts: formText(c, "hosts", 4000), Owner: formText(c, "owner", 300), Wrong: map[string]string{}}
	value, dotenv := formText(c, "value", 64<<10), formText(c, "dotenv", 256<<10)
	in := credential.NewCredentials{Owner: credential.Owner(d.Owner), Dotenv: dotenv,
		Hosts: strings.FieldsFunc(d.Hosts, func(r rune) bool { return r == ',' || r <= ' ' })}
	field := "value"
	switch kind := formText(c, "kind", 40); {
	case kind == "dotenv":
		field = "dotenv"
		if dotenv == "" {
			d.Wrong["dotenv"] = "Paste the lines of a .env file."
		}
	case value == "":
		d.Wrong["value"] = "Paste the value. It is never shown again."
	case kind == "secret":
		in.Dotenv = ""
		in.Credentials = []credential.NewCredential{{Name: d.Name, Value: value, Hosts: in.Hosts}}
	default:
		in.Dotenv, in.Hosts = "", nil
		one := credential.NewCredential{Type: secret.TypeAgentKey, Agent: d.Agent, Value: value}
		if kind == string(secret.KindOAuth) {
			one.Kind = secret.KindOAuth
		}
		in.Credentials = []credential.NewCredential{one}
	}
	if len(d.Wrong) == 0 {
		_, err := h.credentials.Set(c, in)
		if err == nil {
			return see(c, credentialsPath)
		}
		text, ok := fieldProblem(err, c.Who)
		if !ok {
			return err
		}
		d.Wrong[field] = text
	}
	p, err := h.credentialsWith(c, d)
	if err != nil {
		return err
	}
	return h.shell.write(c, p)
}

// credentialAction removes, switches or tries a credential.
func (h *credentialPages) credentialAction(c *route.Call) error {
	if err := c.CheckRecent(); err != nil {
		return err
	}
	if h.credentials == nil {
		return route.NewProblem(route.KindNotFound, "this server keeps no credentials")
	}
	x, err := h.credentials.Get(c.Who, c.R.PathValue("credential"))
	if err != nil {
		return err
	}
	switch action := c.R.PathValue("action"); action {
	case "remove":
		err = h.credentials.Remove(c, x)
	case "on", "off":
		_, err = h.credentials.Switch(c, x, action == "on")
	case "verify":
		v := h.credentials.Verify(c.R.Context(), x.ID)
		v.Message = render.ClipClean(v.Message, 300)
		p, err := h.credentialsWith(c, &credentialsData{Agent: "claude-code", Tried: &v, TriedName: x.Name})
		if err != nil {
			return err
		}
		return h.shell.write(c, p)
	default:
		err = route.NotFound("action", action)
	}
	if err != nil {
		return err
	}
	return see(c, credentialsPath)
}

// tokensData is the data of the page of tokens.
type tokensData struct {
	Rows  []gitd.Issued // those that let somebody in, the newest first
	Ended []gitd.Issued // those that were revoked
	Admin bool
	Local bool // nobody in particular looks
	// Scopes are those that the person may give to a token.
	Scopes []string
	// Wrong is the mistake of the form, and Repo, Scope and Days are its texts.
	Wrong, Repo, Scope, Days string
	// Made is the new token, which is shown once.
	Made string
}

// tokenPages serves the tokens of a person.
type tokenPages struct {
	shell  *shell
	tokens *token.API // nil means that there is no page of them
}

func (h *tokenPages) register(t *table) {
	t.page(tokensPath, "The tokens of a person", h.tokensPage)
	t.form(tokensPath, "Make a token for the person, by the page of tokens", h.makeToken)
	t.form(tokensPath+"/{token}/revoke", "Revoke a token, by its page", h.revokeToken)
}

func (h *tokenPages) tokensPage(c *route.Call) (*Page, error) {
	return h.tokensWith(c, &tokensData{Days: "30"})
}

// tokensWith returns the page with the texts of its form, or the token that was made.
func (h *tokenPages) tokensWith(c *route.Call, d *tokensData) (*Page, error) {
	if h.tokens == nil {
		return nil, route.NewProblem(route.KindNotFound, "this server has no tokens")
	}
	d.Admin, d.Local = c.Who.Admin(), c.Who.Local
	for _, scope := range []string{gitd.ScopeRead, gitd.ScopeWrite, gitd.ScopeAdmin} {
		if c.Who.May(route.Access(scope)) {
			d.Scopes = append(d.Scopes, scope)
		}
	}
	for _, t := range slices.Backward(h.tokens.List(c.Who)) {
		if t.Revoked.IsZero() {
			d.Rows = append(d.Rows, t)
		} else {
			d.Ended = append(d.Ended, t)
		}
	}
	p := &Page{Title: "Tokens", Nav: "settings", Template: "tokens", Data: d}
	if d.Wrong != "" {
		p.Status = 422
	}
	return p, nil
}

// makeToken makes a token for the person, and shows it once.
func (h *tokenPages) makeToken(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	if err := c.CheckRecent(); err != nil {
		return err
	}
	if h.tokens == nil {
		return route.NewProblem(route.KindNotFound, "this server has no tokens")
	}
	d := &tokensData{Repo: formText(c, "repo", 200), Scope: formText(c, "scope", 20), Days: formText(c, "days", 4)}
	days, err := strconv.Atoi(d.Days)
	if err != nil || days < 1 || days > 366 {
		d.Wrong = "A token lives between one day and a year."
	}
	if d.Wrong == "" {
		made, err := h.tokens.Make(c, token.NewOwn{Repo: d.Repo, Scopes: []string{d.Scope}, Seconds: int64(days) * 24 * 3600})
		if err == nil {
			d = &tokensData{Days: "30", Made: made.Token}
		} else if text, ok := fieldProblem(err, c.Who); ok {
			d.Wrong = text
		} else {
			return err
		}
	}
	p, err := h.tokensWith(c, d)
	if err != nil {
		return err
	}
	c.W.Header().Set("Cache-Control", "no-store")
	return h.shell.write(c, p)
}

func (h *tokenPages) revokeToken(c *route.Call) error {
	if err := c.CheckRecent(); err != nil {
		return err
	}
	if h.tokens == nil {
		return route.NewProblem(route.KindNotFound, "this server has no tokens")
	}
	if err := h.tokens.Revoke(c, c.R.PathValue("token")); err != nil {
		return err
	}
	return see(c, tokensPath)
}
