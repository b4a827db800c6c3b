package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

var admin = gitd.Person{Name: "Admin", Email: "admin@example.org"}

// TestIdentities checks the ids and the texts of identities.
func TestIdentities(t *testing.T) {
	for subject, plain := range map[string]bool{"0": true, "583231": true, "12345678901234567890": true,
		"123456789012345678901": false, "": false, "a": false, "1a": false, "-1": false} {
		id := Identity{Provider: "p", Subject: subject}.ID()
		hash, _ := strings.CutPrefix(id, "p:")
		if plain != (hash == subject) || !plain && (len(hash) != 24 || strings.Trim(hash, "0123456789abcdef") != "") {
			t.Errorf("%q has the id %q", subject, id)
		}
	}
	if a, b := (Identity{Provider: "p", Subject: "a"}), (Identity{Provider: "p", Subject: "b"}); a.ID() == b.ID() {
		t.Error("two people have one id")
	}
	for text, want := range map[string]string{"": "", "Ada Lovelace": "Ada Lovelace", " a \t b\n": "a b", "a<b": "a b", "a>b": "a b",
		"a\x00b": "a b", "a\u202eb": "a b", "a\xffb": "a b", "a\ufffdb": "a b", "é": "é", "a\u200bb": "a b",
		strings.Repeat("é", maxText/2): strings.Repeat("é", maxText/2)} {
		if got := oneLine(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	facts := map[string][]string{strings.Repeat("n", maxText): {"x"}, strings.Repeat("m", maxText+1): {"x"},
		"a": {strings.Repeat("v", maxText), strings.Repeat("w", maxText+1), "\xff"}}
	for i := range maxFacts {
		facts[fmt.Sprintf("c%02d", i)] = []string{"x"}
	}
	got := Identity{Facts: facts}.clean().Facts
	if len(got) != maxFacts || !slices.Equal(got["a"], []string{strings.Repeat("v", maxText)}) || got["c30"] == nil || got["c31"] != nil {
		t.Errorf("%d facts: %q", len(got), slices.Sorted(maps.Keys(got)))
	}
	delete(facts, "c00")
	delete(facts, "c01")
	if got := (Identity{Facts: facts}).clean().Facts; len(got) != maxFacts || got[strings.Repeat("n", maxText)] == nil ||
		got[strings.Repeat("m", maxText+1)] != nil {
		t.Errorf("%d facts: %q", len(got), slices.Sorted(maps.Keys(got)))
	}
}

// TestDamagedAccounts has accounts whose records cannot be theirs admit nobody, and all others work.
func TestDamagedAccounts(t *testing.T) {
	git := openGit(t)
	s := openStore(t, git, Rules{Default: route.RoleViewer})
	if _, err := s.SignIn(t.Context(), user("1", "ada")); err != nil {
		t.Fatal(err)
	}
	repo, err := people.OpenRepo(t.Context(), git)
	if err != nil {
		t.Fatal(err)
	}
	good := Person{ID: "github:2", Provider: "github", Subject: "2", Login: "bo", Role: route.RoleAdmin, Given: true}
	put := func(ref string, text []byte) {
		t.Helper()
		hash, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Put: []gitd.File{{Path: file, Content: text}}, Author: admin,
			Committer: admin, When: time.Unix(1_700_000_000, 0), Message: "m\n"})
		if err != nil {
			t.Fatal(err)
		}
		if err := repo.Update(t.Context(), gitd.RefUpdate{Name: ref, New: hash}); err != nil {
			t.Fatal(err)
		}
	}
	for ref, change := range map[string]func(p *Person){
		"github/2":        func(*Person) {},
		"github/3":        func(*Person) {},
		"github/4":        func(p *Person) { p.ID = "github:4" },
		"github/5":        func(p *Person) { p.ID, p.Provider = "github:5", "" },
		"github/6":        func(p *Person) { p.ID, p.Provider, p.Subject = "github:6", "oidc", "6" },
		"github/9":        func(p *Person) { p.ID, p.Subject = "github:9", "9" }, // after damaged ones
		"x/" + hashOf(""): func(p *Person) { p.ID, p.Provider, p.Subject = "x:"+hashOf(""), "x", "" },
	} {
		p := good
		change(&p)
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		put(refs+"/"+ref, text)
	}
	put(refs+"/github/7", []byte("{"))
	put(refs+"/github/8", slices.Concat([]byte(`{"id":"github:8","provider":"github","subject":"8","role":"admin","given":true,"login":"`),
		[]byte(strings.Repeat("x", maxAccount)), []byte(`"}`)))
	s = openStore(t, git, s.Rules)
	var ids []string
	for _, p := range s.List() {
		ids = append(ids, p.ID)
	}
	if want := []string{"github:1", "github:2", "github:9"}; !slices.Equal(ids, want) {
		t.Errorf("%q, want %q", ids, want)
	}
	empty := &Store{Options: people.Options{Git: openGit(t)}} // without other options
	if err := empty.Open(t.Context()); err != nil || len(empty.List()) > 0 {
		t.Errorf("%v", err)
	}
}

