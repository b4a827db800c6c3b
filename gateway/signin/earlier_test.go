package signin

import (
	"slices"
	"testing"

	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gitd"
)

// ledger is a list of tokens in memory.
type ledger struct {
	list    []gitd.Issued
	revoked []string
}

func (l *ledger) Tokens() []gitd.Issued { return l.list }

func (l *ledger) RevokeToken(id, _ string) error {
	l.revoked = append(l.revoked, id)
	return nil
}

func TestEndAmbiguousTokens(t *testing.T) {
	l := &ledger{list: []gitd.Issued{
		{ID: "digits", Subject: "github:583231", By: "github:583231"},
		{ID: "letters", Subject: "github:ada", By: "github:ada"},
		{ID: "pinned", Subject: "github:583231", By: "github:583231", Person: "github:583231"},
		{ID: "by-admin", Subject: "github:583231", By: "admin"},
		{ID: "other", Subject: "583231", By: "583231"},
	}}
	if err := endAmbiguousTokens(l); err != nil || !slices.Equal(l.revoked, []string{"digits"}) {
		t.Errorf("revoked %q, %v", l.revoked, err)
	}
}

// TestLoginOfDigits has two people, one of whom has the other's number as login.
func TestLoginOfDigits(t *testing.T) {
	ada, mallory := identify(github.User{ID: 583231, Login: "ada"}), identify(github.User{ID: 7, Login: "583231"})
	if ada.ID() != "github:583231" || mallory.ID() != "github:7" {
		t.Errorf("ids %q and %q", ada.ID(), mallory.ID())
	}
}
