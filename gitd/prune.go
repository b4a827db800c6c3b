package gitd

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
)

// pruneGrace is the age up to which an object stays that no ref reaches. It is longer than any operation between
// writing objects and naming them.
const pruneGrace = "2.weeks.ago"

// Prune packs all objects again and removes those that no ref has reached for two weeks. It reads and writes the
// whole repository. Reads and commits continue meanwhile. Pushes, merges and fetches from upstream wait.
func (r *Repo) Prune(ctx context.Context) error {
	if err := r.prune(ctx); err != nil {
		return fmt.Errorf("cannot prune %s: %w", r.name, gitcmd.ExplainFullDisk(err, r.dir))
	}
	return nil
}

func (r *Repo) prune(ctx context.Context) error {
	// A git that merges or fetches may rely on an object that is removed.
	for _, token := range []chan struct{}{r.maintaining, r.merging, r.refreshing} {
		done, err := takeTurn(ctx, token)
		if err != nil {
			return err
		}
		defer done()
	}
	r.pushing.Lock()
	defer r.pushing.Unlock()
	// So may a writer of a pack. Those that checked before have marked the objects as used.
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
		// A split graph could still name commits that are gone.
		{"commit-graph", "write", "--reachable", "--changed-paths", "--no-progress"},
	} {
		err := r.server.git.Run(ctx, gitcmd.Command{Repo: r.dir, Args: args,
			Config: []string{"pack.threads=1", "commitGraph.generationVersion=2"}})
		if err != nil {
			return err
		}
	}
	return syncfs(r.dir)
}
