package trigger

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd"
)

// maxTips limits the branches of one trigger whose tips are remembered. Further ones start nothing.
const maxTips = 1000

// watchBranches starts the work of pushes until ctx ends. It compares branches with their last seen tips, so a push
// while the server was down counts too, once.
func (t *Triggers) watchBranches(ctx context.Context) {
	warned := map[string]bool{} // triggers whose branches could not be read the last time
	for {
		for _, name := range t.order {
			e := t.entries[name]
			if e.Push == nil || ctx.Err() != nil {
				continue
			}
			err := t.lookAtBranches(ctx, e)
			if err != nil && ctx.Err() == nil && !warned[name] {
				t.Log.Error("cannot look at the branches of a trigger; it is tried again", "trigger", name, "err", err)
			}
			warned[name] = err != nil
		}
		if t.Sleep(ctx, t.Look) != nil {
			return
		}
	}
}

// lookAtBranches starts the work for branches that have a new tip.
func (t *Triggers) lookAtBranches(ctx context.Context, e *entry) error {
	all, err := t.Branches.Tips(ctx, e.Repo)
	if err != nil {
		return err
	}
	if s, _ := e.snapshot(); len(all) == 0 && s.Tips == nil {
		return nil // the repository is not there yet, and its first branches are no news
	}
	tips := map[string]gitd.Hash{}
	for _, branch := range slices.Sorted(maps.Keys(all)) {
		if matches(e.Push.Branches, branch) && len(tips) < maxTips {
			tips[branch] = all[branch]
		}
	}
	s, _ := e.snapshot()
	if maps.Equal(s.Tips, tips) && s.Tips != nil {
		return nil
	}
	for _, branch := range slices.Sorted(maps.Keys(tips)) {
		if s.Tips == nil || s.Tips[branch] == tips[branch] {
			continue // a new trigger begins with the tips that it finds
		}
		if err := t.firePush(ctx, e, branch, s.Tips[branch], tips[branch]); err != nil && !isRefused(err) {
			return err
		}
	}
	return e.change(func(s *state) { s.Tips = tips })
}

// firePush starts the work for a new tip, unless it is work of the same trigger, which would start itself again
// without end.
func (t *Triggers) firePush(ctx context.Context, e *entry, branch string, before, now gitd.Hash) error {
	by, err := t.Branches.MadeBy(ctx, e.Repo, now)
	if err != nil {
		return err
	}
	if strings.HasPrefix(by, "run:"+e.Name+"-") {
		t.Log.Info("a push is the trigger's own work, and starts nothing", "trigger", e.Name, "branch", branch,
			"commit", now)
		return nil
	}
	f := fields{"branch": branch, "commit": string(now), "before": string(before)}
	if !f.fits(e.When) {
		return nil
	}
	ev := Event{Kind: KindPush, Key: "push " + branch + " " + string(now), Time: t.Now().UTC(), Base: branch,
		Title: "push to " + branch + " at " + string(now)[:min(10, len(now))]}
	_, _, err = t.claimRun(ctx, e, ev.fill(&e.Trigger, f))
	return err
}
