package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd"
)

// The policies of a merge into a branch that upstream has too.
const (
	// MergeHere merges in this server alone.
	MergeHere = "here"
	// MergePush merges, and upstream has the result before this server has it.
	MergePush = "push"
	// MergePull opens a pull request at upstream and merges nothing.
	MergePull = "pull-request"
)

// Landed is the result of [Merge]. Conflicts are a result and no error. Nothing was changed then.
type Landed struct {
	gitd.MergeResult
	// Into is the branch, by its name in this server.
	Into string `json:"into"`
	// Policy is the policy that was followed, one of MergeHere, MergePush and MergePull.
	Policy string `json:"policy"`
	// Upstream is the URL of upstream, without credentials. It is empty if the repository has none, and for those who may
	// not know it.
	Upstream string `json:"upstream,omitempty"`
	// Alone is set if the repository has an upstream that does not have the result.
	Alone bool `json:"alone,omitempty"`
	// Pull is the pull request, of MergePull.
	Pull *Pull `json:"pull_request,omitempty"`
	// Tries is the number of attempts of MergePush. It is more than 1 if upstream moved meanwhile.
	Tries int `json:"tries,omitempty"`
	// Note is a consequence that people have to know of.
	Note string `json:"note,omitempty"`
	// Repo is the repository, if the caller has several.
	Repo string `json:"repo,omitempty"`
}

// Pull is a pull request at the upstream of a repository.
type Pull struct {
	Number int    `json:"number"`
	URL    string `json:"url"`
	Branch string `json:"branch"` // of upstream
	// Updated is set if the pull request was there already.
	Updated bool `json:"updated,omitempty"`
}

// LandedAll is the result of [Merge] in all repositories of a caller.
type LandedAll struct {
	// Landed is the result in the caller's own repository.
	Landed
	// With has the results in the additional repositories. If there are conflicts in one, nothing was merged in any.
	With []Landed `json:"with,omitempty"`
}

// All returns the results in all repositories, that in the caller's own first.
func (l LandedAll) All() []Landed { return append([]Landed{l.Landed}, l.With...) }

// InTheWay reports whether conflicts, in any repository, kept the work from being merged.
func (l LandedAll) InTheWay() bool {
	return slices.ContainsFunc(l.All(), func(one Landed) bool { return len(one.Conflicts) > 0 })
}

// Whole reports whether all repositories have the work.
func (l LandedAll) Whole() bool {
	return !slices.ContainsFunc(l.All(), func(one Landed) bool { return !one.Merged })
}

// String returns the result in a sentence, which has a part for each repository, or for those that were in the way.
func (l LandedAll) String() string {
	if len(l.With) == 0 {
		return l.Landed.String()
	}
	var parts []string
	for _, one := range l.All() {
		if !l.InTheWay() {
			parts = append(parts, one.String())
		} else if len(one.Conflicts) > 0 {
			parts = append(parts, one.Repo+": conflict in "+strings.Join(one.Conflicts, ", "))
		}
	}
	if l.InTheWay() {
		parts = append(parts, "nothing was merged in any repository")
	}
	return strings.Join(parts, "; ")
}

// String returns the result in a sentence, which names the place of everything that changed.
func (l Landed) String() string {
	if l.Repo == "" {
		return l.sentence()
	}
	return l.Repo + ": " + l.sentence()
}

// sentence returns the result in one repository.
func (l Landed) sentence() string {
	place := l.Upstream
	if place == "" {
		place = "its upstream"
	}
	at := l.Commit
	text := ""
	switch {
	case len(l.Conflicts) > 0:
		return "conflict in " + strings.Join(l.Conflicts, ", ") + "; nothing was changed"
	case l.Pull != nil && l.Pull.Updated:
		text = fmt.Sprintf("updated pull request #%d into %s: %s; nothing is merged yet", l.Pull.Number, l.Into, l.Pull.URL)
	case l.Pull != nil:
		text = fmt.Sprintf("opened pull request #%d into %s: %s; nothing is merged yet", l.Pull.Number, l.Into, l.Pull.URL)
	case l.UpToDate:
		text = fmt.Sprintf("nothing to merge: %s has all of it", l.Into)
	case l.Policy == MergePush:
		text = fmt.Sprintf("merged into %s at %.10s, here and at %s", l.Into, at, place)
	case l.Alone:
		text = fmt.Sprintf("merged into %s at %.10s, here alone; %s does not have it", l.Into, at, place)
	default:
		text = fmt.Sprintf("merged into %s at %.10s", l.Into, at)
	}
	if l.Note != "" {
		text += "; " + l.Note
	}
	return text
}
