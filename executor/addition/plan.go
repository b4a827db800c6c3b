package addition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Planner determines the additional repositories of runs. All fields are required.
type Planner struct {
	Git *gitd.Server
	// Open opens a repository, and brings its base up to date with upstream.
	Open func(ctx context.Context, name string) (*gitd.Repo, error)
	// Required returns the checks that a base requires.
	Required func(ctx context.Context, repo *gitd.Repo, base string) ([]record.RequiredCheck, error)
	// Listed has the additional repositories that callers of a repository may work in, by the name of that one.
	Listed map[string][]string
	Log    *slog.Logger
}

// Known returns the additional repositories of a caller of repo, whose runs are given in order. These are the ones of its
// last run, and those of earlier runs in which it still has a branch. Two requests at one moment may each add one without
// the other's. Start and Head are those of the newest run that has the repository.
func (p *Planner) Known(ctx context.Context, runs []record.Run, repo string) (with []record.Addition, err error) {
	last := true
	for _, r := range slices.Backward(runs) {
		if r.Repo != repo || r.Passive() {
			continue
		}
		for _, a := range r.With {
			skip := slices.ContainsFunc(with, func(b record.Addition) bool { return a.Repo == b.Repo })
			if !skip && !last {
				if skip, err = p.lacks(ctx, a.Repo, r.Branch); err != nil {
					return nil, err
				}
			}
			if !skip {
				with = append(with, a)
			}
		}
		last = false
	}
	return with, nil
}

