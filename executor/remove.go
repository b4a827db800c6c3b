package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/executor/prepare"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
)

// Removed is the result of [Executor.Remove].
type Removed struct {
	Caller record.Caller `json:"caller"`
	Repo   string        `json:"repo"`
	Branch string        `json:"branch"`
	// Head was the tip of the branch. It is empty if there was no branch. The caller's runs keep the commit.
	Head gitd.Hash `json:"head,omitempty"`
	// Refs are the refs that were removed.
	Refs []string `json:"refs"`
	// With has the same of the caller's additional repositories. Their commits end with the branches, if no other branch has
	// them. The caller's runs keep the patches.
	With []RemovedIn `json:"with,omitempty"`
}

// RemovedIn is the result of [Executor.Remove] in an additional repository.
type RemovedIn struct {
	Repo string    `json:"repo"`
	Head gitd.Hash `json:"head,omitempty"`
	Refs []string  `json:"refs"`
}

// Remove stops the runs of a caller and removes its container, its branch, and the work that was saved for it. Its runs
// stay until they are pruned, and through them its commits. It is no error if a part of it was removed before. A caller
// whose task has not ended is an [record.ErrConflict], because the task would go on.
func (x *Executor) Remove(ctx context.Context, caller string, by gitd.Person) (Removed, error) {
	c, err := x.Caller(ctx, caller)
	if err != nil {
		return Removed{}, fmt.Errorf("cannot remove %s: %w", caller, err)
	}
	for _, r := range x.OfCaller(c.Caller) {
		if r.Kind == record.KindConversation && !r.Ended() {
			return Removed{}, fmt.Errorf("cannot remove %s: %w: its task has not ended; `ramus task cancel %s` ends it",
				c.Caller, record.ErrConflict, c.Caller.ID())
		}
	}
	if err := x.Stop(ctx, c.Caller.String(), by); err != nil {
		return Removed{}, fmt.Errorf("cannot remove %s: %w", c.Caller, err)
	}
	repo, err := x.Git.Repo(c.Repo)
	if err != nil {
		return Removed{}, err
	}
	base, err := baseOf(ctx, repo, c.Last)
	if err != nil {
		return Removed{}, err
	}
	t, err := x.whole(ctx, c.Caller, repo, base)
	if err != nil {
		return Removed{}, fmt.Errorf("cannot remove %s: %w", c.Caller, err)
	}
	release, err := t.Acquire(ctx)
	if err != nil {
		return Removed{}, err
	}
	defer release()
	done, err := x.removeCaller(ctx, t)
	if err != nil {
		return done, fmt.Errorf("cannot remove %s: %w", c.Caller, err)
	}
	return done, nil
}

// removeCaller removes the container, the branch and the saved work of a caller whose turn is held.
func (x *Executor) removeCaller(ctx context.Context, t *step.Target) (Removed, error) {
	done := Removed{Caller: t.Caller, Repo: t.Repo.Name(), Branch: t.Caller.Branch(), Refs: []string{}}
	if err := x.Fleet.Remove(ctx, t.Caller.String()); err != nil {
		return done, err
	}
	if err := prepare.KeptOf(x.Artifacts.Bucket, t.Repo.Name(), t.Caller).Delete(ctx); err != nil {
		return done, err
	}
	for _, o := range t.Others.All() {
		// The caller's own repository is the last, because its runs name the others.
		head, refs, err := removeRefs(ctx, o.Repo, t.Caller)
		if err != nil {
			return done, fmt.Errorf("cannot remove the branch in %s: %w", o.Repo.Name(), err)
		}
		done.With = append(done.With, RemovedIn{o.Repo.Name(), head, refs})
	}
	var err error
	done.Head, done.Refs, err = removeRefs(ctx, t.Repo, t.Caller)
	return done, err
}

// removeRefs removes the branch and the saved work of a caller in one repository. It returns the tip of the branch, which
// is empty if there was none, and the names of the refs.
func removeRefs(ctx context.Context, repo *gitd.Repo, c record.Caller) (head gitd.Hash, names []string, err error) {
	names = []string{}
	var updates []gitd.RefUpdate
	for _, name := range []string{"refs/heads/" + c.Branch(), record.WIPRef(c)} {
		tip, err := repo.Resolve(ctx, name)
		if errors.Is(err, gitd.ErrNotFound) {
			continue
		}
		if err != nil {
			return "", names, err
		}
		if name != record.WIPRef(c) {
			head = tip
		}
		updates = append(updates, gitd.RefUpdate{Name: name, Old: &tip})
	}
	for _, folder := range []string{record.ConflictRefs(c), gitd.StageRefs + "/" + c.Slug()} {
		refs, err := repo.Refs(ctx, folder)
		if err != nil {
			return head, names, err
		}
		for _, ref := range refs {
			updates = append(updates, gitd.RefUpdate{Name: ref.Name, Old: &ref.Hash})
		}
	}
	if len(updates) == 0 {
		return head, names, nil
	}
	if err := repo.Update(ctx, updates...); err != nil {
		return head, names, err
	}
	for _, u := range updates {
		names = append(names, u.Name)
	}
	return head, names, nil
}
