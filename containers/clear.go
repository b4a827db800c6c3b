package containers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/containers/layer"
)

// Deleting what a container wrote, a million files perhaps, takes longer than all else
// that is done for a caller. So its folder is only moved out of the way, and deleted
// when nobody waits for it: one after another, at the lowest priority. What a process did not
// get to the next one finds here.
const oldFolders = "old" // below Fleet.Dir

// clearing is how far that is. Its fields are guarded by the fleet's mutex.
type clearing struct {
	on      bool // a goroutine does it
	again   bool // and something came while it did
	cleared int64
}

// retire takes the private folder of a container that is gone out of the way, to be deleted.
func (f *Fleet) retire(name string) error {
	// A folder of that name may lie there, of a start that was given up in the middle.
	err := os.Rename(f.folder(name), filepath.Join(f.Dir, oldFolders, name+"-"+newFolderName()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clearLocked()
	return nil
}

// clearLocked sees to it that what was retired is deleted.
func (f *Fleet) clearLocked() {
	if f.clears.again = f.clears.on; f.clears.on || f.closed {
		return
	}
	f.clears.on = true
	f.tasks.Go(func() {
		for {
			err := f.clear(f.base)
			f.mu.Lock()
			again := f.clears.again && f.base.Err() == nil
			f.clears.again = false
			if !again {
				f.clears.on = false
			}
			f.mu.Unlock()
			if err != nil && f.base.Err() == nil {
				f.log().Warn("old containers are not deleted, and will be tried again", "err", err)
			}
			if !again {
				return
			}
		}
	})
}

// clear deletes what was retired, until ctx ends.
func (f *Fleet) clear(ctx context.Context) error {
	top, err := filepath.Abs(filepath.Join(f.Dir, oldFolders))
	if err != nil {
		return fmt.Errorf("cannot delete old containers: %w", err)
	}
	list, err := os.ReadDir(top)
	errs := []error{err}
	for _, e := range list {
		if ctx.Err() != nil {
			return fmt.Errorf("cannot delete old containers: %w", context.Cause(ctx))
		}
		dir := filepath.Join(top, e.Name())
		if f.Keeper != nil {
			// What was bound may belong to users whose files this process may not delete.
			err = f.Keeper.Remove(ctx, dir)
		} else {
			err = layer.ClearAway(ctx, dir)
		}
		if err == nil {
			f.mu.Lock()
			f.clears.cleared++
			f.mu.Unlock()
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot delete old containers: %w", err)
	}
	return nil
}

// Cleared tells how many folders of containers that are gone were deleted, and how many wait for it.
func (f *Fleet) Cleared() (cleared, waiting int64) {
	list, _ := os.ReadDir(filepath.Join(f.Dir, oldFolders)) // none before it was opened
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clears.cleared, int64(len(list))
}
