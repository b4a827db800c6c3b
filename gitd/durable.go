package gitd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"

	"github.com/ramus-dev/ramus/internal/durable"
	"github.com/ramus-dev/ramus/internal/shared"
	"golang.org/x/sys/unix"
)

// Sync returns when everything written so far to the file system of dir is on disk.
func Sync(dir string) error { return syncfs(dir) }

// syncfs returns when everything written so far to the file system of dir is on disk. One call covers objects,
// refs, reflogs and the folders that name them, unlike an fsync of single files. Git does not sync the entries of
// new folders. Callers that arrive during a call share the next one.
func syncfs(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot make %s durable: %w", dir, err)
	}
	defer f.Close()
	var at unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &at); err != nil {
		return fmt.Errorf("cannot make %s durable: %w", dir, err)
	}
	if err := syncOf(at.Dev).Do(func() error { return unix.Syncfs(int(f.Fd())) }); err != nil {
		return fmt.Errorf("cannot make %s durable: %w", dir, err)
	}
	return nil
}

// fewFiles is the number of files or folders of refs that are synced one by one. Beyond it the whole file system
// is synced.
const fewFiles = 16

// syncRefs returns when refs that git has changed are on disk. Git syncs the content of their files, but not their
// names. Unlike syncfs it does not wait for other writers.
func syncRefs(repo string, names ...string) error {
	// packed-refs is in the repository's own folder. Deletions change it, too.
	folders := map[string]bool{repo: true, filepath.Join(repo, "reftable"): true}
	for _, name := range names {
		// All of these folders may be new, because git makes a folder with the first ref in it.
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			folders[filepath.Join(repo, filepath.FromSlash(dir))] = true
		}
		if len(folders) > fewFiles {
			return syncfs(repo)
		}
	}
	return syncFolders(folders)
}

// syncFolders returns when the names in the existing folders are on disk.
func syncFolders(folders map[string]bool) error {
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for dir := range folders {
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // git removes a folder with the last ref in it
		}
		if err != nil {
			return fmt.Errorf("cannot make refs durable: %w", err)
		}
		files = append(files, f)
	}
	if err := durable.Files(files...); err != nil {
		return fmt.Errorf("cannot make refs durable: %w", err)
	}
	return nil
}

// syncs has a shared call for every file system, by device.
var syncs sync.Map

func syncOf(device uint64) *shared.Call {
	s, _ := syncs.LoadOrStore(device, &shared.Call{})
	return s.(*shared.Call)
}
