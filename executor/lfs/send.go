package lfs

import (
	"context"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/lfs"
)

// Send implements [gitd.LargeFiles].
func (x *Objects) Send(ctx context.Context, r *gitd.Repo, up gitd.Upstream, objects []lfs.Object) error {
	// Objects that are not here came from upstream, or nobody ever sent them.
	have, err := x.Find(ctx, r, objects, false)
	if err != nil || len(have) == 0 {
		return err
	}
	var private []string
	if x.Source != nil {
		_, private = x.Source(r.Name())
	}
	remote, err := r.LFSRemote(ctx, up, private, lfs.Upload)
	if err != nil || remote == nil {
		return err
	}
	sent, err := remote.Send(ctx, have,
		func(ctx context.Context, o lfs.Object) (io.ReadCloser, error) { return x.Open(ctx, r, o) })
	if sent > 0 {
		x.log().Info("Git LFS objects sent to upstream", "repo", r.Name(), "objects", sent)
	}
	if err != nil {
		return fmt.Errorf("cannot send the Git LFS objects of %s: %w", r.Name(), err)
	}
	return nil
}
