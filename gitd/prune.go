package gitd

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
)

// pruneGrace is how long an object stays that no ref reaches: longer than anything takes
// that has written objects and has not named them yet.
const pruneGrace = "2.weeks.ago"

// Prune packs the repository anew and removes the objects that no ref has reached for two
// weeks. It reads and writes everything there is. Reading and committing go on meanwhile;
// pushes, merges and fetches from upstream wait.
func (r *Repo) Prune(ctx context.Context) error {
	if err := r.prune(ctx); err != nil {
		return fmt.Errorf("cannot prune %s: %w", r.name, gitcmd.ExplainFullDisk(err, r.dir))
	}
	return nil
}

func (r *Repo) prune(ctx context.Context) error {
	// Git, where it merges or fetches, may take an object for granted that goes away.
	for _, token := range []chan struct{}{r.maintaining, r.merging, r.refreshing} {
		done, err := turn(ctx, token)
		if err != nil {
			return err
		}
		defer done()
	}
	r.pushing.Lock()
	defer r.pushing.Unlock()
	// So may whoever writes a pack. Those that looked before have marked what they saw as in use.
	r.objects.Packs.Distrust(true)
	defer r.objects.Packs.Distrust(false)
	if _, err := bareRepository(r.dir); err != nil {
		return err
	}
	bitmap := "--write-bitmap-index"
	if r.Shallow() {
		bitmap = "--no-write-bitmap-index"
	}
	r.locking.RLock()
	defer r.locking.RUnlock()
	defer r.expectForeign()()
	defer r.objects.Packs.Changed()
	for _, args := range [][]string{
		{"pack-refs", "--all", "--prune"},
		{"repack", "-d", "-l", "-q", "--cruft", "--cruft-expiration=" + pruneGrace, "--write-midx", bitmap},
		{"prune", "--expire=" + pruneGrace},
		// A graph that is split could still tell of commits that are gone.
		{"commit-graph", "write", "--reachable", "--changed-paths", "--no-progress"},
	} {
		err := r.server.git.Run(ctx, gitcmd.Command{Repo: r.dir, Args: args, Config: []string{"pack.threads=1", "commitGraph.generationVersion=2"}})
		if err != nil {
			return err
		}
	}
	return syncfs(r.dir)
}
