package account

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gateway/route"
)

// The providers of identities.
const (
	ProviderGitHub = "github"
	ProviderOIDC   = "oidc"
	ProviderOwner  = "owner" // who can use the unix socket
)

// The facts of identities that have a meaning of their own. All others are claims of OpenID Connect.
const (
	FactLogin = "login" // at GitHub
	FactID    = "id"    // at GitHub
	FactOrg   = "org"   // at GitHub
	FactEmail = "email" // of OpenID Connect, verified
)

// folded are the facts whose case does not count.
var folded = []string{FactLogin, FactOrg, FactEmail}

// Rule names people by one fact, such as "github:ada", "github:org=acme", "oidc:ada@example.org" or
// "oidc:groups=developers".
type Rule struct{ Provider, Fact, Value string }

// ParseRule returns the rule of a text.
func ParseRule(text string) (Rule, error) {
	provider, rest, ok := strings.Cut(text, ":")
	fact, value, named := strings.Cut(rest, "=")
	if !named {
		fact, value = "", rest
	}
	r := Rule{provider, fact, value}
	switch {
	case !ok || value == "" || named && fact == "":
	case provider == ProviderGitHub:
		if !named {
			r.Fact = FactLogin
		}
		if slices.Contains([]string{FactLogin, FactID, FactOrg}, r.Fact) {
			return r, nil
		}
	case provider == ProviderOIDC:
		if !named {
			r.Fact = FactEmail
		}
		return r, nil
	}
	return Rule{}, fmt.Errorf("%q names nobody; want github:LOGIN, github:id=NUMBER, github:org=NAME, oidc:EMAIL or oidc:CLAIM=VALUE", text)
}

// ParseRules returns the rules of a list of texts.
func ParseRules(texts []string) ([]Rule, error) {
	var list []Rule
	for _, text := range texts {
		r, err := ParseRule(text)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// names reports whether the rule names a person.
func (r Rule) names(p Person) bool {
	return p.Provider == r.Provider && slices.ContainsFunc(p.Facts[r.Fact], func(value string) bool {
		return value == r.Value || slices.Contains(folded, r.Fact) && strings.EqualFold(value, r.Value)
	})
}

// Rules give roles to people. The highest one that names a person counts.
type Rules struct {
	Admins, Members, Viewers []Rule
	// Default is the role of everybody else who proves an identity. RoleNone lets nobody in.
	Default route.Role
}

// Role returns the role that the rules give to a person.
func (r Rules) Role(p Person) route.Role {
	for _, x := range []struct {
		role route.Role
		list []Rule
	}{{route.RoleAdmin, r.Admins}, {route.RoleMember, r.Members}, {route.RoleViewer, r.Viewers}} {
		if slices.ContainsFunc(x.list, func(one Rule) bool { return one.names(p) }) {
			return x.role
		}
	}
	return r.Default
}

// Organizations reports whether a rule names people by an organization at GitHub.
func (r Rules) Organizations() bool {
	return slices.ContainsFunc(slices.Concat(r.Admins, r.Members, r.Viewers), func(one Rule) bool {
		return one.Provider == ProviderGitHub && one.Fact == FactOrg
	})
}
