package grant

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/ramus-dev/ramus/gitd/object"
)

// Grant states the rights of its bearer. It travels as an EdDSA JWT (RFC 8037) and is never stored.
// [Ledger] lists the grants of tokens that people have.
type Grant struct {
	// ID names the token of the grant, so that the token can be revoked. Tokens of runs have none. [Signer.Verify] gives a
	// token without one an id that follows from its hash.
	ID string `json:"id,omitempty"`
	// Subject names the bearer for logs, commits and `whoami`, such as "run:fancy-mallard" or "admin".
	Subject string `json:"sub"`
	// Person is the author of commits for which the bearer asks. gitd ignores it. With the zero
	// value only Subject is known.
	Person object.Person `json:"person,omitzero"`
	// Repo is the name of the repository. "*" means every repository.
	Repo string `json:"repo"`
	// Read lists the refs that may be seen and fetched, as full names or as prefixes that end in
	// "/*". Empty means all refs. Without the scope "read" no ref may be seen.
	Read []string `json:"read,omitempty"`
	// Write lists the refs that may be updated, in the same form. Empty means
	// none, and so does a grant without the scope "write". Refs below refs/ramus/ are written by
	// ramus itself. Only a pattern that begins with refs/ramus/ covers them.
	Write []string `json:"write,omitempty"`
	// Force allows updates that are not fast-forwards. Delete allows deletions.
	Force  bool `json:"force,omitempty"`
	Delete bool `json:"delete,omitempty"`
	// Scopes lists the scopes of the bearer (see [Grant.Has]). Empty means nothing.
	Scopes []string `json:"scopes,omitempty"`
	// Expires is the end of the grant.
	Expires time.Time `json:"exp"`
	// Veil has the refs of other people that the bearer must not see or change, also if Read and Write have them. It is for
	// one repository and does not travel with the token, see [Grant.Under]. Nil hides nothing.
	Veil Veil `json:"-"`
}

// Veil has the refs of one repository that belong to other people than the bearer of a grant.
type Veil interface {
	// Hides reports whether the bearer must not know of a ref.
	Hides(ref string) bool
	// Locks reports whether the bearer may not change a ref.
	Locks(ref string) bool
	// HidesAny reports whether there is something to hide.
	HidesAny() bool
	// Hidden lists refs and folders of refs, with all that Hides has and maybe more below refs/ramus/.
	Hidden() []string
}

// Under returns the grant under a veil. Without a pattern in Read, the grant of a veil that hides something reads
// "refs/*", so that a grant whose Read is empty sees everything.
func (g Grant) Under(v Veil) Grant {
	if v == nil {
		return g
	}
	g.Veil = v
	if len(g.Read) == 0 && v.HidesAny() {
		g.Read = []string{"refs/*"}
	}
	return g
}

// OwnRefs is the folder of refs in which ramus keeps journals and base manifests.
const OwnRefs = "refs/ramus/"

// StageRefs is the folder of refs for commits that a container pushed while its branch moved or was
// deleted. They stay until they are merged or kept elsewhere.
const StageRefs = OwnRefs + "stage"

// Check returns [object.ErrInvalid] if g cannot be the grant that its author meant.
func (g Grant) Check() error {
	if g.Subject == "" || len(g.Subject) > 200 || strings.ContainsFunc(g.Subject, unicode.IsControl) {
		return fmt.Errorf("cannot use a grant with the subject %q: %w", g.Subject, object.ErrInvalid)
	}
	for _, text := range []string{g.Person.Name, g.Person.Email} {
		if len(text) > 200 || strings.ContainsFunc(text, unicode.IsControl) {
			return fmt.Errorf("cannot use a grant of the person %q: %w", g.Person, object.ErrInvalid)
		}
	}
	if g.Repo != "*" {
		if err := object.CheckName(g.Repo); err != nil {
			return fmt.Errorf("cannot use a grant: %w", err)
		}
	}
	for _, p := range slices.Concat(g.Read, g.Write) {
		if p == "refs/*" {
			continue
		}
		if err := object.CheckRef(strings.TrimSuffix(p, "/*")); err != nil {
			return fmt.Errorf("cannot use a grant with the pattern %.80q: %w", p, err)
		}
	}
	return nil
}

