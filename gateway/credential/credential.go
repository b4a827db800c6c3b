package credential

import (
	"context"
	"net/http"

	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gateway/route"
)

// maxAtOnce bounds the credentials of one request.
const maxAtOnce = 200

// Prober asks a model API ("anthropic", "openai", "gemini") whether it accepts a key.
type Prober interface {
	Probe(ctx context.Context, provider, key string, oauth bool) error
}

// API is the routes of credentials. Its fields are its options.
type API struct {
	// Store has the credentials. Nil means that the server keeps none.
	Store *secret.Store
	// HasRepo returns an error for a repository that does not exist.
	HasRepo func(name string) error
	// Models tries the keys of agents. Nil tries none.
	Models Prober
	// Rotate replaces the key with which all credentials are sealed, and returns their number.
	Rotate func(ctx context.Context) (int, error)
}

// Routes returns the routes of credentials.
func (api *API) Routes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: "/api/credentials", Access: route.AccessRead,
			Summary: "List credentials, without their values",
			Query:   Query{}, Response: []secret.Secret{}, Handle: api.list},
		{Method: "POST", Pattern: "/api/credentials", Access: route.AccessWrite,
			Summary: "Store credentials, in place of those of the same names",
			Request: NewCredentials{}, Response: []secret.Secret{}, Handle: api.set},
		{Method: "GET", Pattern: "/api/credentials/{credential}", Access: route.AccessRead,
			Summary:  "One credential, without its value",
			Response: secret.Secret{}, Handle: api.get},
		{Method: "PATCH", Pattern: "/api/credentials/{credential}", Access: route.AccessWrite,
			Summary: "Switch a credential on or off",
			Request: Change{}, Response: secret.Secret{}, Handle: api.change},
		{Method: "POST", Pattern: "/api/credentials/{credential}/verify", Access: route.AccessWrite,
			Summary: "Open a credential, and try the key of an agent at its model API", Response: Verified{},
			Handle: api.verify},
		{Method: "DELETE", Pattern: "/api/credentials/{credential}", Access: route.AccessWrite,
			Summary:  "Remove a credential",
			Response: struct{}{}, Handle: api.remove},
		{Method: "POST", Pattern: "/api/keys/rotate", Access: route.AccessAdmin,
			Summary: "Seal all credentials with a new key, and remove the present one", Response: Rotated{},
			Handle: api.rotate},
	}
}

// Query narrows a list. The caller sees its own credentials, and an administrator those of everybody.
type Query struct {
	Owner Owner  `json:"owner,omitempty" jsonschema:"only those of this owner: server, repo:NAME, person:ID or me"`
	Repo  string `json:"repo,omitempty" jsonschema:"only those that this repository may use: its own and the server's"`
}

// Owner is a [secret.Owner], or "me" for the caller, or empty for the server if the caller is an administrator and for
// the caller otherwise.
type Owner string

// NewCredentials is a request to store credentials. A mistake in one stores none.
type NewCredentials struct {
	Owner       Owner           `json:"owner,omitempty" jsonschema:"server, repo:NAME, person:ID or me; empty is the server for an administrator, and the caller for others"`
	Credentials []NewCredential `json:"credentials,omitempty"`
	// Dotenv is the text of a .env file, whose lines become secrets for Hosts.
	Dotenv string   `json:"dotenv,omitempty" jsonschema:"the text of a .env file, all of whose values are stored"`
	Hosts  []string `json:"hosts,omitempty" jsonschema:"the hosts that may get the values of dotenv"`
}

// NewCredential is one credential. It has a Value or a Reference.
type NewCredential struct {
	Name      string      `json:"name,omitempty" jsonschema:"capital letters, digits and underscores; required for a secret"`
	Type      secret.Type `json:"credential_type,omitempty" jsonschema:"secret, agent-api-key or cloud-provider; secret if empty"`
	Kind      secret.Kind `json:"credential_kind,omitempty" jsonschema:"api-key or oauth-token, of an agent or a cloud; api-key if empty"`
	Agent     string      `json:"agent_type,omitempty" jsonschema:"the agent of an agent-api-key, such as claude-code; the cloud of a cloud-provider"`
	Inactive  bool        `json:"inactive,omitempty" jsonschema:"keeps the credential of an agent or a cloud without using it"`
	Value     string      `json:"value,omitempty"`
	Reference string      `json:"reference,omitempty" jsonschema:"env://, file://, vault:// or op://, read on the server when the value is needed; only for the server and repositories"`
	Hosts     []string    `json:"hosts,omitempty" jsonschema:"the hosts that may get the value of a secret"`
}