// lacks reports whether a repository has no such branch.
func (p *Planner) lacks(ctx context.Context, repo, branch string) (bool, error) {
	r, err := p.Git.Repo(repo)
	if err == nil {
		_, err = r.Resolve(ctx, "refs/heads/"+branch)
	}
	if errors.Is(err, gitd.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// Wish is the request of a run.
type Wish struct {
	// Home is the caller's own repository.
	Home string
	// Known are the repositories of the caller's earlier runs, or of the caller that is forked. From is the branch at
	// whose tips the run begins there.
	Known []record.Addition
	From  string
	// Kept is set if the caller has its branches in Known already. It has not if it is a fork.
	Kept bool
	// Names are the repositories that the request names. They begin at their bases.
	Names []string
}

// Plan is the additional repositories of one run. Its nil value has none.
type Plan struct {
	planner *Planner
	repos   []*gitd.Repo // in the order of the run's list
	kept    int          // how many of these the caller has a branch in
	made    []bool       // of repos, in which a branch was made
}

// Plan returns the additional repositories of a run, and changes nothing but bases that follow upstream. The
// configuration has to list them all, because the evidence of runs in one repository shows the content of the others.
func (p *Planner) Plan(ctx context.Context, w Wish) (*Plan, []record.Addition, error) {
	made := &Plan{planner: p}
	if w.Kept {
		made.kept = len(w.Known)
	}
	var with []record.Addition
	for _, a := range w.Known {
		if err := p.check(w.Home, a.Repo); err != nil {
			return nil, nil, err
		}
		repo, err := p.Git.Repo(a.Repo)
		if err == nil {
			a, err = p.beginAddition(ctx, repo, a.Base, w.From)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("cannot begin in %s: %w; `ramus rm` removes the caller from its other repositories",
				a.Repo, err)
		}
		with, made.repos = append(with, a), append(made.repos, repo)
	}
	for _, name := range w.Names {
		if slices.ContainsFunc(with, func(a record.Addition) bool { return a.Repo == name }) {
			continue
		}
		if err := p.check(w.Home, name); err != nil {
			return nil, nil, err
		}
		if in := slices.IndexFunc(with, func(a record.Addition) bool { return nested(a.Repo, name) }); in >= 0 {
			return nil, nil, fmt.Errorf("%w additional repository %q: the folder of its files would be inside that of %s, or around it",
				record.ErrInvalid, name, with[in].Repo)
		}
		if len(with) == record.MaxAdditions {
			return nil, nil, fmt.Errorf("%w request: a caller has at most %d additional repositories", record.ErrInvalid,
				record.MaxAdditions)
		}
		repo, err := p.Open(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		base, err := repo.Base(ctx)
		var a record.Addition
		if err == nil {
			a, err = p.beginAddition(ctx, repo, base, base)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("cannot begin in %s: %w", name, err)
		}
		with, made.repos = append(with, a), append(made.repos, repo)
	}
	made.made = make([]bool, len(with))
	return made, with, nil
}

// check returns an error unless the configuration lists a repository.
func (p *Planner) check(home, name string) error {
	switch {
	case name == home:
		return fmt.Errorf("%w additional repository %q: it is the caller's own", record.ErrInvalid, name)
	case !slices.Contains(p.Listed[home], name):
		return fmt.Errorf("%w additional repository %.100q: repos.%s.with in the configuration does not list it",
			record.ErrInvalid, name, home)
	}
	return nil
}

// nested reports whether one of two names is a folder of the other.
func nested(a, b string) bool { return strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/") }

// beginAddition returns an additional repository in which a run begins at the tip of a branch.
func (p *Planner) beginAddition(ctx context.Context, repo *gitd.Repo, base, branch string) (a record.Addition, err error) {
	a = record.Addition{Repo: repo.Name(), Base: base}
	if a.BaseCommit, err = repo.Resolve(ctx, "refs/heads/"+base); err != nil {
		return a, err
	}
	if a.Start, err = repo.Resolve(ctx, "refs/heads/"+branch); err != nil {
		return a, err
	}
	a.Head = a.Start
	a.Required, err = p.Required(ctx, repo, base)
	return a, err
}

// Make makes the run's branches in the additional repositories, before the run is claimed. A branch that a claim left when
// its server was killed is taken over, which is one without work of its own. Any other is a [record.ErrConflict], and so
// is each one if the caller was drawn, because another name can be drawn.
func (p *Plan) Make(ctx context.Context, run *record.Run) error {
	if p == nil {
		return nil
	}
	none := gitd.Hash("")
	name := "refs/heads/" + run.Branch
	for i, repo := range p.repos {
		if i < p.kept {
			continue
		}
		a := &run.With[i]
		err := repo.Update(ctx, gitd.RefUpdate{Name: name, New: a.Start, Old: &none})
		p.made[i] = p.made[i] || err == nil
		switch {
		case p.made[i]: // by an earlier attempt
			err = nil
		case errors.Is(err, gitd.ErrConflict) && run.Drawn:
			err = fmt.Errorf("%w: it has %s already", record.ErrConflict, name)
		case errors.Is(err, gitd.ErrConflict):
			err = takeOver(ctx, repo, name, a)
		}
		if err != nil {
			return fmt.Errorf("cannot make a branch in %s: %w", a.Repo, err)
		}
	}
	return nil
}

// takeOver has a run begin at a branch that is there already, unless it has commits of its own.
func takeOver(ctx context.Context, repo *gitd.Repo, name string, a *record.Addition) error {
	tip, err := repo.Resolve(ctx, name)
	if err != nil {
		return err
	}
	if tip != a.Start {
		idle, err := repo.Descends(ctx, a.BaseCommit, tip)
		if err != nil {
			return err
		}
		if !idle {
			return fmt.Errorf("%w: it has %s with commits of its own; take another name for the caller, or remove the branch",
				record.ErrConflict, name)
		}
	}
	a.Start, a.Head = tip, tip
	return nil
}

// Drop removes the branches that [Plan.Make] made, after the name of the caller turned out to be taken. Without it,
// branches of nobody would stay. Their commits are those of the bases.
func (p *Plan) Drop(ctx context.Context, run record.Run) {
	if p == nil {
		return
	}
	for i, repo := range p.repos {
		if !p.made[i] {
			continue
		}
		p.made[i] = false
		at := run.With[i].Start
		err := repo.Update(ctx, gitd.RefUpdate{Name: "refs/heads/" + run.Branch, Old: &at})
		if err != nil && !errors.Is(err, gitd.ErrConflict) {
			p.planner.Log.Warn("a branch that nobody uses could not be removed", "repo", repo.Name(), "branch", run.Branch,
				"err", err)
		}
	}
}
