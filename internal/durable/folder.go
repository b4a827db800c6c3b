// Package durable waits until what was written outlives a loss of power. A file that was
// made, renamed or removed does so only when its folder has been waited for, too
// (fsync(2)).
package durable

import (
	"errors"
	"fmt"
	"os"
)

// Folder returns when the names in a folder are on disk.
func Folder(dir string) error {
	f, err := os.Open(dir)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot make %s durable: %w", dir, err)
	}
	return nil
}