// hashOf returns the part of an id after the provider.
func hashOf(subject string) string { return strings.TrimPrefix(Identity{Subject: subject}.ID(), ":") }

// TestSignInAgain writes an account only if it has changed, and ends sessions only if the role has.
func TestSignInAgain(t *testing.T) {
	git := openGit(t)
	s := openStore(t, git, rules(t, "github:org=core", "github:org=acme", "", route.RoleViewer))
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	s.Now = func() time.Time { return now }
	var changed []string
	s.Changed = func(id string) { changed = append(changed, id) }
	for i, c := range []struct {
		as      Identity
		role    route.Role
		changes int // of the role
		commits int
	}{
		{user("1", "ada", "acme"), route.RoleMember, 0, 1},
		{user("1", "ada", "acme"), route.RoleMember, 0, 1},
		{user("1", "ada2", "acme"), route.RoleMember, 0, 2},
		{user("1", "ada2", "core"), route.RoleAdmin, 1, 3},
		{user("1", "ada2"), route.RoleViewer, 2, 4},
	} {
		p, err := s.SignIn(t.Context(), c.as)
		if err != nil || p.Role != c.role || p.Login != c.as.Login || !p.First.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
			t.Errorf("%d: %+v, %v", i, p, err)
		}
		repo, err := people.OpenRepo(t.Context(), git)
		if err != nil {
			t.Fatal(err)
		}
		log, err := repo.Log(t.Context(), refs+"/github/1", gitd.LogOptions{})
		if err != nil || len(log) != c.commits || len(changed) != c.changes {
			t.Errorf("%d: %d commits and %q, %v; want %d and %d", i, len(log), changed, err, c.commits, c.changes)
		}
		now = now.Add(time.Hour)
	}
	if p, err := s.Apply(t.Context(), "github:1", Change{}, admin); err != nil || p.Role != route.RoleViewer || len(changed) != 2 {
		t.Errorf("a change of nothing: %+v, %v, %q", p, err, changed)
	}
}

