package account

import (
	"errors"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

func openGit(t *testing.T) *gitd.Server {
	t.Helper()
	git := &gitd.Server{Root: filepath.Join(t.TempDir(), "repos"), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { git.Close() })
	return git
}

func openStore(t *testing.T, git *gitd.Server, rules Rules) *Store {
	t.Helper()
	s := &Store{Rules: rules, Options: people.Options{Git: git,
		Committer: gitd.Person{Name: "ramus", Email: "ramus@localhost"},
		Log:       slog.New(slog.NewTextHandler(t.Output(), nil))}}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func rules(t *testing.T, admins, members, viewers string, other route.Role) Rules {
	t.Helper()
	r := Rules{Default: other}
	for text, to := range map[string]*[]Rule{admins: &r.Admins, members: &r.Members, viewers: &r.Viewers} {
		list, err := ParseRules(strings.Fields(text))
		if err != nil {
			t.Fatal(err)
		}
		*to = append(*to, list...)
	}
	return r
}

// user is a user of GitHub.
func user(id, login string, orgs ...string) Identity {
	return Identity{Provider: ProviderGitHub, Subject: id, Login: login, Name: strings.ToUpper(login),
		Email: login + "@example.org",
		Facts: map[string][]string{FactLogin: {login}, FactID: {id}, FactOrg: orgs}}
}

func TestRules(t *testing.T) {
	r := rules(t, "github:ada github:id=7", "github:org=ACME oidc:groups=developers",
		"oidc:bo@example.org oidc:sub=x=y", route.RoleNone)
	oidc := func(facts map[string][]string) Person { return Person{Provider: ProviderOIDC, Facts: facts} }
	hub := func(i Identity) Person { return Person{Provider: i.Provider, Facts: i.Facts} }
	for _, x := range []struct {
		what string
		p    Person
		want route.Role
	}{
		{"a login", hub(user("1", "Ada")), route.RoleAdmin}, {"an id", hub(user("7", "x")), route.RoleAdmin},
		{"an organization", hub(user("2", "bo", "acme")), route.RoleMember},
		{"the highest role", hub(user("1", "ada", "acme")), route.RoleAdmin},
		{"nobody", hub(user("3", "cy", "other")), route.RoleNone},
		{"a login at another provider", oidc(map[string][]string{FactLogin: {"ada"}}), route.RoleNone},
		{"an address", oidc(map[string][]string{FactEmail: {"Bo@Example.org"}}), route.RoleViewer},
		{"a group", oidc(map[string][]string{"groups": {"a", "developers"}}), route.RoleMember},
		{"a group in another case", oidc(map[string][]string{"groups": {"Developers"}}), route.RoleNone},
		{"a subject", oidc(map[string][]string{"sub": {"x=y"}}), route.RoleViewer},
	} {
		if got := r.Role(x.p); got != x.want {
			t.Errorf("%s: %s, want %s", x.what, got, x.want)
		}
	}
	if !r.Organizations() || (Rules{}).Organizations() {
		t.Error("organizations")
	}
	if rules(t, "github:ada", "oidc:org=acme", "", route.RoleNone).Organizations() {
		t.Error("a login at GitHub, or a claim of another provider, is an organization")
	}
	for _, text := range []string{"", "ada", "github:", "gitlab:ada", "github:team=x", "github:org=", "oidc:=x", ":x", "owner:0"} {
		if rule, err := ParseRule(text); err == nil {
			t.Errorf("%q is taken as %+v", text, rule)
		}
	}
}

func TestAccounts(t *testing.T) {
	git := openGit(t)
	s := openStore(t, git, rules(t, "github:ada", "github:org=acme", "", route.RoleNone))
	var changed []string
	s.Changed = func(id string) { changed = append(changed, id) }
	ctx := t.Context()
	by := gitd.Person{Name: "Admin", Email: "admin@example.org"}

	ada, err := s.SignIn(ctx, user("1", "ada"))
	if err != nil || ada.ID != "github:1" || ada.Role != route.RoleAdmin ||
		ada.Author() != (gitd.Person{Name: "ADA", Email: "ada@example.org"}) {
		t.Fatalf("%+v, %v", ada, err)
	}
	if _, err := s.SignIn(ctx, user("2", "bo")); !errors.Is(err, ErrNoRole) {
		t.Errorf("somebody without a role: %v", err)
	}
	bo, err := s.SignIn(ctx, user("2", "bo", "acme"))
	if err != nil || bo.Role != route.RoleMember {
		t.Fatalf("%+v, %v", bo, err)
	}
	// The login changes hands.
	if _, err := s.SignIn(ctx, user("3", "ADA")); !errors.Is(err, ErrTaken) {
		t.Errorf("a login of somebody else: %v", err)
	}
	if _, err := s.SignIn(ctx, user("1", "ada2")); !errors.Is(err, ErrNoRole) {
		t.Errorf("a new login that no rule names: %v", err)
	}
	// An administrator's word counts, also against the rules, and after a restart.
	viewer, none := route.RoleViewer, route.RoleNone
	if p, err := s.Apply(ctx, bo.ID, Change{Role: &viewer, Repos: map[string]route.Role{"app": route.RoleMember}},
		by); err != nil || p.Role != viewer || p.Best() != route.RoleMember {
		t.Errorf("%+v, %v", p, err)
	}
	s = openStore(t, git, s.Rules)
	s.Changed = func(id string) { changed = append(changed, id) }
	if p, err := s.SignIn(ctx, user("2", "bo", "acme")); err != nil || p.Role != viewer || p.Repos["app"] != route.RoleMember {
		t.Errorf("after a restart: %+v, %v", p, err)
	}
	if p, err := s.Apply(ctx, bo.ID, Change{Rules: true, Repos: map[string]route.Role{"app": none}}, by); err != nil ||
		p.Role != route.RoleMember || len(p.Repos) > 0 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := s.Apply(ctx, bo.ID, Change{Role: &none}, by); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SignIn(ctx, user("2", "bo", "acme")); !errors.Is(err, ErrNoRole) {
		t.Errorf("somebody who is kept out: %v", err)
	}
	if _, err := s.Apply(ctx, bo.ID, Change{Repos: map[string]route.Role{"../x": viewer}}, by); err == nil {
		t.Error("a name that is no repository's")
	}
	if strings.Join(changed, " ") != "github:2 github:2 github:2" {
		t.Errorf("changed: %v", changed)
	}
	if p, err := s.Find("ADA"); err != nil || p.ID != ada.ID {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := s.Find("nobody"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}

	// A removed account leaves its login to others.
	if err := s.Remove(ctx, ada.ID, by); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ada.ID); !errors.Is(err, ErrUnknown) || len(s.List()) != 1 {
		t.Errorf("%v, %+v", err, s.List())
	}
	s = openStore(t, git, s.Rules)
	if p, err := s.SignIn(ctx, user("3", "ada")); err != nil || p.ID != "github:3" {
		t.Errorf("%+v, %v", p, err)
	}
	// A removed person comes back as a new one.
	if err := s.Remove(ctx, "github:3", by); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SignIn(ctx, user("3", "ada")); err != nil {
		t.Fatal(err)
	}
	subject, err := exec.CommandContext(ctx, "git", "-C", filepath.Join(git.Root, "ramus-people.git"), "log", "-1",
		"--format=%s", "refs/ramus/accounts/github/3").Output()
	if err != nil || string(subject) != "Add the account of ada\n" {
		t.Errorf("%s, %v", subject, err)
	}
	// Stock git reads it all.
	log, err := exec.CommandContext(ctx, "git", "-C", filepath.Join(git.Root, "ramus-people.git"), "log",
		"--format=%an:%cn:%s", "refs/ramus/accounts/github/2").Output()
	want := "Admin:ramus:Change the roles of bo\nAdmin:ramus:Change the roles of bo\nAdmin:ramus:Change the roles of bo\nBO:ramus:Add the account of bo\n"
	if err != nil || string(log) != want {
		t.Errorf("%v\n%s", err, log)
	}
}

func TestOwner(t *testing.T) {
	s := openStore(t, openGit(t), Rules{})
	p, err := s.SignIn(t.Context(), Identity{Provider: ProviderOwner, Subject: "0", Login: "root"})
	if err != nil || p.ID != "owner:0" || p.Role != route.RoleAdmin || p.Author().Email != "owner-0@localhost" {
		t.Fatalf("%+v, %v", p, err)
	}
	none := route.RoleNone
	if _, err := s.Apply(t.Context(), p.ID, Change{Role: &none}, gitd.Person{Name: "A", Email: "a@example.org"}); err == nil {
		t.Error("the owner is kept out")
	}
}

// Claims of a stranger neither grow without bound nor break a commit.
func TestHostileIdentity(t *testing.T) {
	s := openStore(t, openGit(t), Rules{Default: route.RoleViewer})
	i := Identity{Provider: ProviderOIDC, Subject: "https://issuer.example \x00\n" + strings.Repeat("x", 250),
		Login: "eve\n<admin>\u202e", Name: strings.Repeat("n", 10_000), Facts: map[string][]string{"\xff": {"\xff"}}}
	for range 500 {
		i.Facts["groups"] = append(i.Facts["groups"], strings.Repeat("g", 100), strings.Repeat("g", 1000))
	}
	p, err := s.SignIn(t.Context(), i)
	if err != nil || p.Login != "eve admin" || len(p.Name) > maxText+3 || len(p.Facts["groups"]) != maxValues || len(p.Facts) != 1 {
		t.Errorf("%q %d %d, %v", p.Login, len(p.Name), len(p.Facts["groups"]), err)
	}
	if err := gitd.CheckRef(p.ref()); err != nil {
		t.Error(err)
	}
	s2 := openStore(t, s.Git, s.Rules)
	if got, err := s2.Get(p.ID); err != nil || got.Login != p.Login {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzIdentity(f *testing.F) {
	f.Add("github", "583231", "ada")
	f.Add("oidc", "https://issuer.example a/../b", "a@b")
	f.Add("oidc", "", "")
	f.Fuzz(func(t *testing.T, provider, subject, login string) {
		i := Identity{Provider: ProviderOIDC, Subject: subject, Login: login}.clean()
		p := Person{ID: i.ID(), Provider: i.Provider, Subject: subject, Login: i.Login}
		if err := gitd.CheckRef(p.ref()); err != nil {
			t.Errorf("%q: %v", subject, err)
		}
		if strings.ContainsAny(i.Login, "\n\r<>\x00") || len(i.Login) > maxText+3 {
			t.Errorf("%q became %q", login, i.Login)
		}
	})
}

// TestPrivateRecords has everybody but administrators see no records about people.
func TestPrivateRecords(t *testing.T) {
	for _, x := range []struct {
		g    gitd.Grant
		sees bool
	}{
		{gitd.Grant{Subject: "a", Repo: "*", Scopes: []string{"read"}}, false},
		{gitd.Grant{Subject: "a", Repo: "*", Scopes: []string{"write"}, Write: []string{"refs/*"}}, false},
		{gitd.Grant{Subject: "a", Repo: "*", Scopes: []string{"admin"}}, true},
		{gitd.Grant{Subject: "a", Repo: gitd.PeopleRepo, Scopes: []string{"read"}}, true},
	} {
		if got := x.g.MayRead(gitd.PeopleRepo); got != x.sees {
			t.Errorf("%+v sees the records: %t", x.g, got)
		}
	}
	for _, role := range route.Roles() {
		w := route.NewWho(route.Account{ID: "github:1", Role: role})
		if w.Sees(gitd.PeopleRepo) != (role == route.RoleAdmin) {
			t.Errorf("%s sees the records: %t", role, w.Sees(gitd.PeopleRepo))
		}
	}
}
