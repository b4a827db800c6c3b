package grant

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/object"
)

// TestScopes checks which scope includes which.
func TestScopes(t *testing.T) {
	for _, tt := range []struct {
		scopes   string // of the grant
		includes string // of all scopes, in their order
	}{
		{"", ""},
		{"read", "read"},
		{"write", "read write"},
		{"metrics", "metrics"},
		{"read metrics", "read metrics"},
		{"admin", "read write admin metrics"},
		{"other", ""},
	} {
		g := Grant{Scopes: strings.Fields(tt.scopes)}
		var has []string
		for _, scope := range Scopes() {
			if g.Has(scope) {
				has = append(has, scope)
			}
		}
		if got := strings.Join(has, " "); got != tt.includes {
			t.Errorf("%q includes %q, want %q", tt.scopes, got, tt.includes)
		}
	}
}

// TestRights checks that each right needs the repository, the scope and the ref.
func TestRights(t *testing.T) {
	const main, work, note, journal = "refs/heads/main", "refs/heads/ramus/x", "refs/notes/a", "refs/ramus/journal/x"
	some := Grant{Repo: "a", Read: []string{main}, Write: []string{"refs/heads/ramus/*"}}
	with := func(g Grant, scopes ...string) Grant {
		g.Scopes = scopes
		return g
	}
	for _, tt := range []struct {
		name          string
		grant         Grant
		repo          string
		read, write   bool // something
		sees, updates string
	}{
		{"no scope", some, "a", false, false, "", ""},
		{"read", with(some, "read"), "a", true, false, main, ""},
		{"write", with(some, "write"), "a", true, true, main + " " + work, work},
		{"another repository", with(some, "write"), "b", false, false, "", ""},
		{"the beginning of its name", with(some, "write"), "", false, false, "", ""},
		{"admin", with(some, "admin"), "a", true, true, main + " " + work, work},
		{"metrics", with(some, "metrics"), "a", false, false, "", ""},
		{"no refs to write", with(Grant{Repo: "a"}, "write"), "a", true, true,
			main + " " + work + " " + note + " " + journal, ""},
		{"every repository", with(Grant{Repo: "*", Write: []string{"refs/*"}}, "write"), "b", true, true,
			main + " " + work + " " + note + " " + journal, main + " " + work + " " + note},
		{"no repository", with(Grant{Repo: "*"}, "write"), "", false, false, "", ""},
		{"a name below a full name", with(Grant{Repo: "a", Write: []string{"refs/heads/ramus"}}, "write"), "a", true,
			true, main + " " + work + " " + note + " " + journal, ""},
		{"a star within a name", with(Grant{Repo: "a", Write: []string{"refs/heads/ma*"}}, "write"), "a", true, true,
			main + " " + work + " " + note + " " + journal, ""},
		{"the server's own refs", with(Grant{Repo: "a", Read: []string{main}, Write: []string{"refs/ramus/journal/*"}},
			"write"), "a", true, true, main + " " + journal, journal},
	} {
		g := tt.grant
		if g.MayRead(tt.repo) != tt.read || g.MayWrite(tt.repo) != tt.write {
			t.Errorf("%s: reads %v, writes %v", tt.name, g.MayRead(tt.repo), g.MayWrite(tt.repo))
		}
		var sees, updates []string
		for _, ref := range []string{main, work, note, journal} {
			if g.MayReadRef(tt.repo, ref) {
				sees = append(sees, ref)
			}
			if g.MayWriteRef(tt.repo, ref) {
				updates = append(updates, ref)
			}
		}
		if strings.Join(sees, " ") != tt.sees || strings.Join(updates, " ") != tt.updates {
			t.Errorf("%s: sees %v, updates %v", tt.name, sees, updates)
		}
	}
}

// veil hides and locks refs.
type veil struct{ hidden, locked []string }

func (v veil) Hides(ref string) bool { return slices.Contains(v.hidden, ref) }
func (v veil) Locks(ref string) bool { return slices.Contains(v.locked, ref) }
func (v veil) HidesAny() bool        { return len(v.hidden) > 0 }
func (v veil) Hidden() []string      { return v.hidden }

// TestVeil checks that a hidden ref is neither seen nor updated, and that a locked one is not updated.
func TestVeil(t *testing.T) {
	const hidden, locked, both, free = "refs/heads/hidden", "refs/heads/locked", "refs/heads/both", "refs/heads/free"
	g := Grant{Subject: "x", Repo: "*", Scopes: []string{ScopeWrite}, Write: []string{"refs/heads/*"}}
	if under := g.Under(nil); !under.Writes(hidden) || !under.ReadsAll() {
		t.Error("no veil hides something")
	}
	if under := g.Under(veil{locked: []string{locked}}); !under.ReadsAll() {
		t.Error("a veil that hides nothing leaves less than everything")
	}
	g = g.Under(veil{hidden: []string{hidden, both}, locked: []string{locked, both}})
	if g.ReadsAll() {
		t.Error("everything is seen under a veil")
	}
	for ref, want := range map[string]struct{ sees, updates bool }{hidden: {}, both: {}, locked: {sees: true}, free: {true, true}} {
		if g.Shows(ref) != want.sees || g.Writes(ref) != want.updates {
			t.Errorf("%s: seen %v, updated %v", ref, g.Shows(ref), g.Writes(ref))
		}
	}
}

func TestReadsAll(t *testing.T) {
	for name, tt := range map[string]struct {
		grant Grant
		all   bool
	}{
		"read":      {Grant{Scopes: []string{ScopeRead}}, true},
		"one ref":   {Grant{Scopes: []string{ScopeRead}, Read: []string{"refs/heads/main"}}, false},
		"no scope":  {Grant{}, false},
		"write":     {Grant{Scopes: []string{ScopeWrite}}, true},
		"numbers":   {Grant{Scopes: []string{ScopeMetrics}}, false},
		"all names": {Grant{Scopes: []string{ScopeRead}, Read: []string{"refs/*"}}, false},
	} {
		if got := tt.grant.ReadsAll(); got != tt.all {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestCheck checks the borders of a grant's fields.
func TestCheck(t *testing.T) {
	good := Grant{Subject: "x", Repo: "a"}
	for name, tt := range map[string]struct {
		change func(*Grant)
		ok     bool
	}{
		"small":           {func(*Grant) {}, true},
		"every repo":      {func(g *Grant) { g.Repo = "*" }, true},
		"all refs":        {func(g *Grant) { g.Read, g.Write = []string{"refs/*"}, []string{"refs/*"} }, true},
		"patterns":        {func(g *Grant) { g.Read, g.Write = []string{"refs/heads/a"}, []string{"refs/heads/a/*"} }, true},
		"all, then bad":   {func(g *Grant) { g.Write = []string{"refs/*", "refs/heads/a..b"} }, false},
		"long subject":    {func(g *Grant) { g.Subject = strings.Repeat("x", 200) }, true},
		"longer subject":  {func(g *Grant) { g.Subject = strings.Repeat("x", 201) }, false},
		"long name":       {func(g *Grant) { g.Person.Name = strings.Repeat("x", 200) }, true},
		"longer name":     {func(g *Grant) { g.Person.Name = strings.Repeat("x", 201) }, false},
		"control address": {func(g *Grant) { g.Person.Email = "a\r@b" }, false},
		"no subject":      {func(g *Grant) { g.Subject = "" }, false},
	} {
		g := good
		tt.change(&g)
		if err := g.Check(); (err == nil) != tt.ok || err != nil && !errors.Is(err, object.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
