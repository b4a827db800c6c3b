package containers

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/internal/durable"
)

// replaceFile writes a file, mode 0600, in one step: who reads it, also after ramus was
// killed, finds the old content or the new, never half of it. Only a lasting one is so after
// a loss of power too, which costs a wait for the disk. What is told of running containers
// need not be: they do not outlive what would lose it.
func replaceFile(name string, b []byte, lasting bool) error {
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
		return durable.Folder(filepath.Dir(name))
	}
	return nil
}
