package github

import (
	"context"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gitd"
)

// Access is what a token has to be good for. A token is asked for one repository
// and for no more than that.
type Access string

// The accesses.
const (
	AccessRead   Access = "read"   // contents
	AccessWrite  Access = "write"  // contents and pull requests, with their conversation and labels
	AccessChecks Access = "checks" // checks, to read
)

// Tokens gives tokens: an App's installation, or a token that somebody made.
//
// Two abilities more are asked for where they are there: Login(ctx) is whom posts
// come from, where that cannot be asked with the token; Forget(token) tells that
// GitHub does not take a token any more, so that the next one is another.
type Tokens interface {
	Token(ctx context.Context, repo Name, a Access) (string, error)
}

// Token is a token that somebody made (ghp_…, github_pat_…). It is good for
// whatever it is good for, until its owner or GitHub ends it. It prints as "[token]".
type Token string

// Token is t itself.
func (t Token) Token(context.Context, Name, Access) (string, error) { return string(t), nil }

func (Token) String() string   { return "[token]" }
func (Token) GoString() string { return "[token]" }

// Credential lets git in at upstream, a URL such as https://github.com/acme/app.git,
// with a token of t's that is made, or taken out of a cache, whenever git is called.
func Credential(t Tokens, upstream string, a Access) func(context.Context) (gitd.Credential, error) {
	return func(ctx context.Context) (gitd.Credential, error) {
		repo, ok := ParseName(upstream)
		if !ok || !strings.HasPrefix(upstream, "https://") && !strings.HasPrefix(upstream, "http://") {
			return gitd.Credential{}, fmt.Errorf("cannot get a token for %.200q: want a URL such as https://github.com/OWNER/REPO.git", upstream)
		}
		text, err := t.Token(ctx, repo, a)
		return gitd.Credential{User: "x-access-token", Password: text}, err
	}
}