// Change changes a credential.
type Change struct {
	Active bool `json:"is_active"`
}

// Verified is the result of a trial.
type Verified struct {
	OK bool `json:"ok"`
	// Tried is set if the credential was used. Otherwise it was only opened.
	Tried   bool   `json:"tried"`
	Message string `json:"message"` // in a sentence
}

// Rotated is the answer to a change of keys.
type Rotated struct {
	Credentials int `json:"credentials"` // that are sealed with the new key
}

// me returns the owner that the caller of a request is. It is empty for the unix socket, which is nobody in particular.
func me(w route.Who) secret.Owner {
	if w.Local || w.Subject == "" {
		return ""
	}
	return secret.OfPerson(w.Subject)
}

// may reports whether a caller may see and change the credentials of an owner.
func may(w route.Who, o secret.Owner) bool { return w.Admin() || o != "" && o == me(w) }

// resolve returns the owner that a request means.
func resolve(w route.Who, o Owner) (secret.Owner, error) {
	owner := secret.Owner(o)
	switch {
	case o == "" && w.Admin():
		owner = secret.OfServer
	case o == "" || o == "me":
		if owner = me(w); owner == "" {
			return "", route.NewProblem(route.KindInvalid,
				"at the unix socket nobody is \"me\"").WithHint("name the owner: server, repo:NAME or person:ID")
		}
	}
	if err := owner.Check(); err != nil {
		return "", err
	}
	if owner.Run() != "" {
		return "", route.NewProblem(route.KindInvalid, "the secrets of a run come with the request for it")
	}
	if !may(w, owner) {
		return "", route.NewProblem(route.KindDenied, "%s may not see or change the credentials of %s", w.Subject, owner).
			WithHint("an administrator may, and everybody those of `me`")
	}
	return owner, nil
}

func (api *API) store() (*secret.Store, error) {
	if api.Store == nil {
		return nil, route.NewProblem(route.KindNotFound, "this server keeps no credentials")
	}
	return api.Store, nil
}

func (api *API) list(c *route.Call) error {
	var q Query
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	list, err := api.List(c.Who, q)
	if err != nil {
		return err
	}
	return c.Reply(list)
}

// List returns the credentials that a caller may see.
func (api *API) List(w route.Who, q Query) ([]secret.Secret, error) {
	store, err := api.store()
	if err != nil {
		return nil, err
	}
	see := func(o secret.Owner) bool { return may(w, o) }
	if q.Owner != "" {
		owner, err := resolve(w, q.Owner)
		if err != nil {
			return nil, err
		}
		see = func(o secret.Owner) bool { return o == owner }
	}
	if q.Repo != "" {
		ofRepo, all := secret.OfRepository(q.Repo), see
		see = func(o secret.Owner) bool { return ofRepo(o) && all(o) }
	}
	return store.List(see), nil
}

func (api *API) set(c *route.Call) error {
	var in NewCredentials
	if err := c.ReadJSON(&in); err != nil {
		return err
	}
	list, err := api.Set(c, in)
	if err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusCreated, list)
}

