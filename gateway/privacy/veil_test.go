package privacy

import (
	"slices"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
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

// TestNothingKnown hides all callers while their records cannot be read.
func TestNothingKnown(t *testing.T) {
	s := &Store{closed: gitd.ErrNotFound}
	member := gitd.Grant{Subject: "github:2", Repo: "*", Scopes: []string{gitd.ScopeRead}}
	g := member.Under(s.Veil(member, "app"))
	if g.MayReadRef("app", "refs/heads/ramus/run-x") || !g.MayReadRef("app", "refs/heads/main") {
		t.Error("the branches of callers are shown, or others are not")
	}
}
