package record

import (
	"slices"

	"github.com/ramus-dev/ramus/gitd"
)

// MaxAdditions is the largest number of additional repositories of a caller.
const MaxAdditions = 9

// Addition is an additional repository of a caller, as a run has it. The caller has a branch of its name there too. The
// run's record is in the caller's own repository alone.
type Addition struct {
	Repo       string    `json:"repo"`
	Base       string    `json:"base"`           // the branch that the caller's branch was created from
	BaseCommit gitd.Hash `json:"base_commit"`    // the tip of Base when the run began
	Start      gitd.Hash `json:"start"`          // the branch's tip when the run began
	Head       gitd.Hash `json:"head,omitempty"` // the branch's tip when it was last read
	// Required are the checks that the repository's base requires. They cannot run there, so a run that changed the
	// repository is not verified if there are some.
	Required []RequiredCheck `json:"required,omitempty"`
}

// Changed reports whether the run moved its branch in the additional repository.
func (a Addition) Changed() bool { return a.Start != "" && a.Head != "" && a.Start != a.Head }

// Addition returns the additional repository of the run with a name.
func (r Run) Addition(repo string) (a Addition, ok bool) {
	at := slices.IndexFunc(r.With, func(a Addition) bool { return a.Repo == repo })
	if at < 0 {
		return Addition{}, false
	}
	return r.With[at], true
}

// Repos returns the names of the caller's repositories, its own first.
func (r Run) Repos() []string {
	names := []string{r.Repo}
	for _, a := range r.With {
		names = append(names, a.Repo)
	}
	return names
}

// Move is the change of a step in an additional repository.
type Move struct {
	Repo string `json:"repo"`
	// Parent and Commit are the branch before and after the step. Commit is empty if nothing changed there, and in an
	// [EventStepStarted].
	Parent gitd.Hash `json:"parent"`
	Commit gitd.Hash `json:"commit,omitempty"`
}

// Moves returns the branches of additional repositories at the beginning of a run and now.
func Moves(with []Addition) (moves []Move) {
	for _, a := range with {
		m := Move{Repo: a.Repo, Parent: a.Start}
		if a.Changed() {
			m.Commit = a.Head
		}
		moves = append(moves, m)
	}
	return moves
}

// Advance returns a copy of the additional repositories of a run, with the branches after moves.
func Advance(with []Addition, moves []Move) []Addition {
	with = slices.Clone(with) // others read the old one
	for i := range with {
		for _, m := range moves {
			if m.Repo == with[i].Repo && m.Commit != "" {
				with[i].Head = m.Commit
			}
		}
	}
	return with
}

// movedOthers reports whether a step changed an additional repository. sub is the evidence of the sub-workflow that the
// step was, if it was one. The checks of a sub-workflow that changed one are void too, which is more than has to be.
func (e Event) movedOthers(sub Manifest) bool {
	if e.Type != EventStepFinished {
		return false
	}
	return slices.ContainsFunc(e.With, func(m Move) bool { return m.Commit != "" }) ||
		slices.ContainsFunc(sub.With, func(a ManifestAddition) bool { return a.Addition.Changed() })
}

// Parent returns the commit of a repository in moves at which the step began, or "" if moves lacks the repository.
func Parent(moves []Move, repo string) gitd.Hash {
	at := slices.IndexFunc(moves, func(m Move) bool { return m.Repo == repo })
	if at < 0 {
		return ""
	}
	return moves[at].Parent
}

// ManifestAddition is the evidence of a run in an additional repository. The patch is evidence/repos/REPO.diff.
type ManifestAddition struct {
	Addition
	Changed []gitd.Change `json:"changed"`
}
