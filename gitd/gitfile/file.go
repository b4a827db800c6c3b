// Package gitfile reads the small files of a repository, such as HEAD, loose refs and config, and recognizes that a file
// has not changed since it was read.
package gitfile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/gitd/object"
)

// smallMax bounds the bytes of files that are read as a whole, such as HEAD and loose refs.
const smallMax = 4 << 10

// ReadSmall reads a file that should be small. Returns [object.ErrTooLarge] if it has more than 4 KiB.
func ReadSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, smallMax+1))
	if err == nil && len(b) > smallMax {
		err = fmt.Errorf("%s has more than %d bytes: %w", filepath.Base(path), smallMax, object.ErrTooLarge)
	}
	return b, err
}
