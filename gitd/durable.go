package gitd

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// syncfs returns when everything written so far to dir's file system is on
// disk. One call covers objects, refs, reflogs and the folders that name them,
// which an fsync of single files does not: git leaves the entries of new
// folders to chance.
func syncfs(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot make %s durable: %w", dir, err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("cannot make %s durable: %w", dir, err)
	}
	return nil
}
