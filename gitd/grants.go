package gitd

import "github.com/ramus-dev/ramus/gitd/grant"

// Grant states the rights of its bearer. It travels as an EdDSA JWT (RFC 8037) and is never stored.
type Grant = grant.Grant

// Veil has the refs of one repository that belong to other people than the bearer of a grant.
type Veil = grant.Veil

// Issued describes a token that was made, without the token.
type Issued = grant.Issued

// The scopes of a grant. ScopeWrite includes ScopeRead, and ScopeAdmin includes all.
const (
	ScopeRead    = grant.ScopeRead    // read repositories, and fetch
	ScopeWrite   = grant.ScopeWrite   // change them, and push
	ScopeAdmin   = grant.ScopeAdmin   // administer the server
	ScopeMetrics = grant.ScopeMetrics // read the metrics for Prometheus
)

// StageRefs is the folder of refs for commits that a container pushed while its branch moved or was
// deleted. They stay until they are merged or kept elsewhere.
const StageRefs = grant.StageRefs

// PeopleRepo is the repository of accounts and of the log of actions. Grants for every repository cover it only
// with the scope "admin".
const PeopleRepo = grant.PeopleRepo

// Scopes lists the scopes that a grant may have.
func Scopes() []string { return grant.Scopes() }

// TokenID returns the id of a token, which it does not verify, for [Server.RevokeToken].
func TokenID(token string) string { return grant.IDOf(token) }
