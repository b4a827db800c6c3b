package durable

import (
	"errors"
	"os"
	"sync"
)

// Files returns when the content of the files is on disk, so that they can be renamed to their
// final names. It waits for all files at once, because a file system with a journal serves
// all waiters with one write of it.
func Files(files ...*os.File) error {
	if len(files) == 0 {
		return nil
	}
	errs := make([]error, len(files))
	var wait sync.WaitGroup
	for i, f := range files[1:] {
		wait.Go(func() { errs[i+1] = f.Sync() })
	}
	errs[0] = files[0].Sync()
	wait.Wait()
	return errors.Join(errs...)
}
