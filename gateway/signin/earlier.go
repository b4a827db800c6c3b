package signin

import (
	"errors"
	"strings"

	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gitd"
)

// issuer lists and revokes the tokens that were made.
type issuer interface {
	Tokens() []gitd.Issued
	RevokeToken(id, by string) error
}

// endAmbiguousTokens revokes the tokens of earlier versions whose subject is the login of a person at GitHub that could
// be the number of another person. Such a token would reach the credentials of the other one.
func endAmbiguousTokens(git issuer) error {
	var all error
	for _, t := range git.Tokens() {
		login, atGitHub := strings.CutPrefix(t.Subject, account.ProviderGitHub+":")
		ofSignIn := t.By == t.Subject && t.Person == ""
		if !atGitHub || !ofSignIn || strings.Trim(login, "0123456789") != "" || !t.Revoked.IsZero() {
			continue
		}
		all = errors.Join(all, git.RevokeToken(t.ID, "ramus"))
	}
	return all
}
