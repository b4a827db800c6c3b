package pushed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of the work that one push starts by the workflows of the base.
const (
	maxListening   = 20      // workflows with events, of which the first ones count
	maxWorkflows   = 200     // files that are looked at
	maxWorkflow    = 1 << 20 // bytes of a file
	maxStarted     = 20      // runs
	startingWithin = time.Minute
)

// listener is a workflow file of a base that mentions events.
type listener struct {
	file string
	text []byte
}

// Listens reports whether the base of a repository has workflows that begin with events. It is [gitd.Server.Listens].
func (s *Starter) Listens(ctx context.Context, repo string) bool {
	list, err := s.listeners(ctx, repo)
	return err != nil || len(list) > 0 // the person who pushes sees the error
}

// listeners returns the workflow files in the base of a repository that mention events.
func (s *Starter) listeners(ctx context.Context, name string) ([]listener, error) {
	repo, err := s.Find.Git.Repo(name)
	if err != nil {
		return nil, err
	}
	base, err := repo.Base(ctx)
	if err != nil {
		return nil, err
	}
	tip, err := repo.Resolve(ctx, "refs/heads/"+base)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil, nil // the base has no commit yet
	}
	if err != nil {
		return nil, err
	}
	files, err := repo.Tree(ctx, string(tip), executor.WorkflowDir, false)
	if err != nil {
		if errors.Is(err, gitd.ErrNotFound) {
			return nil, nil
		}
		return nil, err
	}
	var list []listener
	for _, f := range files[:min(len(files), maxWorkflows)] {
		if f.Type != "blob" || path.Ext(f.Path) != ".yaml" || len(list) == maxListening {
			continue
		}
		text, err := repo.Blob(ctx, f.Hash, maxWorkflow)
		if errors.Is(err, gitd.ErrTooLarge) {
			continue // it is no workflow
		}
		if err != nil {
			return nil, err
		}
		if bytes.HasPrefix(text, []byte("on:")) || bytes.Contains(text, []byte("\non:")) {
			list = append(list, listener{executor.WorkflowDir + "/" + path.Base(f.Path), text})
		}
	}
	return list, nil
}

// startEvents starts the workflows of the base that begin with a push of these branches. They work at the commits that
// were pushed, with the rights of the person who pushed. The push does not wait for them. A person who leaves does not
// stop it. The branches of callers start nothing, because work that starts itself would never end.
func (s *Starter) startEvents(ctx context.Context, who route.Who, p gitd.Push, show *screen) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startingWithin)
	defer cancel()
	list, err := s.listeners(ctx, p.Repo)
	if err != nil {
		show.line("cannot read the workflows of the base: %s", route.AsProblem(err, who).Detail)
		return
	}
	started := 0
	for _, l := range list {
		on, err := s.Executor.EventsOf(l.file, l.text)
		if err != nil {
			show.line("%s starts nothing: %s", l.file, err)
			continue
		}
		for _, ref := range p.Refs {
			branch, ok := strings.CutPrefix(ref.Name, "refs/heads/")
			if !ok || lookup.IsCallerBranch(branch) || !on.Matches(branch) {
				continue
			}
			if started++; started > maxStarted {
				show.line("a push starts at most %d runs by workflows of the base, and the others were left out", maxStarted)
				return
			}
			s.startEvent(ctx, who, p.Repo, branch, ref.Commit, l, show)
		}
	}
}

// startEvent starts a workflow for the push of a branch. It runs once for a commit of the branch and a text.
func (s *Starter) startEvent(ctx context.Context, who route.Who, repo, branch string, at gitd.Hash, l listener, show *screen) {
	key := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", l.file, branch, at, l.text))
	// Its base is that of the repository, so that all files with rules are those of the base.
	r := record.Request{Key: "push-" + hex.EncodeToString(key[:8]), Repo: repo, File: l.file, At: at, Anywhere: true}
	err := s.Find.Bind(ctx, who, &r)
	var run record.Run
	if err == nil {
		run, err = s.Executor.Submit(ctx, r)
	}
	if err != nil {
		s.Log.Info("a workflow failed to start after a push", "repo", repo, "file", l.file, "branch", branch, "err", err)
		show.line("%s does not start: %s", l.file, route.AsProblem(err, who).Detail)
		return
	}
	show.line("%s by %s; `ramus follow %s` shows it", run.Name(), l.file, run.Name())
}
