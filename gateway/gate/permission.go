package gate

import (
	"slices"
)

// Deed is an action of a person in a thread, other than reading.
type Deed string

// The deeds. Everybody in the thread may read (status, diff, log, why, help).
const (
	DeedRun     Deed = "run"     // begin, retry and stop runs, and prompt agents
	DeedMerge   Deed = "merge"   // merge the thread's branch
	DeedApprove Deed = "approve" // answer the gates of workflows
)

// Deeds returns all deeds.
func Deeds() []Deed { return []Deed{DeedRun, DeedMerge, DeedApprove} }

// Permission is the deeds that a person may do.
type Permission struct {
	May   []Deed
	Repos []string // empty means every repository
}

// Keys of [Gate.People] other than ids.
const (
	PersonStarter = "starter" // the person who began the thread
	PersonAnybody = "*"
)

// Doing is the input of [Gate.Permits].
type Doing struct {
	Deed    Deed
	Person  string // the user's id
	Starter string // the id of the person who began the thread; empty if nobody counts as that
	Repo    string
	// Own is set if Repo is the thread's own repository and was not named by a text.
	Own bool
}

// Permits reports whether a person may do something in a thread that goes to the container. In an excluded repository nobody
// may. If Gate.People is empty, the people of
// ThreadStarters and Requesters may do everything, and the person who began the thread may do everything in the thread's own
// repository and in those of Gate.Repos. Otherwise only the entries of Gate.People decide.
func (g Gate) Permits(d Doing) bool {
	if d.Person == "" || g.Excludes(d.Repo) {
		return false
	}
	starter := d.Person == d.Starter
	if len(g.People) == 0 {
		return listed(g.ThreadStarters, d.Person) || listed(g.Requesters, d.Person) ||
			starter && (d.Own || listed(g.Repos, d.Repo))
	}
	for name, p := range g.People {
		is := name == d.Person || name == PersonAnybody || name == PersonStarter && starter
		if is && slices.Contains(p.May, d.Deed) && (len(p.Repos) == 0 || slices.Contains(p.Repos, d.Repo)) {
			return true
		}
	}
	return false
}
