package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// salvage is [containers.Fleet].Salvage: what lies in the upper of a container that was
// lost becomes a commit on top of the branch.
func (x *Executor) salvage(ctx context.Context, p containers.Place) {
	c, err := record.ParseCaller(p.Key)
	if err != nil {
		return // it worked for no caller
	}
	commit, err := x.rescue(ctx, c, p)
	switch {
	case err != nil:
		x.Log.Warn("what a lost container's work tree held cannot be kept", "caller", c, "err", err)
	case commit != "":
		x.fast.salvaged.Add(1)
		x.mu.Lock()
		x.rescued[c] = commit
		x.mu.Unlock()
		x.Log.Info("kept what a lost container's work tree held", "caller", c, "commit", commit)
	}
}

func (x *Executor) rescue(ctx context.Context, c record.Caller, p containers.Place) (gitd.Hash, error) {
	if x.layers == nil {
		return "", nil
	}
	repo, err := x.Git.Repo(p.Labels["ramus.repo"])
	if err != nil {
		return "", err
	}
	b, err := x.boundAt(repo.Name(), c, p)
	if err != nil {
		return "", err
	}
	tip, err := repo.Resolve(ctx, "refs/heads/"+c.Branch())
	if err != nil {
		return "", err
	}
	changes, err := x.layers.keeper.Changes(ctx, b.at.Upper(), changesMax)
	if err != nil {
		return "", err
	}
	snap, err := repo.Snapshot(ctx, b.overlayOf(x.layers, changes, tip), gitd.NewCommit{Parents: []gitd.Hash{tip}, Author: x.Bot, Committer: x.Bot,
		When: x.Now().UTC(), Message: fmt.Sprintf("What the work tree held when its container was lost\n\n%s: %s\n", record.TrailerCaller, c)})
	if err != nil {
		return "", err
	}
	defer snap.Pack.Close()
	if len(snap.Leaks) > 0 {
		return "", errors.New("it holds the value of a secret")
	}
	if snap.Commit == "" {
		return "", nil
	}
	return snap.Commit, repo.Update(ctx, gitd.RefUpdate{Name: record.WIPRef(c), New: snap.Commit})
}

// boundAt is what was bound in a container. Where this process did it, it knows of most
// files that they are on the branch: the next container waits for less.
func (x *Executor) boundAt(repo string, c record.Caller, p containers.Place) (*binding, error) {
	x.mu.Lock()
	t := x.targets[c].Value()
	x.mu.Unlock()
	if t != nil {
		if b := t.binding(); b != nil && b.at.Dir == filepath.Join(p.Dir, treeFolder) {
			return b, nil
		}
	}
	return x.readBinding(repo, p)
}

// takeRescued tells once, for people, what was kept of the caller's lost container.
func (t *target) takeRescued() string {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	commit := t.x.rescued[t.caller]
	delete(t.x.rescued, t.caller)
	if commit == "" {
		return ""
	}
	return fmt.Sprintf("what the work tree held then is kept as %s; `--fork %s@%s` begins a caller with it", record.WIPRef(t.caller), t.caller, commit[:12])
}

// awaitRescued is takeRescued when a lost container's end may still be under way.
func (t *target) awaitRescued(ctx context.Context) string {
	if t.x.layers == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, rescueWait)
	defer cancel()
	for {
		lease, err := t.x.Fleet.Adopt(ctx, t.request("", t.x.Bot, nil))
		if err != nil {
			return t.takeRescued()
		}
		if lease == nil {
			break
		}
		// Its connection has not heard of the end yet, or it is there after all.
		select {
		case <-lease.Host.Done():
			lease.Release()
		case <-ctx.Done():
			lease.Release()
			return ""
		}
	}
	_ = t.x.Fleet.Remove(ctx, t.caller.String()) // nothing is there to be removed, but its end is waited for
	return t.takeRescued()
}

// rescueWait is how long a run that failed waits to hear what was kept.
const rescueWait = 10 * time.Second
