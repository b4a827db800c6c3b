package gitd

import (
	"context"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
)

// Maintain packs the repository without removing any object: a geometric
// repack (its work is in proportion to what is new), one bitmap over all
// packs, a commit-graph with the paths that each commit changed, packed refs. It may run beside everything else; a
// second call waits for the first.
//
// Nothing is pruned. An object that no ref reaches yet may be a commit that
// WriteCommit has returned and Update has not yet named.
func (r *Repo) Maintain(ctx context.Context) error {
	done, err := turn(ctx, r.maintaining)
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
		"pack.threads=1", // the cores are for the people who wait
		"commitGraph.generationVersion=2",
	}, config...)
	// A bitmap says what a commit reaches. One that was made without the history
	// would be believed after that has come, and hide it from clones.
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
