package gateway

import (
	"net/http"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// secretsAPI stores the secrets of repositories. No answer has a value.
type secretsAPI struct {
	Executor *executor.Executor
	Git      *gitd.Server
}

// Routes returns the routes of secrets.
func (api *secretsAPI) Routes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: "/api/secrets", Access: route.AccessAdmin,
			Summary: "List secrets, without their values", Query: secretsQuery{}, Response: []secret.Secret{}, Handle: api.list},
		{Method: "POST", Pattern: "/api/secrets", Access: route.AccessAdmin,
			Summary: "Store secrets, all or none", Request: NewSecrets{}, Response: []secret.Secret{}, Handle: api.set},
		{Method: "DELETE", Pattern: "/api/secrets/{name}", Access: route.AccessAdmin,
			Summary: "Remove a secret", Query: removedSecret{}, Response: struct{}{}, Handle: api.remove},
	}
}

// NewSecrets is a request to store secrets.
type NewSecrets struct {
	// Repo is the repository that may use them. Empty means all.
	Repo    string      `json:"repo,omitempty"`
	Secrets []NewSecret `json:"secrets"`
}

// NewSecret is one secret. It has a Value or a Reference.
type NewSecret struct {
	Name      string   `json:"name"`
	Value     string   `json:"value,omitempty"`
	Reference string   `json:"reference,omitempty" jsonschema:"env://, file://, vault:// or op://, read on the server when the value is needed"`
	Hosts     []string `json:"hosts,omitempty" jsonschema:"the hosts that may get the value"`
}

type secretsQuery struct {
	Repo string `json:"repo,omitempty" jsonschema:"only those of this repository, and those of all repositories"`
}

// removedSecret names the owner of a secret to remove. Without one it is that of all repositories.
type removedSecret struct {
	Repo   string `json:"repo,omitempty" jsonschema:"its repository"`
	Person string `json:"person,omitempty" jsonschema:"its person, such as slack:TEAM:USER"`
}

// store returns the server's store.
func (api *secretsAPI) store() (*secret.Store, error) {
	if api.Executor.SecretStore == nil {
		return nil, route.NewProblem(route.KindNotFound, "this server keeps no secrets")
	}
	return api.Executor.SecretStore, nil
}

func (api *secretsAPI) list(c *route.Call) error {
	var q secretsQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	store, err := api.store()
	if err != nil {
		return err
	}
	return c.Reply(store.List(q.Repo))
}

func (api *secretsAPI) set(c *route.Call) error {
	var in NewSecrets
	if err := c.ReadJSON(&in); err != nil {
		return err
	}
	store, err := api.store()
	if err != nil {
		return err
	}
	if in.Repo != "" {
		if _, err := api.Git.Repo(in.Repo); err != nil {
			return err
		}
	}
	var list []secret.Secret
	var values []string
	for _, s := range in.Secrets {
		if s.Value != "" && s.Reference != "" {
			return route.NewProblem(route.KindInvalid, "%s has both a value and a reference", s.Name)
		}
		list = append(list, secret.Secret{Name: s.Name, Repo: in.Repo, Reference: s.Reference, Hosts: s.Hosts, By: c.Who.Subject})
		values = append(values, s.Value)
	}
	if len(list) == 0 {
		return route.NewProblem(route.KindInvalid, "there is no secret to store")
	}
	if err := store.Put(list, values); err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusCreated, list)
}

func (api *secretsAPI) remove(c *route.Call) error {
	var q removedSecret
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	store, err := api.store()
	if err != nil {
		return err
	}
	if q.Person != "" {
		err = store.RemovePersonal(c.R.PathValue("name"), q.Person)
	} else {
		err = store.Remove(c.R.PathValue("name"), q.Repo)
	}
	if err != nil {
		return err
	}
	return c.Reply(struct{}{})
}
