package gitcmd

import (
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/gitd/object"
	"golang.org/x/sys/unix"
)

// reservedSpace returns the part of a file system of total bytes that large writes leave free. It is 5 %, at
// most 1 GiB.
func reservedSpace(total uint64) uint64 { return min(total/20, 1<<30) }

// FreeSpace returns the number of bytes that a fetch or a pack may write to the file system of dir.
// Returns [object.ErrTooLarge] if there are none.
func FreeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("cannot read the free space of %s: %w", dir, err)
	}
	free, keep := st.Bavail*uint64(st.Bsize), reservedSpace(st.Blocks*uint64(st.Bsize))
	if free <= keep {
		return 0, fmt.Errorf("the disk of %s is full (%d bytes free, %d are kept for running work): %w", dir, free,
			keep, object.ErrTooLarge)
	}
	return int64(min(free-keep, 1<<62)), nil
}

// ExplainFullDisk returns err, and says that the disk of dir is full if that is its cause.
func ExplainFullDisk(err error, dir string) error {
	var st unix.Statfs_t
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("the disk of %s is full: %w", dir, err)
	}
	// Git reports it only as text, so the file system is asked instead.
	if code := ExitCode(err); code > 0 && unix.Statfs(dir, &st) == nil &&
		(st.Bavail*uint64(st.Bsize) < 1<<20 || st.Files > 0 && st.Ffree < 16) {
		return fmt.Errorf("the disk of %s is full: %w: %w", dir, err, unix.ENOSPC)
	}
	return err
}
