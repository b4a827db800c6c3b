package account

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Identity is a person as a provider describes them.
type Identity struct {
	Provider string
	// Subject is the provider's own id of the person, which never changes.
	Subject string
	// Login, Name and Email are for people. Email is empty if the provider has not verified it.
	Login, Name, Email string
	// Facts are the values that rules may name.
	Facts map[string][]string
}

// ID returns the ID of the account of a person. Subjects other than numbers are hashed, so that an ID is a part of
// paths, refs and logs.
func (i Identity) ID() string {
	if i.Subject != "" && len(i.Subject) <= 20 && strings.Trim(i.Subject, "0123456789") == "" {
		return i.Provider + ":" + i.Subject
	}
	sum := sha256.Sum256([]byte(i.Subject))
	return i.Provider + ":" + hex.EncodeToString(sum[:12])
}

// The limits of an identity. A provider may send more, which is left out.
const (
	maxText   = 150
	maxFacts  = 32
	maxValues = 200
)

// clean returns the identity without characters that deceive the eye, and within its limits.
func (i Identity) clean() Identity {
	i.Login, i.Name, i.Email = oneLine(i.Login), oneLine(i.Name), oneLine(i.Email)
	facts := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(i.Facts)) {
		if len(facts) >= maxFacts || len(name) > maxText {
			continue
		}
		for _, value := range i.Facts[name] {
			if len(value) <= maxText && utf8.ValidString(value) && len(facts[name]) < maxValues {
				facts[name] = append(facts[name], value)
			}
		}
	}
	i.Facts = facts
	return i
}

// oneLine returns a text of a stranger as a part of one line.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '<' || r == '>' || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	return text.Clip(strings.Join(strings.Fields(s), " "), maxText)
}

// Person is the account of a person.
type Person struct {
	ID       string              `json:"id"` // "github:583231"
	Provider string              `json:"provider"`
	Subject  string              `json:"subject"` // the provider's own id
	Login    string              `json:"login"`
	Name     string              `json:"name,omitempty"`
	Email    string              `json:"email,omitempty"`
	Facts    map[string][]string `json:"facts,omitempty"`
	// Role counts on the server and in all repositories. Given means that an administrator gave it; otherwise it
	// follows from the configuration.
	Role  route.Role `json:"role"`
	Given bool       `json:"given,omitempty"`
	// Repos are the roles in single repositories.
	Repos map[string]route.Role `json:"repos,omitempty"`
	First time.Time             `json:"first"` // sign-in
	// Removed accounts admit nobody. Their person may sign in as a new one, if the rules let them.
	Removed bool `json:"removed,omitempty"`
}

// Author returns the person as the author of commits.
func (p Person) Author() gitd.Person {
	a := gitd.Person{Name: p.Name, Email: p.Email}
	if a.Name == "" {
		a.Name = p.Login
	}
	if a.Email == "" {
		a.Email = route.Mailbox(p.ID) + "@localhost"
	}
	return a
}

// Account returns the account of a session of the person, which authenticated at a time.
func (p Person) Account(session string, recent time.Time) route.Account {
	by := p.Author()
	return route.Account{ID: p.ID, Login: p.Login, Name: by.Name, Email: by.Email, Role: p.Role, Repos: p.Repos,
		Session: session, Recent: recent}
}

// Best returns the highest role that the person has anywhere.
func (p Person) Best() route.Role {
	a := p.Account("", time.Time{})
	return a.Best()
}

// ref returns the ref of the account.
func (p Person) ref() string { return refs + "/" + strings.Replace(p.ID, ":", "/", 1) }

// check returns an error for an account that cannot be one, such as a damaged one.
func (p Person) check(ref string) error {
	if p.Provider == "" || p.Subject == "" || (Identity{Provider: p.Provider, Subject: p.Subject}).ID() != p.ID || p.ref() != ref {
		return fmt.Errorf("%s is no account", ref)
	}
	return nil
}

// clone returns a copy that shares nothing that changes.
func (p Person) clone() Person {
	p.Facts, p.Repos = maps.Clone(p.Facts), maps.Clone(p.Repos)
	return p
}
