package executor

import (
	"context"
	"path"
	"time"

	"github.com/ramus-dev/ramus/containers"
)

// SetSealEvery makes a run that could not be sealed wait only so long.
func (x *Executor) SetSealEvery(d time.Duration) { x.sealEvery = d }

// Touch makes an empty file in the work tree of a caller's container.
func (x *Executor) Touch(ctx context.Context, caller, name string) error {
	return x.withHost(ctx, caller, func(h *containers.Host) error {
		files, err := h.Files(ctx)
		if err != nil {
			return err
		}
		defer files.Close()
		f, err := files.Create(path.Join(containers.WorkDir, name))
		if err != nil {
			return err
		}
		return f.Close()
	})
}
