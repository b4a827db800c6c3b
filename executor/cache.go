package executor

import (
	"context"
	"io"

	"github.com/ramus-dev/ramus/gitd"
)

// Warm fetches the dependencies of a commit of a base into the cache.
func (x *Executor) Warm(ctx context.Context, repo string, commit gitd.Hash, progress io.Writer) error {
	return nil
}

// WarmLater is Warm in the background. When it returns the wish is durable.
func (x *Executor) WarmLater(ctx context.Context, repo string, commit gitd.Hash) error { return nil }
