package executor

import (
	"context"

	"github.com/ramus-dev/ramus/containers"
)

// WarmPool has containers of the usual kind started ahead of callers, where the fleet has a
// pool, and returns when they wait; see [containers.Fleet.Warm].
func (x *Executor) WarmPool(ctx context.Context) error {
	return x.Fleet.Warm(ctx, containers.Request{Image: x.Image, Env: x.containerEnv(), Limits: x.Limits, Warm: x.warmUp})
}
