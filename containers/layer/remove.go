package layer

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveTree deletes a tree that hostile commands have built: folders that deny
// reading and entering to their own owner, and so deep that neither a path nor
// the descriptors of a process reach their end. Nobody may be writing to it.
func RemoveTree(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	return removeFlat(dir)
}

// removeFlat deletes a tree without going deep: it moves the folders of the
// second level to the first until there is no second level.
func removeFlat(dir string) error {
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
			if e.IsDir() {
				err = emptyFolder(p, dir)
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

// emptyFolder removes the files of a folder and moves its folders to another.
func emptyFolder(dir, to string) error {
	// Neither this nor the one below follows a link: the entry is a folder, and
	// nobody is there to change it.
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

// someEntries lists a part of a folder, which may hold millions; none is the end.
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
