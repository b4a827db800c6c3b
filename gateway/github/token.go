package github

import (
	"context"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gitd"
)

// Access is the purpose of a token. A token is requested for one repository and has no further permissions.
type Access string

// Accesses.
const (
	AccessRead   Access = "read"   // contents
	AccessWrite  Access = "write"  // contents and pull requests, with their conversation and labels
	AccessChecks Access = "checks" // checks, to read
	AccessStatus Access = "status" // commit statuses, to write
	// AccessInspect is for reading contents, pull requests, issues, checks and workflow runs.
	AccessInspect Access = "inspect"
)

// Tokens is a source of tokens: an App's installation, or a token that a person made.
//
// There are two optional abilities. Login(ctx) returns the author of posts, if the token cannot be used to ask for it.
// Forget(token) reports that GitHub no longer accepts a token, so that the next one is another.
type Tokens interface {
	Token(ctx context.Context, repo forge.Name, a Access) (string, error)
}

// Token is a token that a person made (ghp_…, github_pat_…). It has fixed permissions, until its owner or GitHub
// revokes it. It prints as "[token]".
type Token string

// Token returns t itself.
func (t Token) Token(context.Context, forge.Name, Access) (string, error) { return string(t), nil }

func (Token) String() string   { return "[token]" }
func (Token) GoString() string { return "[token]" }

// Credential returns a function that returns git's credential for upstream, a URL such as
// https://github.com/acme/app.git. Each call returns a token of t, new or cached.
func Credential(t Tokens, upstream string, a Access) func(context.Context) (gitd.Credential, error) {
	return func(ctx context.Context) (gitd.Credential, error) {
		repo, ok := ParseName(upstream)
		if !ok || !strings.HasPrefix(upstream, "https://") && !strings.HasPrefix(upstream, "http://") {
			return gitd.Credential{},
				fmt.Errorf("cannot get a token for %.200q: want a URL such as https://github.com/OWNER/REPO.git", upstream)
		}
		text, err := t.Token(ctx, repo, a)
		return gitd.Credential{User: "x-access-token", Password: text}, err
	}
}
