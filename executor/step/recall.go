package step

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/recall"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/executor/trial"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/service"
)

// notInstalled is the shell's exit code for a program that does not exist. It may be installed later.
const notInstalled = 127

// work does the work of a step whose result may be known. Without that it calls do.
func (w *Work) work(ctx context.Context, do func(context.Context, *Work) (Outcome, error)) (Outcome, error) {
	if w.Info.Recall == nil || w.Again {
		return do(ctx, w)
	}
	if err := w.Identify(ctx, cmp.Or(w.Info.Task, w.Info.ID)); err != nil {
		return Outcome{}, err
	}
	s, err := w.subject(ctx)
	if err != nil {
		return w.without(ctx, do, err)
	}
	r, err := w.find(ctx, s)
	if err == nil {
		return w.reuse(r)
	}
	o, err := w.without(ctx, do, err)
	if err == nil && o.Fault == nil {
		w.asked = &s
	}
	return o, err
}

// without does the work of a step of which no result is known. why is the reason.
func (w *Work) without(ctx context.Context, do func(context.Context, *Work) (Outcome, error), why error) (Outcome, error) {
	if !errors.Is(why, gitd.ErrNotFound) && !errors.Is(why, recall.ErrNoSubject) {
		w.Run.Runner.Log.Warn("the result of a check cannot be looked up; the check runs", "run", w.Run.Initial.Name(),
			"step", w.Info.ID, "err", why)
	}
	return do(ctx, w)
}

// subject returns everything that the result of the step depends on. Returns [recall.ErrNoSubject] if there is more
// than ramus knows: secrets, other repositories, and a cache with other dependencies than those of the files.
func (w *Work) subject(ctx context.Context) (recall.Subject, error) {
	s := *w.Info.Recall
	s.Tree, s.Image = w.checked, w.Image
	t, now := w.Target, w.Target.Settings()
	if s.Tree == "" || len(w.Run.Initial.Secrets) > 0 || hasSecrets(now) || len(t.Others.All()) > 0 {
		return s, recall.ErrNoSubject
	}
	var err error
	if s.Dependencies, err = t.runner.Deps.Stocked(ctx, t.Repo, w.Head.At); err != nil {
		return s, err
	}
	t.mu.Lock()
	found := slices.Sorted(slices.Values(t.found))
	t.mu.Unlock()
	if !slices.Equal(found, s.Dependencies) {
		return s, recall.ErrNoSubject
	}
	return s, w.Run.describe(ctx, t, now, w.Info, &s)
}

// describe fills in the part of a subject that does not depend on the container at hand.
func (l *Run) describe(ctx context.Context, t *Target, now settings.Settings, info Info, s *recall.Subject) (err error) {
	if s.Files, err = trial.Environment(ctx, t.Repo, t.Base); err != nil {
		return err
	}
	s.Engine = l.Runner.Fleet.Engine.Name() + "/" + runtime.GOARCH
	if t.runner.RepoEnv != nil {
		s.Env = append(s.Env, t.runner.RepoEnv(t.Repo.Name())...)
	}
	s.Env = append(s.Env, now.CommandEnv()...)
	s.Bare = l.Initial.NoSetup()
	hosts, private := now.Reachable()
	s.Container, err = json.Marshal(struct {
		Setup, Start, Dependencies any
		Services, Own              []service.Service
		Hosts, Private             []string
		Keep                       []string
	}{now.Setup, now.Start, now.Dependencies, now.Services, info.Services, hosts, private, now.Keep})
	return err
}

// hasSecrets reports whether requests of a repository's commands get values that nothing records.
func hasSecrets(s settings.Settings) bool {
	return len(s.Secrets) > 0 || slices.ContainsFunc(s.Egress, func(h settings.Host) bool { return len(h.Header) > 0 })
}

// book returns the results of the step's repository.
func (w *Work) book() *recall.Book {
	r := w.Run.Runner
	return &recall.Book{Repo: w.Target.Repo, Bot: r.Trees.Identity.Bot, Now: r.Now, Hides: r.Hides}
}

// find returns the known result of a subject. A check that failed is not the answer to its own repetition.
func (w *Work) find(ctx context.Context, s recall.Subject) (recall.Result, error) {
	l := w.Run
	if l.Initial.Fresh {
		return recall.Result{}, gitd.ErrNotFound
	}
	r, err := w.book().Find(ctx, s, l.Initial.Caller)
	if err == nil && !r.Result.OK && r.Caller == l.Initial.Caller && r.Run == l.Initial.ID {
		return r, gitd.ErrNotFound
	}
	return r, err
}

// reuse makes a known result that of the step.
func (w *Work) reuse(r recall.Result) (Outcome, error) {
	for _, out := range []struct {
		to   io.Writer
		text []byte
	}{{w.Out.Stdout, r.Stdout}, {w.Out.Stderr, r.Stderr}} {
		if _, err := out.to.Write(out.text); err != nil {
			return Outcome{}, err
		}
	}
	return Outcome{Exit: containers.Exit{Code: r.Exit}, Result: r.Result, Reused: r.Reused()}, nil
}

// keepResult keeps the result of a step for later checks with the same subject, if the step ended by itself and left
// nothing but its output. A result that cannot be kept is only logged.
func (w *Work) keepResult(ctx context.Context, o Outcome, made worktree.Committed) {
	l := w.Run
	ended := o.Exit.Reason == "" && o.Exit.Code != notInstalled
	if w.asked == nil || l.Initial.Apart || o.Reused != nil || !ended || made.Artifacts || len(made.Left) > 0 ||
		l.Outside(w.Info.ID) {
		return
	}
	if err := w.keepFor(ctx, *w.asked, o); err != nil {
		l.Runner.Log.Warn("the result of a check is not kept for later ones", "run", l.Initial.Name(), "step", w.Info.ID,
			"err", err)
	}
}

func (w *Work) keepFor(ctx context.Context, s recall.Subject, o Outcome) error {
	l := w.Run
	tree, err := w.Target.Repo.TreeOf(ctx, w.Head.At)
	if err != nil || tree != s.Tree {
		return err // it changed files
	}
	done := l.Beginning(w.Info.ID).Done
	if done == nil {
		return nil
	}
	r := recall.Result{Caller: l.Initial.Caller, Run: l.Initial.ID, Step: w.Info.ID, Time: done.Time,
		DurationMS: done.DurationMS, Exit: o.Exit.Code, Result: o.Result}
	for _, out := range []struct {
		of   *live.Capture
		said *record.Stream
		into *[]byte
	}{{w.Out.Stdout, done.Stdout, &r.Stdout}, {w.Out.Stderr, done.Stderr, &r.Stderr}} {
		if out.said != nil && out.said.Truncated {
			return nil
		}
		if *out.into, err = out.of.Kept(recall.MaxOutput + 1); err != nil {
			return err
		}
		if len(*out.into) > recall.MaxOutput {
			return nil
		}
	}
	return w.book().Keep(ctx, s, r)
}
