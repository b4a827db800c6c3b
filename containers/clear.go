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

// oldFolders is the folder below Fleet.Dir that has the folders of removed containers. Deleting all files of a
// container, perhaps a million, takes longer than everything else that is done for a caller. So a folder is only moved
// there, and deleted when no caller waits for the machine, one folder at a time and at the lowest priority. Folders
// that a process does not delete are deleted by the next process.
const oldFolders = "old"

// clearing is the progress of deleting old folders. The fleet's mutex guards its fields.
type clearing struct {
	on      bool // a goroutine deletes folders
	again   bool // a folder was retired meanwhile
	cleared int64
}

// retire moves the private folder of a removed container to oldFolders, to be deleted.
func (f *Fleet) retire(name string) error {
	// A start that was abandoned may have left a folder of that name there.
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

// clearLocked starts deleting the retired folders if no goroutine does so already.
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
				f.log().Warn("the folders of old containers are not deleted; the next attempt follows", "err", err)
			}
			if !again {
				return
			}
		}
	})
}

// clear deletes the retired folders until ctx ends.
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
			// A bound work tree may belong to users whose files this process may not delete.
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

// Cleared returns how many folders of removed containers were deleted, and how many are still to be deleted.
func (f *Fleet) Cleared() (cleared, waiting int64) {
	list, _ := os.ReadDir(filepath.Join(f.Dir, oldFolders)) // missing before Open
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clears.cleared, int64(len(list))
}
