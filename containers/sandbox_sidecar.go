package containers

import "context"

// Beside runs a program in a sandbox of its own in another one's network.
func (s *Sandbox) Beside(ctx context.Context, id string, c Sidecar) (SidecarExit, error) {
	panic("not built")
}

// SweepSidecars removes what an earlier process left.
func (s *Sandbox) SweepSidecars(ctx context.Context, owner string) error {
	panic("not built")
}
