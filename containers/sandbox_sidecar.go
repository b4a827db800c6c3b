package containers

import (
	"context"
	"fmt"
)

// Beside runs a program in a sandbox of its own in another one's network.
func (s *Sandbox) Beside(ctx context.Context, id string, c Sidecar) (SidecarExit, error) {
	return SidecarExit{}, fmt.Errorf("cannot run a sidecar: %w", ErrUnavailable)
}

// SweepSidecars removes what an earlier process left.
func (s *Sandbox) SweepSidecars(ctx context.Context, owner string) error {
	return nil
}