// The scopes of a grant. ScopeWrite includes ScopeRead, and ScopeAdmin includes all.
const (
	ScopeRead    = "read"    // look at repositories, and fetch
	ScopeWrite   = "write"   // change them, and push
	ScopeAdmin   = "admin"   // administer the server
	ScopeMetrics = "metrics" // read the numbers for Prometheus
)

// Scopes lists the scopes that a grant may have.
func Scopes() []string { return []string{ScopeRead, ScopeWrite, ScopeAdmin, ScopeMetrics} }

// Has reports whether the grant includes the scope. Has, MayRead, MayReadRef, MayWrite and MayWriteRef
// are the only place that decides the rights of a bearer. Git over HTTP and SSH, the API and MCP all
// ask them.
func (g Grant) Has(scope string) bool {
	switch {
	case slices.Contains(g.Scopes, scope), slices.Contains(g.Scopes, ScopeAdmin):
		return true
	case scope == ScopeRead:
		return slices.Contains(g.Scopes, ScopeWrite)
	}
	return false
}

// PeopleRepo is the repository in which ramus keeps accounts of people and the log of their actions. A grant for every
// repository covers it only with the scope "admin". Every other grant has to name it.
const PeopleRepo = "ramus-people"

// Covers reports whether the grant is for the repository.
func (g Grant) Covers(repo string) bool {
	switch g.Repo {
	case "*":
		return repo != "" && (repo != PeopleRepo || slices.Contains(g.Scopes, ScopeAdmin))
	default:
		return repo != "" && g.Repo == repo
	}
}

// MayRead reports whether the bearer may look at the repository, as far as [Grant.MayReadRef] allows.
func (g Grant) MayRead(repo string) bool { return g.Covers(repo) && g.Has(ScopeRead) }

// MayReadRef reports whether the bearer may see and fetch a ref of the repository, given by its full
// name.
func (g Grant) MayReadRef(repo, ref string) bool { return g.MayRead(repo) && g.Effective().Shows(ref) }

// MayWrite reports whether the bearer may change something in the repository, as far as
// [Grant.MayWriteRef] allows.
func (g Grant) MayWrite(repo string) bool { return g.Covers(repo) && g.Has(ScopeWrite) }

// MayWriteRef reports whether the bearer may update a ref of the repository, given by its full name.
func (g Grant) MayWriteRef(repo, ref string) bool { return g.MayWrite(repo) && g.Writes(ref) }

// ReadsAll reports whether the bearer sees all refs of the repositories of the grant.
func (g Grant) ReadsAll() bool { return g.Has(ScopeRead) && len(g.Read) == 0 }

// Effective returns the grant without the parts that its scopes do not allow.
func (g Grant) Effective() Grant {
	if !g.Has(ScopeWrite) {
		g.Write = nil
	}
	return g
}

// Writes reports whether ref may be updated. It does not look at scopes.
func (g Grant) Writes(ref string) bool {
	if g.Veil != nil && (g.Veil.Hides(ref) || g.Veil.Locks(ref)) {
		return false
	}
	return slices.ContainsFunc(g.Write, func(p string) bool {
		if strings.HasPrefix(ref, OwnRefs) && !strings.HasPrefix(p, OwnRefs) {
			return false
		}
		return matchRef(p, ref)
	})
}

// Shows reports whether a bearer with the scope may see ref. A bearer may see all refs that it may
// write, because git cannot push to a ref that it must not know.
func (g Grant) Shows(ref string) bool {
	if len(g.Read) == 0 {
		return true
	}
	if g.Veil != nil && g.Veil.Hides(ref) {
		return false
	}
	return g.Writes(ref) || slices.ContainsFunc(g.Read, func(p string) bool { return matchRef(p, ref) })
}

// matchRef reports whether pattern, a full ref name or a prefix that ends in "/*", matches ref.
func matchRef(pattern, ref string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasSuffix(prefix, "/") {
		return strings.HasPrefix(ref, prefix)
	}
	return pattern == ref
}