// TestFind finds people by ids and logins.
func TestFind(t *testing.T) {
	s := openStore(t, openGit(t), Rules{Default: route.RoleViewer})
	for _, i := range []Identity{user("1", "ada"), user("2", "bo"), {Provider: ProviderOIDC, Subject: "7", Login: "Ada"}} {
		if _, err := s.SignIn(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"github:1": "github:1", "oidc:7": "oidc:7", "BO": "github:2", "GitHub:Ada": "github:1",
		"oidc:ada": "oidc:7", "ada": "", "2": "", "": "", "github:": "", "oidc:bo": ""} {
		p, err := s.Find(name)
		var problem *route.Problem
		switch {
		case p.ID != want || (err == nil) != (want != ""):
			t.Errorf("%q is %q, %v; want %q", name, p.ID, err, want)
		case name == "ada" && (!errors.As(err, &problem) || problem.Kind != route.KindAmbiguous):
			t.Errorf("%q: %v", name, err)
		case want == "" && name != "ada" && !errors.Is(err, ErrUnknown):
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := s.Remove(t.Context(), "github:9", admin); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	for range 2 {
		err := s.Remove(t.Context(), "github:1", admin)
		if p, found := s.Find("ada"); found != nil || p.ID != "oidc:7" {
			t.Errorf("after a removal, %v: %+v, %v", err, p, found)
		}
	}
	if _, err := s.Apply(t.Context(), "github:1", Change{Rules: true}, admin); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

// TestStoreBounds bounds people and their roles in single repositories.
func TestStoreBounds(t *testing.T) {
	s := openStore(t, openGit(t), Rules{Default: route.RoleViewer})
	if _, err := s.SignIn(t.Context(), user("1", "ada")); err != nil {
		t.Fatal(err)
	}
	roles := map[string]route.Role{}
	for i := range maxRepos {
		roles[fmt.Sprint("r", i)] = route.RoleMember
	}
	if p, err := s.Apply(t.Context(), "github:1", Change{Repos: roles}, admin); err != nil || len(p.Repos) != maxRepos {
		t.Fatalf("%d roles, %v", len(p.Repos), err)
	}
	var problem *route.Problem
	if _, err := s.Apply(t.Context(), "github:1", Change{Repos: map[string]route.Role{"more": route.RoleMember}}, admin); !errors.As(err, &problem) ||
		problem.Kind != route.KindTooLarge {
		t.Errorf("one role more: %v", err)
	}
	long := map[string]route.Role{} // whose account is too large for a record
	for i := range maxRepos {
		roles[fmt.Sprint("r", i)] = route.RoleNone
		long[fmt.Sprint(strings.Repeat("n", 90), i)] = route.Role(strings.Repeat("x", 200))
	}
	if _, err := s.Apply(t.Context(), "github:1", Change{Repos: long}, admin); !errors.As(err, &problem) || problem.Kind != route.KindTooLarge {
		t.Errorf("a large account: %v", err)
	}
	if p, err := s.Get("github:1"); err != nil || len(p.Repos) != maxRepos {
		t.Errorf("after refusals: %d roles, %v", len(p.Repos), err)
	}
	if p, err := s.Apply(t.Context(), "github:1", Change{Repos: roles}, admin); err != nil || len(p.Repos) > 0 {
		t.Errorf("%d roles, %v", len(p.Repos), err)
	}

	for i := len(s.people); i < maxPeople-1; i++ {
		id := fmt.Sprint("github:", 100+i)
		s.people[id] = Person{ID: id, Provider: ProviderGitHub, Login: fmt.Sprint("u", i), Role: route.RoleViewer}
	}
	if _, err := s.SignIn(t.Context(), user("2", "bo")); err != nil {
		t.Errorf("the last account: %v", err)
	}
	if _, err := s.SignIn(t.Context(), user("3", "cy")); err == nil || !strings.Contains(err.Error(), "10000 accounts") {
		t.Errorf("one account more: %v", err)
	}
	if _, err := s.SignIn(t.Context(), user("2", "bo2")); err != nil {
		t.Errorf("somebody who has an account: %v", err)
	}
}

// TestBound takes from tokens the rights that their people have no more.
func TestBound(t *testing.T) {
	s := openStore(t, openGit(t), rules(t, "github:ada", "github:bo", "github:cy github:eve", route.RoleNone))
	for i, login := range []string{"ada", "bo", "cy", "eve"} {
		if _, err := s.SignIn(t.Context(), user(fmt.Sprint(i), login)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Apply(t.Context(), "github:1", Change{Repos: map[string]route.Role{"app": route.RoleAdmin}}, admin); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "github:3", admin); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		person, repo string
		scopes, want []string
	}{
		{"github:0", "*", []string{gitd.ScopeAdmin}, []string{gitd.ScopeAdmin}},
		{"github:0", "app", []string{gitd.ScopeAdmin}, []string{gitd.ScopeAdmin}},
		{"github:1", "app", []string{gitd.ScopeAdmin}, []string{gitd.ScopeWrite}}, // administrator of one repository
		{"github:1", "*", []string{gitd.ScopeAdmin}, []string{gitd.ScopeWrite}},
		{"github:1", "other", []string{gitd.ScopeWrite}, []string{gitd.ScopeWrite}},
		{"github:2", "*", []string{gitd.ScopeRead, gitd.ScopeWrite}, []string{gitd.ScopeRead}},
		{"github:2", "*", []string{gitd.ScopeWrite}, nil},
		{"github:3", "*", []string{gitd.ScopeRead}, nil},
		{"github:4", "*", []string{gitd.ScopeAdmin}, []string{gitd.ScopeAdmin}}, // no account
	} {
		got, err := s.Bound(gitd.Grant{Person: gitd.Person{ID: x.person}, Repo: x.repo, Scopes: x.scopes})
		if x.want == nil {
			if !errors.Is(err, gitd.ErrDenied) {
				t.Errorf("%s with %q for %s: %v", x.person, x.scopes, x.repo, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got.Scopes, x.want) {
			t.Errorf("%s with %q for %s has %q, want %q, %v", x.person, x.scopes, x.repo, got.Scopes, x.want, err)
		}
	}
}
