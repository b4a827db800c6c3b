package worktree

import (
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Recover finds the commit that a step of a run made after a tip, and the tip that the branch has by it. A commit that the container
// pushed while the branch moved is merged first. The error is an *Uncommitted, and tip is empty, if the branch cannot have the commit.
// The commit is nil if there is none.
func (t *Tree) Recover(ctx context.Context, after gitd.Hash, author gitd.Person, run, step string) (commit *gitd.Commit, tip gitd.Hash, err error) {
	find := func(ref string) (*gitd.Commit, error) { return t.commitOf(ctx, ref, after, run, step) }
	if commit, err = find("refs/heads/" + t.Caller.Branch()); err != nil {
		return nil, "", err
	} else if commit != nil {
		return commit, commit.Hash, nil
	}
	staged, err := t.Repo.Refs(ctx, stagePrefix(t.Caller))
	if err != nil {
		return nil, "", err
	}
	for _, ref := range staged {
		if commit, err = find(ref.Name); err != nil {
			return nil, "", err
		} else if commit == nil {
			continue
		}
		now, err := t.Tip(ctx)
		if err != nil && !errors.Is(err, ErrBranchGone) {
			return nil, "", err
		}
		c := &gitCommit{t: t, before: after, author: author, runID: run}
		tip, err = c.merge(ctx, now, ref.Name)
		return commit, tip, err
	}

	// An earlier server kept the commit at a ref, and was killed before it reported that.
	kept, err := t.Repo.Refs(ctx, record.ConflictRefs(t.Caller))
	if err != nil {
		return nil, "", err
	}
	for _, ref := range kept {
		if commit, err = find(ref.Name); err != nil {
			return nil, "", err
		} else if commit != nil {
			return commit, "", &Uncommitted{Reason: record.ReasonConflict, Text: fmt.Sprintf(
				"the command's work could not be merged into %s; %s has what the command left", t.Caller.Branch(), ref.Name)}
		}
	}
	return nil, "", nil
}

// commitOf returns the newest commit below ref, and not below after, that a step of a run made. Returns nil if there
// is none.
func (t *Tree) commitOf(ctx context.Context, ref string, after gitd.Hash, run, step string) (*gitd.Commit, error) {
	commits, err := t.Repo.Log(ctx, ref, gitd.LogOptions{Not: string(after), Max: 100})
	if err != nil && !errors.Is(err, gitd.ErrNotFound) {
		return nil, err
	}
	for i := range commits {
		c := &commits[i]
		if c.Trailer(record.TrailerRun) == run && c.Trailer(record.TrailerStep) == step && c.Trailer(record.TrailerExit) != "" {
			return c, nil
		}
	}
	return nil, nil
}
