package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// A caller may work in additional repositories. It has a branch of its name in each, and their work trees are in the same
// container. The runs, their evidence, the settings and the memory of agents are in the caller's own repository alone.
//
// After a step the additional repositories are committed first and the caller's own last. So a commit there proves that
// all others were made.

// additionsOf returns the additional repositories of a caller of repo. These are the ones of its last run, and those of
// earlier runs in which it still has a branch. Two requests at one moment may each add one without the other's. Start and
// Head are those of the newest run that has the repository.
func (x *Executor) additionsOf(ctx context.Context, c record.Caller, repo string) (with []record.Addition, err error) {
	last := true
	for _, r := range slices.Backward(x.index.OfCaller(c)) {
		if r.Repo != repo || r.Passive() {
			continue
		}
		for _, a := range r.With {
			skip := slices.ContainsFunc(with, func(b record.Addition) bool { return a.Repo == b.Repo })
			if !skip && !last {
				if skip, err = x.lacks(ctx, a.Repo, c); err != nil {
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

// lacks reports whether a repository has no branch of a caller.
func (x *Executor) lacks(ctx context.Context, repo string, c record.Caller) (bool, error) {
	r, err := x.Git.Repo(repo)
	if err == nil {
		_, err = r.Resolve(ctx, "refs/heads/"+c.Branch())
	}
	if errors.Is(err, gitd.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// Additions returns the additional repositories of a caller. It returns none if the caller has one repository or no
// branch.
func (x *Executor) Additions(ctx context.Context, c record.Caller) ([]record.Addition, error) {
	repo, _, err := x.home(ctx, c)
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return x.additionsOf(ctx, c, repo.Name())
}

// planAdditions fills in the additional repositories of the run. These are the ones of the caller's earlier runs, those of
// the caller that is forked, and those that the request names. The configuration has to list them all, because the
// evidence of runs in one repository shows the content of the others.
func (p *plan) planAdditions(ctx context.Context, r record.Request) error {
	known, from := []record.Addition(nil), p.run.Caller
	switch {
	case r.Fork != nil:
		of, err := record.ParseCaller(p.run.Fork.Of)
		if err != nil {
			return err
		}
		from = of
		if known, err = p.x.additionsOf(ctx, of, p.repo.Name()); err != nil {
			return err
		}
		if err := p.forksTip(ctx, of, len(known) > 0); err != nil {
			return err
		}
	case !p.fresh:
		var err error
		if known, err = p.x.additionsOf(ctx, p.run.Caller, p.repo.Name()); err != nil {
			return err
		}
		p.kept = len(known)
	}
	for _, a := range known {
		if _, err := p.listed(a.Repo); err != nil {
			return err
		}
		repo, err := p.x.Git.Repo(a.Repo)
		if err == nil {
			err = p.add(ctx, repo, a.Base, "refs/heads/"+from.Branch())
		}
		if err != nil {
			return fmt.Errorf("cannot begin in %s: %w", a.Repo, err)
		}
	}
	for _, name := range r.With {
		if _, have := p.run.Addition(name); have {
			continue
		}
		name, err := p.listed(name)
		if err != nil {
			return err
		}
		repo, err := p.x.bases.OpenRepo(ctx, name)
		if err != nil {
			return err
		}
		p.x.bases.Freshen(ctx, repo)
		base, err := repo.Base(ctx)
		if err == nil {
			err = p.add(ctx, repo, base, "refs/heads/"+base)
		}
		if err != nil {
			return fmt.Errorf("cannot begin in %s: %w", name, err)
		}
	}
	return p.checkAdditions(r)
}

// listed returns the name of an additional repository if the configuration lists it.
func (p *plan) listed(name string) (string, error) {
	home := p.repo.Name()
	switch {
	case name == home:
		return "", fmt.Errorf("%w additional repository %q: it is the caller's own", record.ErrInvalid, name)
	case !slices.Contains(p.x.With[home], name):
		return "", fmt.Errorf("%w additional repository %q: repos.%s.with in the configuration does not list it",
			record.ErrInvalid, name, home)
	}
	return name, nil
}

// add adds a repository to the run, whose branch there begins at ref or continues.
func (p *plan) add(ctx context.Context, repo *gitd.Repo, base, ref string) error {
	at, err := repo.Resolve(ctx, "refs/heads/"+base)
	if err != nil {
		return err
	}
	start, err := repo.Resolve(ctx, ref)
	if err != nil {
		return err
	}
	p.run.With = append(p.run.With,
		record.Addition{Repo: repo.Name(), Base: base, BaseCommit: at, Start: start, Head: start})
	p.others = append(p.others, repo)
	return nil
}

// forksTip returns an error if a fork of a caller with additional repositories does not begin at its tip. An earlier
// commit names no commits of the others.
func (p *plan) forksTip(ctx context.Context, of record.Caller, several bool) error {
	if !several {
		return nil
	}
	tip, err := p.repo.Resolve(ctx, "refs/heads/"+of.Branch())
	if err == nil && tip == p.start {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot fork %s: %w", of, err)
	}
	return fmt.Errorf("cannot fork %s at %s: %w: it works in several repositories, which are forked at their tips; "+
		"leave the commit out", of, p.start, record.ErrConflict)
}

// checkAdditions returns an error for work that knows one repository only.
func (p *plan) checkAdditions(r record.Request) error {
	switch {
	case len(p.run.With) == 0:
		return nil
	case len(p.run.With) > record.MaxAdditions:
		return fmt.Errorf("%w request: a caller has at most %d additional repositories", record.ErrInvalid,
			record.MaxAdditions)
	case r.Terminal != nil:
		return fmt.Errorf("cannot open a terminal: %w: the caller works in several repositories, and a typed command "+
			"commits one; use `ramus exec`", record.ErrConflict)
	case r.From != "":
		return fmt.Errorf("cannot begin at a node: %w: the caller works in several repositories, and one of them would "+
			"be restored; run the workflow again", record.ErrConflict)
	}
	return nil
}

// branchOut makes the caller's branches in the additional repositories, before the run is claimed. A branch that a claim
// left when its server was killed is taken over, which is one without work of its own.
func (p *plan) branchOut(ctx context.Context) error {
	none := gitd.Hash("")
	name := "refs/heads/" + p.run.Branch
	for i, repo := range p.others {
		if i < p.kept {
			continue
		}
		a := &p.run.With[i]
		err := repo.Update(ctx, gitd.RefUpdate{Name: name, New: a.Start, Old: &none})
		if err == nil {
			continue
		}
		if !errors.Is(err, gitd.ErrConflict) {
			return fmt.Errorf("cannot make a branch in %s: %w", a.Repo, err)
		}
		tip, err := repo.Resolve(ctx, name)
		if err != nil {
			return fmt.Errorf("cannot make a branch in %s: %w", a.Repo, err)
		}
		if tip != a.Start {
			if idle, err := repo.Descends(ctx, a.BaseCommit, tip); err != nil {
				return fmt.Errorf("cannot make a branch in %s: %w", a.Repo, err)
			} else if !idle {
				return fmt.Errorf("cannot begin in %s: %w: it has a branch %s with commits of its own; take another name for the caller, or remove the branch",
					a.Repo, record.ErrConflict, p.run.Branch)
			}
		}
		a.Start, a.Head = tip, tip
	}
	return nil
}

// drawCaller draws another caller, after the name of the last one turned out to be taken.
func (p *plan) drawCaller(ctx context.Context, attempt int) {
	for i, repo := range p.others {
		// Without it, a branch of nobody would stay. Its commits are those of the base.
		at := p.run.With[i].Start
		if err := repo.Update(ctx, gitd.RefUpdate{Name: "refs/heads/" + p.run.Branch, Old: &at}); err != nil &&
			!errors.Is(err, gitd.ErrConflict) {
			p.x.Log.Warn("a branch that nobody uses could not be removed", "repo", repo.Name(), "branch", p.run.Branch, "err", err)
		}
	}
	p.run.Caller, _ = record.RunCaller(record.NewID(2 + attempt/8)) // ids that are drawn fit the form
	p.run.Branch = p.run.Caller.Branch()
}

// include adds the work trees of additional repositories to a target. A target keeps those that it has.
func (t *target) include(with []record.Addition) error {
	for _, a := range with {
		t.mu.Lock()
		have := slices.ContainsFunc(t.others, func(o *worktree.Tree) bool { return o.Repo.Name() == a.Repo })
		t.mu.Unlock()
		if have {
			continue
		}
		repo, err := t.x.Git.Repo(a.Repo)
		if err != nil {
			return fmt.Errorf("cannot work in %s: %w", a.Repo, err)
		}
		tree := t.x.trees.NewAddition(t.Caller, repo, a.Base)
		tree.Hooks = worktree.Hooks{Run: t.runID, OnLeak: t.leaked}
		t.mu.Lock()
		t.others = append(t.others, tree)
		t.mu.Unlock()
	}
	return nil
}

// additions returns the work trees of the additional repositories.
func (t *target) additions() []*worktree.Tree {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.others)
}

// addition returns the work tree of an additional repository, or nil.
func (t *target) addition(repo string) *worktree.Tree {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.others {
		if o.Repo.Name() == repo {
			return o
		}
	}
	return nil
}

// whole returns the target of a caller with its additional repositories, for work on its branches between runs.
func (x *Executor) whole(ctx context.Context, c record.Caller, repo *gitd.Repo, base string) (*target, error) {
	t := x.target(c, repo, base)
	with, err := x.additionsOf(ctx, c, repo.Name())
	if err != nil {
		return nil, err
	}
	return t, t.include(with)
}

// addition is an additional repository during a step.
type addition struct {
	tree   *worktree.Tree
	before gitd.Hash // the branch's tip when the step began
	at     gitd.Hash // the branch's tip after the step's commit
}

// join brings the work trees of the additional repositories into the container.
func (t *target) join(ctx context.Context, h *containers.Host, author gitd.Person) (list []*addition, err error) {
	for _, tree := range t.additions() {
		tip, err := tree.Join(ctx, h, author)
		if err != nil {
			return nil, fmt.Errorf("cannot bring %s into the container: %w", tree.Repo.Name(), err)
		}
		list = append(list, &addition{tree, tip, tip})
	}
	return list, nil
}

// joined returns the additional repositories of a step that began in an earlier process.
func (t *target) joined(moves []record.Move) (list []*addition) {
	for _, tree := range t.additions() {
		if at := record.Parent(moves, tree.Repo.Name()); at != "" {
			list = append(list, &addition{tree, at, at})
		}
	}
	return list
}

// inherited returns the additional repositories of a sub-workflow that works on the branches of its parent.
func (t *target) inherited(ctx context.Context, with []record.Addition) ([]record.Addition, error) {
	with = slices.Clone(with)
	for i := range with {
		tree := t.addition(with[i].Repo)
		if tree == nil {
			return nil, fmt.Errorf("cannot work in %s: %w", with[i].Repo, record.ErrNotFound)
		}
		tip, err := tree.Tip(ctx)
		if err != nil {
			return nil, err
		}
		with[i].Start, with[i].Head = tip, tip
	}
	return with, nil
}

// moves returns the record of what a step did in additional repositories. It is nil if there are none.
func moves(list []*addition) (moves []record.Move) {
	for _, a := range list {
		m := record.Move{Repo: a.tree.Repo.Name(), Parent: a.before}
		if a.at != a.before {
			m.Commit = a.at
		}
		moves = append(moves, m)
	}
	return moves
}

// advanced returns a copy of the additional repositories of a run, with the tips after a step.
func advanced(with []record.Addition, list []*addition) []record.Addition {
	with = slices.Clone(with) // others read the old one
	for i := range with {
		for _, a := range list {
			if a.tree.Repo.Name() == with[i].Repo {
				with[i].Head = a.at
			}
		}
	}
	return with
}

// commitAdditions commits the additional repositories of the step. A change that cannot be committed makes the step
// fail, and the others are committed all the same.
func (w *work) commitAdditions(ctx context.Context, o *outcome) error {
	for _, a := range w.others {
		name := a.tree.Repo.Name()
		message := w.message(*o) + fmt.Sprintf("%s: %s\n", record.TrailerRepo, w.t.Repo.Name())
		made, err := a.tree.CommitLast(ctx, w.host, a.at, w.author(), message, nil)
		var u *worktree.Uncommitted
		switch {
		case errors.As(err, &u):
			o.fail(u.Reason, w.l.x.Secrets.String(name+": "+u.Error()))
			continue
		case err != nil:
			return fmt.Errorf("cannot commit in %s: %w", name, err)
		case len(made.Left) > 0:
			o.fail(record.ReasonNotCommitted, w.l.x.Secrets.String(name+": "+worktree.LeftText(made.Left)))
		}
		a.at = made.Tip
	}
	return nil
}

// recoverAdditions finds the commits that a step has made in additional repositories, after its container was lost. It
// returns one of them, or nil if there is none.
func recoverAdditions(ctx context.Context, list []*addition, author gitd.Person, run, step string) (*gitd.Commit, error) {
	var found *gitd.Commit
	for _, a := range list {
		c, tip, err := a.tree.Recover(ctx, a.before, author, run, step)
		var apart *worktree.Uncommitted
		if err != nil && !errors.As(err, &apart) {
			return nil, err
		}
		if c == nil {
			continue
		}
		found = c
		if tip != "" {
			a.at = tip
		}
	}
	return found, nil
}

// readAdditions reads the tips of a workflow's additional repositories, which its sub-workflows have moved too.
func (l *liveRun) readAdditions(ctx context.Context) error {
	if l.initial.Kind != record.KindWorkflow || l.initial.Caller != l.target.Caller {
		return nil
	}
	var list []*addition
	for _, tree := range l.target.additions() {
		tip, err := tree.Tip(ctx)
		if errors.Is(err, worktree.ErrBranchGone) {
			continue // the last known tip counts
		}
		if err != nil {
			return fmt.Errorf("cannot seal %s: %w", l.initial.Name(), err)
		}
		list = append(list, &addition{tree, tip, tip})
	}
	if len(list) > 0 {
		l.change(func(r *record.Run) { r.With = advanced(r.With, list) })
	}
	return nil
}

// reviewAdditions returns the evidence of a run in its additional repositories, and the files with the patches.
func (l *liveRun) reviewAdditions(ctx context.Context, r record.Run) (list []record.ManifestAddition, files []gitd.File,
	listed []record.ManifestFile, err error) {
	for _, a := range r.With {
		m := record.ManifestAddition{Addition: a, Changed: []gitd.Change{}}
		if a.Changed() {
			var patch string
			if patch, m.Changed, err = l.reviewAddition(ctx, r, a); err != nil {
				return nil, nil, nil, fmt.Errorf("cannot keep the diff of %s: %w", a.Repo, err)
			}
			f, err := store.Describe("evidence/repos/"+a.Repo+".diff", patch)
			if err != nil {
				return nil, nil, nil, err
			}
			files = append(files, gitd.File{Path: f.Name, Source: patch})
			listed = append(listed, f)
			m.Changed = m.Changed[:min(len(m.Changed), maxFileList)]
		}
		list = append(list, m)
	}
	return list, files, listed, nil
}

// reviewAddition writes the patch of a run in an additional repository to a file, and returns its name.
func (l *liveRun) reviewAddition(ctx context.Context, r record.Run, a record.Addition) (patch string, changed []gitd.Change, err error) {
	repo, err := l.x.Git.Repo(a.Repo)
	if err != nil {
		return "", nil, err
	}
	patch = filepath.Join(l.x.folder.output(r), "repos", a.Repo+".diff")
	if err := os.MkdirAll(filepath.Dir(patch), 0o700); err != nil {
		return "", nil, err
	}
	f, err := os.Create(patch)
	if err != nil {
		return "", nil, err
	}
	clean := l.x.Secrets.Writer(&text.Limit{W: f, Left: maxDiff})
	changed, err = repo.Review(ctx, string(a.Start), string(a.Head), clean)
	return patch, changed, errors.Join(err, clean.Flush(), f.Close())
}

// landings returns the landings of a caller's branches, its own repository first.
func (x *Executor) landings(t *target, m record.Merge) ([]upstream.Landing, error) {
	all := []upstream.Landing{{Repo: t.Repo, Caller: t.Caller, Merge: m, Committer: x.Bot}}
	others := t.additions()
	if len(others) > 0 && m.Into != t.Base {
		return nil, fmt.Errorf("cannot merge %s into %s: %w: it works in several repositories, and each is merged into its own base",
			t.Caller, m.Into, record.ErrInvalid)
	}
	for _, o := range others {
		m.Into = o.Base
		all = append(all, upstream.Landing{Repo: o.Repo, Caller: t.Caller, Merge: m, Committer: x.Bot})
	}
	return all, nil
}
