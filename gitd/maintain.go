package gitd

import (
	"context"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
)

// Maintain packs the repository without removing any object. It makes a geometric repack, whose work is in
// proportion to the new objects, one bitmap over all packs, a commit-graph with the paths that each commit
// changed, and packed refs. It may run at the same time as anything else. A second call waits for the first.
//
// Nothing is pruned. An object that no ref reaches may be a commit that [Repo.WriteCommit] has returned and
// [Repo.Update] has not named yet.
func (r *Repo) Maintain(ctx context.Context) error {
	done, err := takeTurn(ctx, r.maintaining)
	if err == nil {
		defer done()
		if err = r.tidy(ctx, nil); err == nil {
			err = syncfs(r.dir)
		}
		r.objects.Packs.Changed()
	}
	if err != nil {
		return fmt.Errorf("cannot maintain %s: %w", r.name, gitcmd.ExplainFullDisk(err, r.dir))
	}
	return nil
}

func (r *Repo) tidy(ctx context.Context, progress io.Writer, config ...string) error {
	config = append([]string{
		"pack.threads=1", // the other cores serve clients that wait
		"commitGraph.generationVersion=2",
	}, config...)
	// A bitmap records which objects a commit reaches. One that was made of a shallow history would still be
	// believed when the history is complete, and hide the older commits from clones.
	bitmap := "--write-bitmap-index"
	if r.Shallow() {
		bitmap = "--no-write-bitmap-index"
	}
	r.locking.RLock()
	defer r.locking.RUnlock()
	defer r.expectForeign()()
	for _, args := range [][]string{
		{"pack-refs", "--all", "--prune"},
		{"repack", "-d", "-l", "-q", "--geometric=2", "--write-midx", bitmap},
		{"commit-graph", "write", "--reachable", "--split", "--changed-paths", "--no-progress"},
	} {
		if err := r.server.git.Run(ctx, gitcmd.Command{Repo: r.dir, Args: args, Config: config, Progress: progress}); err != nil {
			return err
		}
	}
	return nil
}
