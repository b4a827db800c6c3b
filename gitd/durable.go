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
	if err := syncerOf(at.Dev).share(func() error { return unix.Syncfs(int(f.Fd())) }); err != nil {
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

// syncs has a syncer for every file system, by device.
var syncs sync.Map

func syncerOf(device uint64) *syncer {
	s, _ := syncs.LoadOrStore(device, &syncer{})
	return s.(*syncer)
}

// syncer lets callers share calls, of which one is made at a time.
type syncer struct {
	mu   sync.Mutex // guards the rounds
	last *syncRound // the call that began last, nil if none has
	next *syncRound // the call that has not begun, nil if nobody waits
}

type syncRound struct {
	done chan struct{}
	err  error // valid when done is closed
}

// share returns the result of a call that begins after share did. The first caller that waits for a round makes
// the call.
func (s *syncer) share(call func() error) error {
	s.mu.Lock()
	if r := s.next; r != nil {
		s.mu.Unlock()
		<-r.done
		return r.err
	}
	r, last := &syncRound{done: make(chan struct{})}, s.last
	s.next = r
	s.mu.Unlock()

	if last != nil {
		<-last.done
	}
	s.mu.Lock()
	s.last, s.next = r, nil // later callers may have written something that the call misses
	s.mu.Unlock()
	r.err = call()
	close(r.done)
	return r.err
}
