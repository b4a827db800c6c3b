package addition

import (
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// Step is the additional repositories during a step. Its nil value has none.
type Step []*part

// part is one of them.
type part struct {
	tree   *worktree.Tree
	before gitd.Hash // the branch's tip when the step began
	at     gitd.Hash // the branch's tip after the step's commit
}

// Moves returns the record of the step's changes. It is nil if there are no additional repositories.
func (s Step) Moves() (moves []record.Move) {
	for _, p := range s {
		m := record.Move{Repo: p.tree.Repo.Name(), Parent: p.before}
		if p.at != p.before {
			m.Commit = p.at
		}
		moves = append(moves, m)
	}
	return moves
}

// Advance returns a copy of the additional repositories of a run, with the tips after the step.
func (s Step) Advance(with []record.Addition) []record.Addition {
	return record.Advance(with, s.Moves())
}

// Fault is a change that could not be committed in an additional repository.
type Fault struct {
	Reason record.Reason
	Text   string // in a sentence, which names the repository
}

// Commit commits all work trees. home is the repository that has the run. A change that cannot be committed is a fault,
// and the others are committed all the same.
func (s Step) Commit(ctx context.Context, h *containers.Host, author gitd.Person, message, home string) ([]Fault, error) {
	var faults []Fault
	for _, p := range s {
		name := p.tree.Repo.Name()
		made, err := p.tree.CommitLast(ctx, h, p.at, author, fmt.Sprintf("%s%s: %s\n", message, record.TrailerRepo, home), nil)
		var u *worktree.Uncommitted
		switch {
		case errors.As(err, &u):
			faults = append(faults, Fault{u.Reason, name + ": " + u.Error()})
			continue
		case err != nil:
			return faults, fmt.Errorf("cannot commit in %s: %w", name, err)
		case len(made.Left) > 0:
			faults = append(faults, Fault{record.ReasonNotCommitted, name + ": " + worktree.LeftText(made.Left)})
		}
		p.at = made.Tip
	}
	return faults, nil
}

// Recover finds the commits that a step has made, after its container was lost. It returns one of them, or nil if there is
// none.
func (s Step) Recover(ctx context.Context, author gitd.Person, run, step string) (*gitd.Commit, error) {
	var found *gitd.Commit
	for _, p := range s {
		c, tip, err := p.tree.Recover(ctx, p.before, author, run, step)
		var apart *worktree.Uncommitted
		if err != nil && !errors.As(err, &apart) {
			return nil, fmt.Errorf("cannot read the branch in %s: %w", p.tree.Repo.Name(), err)
		}
		if c == nil {
			continue
		}
		found = c
		if tip != "" {
			p.at = tip
		}
	}
	return found, nil
}
