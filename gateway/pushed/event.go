package pushed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of the work that one push starts by the workflows of the base.
const (
	maxStarted     = 20 // runs
	startingWithin = time.Minute
)

// branchesOf returns the branches whose pushes start work. The branches of callers start nothing, because work that starts
// itself would never end.
func branchesOf(refs []gitd.PushedRef) (list []gitd.PushedRef) {
	for _, ref := range refs {
		if branch, ok := strings.CutPrefix(ref.Name, "refs/heads/"); ok && !lookup.IsCallerBranch(branch) {
			list = append(list, ref)
		}
	}
	return list
}

// look sets the base of a notice, and returns how the notice is kept. A push to the base may bring workflows, which nobody can
// see yet. Such a notice survives a killed server, and not a loss of power, because it would slow down each push.
func (s *Starter) look(ctx context.Context, n *notice) (keeping, error) {
	refs := branchesOf(n.Refs)
	if len(refs) == 0 || lookup.IsOwnRepo(n.Repo) {
		return keepNothing, nil
	}
	repo, err := s.Find.Git.Repo(n.Repo)
	if err != nil {
		return keepNothing, err
	}
	base, err := repo.Base(ctx)
	if err != nil {
		return keepNothing, err
	}
	n.Base = "refs/heads/" + base
	if n.At, err = tipOf(ctx, repo, n.Base); err != nil {
		return keepNothing, err
	}
	list, err := s.listeners(ctx, repo, n.At)
	if err != nil {
		return keepSafe, nil // the person sees it after the push, which may repair the base
	}
	keep := keepNothing
	for _, ref := range refs {
		if ref.Name == n.Base {
			keep = max(keep, keepFast)
		}
		for _, l := range list {
			switch {
			case l.fault != "":
				keep = max(keep, keepFast)
			case l.on.Matches(strings.TrimPrefix(ref.Name, "refs/heads/")):
				return keepSafe, nil
			}
		}
	}
	return keep, nil
}

// startEvents starts the workflows of the base that begin with a push. The push does not wait for them. Returns false if some
// of them should be tried again.
func (s *Starter) startEvents(ctx context.Context, who route.Who, n *notice, show *screen) (done bool) {
	refs := branchesOf(n.Refs)
	if len(refs) == 0 || lookup.IsOwnRepo(n.Repo) {
		return true
	}
	repo, err := s.Find.Git.Repo(n.Repo)
	var list []listener
	if err == nil {
		list, err = s.listeners(ctx, repo, n.base())
	}
	if err != nil {
		show.line("cannot read the workflows of the base: %s", route.AsProblem(err, who).Detail)
		s.Log.Info("the workflows of a base cannot be read after a push", "repo", n.Repo, "err", err)
		return route.IsLasting(err)
	}
	for _, l := range list {
		if l.fault != "" {
			show.line("%s", l.fault)
		}
	}
	done = true
	started := 0
	for _, ref := range refs {
		branch := strings.TrimPrefix(ref.Name, "refs/heads/")
		files := &changes{repo: repo, ref: ref, base: n.At, log: s.Log}
		for _, l := range list {
			if l.fault != "" || !l.on.Matches(branch) || len(l.on.Paths) > 0 && !files.touch(ctx, l.on) {
				continue
			}
			if started++; started > maxStarted {
				show.line("a push starts at most %d runs by workflows of the base, and the others were left out", maxStarted)
				return done
			}
			done = s.startEvent(ctx, who, n.Repo, branch, ref.Commit, l, show) && done
		}
	}
	return done
}

// startEvent starts a workflow for the push of a branch. It runs once for a commit of the branch and a text. Returns false if
// it should be tried again.
func (s *Starter) startEvent(ctx context.Context, who route.Who, repo, branch string, at gitd.Hash, l listener, show *screen) bool {
	key := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", l.file, branch, at, l.text))
	// Its base is that of the repository, so that all files with rules are those of the base.
	r := record.Request{Key: "push-" + hex.EncodeToString(key[:8]), Repo: repo, File: l.file, At: at, Anywhere: true}
	err := s.Find.Bind(ctx, who, &r)
	var run record.Run
	if err == nil {
		run, err = s.Executor.Submit(ctx, r)
	}
	if err == nil {
		show.line("%s by %s; `ramus follow %s` shows it", run.Name(), l.file, run.Name())
		return true
	}
	again, detail := !route.IsLasting(err), route.AsProblem(err, who).Detail
	s.Log.Info("a workflow failed to start after a push", "repo", repo, "file", l.file, "branch", branch, "again", again, "err", err)
	if again {
		show.line("%s does not start yet, and the next start of the server tries it again: %s", l.file, detail)
	} else {
		show.line("%s does not start: %s", l.file, detail)
	}
	return !again
}
