package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file with mode 0600 in one step. A reader sees the old content or the new content, never a part, even after
// this process was killed. If lasting is true, that also holds after a loss of power, which costs a wait for the disk.
func Replace(name string, b []byte, lasting bool) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && lasting {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	if lasting {
		return Folder(filepath.Dir(name))
	}
	return nil
}
