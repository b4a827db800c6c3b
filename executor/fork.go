package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// setFork sets the commit at which a fork begins. It is called before the caller is planned.
func (p *plan) setFork(ctx context.Context, f record.Fork) error {
	of, err := p.x.Caller(ctx, f.Of)
	if err != nil {
		return fmt.Errorf("cannot fork: %w", err)
	}
	began, err := p.findStep(ctx, of.Caller, &f)
	if err != nil {
		return fmt.Errorf("cannot fork %s: %w", of.Caller, err)
	}
	repo, base, err := p.x.HomeRepo(ctx, of.Caller)
	if errors.Is(err, record.ErrNotFound) && f.Commit != "" {
		return p.setForkOfKept(ctx, f, of.Caller)
	}
	if err != nil {
		return fmt.Errorf("cannot fork %s: %w", of.Caller, err)
	}
	if p.run.Repo != "" && p.run.Repo != repo.Name() {
		return fmt.Errorf("cannot fork %s: %w repository %q: it is in %s", of.Caller, record.ErrInvalid, p.run.Repo,
			repo.Name())
	}
	tip, err := repo.Resolve(ctx, "refs/heads/"+of.Caller.Branch())
	if err != nil {
		return fmt.Errorf("cannot fork %s: %w", of.Caller, err)
	}
	at := tip
	if f.Commit != "" {
		if at, err = repo.Resolve(ctx, string(f.Commit)); err != nil {
			return fmt.Errorf("cannot fork %s at %s: %w", of.Caller, f.Commit, err)
		}
		inside, err := repo.Descends(ctx, tip, at)
		if err != nil {
			return fmt.Errorf("cannot fork %s at %s: %w", of.Caller, at, err)
		}
		if !inside {
			if inside, err = worktree.IsKept(ctx, repo, of.Caller, at); err != nil {
				return fmt.Errorf("cannot fork %s at %s: %w", of.Caller, at, err)
			}
		}
		if !inside {
			return fmt.Errorf("cannot fork %s: %w commit: %s is not on its branch; `ramus log %s` lists those that are",
				of.Caller, record.ErrInvalid, at, of.Caller)
		}
	}
	depth := 1
	for _, r := range p.x.OfCaller(of.Caller) {
		if r.Fork != nil {
			depth = r.Fork.Depth + 1
		}
	}
	if depth > record.MaxForks {
		return fmt.Errorf("cannot fork %s: %w: it is a fork of a fork, %d deep already", of.Caller,
			record.ErrConflict, record.MaxForks)
	}
	if p.state, err = stateAt(ctx, repo, of.Caller, at, began, at == tip); err != nil {
		return fmt.Errorf("cannot fork %s: %w", of.Caller, err)
	}
	p.repo, p.run.Repo, p.start = repo, repo.Name(), at
	if p.run.Base == "" {
		p.run.Base = base
	}
	p.run.Fork = &record.Fork{Of: of.Caller.String(), Commit: at, Depth: depth}
	return nil
}

// setForkOfKept sets the commit at which a fork of a caller without a branch begins. It is a commit that was kept of
// the caller's work.
func (p *plan) setForkOfKept(ctx context.Context, f record.Fork, of record.Caller) error {
	for _, r := range slices.Backward(p.x.Index.OfCaller(of)) {
		if p.run.Repo != "" && p.run.Repo != r.Repo {
			continue
		}
		repo, err := p.x.Git.Repo(r.Repo)
		if err != nil {
			continue // removed since
		}
		at, err := repo.Resolve(ctx, string(f.Commit))
		if err != nil {
			continue
		}
		kept, err := worktree.IsKept(ctx, repo, of, at)
		if err != nil {
			return fmt.Errorf("cannot fork %s at %s: %w", of, at, err)
		}
		if !kept {
			continue
		}
		p.repo, p.run.Repo, p.start = repo, repo.Name(), at
		if p.run.Base == "" {
			p.run.Base = r.Base
		}
		p.run.Fork = &record.Fork{Of: of.String(), Commit: at, Depth: 1}
		return nil
	}
	return fmt.Errorf("cannot fork %s at %s: its branch is deleted, and that is no commit that was kept of it: %w", of,
		f.Commit, record.ErrNotFound)
}

// stateAt returns the memory of a caller's agents when a step began or, if began is nil, when a commit of its branch
// was the newest. Returns "" if they had none.
func stateAt(ctx context.Context, repo *gitd.Repo, c record.Caller, at gitd.Hash, began *stepStart, newest bool) (gitd.Hash, error) {
	state, err := repo.Resolve(ctx, agent.MemoryRef(c))
	switch {
	case errors.Is(err, gitd.ErrNotFound):
		return "", nil
	case err == nil && began != nil:
		return stateBefore(ctx, repo, state, began)
	case err != nil || newest:
		return state, err
	}
	then, err := repo.Commit(ctx, string(at))
	if err != nil {
		return "", err
	}
	log, err := repo.Log(ctx, string(state), gitd.LogOptions{Max: maxStates})
	return newestUntil(log, then.When), err
}
