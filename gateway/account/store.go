package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

const (
	refs       = "refs/ramus/accounts"
	file       = "account.json"
	maxAccount = 256 << 10
	// maxPeople bounds the accounts, since with a default role everybody at a provider can make one.
	maxPeople = 10_000
	// maxRepos bounds the roles of a person in single repositories.
	maxRepos = 1000
)

// Errors of a store.
var (
	// ErrTaken means that a login belongs to the account of somebody else.
	ErrTaken = errors.New("this login belongs to the account of somebody else")
	// ErrNoRole means that neither a rule nor an administrator lets a person in.
	ErrNoRole = errors.New("nobody has given this person a role")
	// ErrUnknown means that there is no such account.
	ErrUnknown = errors.New("there is no such person")
)

// Store keeps accounts in git. Its exported fields are options, which may be changed until [Store.Open]. All methods
// are safe for concurrent use.
type Store struct {
	people.Options
	Rules Rules
	// Changed is called after the roles of an account have changed. It may be nil.
	Changed func(id string)

	mu     sync.Mutex // guards all below, and orders changes
	people map[string]Person
	tips   map[string]gitd.Hash // by ID, the commit of the account
}

// Open reads all accounts.
func (s *Store) Open(ctx context.Context) error {
	s.SetDefaults()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.people, s.tips = map[string]Person{}, map[string]gitd.Hash{}
	list, err := s.records().Read(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the accounts: %w", err)
	}
	for _, k := range list {
		if k.Err != nil {
			// The others can work. The person of this account gets an error at the next sign-in. A new account could
			// give back a role that an administrator took away.
			s.Log.Error("cannot read an account", "ref", k.Ref, "err", k.Err)
			continue
		}
		s.people[k.Record.ID], s.tips[k.Record.ID] = k.Record, k.Tip
	}
	return nil
}

// records returns the accounts in git.
func (s *Store) records() people.Records[Person] {
	return people.Records[Person]{Options: s.Options, Refs: refs, File: file, Max: maxAccount, Check: Person.check}
}

// SignIn returns the account of an identity, and makes or updates it. The error is [ErrTaken] or [ErrNoRole] if the
// person is not let in.
func (s *Store) SignIn(ctx context.Context, i Identity) (Person, error) {
	i = i.clean()
	s.mu.Lock()
	defer s.mu.Unlock()
	p, known := s.people[i.ID()]
	if p.Removed {
		p, known = Person{First: p.First}, false
	}
	for _, other := range s.people {
		if other.ID != i.ID() && !other.Removed && other.Provider == i.Provider && strings.EqualFold(other.Login, i.Login) {
			return Person{}, fmt.Errorf("cannot let %s in: %w", i.Login, ErrTaken)
		}
	}
	next := p.clone()
	next.ID, next.Provider, next.Subject = i.ID(), i.Provider, i.Subject
	next.Login, next.Name, next.Email, next.Facts = i.Login, i.Name, i.Email, i.Facts
	next.Role = s.role(next)
	if next.Best() == route.RoleNone {
		return Person{}, fmt.Errorf("cannot let %s in: %w", i.Login, ErrNoRole)
	}
	if known && reflect.DeepEqual(p, next) {
		return next.clone(), nil
	}
	message := "Update the account of " + next.Login
	if !known {
		if len(s.people) >= maxPeople {
			return Person{}, fmt.Errorf("cannot let %s in: there are %d accounts, which is the most", i.Login, maxPeople)
		}
		next.First, message = s.Now().UTC().Truncate(time.Second), "Add the account of "+next.Login
	}
	if err := s.keep(ctx, next, next.Author(), message); err != nil {
		return Person{}, err
	}
	if known && next.Role != p.Role {
		s.notify(next.ID)
	}
	return next.clone(), nil
}

// role returns the role that counts for a person, who has Given and Facts.
func (s *Store) role(p Person) route.Role {
	switch {
	case p.Provider == ProviderOwner:
		return route.RoleAdmin // the owner of the data folder can change everything in it anyway
	case p.Given:
		return p.Role
	}
	return s.Rules.Role(p)
}

