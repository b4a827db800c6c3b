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

// syncfs returns when everything written so far to dir's file system is on
// disk. One call covers objects, refs, reflogs and the folders that name them,
// which an fsync of single files does not: git leaves the entries of new
// folders to chance. Who comes while the disk is busy with a call waits for the next
// one together with all others who do.
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
	if err := syncing(at.Dev).wait(func() error { return unix.Syncfs(int(f.Fd())) }); err != nil {
		return fmt.Errorf("cannot make %s durable: %w", dir, err)
	}
	return nil
}

// fewFiles is how many files or folders of refs are waited for one by one; beyond, the
// whole file system is.
const fewFiles = 16

// syncRefs returns when refs that git has changed are on disk. Git sees to what is in
// their files, not to the names of these. What others write meanwhile is not waited for,
// as syncfs would.
func syncRefs(repo string, names ...string) error {
	// packed-refs is in the repository's own folder: what is deleted is deleted there, too.
	folders := map[string]bool{repo: true, filepath.Join(repo, "reftable"): true}
	for _, name := range names {
		// All of them may be new: git makes a folder with the first ref in it.
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			folders[filepath.Join(repo, filepath.FromSlash(dir))] = true
		}
		if len(folders) > fewFiles {
			return syncfs(repo)
		}
	}
	return syncFolders(folders)
}

// syncFolders returns when the names in the folders that there are are on disk.
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

func syncing(device uint64) *syncer {
	s, _ := syncs.LoadOrStore(device, &syncer{})
	return s.(*syncer)
}

// syncer lets those who wait for one file system share its calls, of which one is made at
// a time.
type syncer struct {
	mu   sync.Mutex // guards the rounds
	last *round     // the call that began last; nil: none has
	next *round     // the call that has not begun; nil: nobody waits for one
}

type round struct {
	done chan struct{}
	err  error // to be read when done is closed
}

// wait returns the outcome of a call that begins after wait did. The first who
// waits for a round makes its call.
func (s *syncer) wait(call func() error) error {
	s.mu.Lock()
	if r := s.next; r != nil {
		s.mu.Unlock()
		<-r.done
		return r.err
	}
	r, last := &round{done: make(chan struct{})}, s.last
	s.next = r
	s.mu.Unlock()

	if last != nil {
		<-last.done
	}
	s.mu.Lock()
	s.last, s.next = r, nil // who comes from here on may have written behind the call's back
	s.mu.Unlock()
	r.err = call()
	close(r.done)
	return r.err
}
