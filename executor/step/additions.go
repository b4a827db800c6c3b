package step

import (
	"context"
	"net/http"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// Include adds the work trees of additional repositories to a target.
func (t *Target) Include(with []record.Addition) error {
	return t.Others.Include(t.runner.Git, with, func(repo *gitd.Repo, base string) *worktree.Tree {
		tree := t.runner.Trees.NewAddition(t.Caller, repo, base)
		tree.Hooks = worktree.Hooks{Run: t.runID, OnLeak: t.leaked}
		return tree
	})
}

// ServeAddition answers a request for an additional repository of the caller, with the caller's grant there. It returns
// false if the request is for none.
func (t *Target) ServeAddition(w http.ResponseWriter, r *http.Request) bool {
	name, _, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), ".git/")
	if !ok {
		return false
	}
	o := t.Others.Of(name)
	if o == nil {
		return false
	}
	t.runner.Git.DoorHandler(o.Grant, o.NoteLeaks).ServeHTTP(w, r)
	return true
}

// advance notes the tips of additional repositories after a step, also if the step's own commit failed.
func (w *Work) advance() {
	if len(w.others) == 0 {
		return
	}
	w.Run.Change(func(r *record.Run) {
		if w.Target.Caller == r.Caller {
			r.With = w.others.Advance(r.With)
		}
	})
}

// commitAdditions commits the additional repositories of the step. A change that cannot be committed makes the step fail.
func (w *Work) commitAdditions(ctx context.Context, o *Outcome) error {
	if len(w.others) == 0 {
		return nil
	}
	faults, err := w.others.Commit(ctx, w.Host, w.author(), w.message(*o), w.Target.Repo.Name())
	for _, f := range faults {
		o.fail(f.Reason, w.Run.Runner.Secrets.String(f.Text))
	}
	w.advance()
	return err
}
