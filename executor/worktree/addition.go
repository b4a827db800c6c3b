package worktree

import (
	"cmp"
	"context"
	"path"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// AdditionsDir is the folder of a container with the work trees of the caller's additional repositories, each in a
// folder of its name. It is below the cache, because a container has no other folder that is neither committed nor
// collected.
const AdditionsDir = containers.CacheDir + "/repos"

// NewAddition returns the Tree of a caller's branch in an additional repository. Its work tree is in a container that
// [Tree.Ready] of another Tree of the caller returns.
func (st *Store) NewAddition(c record.Caller, repo *gitd.Repo, base string) *Tree {
	t := st.NewTree(c, repo, base)
	t.Dir = path.Join(AdditionsDir, repo.Name())
	return t
}

// Join brings the work tree of an additional repository into the caller's container, at the branch's tip, and returns
// that tip. A work tree that is known to be there costs nothing in the container.
func (t *Tree) Join(ctx context.Context, h *containers.Host, author gitd.Person) (gitd.Hash, error) {
	tip, err := t.Tip(ctx)
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	moved := t.joined != h
	t.mu.Unlock()
	if moved { // to another container, or to another connection to it
		t.Forget()
		t.setIndexed("")
	}
	if err := t.sync(ctx, h, tip, author); err != nil {
		return "", err
	}
	t.mu.Lock()
	t.joined = h
	t.mu.Unlock()
	return tip, nil
}

// dir returns the folder of the work tree in the container.
func (t *Tree) dir() string { return cmp.Or(t.Dir, containers.WorkDir) }

// placeEnv returns the environment by which scripts find a work tree that is elsewhere than usual.
func (t *Tree) placeEnv() []string {
	if t.Dir == "" {
		return nil
	}
	return []string{"RAMUS_WORK=" + t.Dir, "RAMUS_SCRATCH=" + path.Join(AdditionsDir, "."+t.Repo.Name()), "RAMUS_JOIN=1"}
}
