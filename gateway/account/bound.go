package account

import (
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Bound returns the grant of a token without the rights that its person has no more. The token of a person without an
// account stays as it is, since its rights are those that an administrator or the configuration gave. It is
// [gitd.Server.Bound].
func (s *Store) Bound(g gitd.Grant) (gitd.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.people[g.Person.ID]
	if !ok {
		return g, nil
	}
	role := route.RoleNone
	if !p.Removed {
		p = p.clone()
		p.Role = s.role(p)
		account := p.Account("", s.Now())
		if role = p.Role; g.Repo != "*" {
			role = account.In(g.Repo)
		}
	}
	have := route.NewWho(route.Account{ID: p.ID, Role: role}).Grant()
	if role == route.RoleAdmin && g.Repo != "*" && p.Role != route.RoleAdmin {
		have.Scopes = []string{gitd.ScopeWrite} // an administrator of one repository is a member
	}
	kept := slices.DeleteFunc(slices.Clone(g.Scopes), func(scope string) bool { return !have.Has(scope) })
	if len(kept) < len(g.Scopes) && g.Has(gitd.ScopeAdmin) {
		kept = append(kept, have.Scopes...) // an administrator's token goes on with the new role
	}
	if len(kept) == 0 {
		return g, fmt.Errorf("cannot accept the token: its person has no role here any more: %w", gitd.ErrDenied)
	}
	g.Scopes = kept
	return g, nil
}