// Set stores credentials for the caller of a call.
func (api *API) Set(c *route.Call, in NewCredentials) ([]secret.Secret, error) {
	w := c.Who
	store, err := api.store()
	if err != nil {
		return nil, err
	}
	owner, err := resolve(w, in.Owner)
	if err != nil {
		return nil, err
	}
	if name := owner.Repo(); name != "" && api.HasRepo != nil {
		if err := api.HasRepo(name); err != nil {
			return nil, err
		}
	}
	wanted := in.Credentials
	if in.Dotenv != "" {
		pairs, err := secret.ParseDotenv(in.Dotenv)
		if err != nil {
			return nil, err
		}
		for _, p := range pairs {
			wanted = append(wanted, NewCredential{Name: p.Name, Value: p.Value, Hosts: in.Hosts})
		}
	}
	if len(wanted) == 0 || len(wanted) > maxAtOnce {
		return nil, route.NewProblem(route.KindInvalid, "want 1 to %d credentials to store at once, not %d", maxAtOnce,
			len(wanted))
	}
	var list []secret.Secret
	var values []string
	for _, n := range wanted {
		if n.Type == secret.TypeForge {
			return nil, route.NewProblem(route.KindInvalid,
				"the token of a forge is tried before it is stored").WithHint("`/ramus connect` in Slack takes it")
		}
		if n.Value != "" && n.Reference != "" {
			return nil, route.NewProblem(route.KindInvalid, "%.100s has both a value and a reference", n.Name)
		}
		list = append(list, secret.Secret{Name: n.Name, Owner: owner, Type: n.Type, Kind: n.Kind, Agent: n.Agent,
			Reference: n.Reference, Hosts: n.Hosts,
			Active: !n.Inactive && n.Type != "" && n.Type != secret.TypeSecret, By: w.Subject})
		values = append(values, n.Value)
	}
	if list, err = store.Put(list, values); err != nil {
		return nil, err
	}
	for _, x := range list {
		if err := c.Audit("credential.set", object(x)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// object names a credential in the log of actions.
func object(x secret.Secret) string { return string(x.Owner) + " " + x.Name }

// find returns the credential that the path of a call names.
func (api *API) find(c *route.Call) (secret.Secret, error) {
	return api.Get(c.Who, c.R.PathValue("credential"))
}

// Get returns a credential by its id. The error is [record.ErrNotFound] also if the caller may not see it.
func (api *API) Get(w route.Who, id string) (secret.Secret, error) {
	store, err := api.store()
	if err != nil {
		return secret.Secret{}, err
	}
	x, err := store.Get(id)
	if err == nil && !may(w, x.Owner) {
		err = route.NotFound("credential", id)
	}
	return x, err
}

func (api *API) get(c *route.Call) error {
	x, err := api.find(c)
	if err != nil {
		return err
	}
	return c.Reply(x)
}

func (api *API) change(c *route.Call) error {
	var in Change
	if err := c.ReadJSON(&in); err != nil {
		return err
	}
	x, err := api.find(c)
	if err == nil {
		x, err = api.Switch(c, x, in.Active)
	}
	if err != nil {
		return err
	}
	return c.Reply(x)
}

// Switch switches a credential that the caller may change on or off.
func (api *API) Switch(c *route.Call, x secret.Secret, active bool) (secret.Secret, error) {
	x, err := api.Store.SetActive(x.ID, active)
	if err != nil {
		return x, err
	}
	action := "credential.off"
	if active {
		action = "credential.on"
	}
	return x, c.Audit(action, object(x))
}

// Remove removes a credential that the caller may change.
func (api *API) Remove(c *route.Call, x secret.Secret) error {
	if err := api.Store.Remove(x.ID); err != nil {
		return err
	}
	return c.Audit("credential.remove", object(x))
}

func (api *API) remove(c *route.Call) error {
	x, err := api.find(c)
	if err == nil {
		err = api.Remove(c, x)
	}
	if err != nil {
		return err
	}
	return c.Reply(struct{}{})
}

func (api *API) verify(c *route.Call) error {
	x, err := api.find(c)
	if err != nil {
		return err
	}
	return c.Reply(api.Verify(c.R.Context(), x.ID))
}

// Verify opens a credential, and tries the key of an agent at its model API.
func (api *API) Verify(ctx context.Context, id string) Verified {
	x, value, err := api.Store.Verify(ctx, id)
	switch {
	case err != nil:
		return Verified{Message: err.Error()}
	case x.Provider() == "" || api.Models == nil:
		return Verified{OK: true, Message: "the value can be read; ramus knows no place to try it"}
	}
	if err := api.Models.Probe(ctx, x.Provider(), value, x.Kind == secret.KindOAuth); err != nil {
		return Verified{Tried: true, Message: err.Error()}
	}
	return Verified{OK: true, Tried: true, Message: x.Provider() + " accepts it"}
}

func (api *API) rotate(c *route.Call) error {
	if api.Store == nil || api.Rotate == nil {
		return route.NewProblem(route.KindNotFound, "this server keeps no credentials")
	}
	n, err := api.Rotate(c.R.Context())
	if err != nil {
		return err
	}
	return c.Reply(Rotated{n})
}
