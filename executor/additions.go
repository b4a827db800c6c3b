package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/executor/addition"
	"github.com/ramus-dev/ramus/executor/dialogue"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gitd"
)

// planner returns the planner of additional repositories, see package addition.
func (x *Executor) planner() *addition.Planner {
	return &addition.Planner{
		Git: x.Git,
		Open: func(ctx context.Context, name string) (*gitd.Repo, error) {
			repo, err := x.Bases.OpenRepo(ctx, name)
			if err == nil {
				x.Bases.Freshen(ctx, repo)
			}
			return repo, err
		},
		Required: func(ctx context.Context, repo *gitd.Repo, base string) ([]record.RequiredCheck, error) {
			s, err := x.Settings.Read(ctx, repo, base)
			return dialogue.Required(s), err
		},
		Listed: x.With,
		Log:    x.Log,
	}
}

// Additions returns the additional repositories of a caller. It returns none if the caller has one repository or no
// branch.
func (x *Executor) Additions(ctx context.Context, c record.Caller) ([]record.Addition, error) {
	repo, _, err := x.HomeRepo(ctx, c)
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return x.planner().Known(ctx, x.Index.OfCaller(c), repo.Name())
}

// alone returns an [record.ErrConflict] if a caller has additional repositories. what cannot work in these.
func (x *Executor) alone(ctx context.Context, c record.Caller, what string) error {
	with, err := x.Additions(ctx, c)
	if err == nil && len(with) > 0 {
		err = fmt.Errorf("%w: %s works in several repositories, and %s commits one; use `ramus exec`", record.ErrConflict, c,
			what)
	}
	return err
}

// planAdditions fills in the additional repositories of the run. These are the ones of the caller's earlier runs, those of
// the caller that is forked, and those that the request names.
func (p *plan) planAdditions(ctx context.Context, r record.Request) (err error) {
	w := addition.Wish{Home: p.repo.Name(), Names: r.With, Kept: !p.fresh, From: p.run.Caller.Branch()}
	from := p.run.Caller
	if r.Fork != nil {
		if from, err = record.ParseCaller(p.run.Fork.Of); err != nil {
			return err
		}
		w.From = from.Branch()
	}
	planner := p.x.planner()
	if r.Fork != nil || !p.fresh {
		if w.Known, err = planner.Known(ctx, p.x.Index.OfCaller(from), w.Home); err != nil {
			return err
		}
	}
	if p.others, p.run.With, err = planner.Plan(ctx, w); err != nil || len(p.run.With) == 0 {
		return err
	}
	switch {
	case r.Terminal != nil:
		return fmt.Errorf("cannot open a terminal: %w: the caller works in several repositories, and a typed command "+
			"commits one; use `ramus exec`", record.ErrConflict)
	case len(p.x.Shells.Open(p.run.Caller)) > 0:
		return fmt.Errorf("cannot work in several repositories: %w: the caller has a terminal, and a typed command "+
			"commits one; close it", record.ErrConflict)
	case r.From != "":
		return fmt.Errorf("cannot begin at a node: %w: the caller works in several repositories, and one of them would "+
			"be restored; run the workflow again", record.ErrConflict)
	case r.Fork != nil && len(w.Known) > 0:
		return p.forksTip(ctx, from)
	}
	return nil
}

// forksTip returns an error if a fork of a caller with additional repositories does not begin at its tip. An earlier
// commit names no commits of the others.
func (p *plan) forksTip(ctx context.Context, of record.Caller) error {
	tip, err := p.repo.Resolve(ctx, "refs/heads/"+of.Branch())
	if err != nil {
		return fmt.Errorf("cannot fork %s: %w", of, err)
	}
	if tip == p.start {
		return nil
	}
	return fmt.Errorf("cannot fork %s at %s: %w: it works in several repositories, which are forked at their tips; "+
		"leave the commit out", of, p.start, record.ErrConflict)
}

// drawCaller draws another caller, after the name of the last one turned out to be taken.
func (p *plan) drawCaller(ctx context.Context, attempt int) {
	p.others.Drop(ctx, p.run)
	p.run.Caller, _ = record.RunCaller(record.NewID(2 + attempt/8)) // ids that are drawn fit the form
	p.run.Branch = p.run.Caller.Branch()
}

// whole returns the target of a caller with its additional repositories, for work on its branches between runs.
func (x *Executor) whole(ctx context.Context, c record.Caller, repo *gitd.Repo, base string) (*step.Target, error) {
	t := x.targets.Of(c, repo, base)
	with, err := x.planner().Known(ctx, x.Index.OfCaller(c), repo.Name())
	if err != nil {
		return nil, err
	}
	return t, t.Include(with)
}

// landings returns the landings of a caller's branches, its own repository first.
func (x *Executor) landings(t *step.Target, m record.Merge) ([]upstream.Landing, error) {
	all := []upstream.Landing{{Repo: t.Repo, Caller: t.Caller, Merge: m, Committer: x.Bot}}
	others := t.Others.All()
	if len(others) > 0 && m.Into != t.Base {
		return nil, fmt.Errorf("cannot merge %s into %s: %w: it works in several repositories, and each is merged into its own base",
			t.Caller, m.Into, record.ErrInvalid)
	}
	if gone := t.Others.Gone(); len(gone) > 0 {
		return nil, fmt.Errorf("cannot merge %s: %w: %s, in which it works, was removed", t.Caller, gitd.ErrNotFound, gone[0])
	}
	for _, o := range others {
		m.Into = o.Base
		all = append(all, upstream.Landing{Repo: o.Repo, Caller: t.Caller, Merge: m, Committer: x.Bot})
	}
	return all, nil
}
