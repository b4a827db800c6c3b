package worktree

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

// salvage is [containers.Fleet].Salvage. The upper of a container that was lost becomes a commit on top of the branch.
func (st *Store) salvage(ctx context.Context, p containers.Place) {
	c, err := record.ParseCaller(p.Key)
	if err != nil {
		return // it worked for no caller
	}
	commit, err := st.rescue(ctx, c, p)
	switch {
	case err != nil:
		st.Log.Warn("the work tree of a lost container cannot be kept", "caller", c, "err", err)
	case commit != "":
		st.counts.salvaged.Add(1)
		st.mu.Lock()
		st.rescued[c] = commit
		st.mu.Unlock()
		st.Log.Info("kept the work tree of a lost container", "caller", c, "commit", commit)
	}
}

// rescue keeps the work tree of a lost container at the caller's [record.WIPRef]. It returns "" if there is nothing to keep.
func (st *Store) rescue(ctx context.Context, c record.Caller, p containers.Place) (gitd.Hash, error) {
	if st.layers == nil {
		return "", nil
	}
	repo, err := st.Git.Repo(p.Labels[labelRepo])
	if err != nil {
		return "", err
	}
	b, err := st.boundAt(repo.Name(), c, p)
	if err != nil {
		return "", err
	}
	tip, err := repo.Resolve(ctx, "refs/heads/"+c.Branch())
	if err != nil {
		return "", err
	}
	changes, err := st.layers.keeper.Changes(ctx, b.at.Upper(), changesMax)
	if err != nil {
		return "", err
	}

	snap, err := repo.Snapshot(ctx, b.overlayOf(st.layers, changes, tip), gitd.NewCommit{
		Parents:   []gitd.Hash{tip},
		Author:    st.Identity.Bot,
		Committer: st.Identity.Bot,
		When:      st.Now().UTC(),
		Message:   fmt.Sprintf("What the work tree held when its container was lost\n\n%s: %s\n", record.TrailerCaller, c),
	})
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

// boundAt returns the binding of a container. A binding that this process made knows of most files that they are on the branch, so the
// next container waits for less.
func (st *Store) boundAt(repo string, c record.Caller, p containers.Place) (*binding, error) {
	if t := st.Find(c); t != nil {
		if b := t.binding(); b != nil && b.at.Dir == filepath.Join(p.Dir, treeFolder) {
			return b, nil
		}
	}
	return st.readBinding(repo, p)
}

// TakeRescued returns, once and for people, the note about the saved work of the caller's lost container. Returns ""
// if nothing was saved.
func (t *Tree) TakeRescued() string {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	commit := t.store.rescued[t.Caller]
	delete(t.store.rescued, t.Caller)
	if commit == "" {
		return ""
	}
	return fmt.Sprintf("the work tree of the lost container is kept as %s; `--fork %s@%s` begins a caller with it",
		record.WIPRef(t.Caller), t.Caller, commit[:12])
}

// rescueWait is how long AwaitRescued waits.
const rescueWait = 10 * time.Second

// AwaitRescued is TakeRescued for a container that may still be ending. It waits for that end, for 10 seconds at most.
func (t *Tree) AwaitRescued(ctx context.Context) string {
	if t.store.layers == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, rescueWait)
	defer cancel()
	for {
		lease, err := t.store.Fleet.Adopt(ctx, t.Request("", t.store.Identity.Bot, nil))
		if err != nil {
			return t.TakeRescued()
		}
		if lease == nil {
			break
		}
		// Its connection has not ended yet, or the container is there after all.
		select {
		case <-lease.Host.Done():
			lease.Release()
		case <-ctx.Done():
			lease.Release()
			return ""
		}
	}
	_ = t.store.Fleet.Remove(ctx, t.Caller.String()) // there is nothing to remove, but Remove waits for the end
	return t.TakeRescued()
}