// Get returns an account with the role that counts now.
func (s *Store) Get(id string) (Person, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.people[id]
	if !ok || p.Removed {
		return Person{}, ErrUnknown
	}
	p = p.clone()
	p.Role = s.role(p)
	return p, nil
}

// Find returns the account with an ID or login. A login of several providers has to be written as PROVIDER:LOGIN.
func (s *Store) Find(name string) (Person, error) {
	if p, err := s.Get(name); err == nil {
		return p, nil
	}
	var found []Person
	for _, p := range s.List() {
		if strings.EqualFold(p.Login, name) || strings.EqualFold(p.Provider+":"+p.Login, name) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return Person{}, ErrUnknown
	case 1:
		return found[0], nil
	}
	return Person{}, route.NewProblem(route.KindAmbiguous, "%q is the login of several people", name).WithHint("give the id")
}

// List returns all accounts, by login.
func (s *Store) List() []Person {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Person{}
	for _, p := range s.people {
		if !p.Removed {
			p = p.clone()
			p.Role = s.role(p)
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b Person) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Login), strings.ToLower(b.Login)), strings.Compare(a.ID, b.ID))
	})
	return list
}

// Change is a change of the roles of a person.
type Change struct {
	// Role is the new role on the server. Nil leaves it as it is. RoleNone keeps the person out, also if the rules give a role.
	Role *route.Role
	// Rules has the role follow from the rules again.
	Rules bool
	// Repos are new roles in single repositories. RoleNone takes one away.
	Repos map[string]route.Role
}

// Apply changes the roles of a person, in the name of by.
func (s *Store) Apply(ctx context.Context, id string, c Change, by gitd.Person) (Person, error) {
	return s.change(ctx, id, by, "Change the roles of ", func(p *Person) error {
		if p.Provider == ProviderOwner {
			return route.NewProblem(route.KindInvalid, "the owner of the data folder is always an administrator")
		}
		switch {
		case c.Role != nil:
			p.Role, p.Given = *c.Role, true
		case c.Rules:
			p.Given = false
			p.Role = s.role(*p)
		}
		for repo, role := range c.Repos {
			if err := gitd.CheckName(repo); err != nil {
				return err
			}
			if p.Repos == nil {
				p.Repos = map[string]route.Role{}
			}
			if p.Repos[repo] = role; role == route.RoleNone {
				delete(p.Repos, repo)
			}
		}
		if len(p.Repos) > maxRepos {
			return route.NewProblem(route.KindTooLarge, "a person may have roles in %d repositories at most", maxRepos)
		}
		return nil
	})
}

// Remove removes an account, in the name of by.
func (s *Store) Remove(ctx context.Context, id string, by gitd.Person) error {
	_, err := s.change(ctx, id, by, "Remove the account of ", func(p *Person) error {
		*p = Person{ID: p.ID, Provider: p.Provider, Subject: p.Subject, Login: p.Login, First: p.First, Removed: true}
		return nil
	})
	return err
}

func (s *Store) change(ctx context.Context, id string, by gitd.Person, message string, change func(*Person) error) (Person, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.people[id]
	if !ok || p.Removed {
		return Person{}, ErrUnknown
	}
	next := p.clone()
	next.Role = s.role(next)
	if err := change(&next); err != nil {
		return Person{}, err
	}
	if reflect.DeepEqual(p, next) {
		return next, nil
	}
	if err := s.keep(ctx, next, by, message+next.Login); err != nil {
		return Person{}, err
	}
	s.notify(id)
	return next.clone(), nil
}

// notify reports a change of an account to Changed. The caller holds the lock, and Changed does not call back.
func (s *Store) notify(id string) {
	if s.Changed != nil {
		s.Changed(id)
	}
}

// keep writes an account. It counts when it is on disk.
func (s *Store) keep(ctx context.Context, p Person, by gitd.Person, message string) error {
	hash, err := s.records().Write(ctx, p.ref(), p, s.tips[p.ID], people.Change{By: by, When: s.Now(),
		Message: message})
	if err != nil {
		return fmt.Errorf("cannot keep the account of %s: %w", p.Login, err)
	}
	s.people[p.ID], s.tips[p.ID] = p, hash
	return nil
}
