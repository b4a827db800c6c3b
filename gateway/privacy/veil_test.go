package privacy

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

func caller(t *testing.T, id string) record.Caller {
	t.Helper()
	c, err := record.RunCaller(id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newStore returns a store with a private caller "a" of Ada in the repository "app".
func newStore(t *testing.T) *Store {
	t.Helper()
	s := &Store{byCaller: map[record.Caller]Record{}, tips: map[record.Caller]gitd.Hash{},
		private: map[string]map[string]Record{}}
	s.put(Record{Caller: caller(t, "a"), Repo: "app", Private: true, Owner: gitd.Person{ID: "github:1"}}, "")
	return s
}

// TestVeil tries each kind of ref for each kind of bearer.
func TestVeil(t *testing.T) {
	s := newStore(t)
	all := []string{"refs/heads/*", "refs/tags/*"}
	member := gitd.Grant{Subject: "github:2", Repo: "*", Scopes: []string{gitd.ScopeWrite}, Write: all}
	owner, admin, own, narrow := member, member, member, member
	owner.Subject = "github:1"
	admin.Scopes = []string{gitd.ScopeAdmin}
	own.Subject = "run:a"
	narrow.Read = []string{"refs/heads/ramus/*", "refs/ramus/*"}
	oneRepo := admin
	oneRepo.Repo = "app"
	of := []string{"refs/heads/ramus/run-a", "refs/ramus/runs/run-a/1", "refs/ramus/wip/run-a",
		"refs/ramus/conflicts/run-a/x", "refs/ramus/stage/run-a/1", "refs/ramus/state/run-a",
		"refs/ramus/upstream/ramus/run-a", "refs/ramus/review/run-a"}
	// Nobody knows of whom these are.
	mixed := []string{"refs/ramus/browser/k", "refs/ramus/incoming/x", "refs/ramus/of-a-later-version/run-b"}
	others := []string{"refs/heads/main", "refs/heads/ramus/run-ab", "refs/ramus/runs/run-b/1", "refs/tags/run-a",
		"refs/ramus/state/run-b", "refs/ramus/bases/1", "refs/ramus/upstream/fix", "refs/ramus/diverged/main/1"}
	for name, x := range map[string]struct {
		grant gitd.Grant
		sees  bool
	}{"member": {member, false}, "narrow": {narrow, false}, "admin of one": {oneRepo, false}, "owner": {owner, true},
		"admin": {admin, true}, "itself": {own, true}} {
		g := x.grant.Under(s.Veil(x.grant, "app"))
		for _, ref := range slices.Concat(of, mixed) {
			if g.MayReadRef("app", ref) != x.sees {
				t.Errorf("%s: sees %s: %t", name, ref, !x.sees)
			}
		}
		if g.MayWriteRef("app", of[0]) != x.sees {
			t.Errorf("%s: writes %s: %t", name, of[0], !x.sees)
		}
		if name != "narrow" {
			for _, ref := range others {
				if !g.MayReadRef("app", ref) {
					t.Errorf("%s: does not see %s", name, ref)
				}
			}
		}
		if other := x.grant.Under(s.Veil(x.grant, "other")); len(other.Read) != len(x.grant.Read) {
			t.Errorf("%s: something is hidden in another repository", name)
		}
		if x.grant.Under(s.Veil(x.grant, "app")).ReadsAll() != (x.sees && len(x.grant.Read) == 0) {
			t.Errorf("%s: reads all: %t", name, !x.sees)
		}
	}
	s.With = func(c record.Caller) []string {
		if c == caller(t, "a") {
			return []string{"lib"}
		}
		return nil
	}
	if g := member.Under(s.Veil(member, "lib")); g.MayReadRef("lib", of[0]) || g.MayWriteRef("lib", of[0]) || g.ReadsAll() ||
		!slices.Contains(g.Veil.Hidden(), of[0]) {
		t.Error("a private caller is not hidden in its additional repository")
	}
	if g := owner.Under(s.Veil(owner, "lib")); !g.MayReadRef("lib", of[0]) || s.Veil(member, "other").HidesAny() {
		t.Error("a private caller is hidden from its owner, or elsewhere")
	}
	s.put(Record{Caller: caller(t, "a"), Repo: "app", Owner: gitd.Person{ID: "github:1"}}, "")
	if s.Veil(member, "app").HidesAny() || s.Veil(member, "").HidesAny() || !member.Under(s.Veil(member, "app")).ReadsAll() {
		t.Error("a caller that is shown again is hidden")
	}
}

// TestLocks has everybody write to their own branches only.
func TestLocks(t *testing.T) {
	s := newStore(t)
	s.OwnersOnly = true
	s.Began = func(c record.Caller) string {
		if c.ID() == "b" {
			return "github:1"
		}
		return ""
	}
	member := gitd.Grant{Subject: "github:2", Repo: "*", Scopes: []string{gitd.ScopeWrite}, Write: []string{"refs/heads/*"}}
	g := member.Under(s.Veil(member, "app"))
	for ref, writes := range map[string]bool{"refs/heads/ramus/run-b": false, "refs/heads/ramus/run-new": true,
		"refs/heads/main": true, "refs/heads/ramus/run-a": false} {
		if g.MayWriteRef("app", ref) != writes {
			t.Errorf("writes %s: %t", ref, !writes)
		}
	}
	if !g.MayReadRef("app", "refs/heads/ramus/run-b") {
		t.Error("a locked branch is hidden")
	}
}

// TestLocksNobody leaves branches open whose beginner is not known, and to the caller itself.
func TestLocksNobody(t *testing.T) {
	began := func(record.Caller) string { return "github:1" }
	for _, x := range []struct {
		about        string
		store        *Store
		subject, ref string
		locks        bool
	}{
		{"another person", &Store{OwnersOnly: true, Began: began}, "github:2", "refs/heads/ramus/run-b", true},
		{"the person", &Store{OwnersOnly: true, Began: began}, "github:1", "refs/heads/ramus/run-b", false},
		{"the caller", &Store{OwnersOnly: true, Began: began}, "run:b", "refs/heads/ramus/run-b", false},
		{"another caller", &Store{OwnersOnly: true, Began: began}, "run:a", "refs/heads/ramus/run-b", true},
		{"no caller's branch", &Store{OwnersOnly: true, Began: began}, "github:2", "refs/heads/ramus/b", false},
		{"everybody's", &Store{Began: began}, "github:2", "refs/heads/ramus/run-b", false},
		{"nobody's", &Store{OwnersOnly: true}, "github:2", "refs/heads/ramus/run-b", false},
	} {
		if got := (&veil{x.store, x.subject, "app"}).Locks(x.ref); got != x.locks {
			t.Errorf("%s: %t", x.about, got)
		}
	}
}

// TestSet makes callers private and shows them again, and reads them after a restart.
func TestSet(t *testing.T) {
	s := &Store{Options: people.Options{Git: repotest.NewServer(t), Committer: gitd.Person{Name: "ramus", Email: "ramus@localhost"}}}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ada, bob := gitd.Person{Name: "Ada", Email: "a@localhost", ID: "github:1"}, gitd.Person{Name: "Bob", Email: "b@localhost", ID: "github:2"}
	a, b := caller(t, "a"), caller(t, "b")
	for _, x := range []struct {
		about   string
		caller  record.Caller
		repo    string
		private bool
		owner   gitd.Person
		kind    route.Kind // of the problem
		changes bool
		want    bool // afterwards
	}{
		{"show what is shown", a, "app", false, ada, "", false, false},
		{"hide", a, "app", true, ada, "", true, true},
		{"hide what is hidden", a, "app", true, ada, "", false, true},
		{"hide another's", a, "app", true, bob, route.KindExists, false, true},
		{"show", a, "app", false, ada, "", true, false},
		{"hide what was another's", a, "app", true, bob, "", true, true},
		{"for nobody", b, "app", true, gitd.Person{}, route.KindInvalid, false, false},
		{"nowhere", b, "", true, ada, route.KindInvalid, false, false},
	} {
		changed := s.Changed()
		err := s.SetPrivate(t.Context(), x.caller, x.repo, x.private, x.owner)
		var p *route.Problem
		if x.kind == "" && err != nil || x.kind != "" && (!errors.As(err, &p) || p.Kind != x.kind) {
			t.Errorf("%s: %v", x.about, err)
		}
		select {
		case <-changed:
			if !x.changes {
				t.Errorf("%s: it is a change", x.about)
			}
		default:
			if x.changes {
				t.Errorf("%s: it is no change", x.about)
			}
		}
		again := &Store{Options: s.Options}
		if err := again.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.IsPrivate(x.caller) != x.want || again.IsPrivate(x.caller) != x.want {
			t.Errorf("%s: private is %t, and %t after a restart", x.about, s.IsPrivate(x.caller), again.IsPrivate(x.caller))
		}
	}
	if got := s.Veil(gitd.Grant{Subject: ada.ID}, "app").Hidden(); !slices.Equal(got, []string{"refs/heads/ramus/run-a", "refs/ramus"}) {
		t.Errorf("hidden are %q", got)
	}
	if got := s.Veil(gitd.Grant{Subject: bob.ID}, "app").Hidden(); len(got) != 0 {
		t.Errorf("hidden from the owner are %q", got)
	}

	for n := len(s.byCaller); n < maxRecords-1; n++ {
		s.byCaller[caller(t, fmt.Sprint("x", n))] = Record{}
	}
	var p *route.Problem
	if err := s.SetPrivate(t.Context(), b, "app", true, ada); err != nil {
		t.Errorf("the last one: %v", err)
	}
	if err := s.SetPrivate(t.Context(), caller(t, "c"), "app", true, ada); !errors.As(err, &p) || p.Kind != route.KindTooLarge {
		t.Errorf("there is no bound: %v", err)
	}
	if err := s.SetPrivate(t.Context(), b, "app", false, ada); err != nil {
		t.Errorf("one that has a record: %v", err)
	}
}

// TestCheck refuses records that are not those of their refs.
func TestCheck(t *testing.T) {
	good := Record{Caller: caller(t, "a"), Repo: "app", Owner: gitd.Person{ID: "github:1"}}
	nobody, nowhere, unowned := good, good, good
	nobody.Caller, nowhere.Repo, unowned.Owner.ID = record.Caller{}, "", ""
	for _, x := range []struct {
		about string
		r     Record
		ref   string
		ok    bool
	}{{"a good one", good, good.ref(), true}, {"another's", good, refs + "/run-b", false}, {"nobody's", nobody, nobody.ref(), false},
		{"nowhere", nowhere, good.ref(), false}, {"without an owner", unowned, good.ref(), false}} {
		if err := x.r.check(x.ref); (err == nil) != x.ok {
			t.Errorf("%s: %v", x.about, err)
		}
	}
}

// TestNothingKnown hides all callers while their records cannot be read.
func TestNothingKnown(t *testing.T) {
	s := &Store{closed: gitd.ErrNotFound}
	member := gitd.Grant{Subject: "github:2", Repo: "*", Scopes: []string{gitd.ScopeRead}}
	g := member.Under(s.Veil(member, "app"))
	if g.MayReadRef("app", "refs/heads/ramus/run-x") || !g.MayReadRef("app", "refs/heads/main") {
		t.Error("the branches of callers are shown, or others are not")
	}
}
