package forgekey

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/sealed"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/internal/redact"
)

// goodToken is the token that a person has.
const goodToken = "a-good-token"

// person is a forge that knows one token.
type person struct {
	forge.Forge
	token string
}

func (p *person) Title() string { return "Gitea" }

func (p *person) Me(context.Context) (string, error) {
	if p.token != goodToken {
		return "", &forge.RefusedError{Forge: "Gitea", Status: 401}
	}
	return "ada", nil
}

func open(t *testing.T) (*Keys, *time.Time) {
	t.Helper()
	store := &secret.Store{Box: &sealed.Box{Dir: t.TempDir(), KeyFile: filepath.Join(t.TempDir(), "seal.key")},
		Redact: new(redact.Secrets)}
	if err := store.Open(); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	with := func(token string) forge.Forge { return &person{token: token} }
	return &Keys{Store: store, URL: "https://ramus.example.org/", Now: func() time.Time { return now },
		Sites: []Site{{Name: "gitea", Forge: &person{}, With: with}, {Name: "gitlab", Forge: &person{}, With: with}}}, &now
}

// ticketOf returns the ticket of a link.
func ticketOf(t *testing.T, link string) string {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil || !strings.HasPrefix(link, "https://ramus.example.org/connect?") {
		t.Fatalf("%q: %v", link, err)
	}
	return u.Query().Get("ticket")
}

func TestInvitation(t *testing.T) {
	k, now := open(t)
	for _, site := range []string{"", "bitbucket"} {
		if _, err := k.Invite("slack:T:ada", "Ada", site); !errors.Is(err, record.ErrInvalid) ||
			!strings.Contains(err.Error(), "gitea, gitlab") {
			t.Errorf("%q: %v", site, err)
		}
	}
	link, err := k.Invite("slack:T:ada", "Ada", "gitea")
	if err != nil {
		t.Fatal(err)
	}
	ticket := ticketOf(t, link)
	i, ok := k.find(ticket, true)
	if !ok || i.person != "slack:T:ada" || i.site.Name != "gitea" {
		t.Fatalf("%+v %v", i, ok)
	}
	if _, ok := k.find(ticket, true); ok {
		t.Error("two forms of one invitation are tried at once")
	}
	k.settle(ticket, false)
	*now = now.Add(invitationLife)
	if _, ok := k.find(ticket, false); ok {
		t.Error("an invitation does not end")
	}
	k.settle(ticket, true)
	for n := range maxInvited + 1 {
		if _, err = k.Invite(strings.Repeat("x", n+1), "", "gitea"); err != nil && n < maxInvited {
			t.Fatal(n, err)
		}
	}
	if !errors.Is(err, record.ErrConflict) {
		t.Errorf("any number of invitations is open: %v", err)
	}
}

func TestOwnToken(t *testing.T) {
	k, _ := open(t)
	link, err := k.Invite("slack:T:ada", "Ada", "gitea")
	if err != nil {
		t.Fatal(err)
	}
	i, _ := k.find(ticketOf(t, link), true)
	if _, err := k.keep(t.Context(), i, "a usual word"); !errors.Is(err, forge.ErrRefused) {
		t.Error(err)
	}
	if got := k.Store.Redact.String("a usual word"); got != "a usual word" {
		t.Errorf("a text that is no token is removed from texts: %q", got)
	}
	if login, err := k.keep(t.Context(), i, goodToken); err != nil || login != "ada" {
		t.Fatal(login, err)
	}
	gitea, gitlab := k.Sites[0].Forge, k.Sites[1].Forge
	own, ok := k.Forge(t.Context(), gitea, "slack:T:ada")
	if !ok || own.(*person).token != goodToken {
		t.Errorf("%+v %v", own, ok)
	}
	for _, x := range []struct {
		at     forge.Forge
		person string
	}{{gitea, "slack:T:bob"}, {gitea, ""}, {gitlab, "slack:T:ada"}, {&person{}, "slack:T:ada"}} {
		if own, ok := k.Forge(t.Context(), x.at, x.person); ok {
			t.Errorf("%+v has %+v", x, own)
		}
	}
	// No repository has it.
	if _, err := k.Store.Value(t.Context(), "GITEA_TOKEN", secret.User{Repo: "app", Person: "slack:T:ada"},
		""); !errors.Is(err, record.ErrNotFound) {
		t.Error(err)
	}
	if list := k.Store.List(secret.OfRepository("app")); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	if sites, err := k.Forget("slack:T:ada"); err != nil || len(sites) != 1 {
		t.Error(sites, err)
	}
	if _, ok := k.Forge(t.Context(), gitea, "slack:T:ada"); ok {
		t.Error("a token that was removed is there")
	}
}
