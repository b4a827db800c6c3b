package containers

import (
	"context"
	"fmt"
)

// Remove removes the container of a caller now, even if it is in use. It returns when nothing is left of it. If ctx is
// done first, the removal continues.
func (f *Fleet) Remove(ctx context.Context, key string) error {
	if err := f.engineKnown(ctx, engineAwaits); err != nil {
		return fmt.Errorf("cannot remove the container of %s: %w", key, err)
	}
	f.mu.Lock()
	for {
		if !f.open || f.closed {
			f.mu.Unlock()
			return fmt.Errorf("cannot remove the container of %s: %w", key, errClosed)
		}
		b := f.slots[key]
		if b == nil {
			f.mu.Unlock()
			return nil
		}
		switch b.state {
		case slotStarting:
			b.abandon(errRemoved)
		case slotReady, slotOrphan:
			f.stopSlotLocked(b)
			done := make(chan error, 1)
			f.tasks.Go(func() { done <- f.endSlot(b, "removed") })
			f.mu.Unlock()
			select {
			case err := <-done:
				return err
			case <-ctx.Done():
				return fmt.Errorf("cannot await the removal of %s: %w", key, context.Cause(ctx))
			}
		}
		settled := b.settled
		f.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return fmt.Errorf("cannot await the removal of %s: %w", key, context.Cause(ctx))
		}
		f.mu.Lock()
	}
}

// remains are the traces of a container. lost is true if the container was lost and not removed. Its folder may then
// have work that exists nowhere else.
type remains struct {
	folder string
	lost   bool
}

// discard removes a container and its folder. It ignores the end of the caller's context, and takes at most a minute.
// The removal of a container that fails is tried again later.
func (f *Fleet) discard(id string, left remains) error {
	var err error
	if id != "" {
		_, err = bounded(f, context.WithoutCancel(f.base), fleetRemoving, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, f.Engine.Remove(ctx, id)
		}, nil)
	}
	if err == nil && left.folder != "" {
		if left.lost {
			f.salvage(left.folder)
		}
		err = f.retire(left.folder)
	}
	if err != nil && id != "" {
		f.mu.Lock()
		f.unclean[id] = left
		f.mu.Unlock()
	}
	if err != nil {
		err = fmt.Errorf("cannot remove container %s: %w", id, err)
		f.log().Warn("a container is not cleaned up", "id", id, "folder", left.folder, "err", err)
	}
	return err
}
