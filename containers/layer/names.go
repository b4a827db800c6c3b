package layer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// names returns the entries of an open folder, sorted as bytes. Returns [ErrTooMany] if there are more than limit.
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
			return nil, fmt.Errorf("%w: one folder has %d more than allowed", ErrTooMany, len(list)-limit)
		}
	}
	slices.Sort(list)
	// The kernel may return a name twice if the folder is written to meanwhile.
	return slices.Compact(list), nil
}
