package layer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// giveToUser gives an open folder and everything below it to a user.
func giveToUser(ctx context.Context, root, uid int) error {
	dir, err := openAt(root, ".", unix.O_RDONLY|unix.O_DIRECTORY, inside)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return ownFolder(ctx, dir, uid, make([]byte, 32<<10), 0)
}

func ownFolder(ctx context.Context, dir, uid int, buf []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("folders are nested deeper than %d", maxDepth)
	}
	if err := unix.Fchown(dir, uid, uid); err != nil {
		return err
	}
	names, err := names(ctx, dir, buf, math.MaxInt)
	if err != nil {
		return err
	}
	for _, name := range names {
		fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, oneMount)
		switch {
		case err == nil:
			err = ownFolder(ctx, fd, uid, buf, depth+1)
			unix.Close(fd)
		case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
			err = unix.Fchownat(dir, name, uid, uid, unix.AT_SYMLINK_NOFOLLOW)
		case errors.Is(err, unix.EXDEV):
			err = nil // another file system is mounted there
		}
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}
