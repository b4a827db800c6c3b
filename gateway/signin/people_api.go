package signin

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/session"
)

// Person is a person who has signed in, and the number of their sessions.
type Person struct {
	account.Person
	Sessions int `json:"sessions"`
}

// NewRoles changes the roles of a person. Omitted roles stay as they are.
type NewRoles struct {
	// Role is viewer, member, admin, none, or rules, which has it follow from the configuration.
	Role string `json:"role,omitempty" jsonschema:"viewer, member, admin, none, or rules for the role of the configuration"`
	// Repos has a role for each repository. none takes it away.
	Repos map[string]string `json:"repos,omitempty" jsonschema:"the role in single repositories; none takes it away"`
}

// Ended is the answer to the end of sessions.
type Ended struct {
	Sessions int `json:"sessions"`
}

type sessionsQuery struct {
	Person string `json:"person,omitempty" jsonschema:"only of this person, by id or login"`
}

// errNobody is the problem of a server that lets nobody in.
func errNobody() error {
	return route.NewProblem(route.KindConflict, "nobody can sign in here").WithHint("start `ramus serve`")
}

// person returns a person by id or login.
func (api *API) person(name string) (account.Person, error) {
	if api.Accounts == nil {
		return account.Person{}, errNobody()
	}
	p, err := api.Accounts.Find(name)
	if errors.Is(err, account.ErrUnknown) {
		return p, route.NotFound("person", name).WithHint("`ramus people list` shows the people who have signed in")
	}
	return p, err
}

func (api *API) describe(p account.Person) Person {
	out := Person{Person: p}
	if api.People != nil {
		out.Sessions = len(api.People.Sessions.List(p.ID))
	}
	return out
}

func (api *API) listPeople(c *route.Call) error {
	if api.Accounts == nil {
		return errNobody()
	}
	list := []Person{}
	for _, p := range api.Accounts.List() {
		list = append(list, api.describe(p))
	}
	return c.Reply(list)
}

func (api *API) changePerson(c *route.Call) error {
	var n NewRoles
	if err := c.ReadJSON(&n); err != nil {
		return err
	}
	p, err := api.applyRoles(c, c.R.PathValue("person"), n)
	if err != nil {
		return err
	}
	return c.Reply(api.describe(p))
}

// applyRoles changes the roles of a person, and adds that to the log of actions.
func (api *API) applyRoles(c *route.Call, name string, n NewRoles) (account.Person, error) {
	change, err := n.change()
	if err != nil {
		return account.Person{}, err
	}
	p, err := api.person(name)
	if err != nil {
		return p, err
	}
	if p, err = api.Accounts.Apply(c.R.Context(), p.ID, change, c.Who.Person(api.Accounts.Committer)); err != nil {
		return p, err
	}
	return p, c.Audit("people.role", p.ID+" "+n.text())
}

// change returns the change that n asks for.
func (n NewRoles) change() (account.Change, error) {
	c := account.Change{Rules: n.Role == "rules"}
	if n.Role == "" && len(n.Repos) == 0 {
		return c, route.NewProblem(route.KindInvalid, "there is nothing to change; want role or repos")
	}
	if n.Role != "" && !c.Rules {
		role, ok := route.ParseRole(n.Role)
		if !ok {
			return c, badRole(n.Role)
		}
		c.Role = &role
	}
	for repo, name := range n.Repos {
		role, ok := route.ParseRole(name)
		if !ok {
			return c, badRole(name)
		}
		if c.Repos == nil {
			c.Repos = map[string]route.Role{}
		}
		c.Repos[repo] = role
	}
	return c, nil
}

func badRole(name string) error {
	return route.NewProblem(route.KindInvalid,
		"unknown role %.50q: want viewer, member, admin or none, or rules for the one of the configuration", name)
}

// text returns the change for the log of actions.
func (n NewRoles) text() string {
	var parts []string
	if n.Role != "" {
		parts = append(parts, n.Role)
	}
	for _, repo := range slices.Sorted(maps.Keys(n.Repos)) {
		parts = append(parts, fmt.Sprintf("%s=%s", repo, n.Repos[repo]))
	}
	return strings.Join(parts, " ")
}

func (api *API) removePerson(c *route.Call) error {
	n, err := api.dropPerson(c, c.R.PathValue("person"))
	if err != nil {
		return err
	}
	return c.Reply(Ended{n})
}

// dropPerson removes a person and ends their sessions.
func (api *API) dropPerson(c *route.Call, name string) (int, error) {
	p, err := api.person(name)
	if err != nil {
		return 0, err
	}
	if err := api.Accounts.Remove(c.R.Context(), p.ID, c.Who.Person(api.Accounts.Committer)); err != nil {
		return 0, err
	}
	n, err := api.endAll(c, p.ID, "")
	if err != nil {
		return n, err
	}
	return n, c.Audit("people.remove", p.ID)
}

func (api *API) listSessions(c *route.Call) error {
	var q sessionsQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	id := ""
	if q.Person != "" {
		p, err := api.person(q.Person)
		if err != nil {
			return err
		}
		id = p.ID
	}
	if api.People == nil {
		return c.Reply([]session.Session{})
	}
	return c.Reply(api.People.Sessions.List(id))
}

func (api *API) endSessions(c *route.Call) error {
	var q sessionsQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	if q.Person == "" {
		return route.NewProblem(route.KindInvalid, "say whose sessions end, with the parameter person")
	}
	p, err := api.person(q.Person)
	if err != nil {
		return err
	}
	n, err := api.endAll(c, p.ID, "")
	if err != nil {
		return err
	}
	if err := c.Audit("session.end_all", p.ID); err != nil {
		return err
	}
	return c.Reply(Ended{n})
}

func (api *API) endSession(c *route.Call) error {
	id := c.R.PathValue("session")
	if err := api.endOne(c, id, ""); err != nil {
		return err
	}
	return c.Reply(Ended{1})
}

// endOne ends a session of an account, or of any if account is "".
func (api *API) endOne(c *route.Call, id, account string) error {
	if api.People == nil {
		return route.NotFound("session", id)
	}
	err := api.People.Sessions.End(id, account)
	if errors.Is(err, session.ErrNone) {
		return route.NotFound("session", id)
	}
	if err != nil {
		return err
	}
	api.People.forgetSession(c.R.Context(), id)
	return c.Audit("session.end", sessionMark(id))
}

// endAll ends all sessions of an account except one.
func (api *API) endAll(c *route.Call, id, except string) (int, error) {
	if api.People == nil {
		return 0, nil
	}
	list := api.People.Sessions.List(id)
	n, err := api.People.Sessions.EndAll(id, except)
	for _, s := range list {
		if s.ID != except {
			api.People.forgetSession(c.R.Context(), s.ID)
		}
	}
	return n, err
}
