package addition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// Trees are the work trees of a caller's additional repositories. The zero value has none. Methods are safe for concurrent
// use.
type Trees struct {
	mu   sync.Mutex // guards all below
	list []*worktree.Tree
	gone []string // the names of repositories that are removed
}

// Maker makes a work tree. [worktree.Store.NewAddition] does.
type Maker func(repo *gitd.Repo, base string) *worktree.Tree

// Include adds the work trees of additional repositories. It keeps those that it has, and none is ever taken away. A
// repository that is removed is an error of [Trees.Join].
func (t *Trees) Include(git *gitd.Server, with []record.Addition, make Maker) error {
	for _, a := range with {
		repo, err := git.Repo(a.Repo)
		removed := errors.Is(err, gitd.ErrNotFound)
		if err != nil && !removed {
			return fmt.Errorf("cannot work in %s: %w", a.Repo, err)
		}
		t.mu.Lock()
		t.gone = slices.DeleteFunc(t.gone, func(name string) bool { return name == a.Repo })
		switch {
		case removed:
			t.gone = append(t.gone, a.Repo)
		case t.find(a.Repo) == nil:
			t.list = append(t.list, make(repo, a.Base))
		}
		t.mu.Unlock()
	}
	return nil
}

// All returns the work trees, in the order in which they were added.
func (t *Trees) All() []*worktree.Tree {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.list)
}

// Of returns the work tree of a repository, or nil.
func (t *Trees) Of(repo string) *worktree.Tree {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.find(repo)
}

// find is Of with the mutex held.
func (t *Trees) find(repo string) *worktree.Tree {
	for _, o := range t.list {
		if o.Repo.Name() == repo {
			return o
		}
	}
	return nil
}

// Gone returns the names of the repositories that are removed.
func (t *Trees) Gone() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.gone)
}

// Join brings all work trees into the caller's container, at the tips of their branches, for a step.
func (t *Trees) Join(ctx context.Context, h *containers.Host, author gitd.Person) (s Step, err error) {
	if gone := t.Gone(); len(gone) > 0 {
		return nil, fmt.Errorf("cannot work in %s: %w: it was removed", gone[0], gitd.ErrNotFound)
	}
	for _, tree := range t.All() {
		tip, err := tree.Join(ctx, h, author)
		if err != nil {
			return nil, fmt.Errorf("cannot bring %s into the container: %w", tree.Repo.Name(), err)
		}
		s = append(s, &part{tree, tip, tip})
	}
	return s, nil
}

// Joined returns the additional repositories of a step that began in an earlier process, as its journal has them.
func (t *Trees) Joined(moves []record.Move) (s Step) {
	for _, tree := range t.All() {
		if at := record.Parent(moves, tree.Repo.Name()); at != "" {
			s = append(s, &part{tree, at, at})
		}
	}
	return s
}

// Tips returns with, with the present tips of the branches as Head. A branch that is removed keeps its last known one.
func (t *Trees) Tips(ctx context.Context, with []record.Addition) ([]record.Addition, error) {
	with = slices.Clone(with) // others read the old one
	for i := range with {
		tree := t.Of(with[i].Repo)
		if tree == nil {
			continue
		}
		tip, err := tree.Tip(ctx)
		if errors.Is(err, worktree.ErrBranchGone) || errors.Is(err, gitd.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the branch in %s: %w", with[i].Repo, err)
		}
		with[i].Head = tip
	}
	return with, nil
}

// Inherit returns the additional repositories of a sub-workflow that works on the branches of its parent. with are those
// of the parent.
func (t *Trees) Inherit(ctx context.Context, with []record.Addition) ([]record.Addition, error) {
	with, err := t.Tips(ctx, with)
	for i := range with {
		with[i].Start = with[i].Head
	}
	return with, err
}
