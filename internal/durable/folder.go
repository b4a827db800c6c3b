// Package durable waits until written data survives a loss of power. A file that was made, renamed or removed survives
// only after a wait for its folder too (fsync(2)).
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
