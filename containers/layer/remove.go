package layer

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/proc"
)

// RemoveTree deletes a tree that hostile commands made. Its folders may deny reading and entering to their own owner,
// and may be nested so deeply that neither a path nor the descriptors of a process reach the end. No process may write
// to the tree meanwhile.
func RemoveTree(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	return removeFlat(dir, func() error { return nil })
}

// ClearAway is like [RemoveTree] for a tree that nobody waits for. It works at the lowest priority, and pauses half of
// the time for a large tree, because unlinking a million files keeps other processes from the journal of the file
// system. If ctx ends first, it returns the cause, and the rest of the tree stays.
func ClearAway(ctx context.Context, dir string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	done := make(chan error, 1)
	go proc.OnThread(func() {
		// Neither call is necessary, and a kernel may refuse either.
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19)
		_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioProcess, 0, ioprioBestEffort<<13|7)
		p := pacer{ctx: ctx, began: time.Now()}
		done <- removeFlat(dir, p.step)
	})
	return <-done
}

// Constants of ioprio_set(2). The idle class is not used because it may never be scheduled.
const ioprioProcess, ioprioBestEffort = 1, 2

// pacer adds pauses to work that consists of many small steps.
type pacer struct {
	ctx   context.Context
	steps int
	began time.Time // of this batch
}

const (
	paceBatch = 500    // steps between two pauses
	paceFree  = 20_000 // steps without a pause, enough for most trees
)

func (p *pacer) step() error {
	p.steps++
	if p.steps%paceBatch != 0 {
		return nil
	}
	var pause time.Duration
	if p.steps > paceFree {
		pause = time.Since(p.began)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
	}
	p.began = time.Now()
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	return nil
}

// removeFlat deletes a tree without deep recursion. It moves the folders of the second level to the first until there
// is no second level. It calls step for each entry, and stops at the first error.
func removeFlat(dir string, step func() error) error {
	if err := os.Chmod(dir, 0o700); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for {
		names, err := someEntries(dir)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return os.Remove(dir)
		}
		for _, e := range names {
			p := filepath.Join(dir, e.Name())
			if err = step(); err == nil && e.IsDir() {
				err = emptyFolder(p, dir, step)
			}
			if err == nil {
				err = os.Remove(p)
			}
			if err != nil {
				return err
			}
		}
	}
}

// emptyFolder removes the files of a folder and moves its subfolders to another.
func emptyFolder(dir, to string, step func() error) error {
	// Neither this Chmod nor the one below follows a link, because the entry is a folder and no process changes it
	// meanwhile.
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	for {
		names, err := someEntries(dir)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, e := range names {
			p := filepath.Join(dir, e.Name())
			if err = step(); err != nil {
				return err
			}
			if e.IsDir() {
				if err = os.Chmod(p, 0o700); err == nil {
					err = os.Rename(p, filepath.Join(to, rand.Text()))
				}
			} else {
				err = os.Remove(p)
			}
			if err != nil {
				return err
			}
		}
	}
}

// someEntries returns some entries of a folder, which may have millions. Returns none if the folder is empty.
func someEntries(dir string) ([]fs.DirEntry, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.ReadDir(1000)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
