package privacy

import (
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// veil hides the private callers of a repository from one bearer. It asks the store each time, so that a grant which
// lives for a while follows the changes.
type veil struct {
	store         *Store
	subject, repo string // repo is "" for all repositories together
}

// The folders of refs that have a folder or a ref of each caller, by its slug.
var ofCallers = []string{"refs/heads/" + record.BranchPrefix, record.RunsPrefix + "/", record.WIPPrefix + "/",
	record.ConflictPrefix + "/", gitd.StageRefs + "/", agent.MemoryPrefix + "/", "refs/ramus/review/", "refs/ramus/replays/",
	"refs/ramus/upstream/" + record.BranchPrefix}

// ofAll are the folders of ramus's own refs that have nothing of a caller. Of the others nobody knows whose they are.
var ofAll = []string{"refs/ramus/bases/", gitd.DivergedRefs + "/", "refs/ramus/upstream/"}

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

// isMixed reports whether a ref of ramus may have work of any caller.
func isMixed(ref string) bool {
	return strings.HasPrefix(ref, "refs/ramus/") &&
		!slices.ContainsFunc(ofAll, func(prefix string) bool { return strings.HasPrefix(ref, prefix) })
}

// Hides reports whether a ref is of a private caller of somebody else.
func (v *veil) Hides(ref string) bool {
	if slug := slugOf(ref); slug != "" {
		return v.store.hides(v.repo, slug, v.subject)
	}
	return isMixed(ref) && v.HidesAny()
}

// Locks reports whether a ref is the branch of a caller that somebody else began.
func (v *veil) Locks(ref string) bool {
	slug, ok := strings.CutPrefix(ref, ofCallers[0])
	if !ok || !v.store.OwnersOnly || v.store.Began == nil {
		return false
	}
	kind, id, _ := strings.Cut(slug, "-")
	c, err := record.ParseCaller(kind + ":" + id)
	if err != nil || c.String() == v.subject {
		return false
	}
	owner := v.store.Began(c)
	return owner != "" && owner != v.subject
}

// HidesAny reports whether there is a private caller of somebody else.
func (v *veil) HidesAny() bool { return v.store.hidesAny(v.repo, v.subject) }

// Hidden lists the branches of the private callers of other people and, if there is one, the folder of ramus's own refs.
func (v *veil) Hidden() []string {
	list := v.store.hidden(v.repo, v.subject)
	for i, slug := range list {
		list[i] = strings.TrimSuffix(ofCallers[0]+slug, "/")
	}
	if len(list) > 0 {
		list = append(list, "refs/ramus")
	}
	slices.Sort(list)
	return list
}

// Veil returns the veil over a repository for the bearer of a grant, or over all repositories if repo is empty. Returns
// nil for administrators. It is [gitd.Server.Veil].
func (s *Store) Veil(g gitd.Grant, repo string) gitd.Veil {
	if g.Has(gitd.ScopeAdmin) && g.Repo == "*" {
		return nil
	}
	return &veil{s, g.Subject, repo}
}

// isOf reports whether a private caller is of a person, or is the person itself.
func (r Record) isOf(subject string) bool {
	return r.Owner.ID == subject || r.Caller.String() == subject
}

// works reports whether a private caller of the repository home works in repo, too. An empty repo is any.
func (s *Store) works(r Record, home, repo string) bool {
	return repo == "" || home == repo || s.With != nil && slices.Contains(s.With(r.Caller), repo)
}

// hides reports whether a caller, by its slug, is private and of somebody else.
func (s *Store) hides(repo, slug, subject string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed != nil {
		return true
	}
	for name, list := range s.private {
		if r, ok := list[slug]; ok && !r.isOf(subject) && s.works(r, name, repo) {
			return true
		}
	}
	return false
}

func (s *Store) hidesAny(repo, subject string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed != nil {
		return true
	}
	for name, list := range s.private {
		for _, r := range list {
			if !r.isOf(subject) && s.works(r, name, repo) {
				return true
			}
		}
	}
	return false
}

// hidden returns the slugs of the private callers of other people, or the beginning of all if nothing is known.
func (s *Store) hidden(repo, subject string) (slugs []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed != nil {
		return []string{""}
	}
	for name, list := range s.private {
		for slug, r := range list {
			if !r.isOf(subject) && s.works(r, name, repo) {
				slugs = append(slugs, slug)
			}
		}
	}
	return slugs
}
