package privacy

import (
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// veil hides the private callers of a repository from one bearer. Its grants are short-lived, so it keeps what was
// hidden when it was made.
type veil struct {
	subject string
	hidden  map[string]bool // slugs of callers
	// owner returns the id of the person who began a caller. Nil locks nothing.
	owner func(record.Caller) string
}

// ofCallers begins the names of refs that are of one caller. The slug of the caller follows.
var ofCallers = []string{"refs/heads/" + record.BranchPrefix, record.RunsPrefix + "/", record.WIPPrefix + "/",
	record.ConflictPrefix + "/", gitd.StageRefs + "/", "refs/ramus/review/"}

// slugOf returns the slug of the caller that a ref is of, or "".
func slugOf(ref string) string {
	for _, prefix := range ofCallers {
		if rest, ok := strings.CutPrefix(ref, prefix); ok {
			slug, _, _ := strings.Cut(rest, "/")
			return slug
		}
	}
	return ""
}

// Hides reports whether a ref is of a private caller of somebody else.
func (v *veil) Hides(ref string) bool { return len(v.hidden) > 0 && v.hidden[slugOf(ref)] }

// Locks reports whether a ref is the branch of a caller that somebody else began.
func (v *veil) Locks(ref string) bool {
	slug, ok := strings.CutPrefix(ref, ofCallers[0])
	if !ok || v.owner == nil {
		return false
	}
	kind, id, _ := strings.Cut(slug, "-")
	c, err := record.ParseCaller(kind + ":" + id)
	if err != nil || c.String() == v.subject {
		return false
	}
	owner := v.owner(c)
	return owner != "" && owner != v.subject
}

// HidesAny reports whether there is a private caller of somebody else.
func (v *veil) HidesAny() bool { return len(v.hidden) > 0 }

// Hidden lists the refs of the private callers of other people.
func (v *veil) Hidden() []string {
	var list []string
	for slug := range v.hidden {
		for _, prefix := range ofCallers {
			list = append(list, prefix+slug, prefix+slug+"/*")
		}
	}
	slices.Sort(list)
	return list
}

// Veil returns the veil over a repository for the bearer of a grant, or over all repositories if repo is empty. Returns
// nil if it would hide and lock nothing. It is [gitd.Server.Veil].
func (s *Store) Veil(g gitd.Grant, repo string) gitd.Veil {
	if g.Has(gitd.ScopeAdmin) && g.Repo == "*" {
		return nil
	}
	v := &veil{subject: g.Subject}
	if s.OwnersOnly {
		v.owner = s.Began
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed != nil {
		return everything{}
	}
	for name, list := range s.private {
		if repo != "" && name != repo {
			continue
		}
		for slug, r := range list {
			if r.Owner.ID == g.Subject || r.Caller.String() == g.Subject {
				continue
			}
			if v.hidden == nil {
				v.hidden = map[string]bool{}
			}
			v.hidden[slug] = true
		}
	}
	if v.hidden == nil && v.owner == nil {
		return nil
	}
	return v
}

// everything hides the branches and records of all callers. It is the veil while the records cannot be read.
type everything struct{}

func (everything) Hides(ref string) bool { return slugOf(ref) != "" }
func (everything) Locks(ref string) bool { return slugOf(ref) != "" }
func (everything) HidesAny() bool        { return true }
func (everything) Hidden() []string {
	var list []string
	for _, prefix := range ofCallers {
		list = append(list, prefix+"*")
	}
	return list
}
