package layer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// names are the entries of an open folder, sorted as bytes, at most limit of them.
func names(ctx context.Context, dir int, buf []byte, limit int) ([]string, error) {
	var list []string
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := unix.ReadDirent(dir, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		} else if errors.Is(err, unix.ENOENT) { // removed since it was opened
			n = 0
		} else if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		_, _, list = unix.ParseDirent(buf[:n], -1, list)
		if len(list) > limit {
			return nil, fmt.Errorf("%w: the bound is passed by %d in one folder", ErrTooMany, len(list)-limit)
		}
	}
	slices.Sort(list)
	// Of a folder that is written to meanwhile the kernel may tell a name twice.
	return slices.Compact(list), nil
}
