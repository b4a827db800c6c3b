package docker

import (
	"context"

	"github.com/ramus-dev/ramus/containers"
)

// Beside runs a program in a container of its own in another one's network.
func (e *Engine) Beside(ctx context.Context, id string, s containers.Sidecar) (containers.SidecarExit, error) {
	panic("not built")
}

// SweepSidecars removes what an earlier process left.
func (e *Engine) SweepSidecars(ctx context.Context, owner string) error {
	panic("not built")
}
