package gitd

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/gitd/gitfile"
	"github.com/ramus-dev/ramus/gitd/refview"

	"github.com/ramus-dev/ramus/internal/durable"
)

// A ref that is a file of its own is changed as git changes it. The writer that makes NAME.lock owns the ref. It
// reads the old value, writes the new one to the lock, and renames the lock to NAME (gitrepository-layout, and
// lockfile.h in the sources of git). So native git and this server exclude each other, and a change takes two
// waits for the disk, which several changes share, in place of a conversation with a git that waits once for every
// ref. Other changes are left to git. They are deletions, which change packed-refs too, symbolic refs, refs with
// logs, and refs whose names conflict with another ref.

// errNotLoose means that git has to make the change.
var errNotLoose = errors.New("not a change of loose refs alone")

// looseLock is a locked ref with its values before and after the change.
type looseLock struct {
	file     string // of the ref
	lock     *os.File
	was, new Hash
	loose    bool // the old value was in the ref's own file
}

// restore sets a changed ref to its old value, unless it has moved on.
func (l looseLock) restore() error {
	lock, err := os.OpenFile(l.file+".lock", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer lock.Close()
	defer os.Remove(l.file + ".lock")
	text, err := gitfile.ReadSmall(l.file)
	if err != nil || strings.TrimSpace(string(text)) != string(l.new) {
		return err
	}
	if !l.loose {
		return os.Remove(l.file) // packed-refs has the old value, or there is none
	}
	if _, err := fmt.Fprintf(lock, "%s\n", l.was); err != nil {
		return err
	}
	return os.Rename(l.file+".lock", l.file)
}

// writeLoose makes the updates, all or none, and returns when they are durable. Returns [errNotLoose] if git has
// to make them. The caller must keep other writers of the same refs waiting.
func (r *Repo) writeLoose(ctx context.Context, updates []RefUpdate) error {
	deletes := func(u RefUpdate) bool { return u.New == "" }
	if len(updates) > fewFiles || !r.looseOnly() || slices.ContainsFunc(updates, deletes) {
		return errNotLoose
	}
	r.locking.RLock()
	defer r.locking.RUnlock()
	locks := make([]looseLock, 0, len(updates))
	placed := 0
	defer func() {
		for i, l := range locks {
			l.lock.Close()
			if i >= placed {
				os.Remove(l.file + ".lock")
			}
		}
	}()
	for _, u := range updates {
		l, err := r.lockLoose(ctx, u)
		if err != nil {
			return err
		}
		locks = append(locks, l)
	}

	files, names := make([]*os.File, len(locks)), make([]string, len(locks))
	for i, l := range locks {
		files[i], names[i] = l.lock, updates[i].Name
	}
	// A ref that survives a loss of power needs the names of the packs that its objects are in.
	var wait sync.WaitGroup
	var unnamed error
	wait.Go(func() { unnamed = r.objects.Packs.SyncNames() })
	err := durable.Files(files...)
	wait.Wait()
	if err := errors.Join(err, unnamed); err != nil {
		return err
	}

	for i, l := range locks {
		if err := os.Rename(l.file+".lock", l.file); err != nil {
			// Another writer made a folder with this name, which git reports better. All refs change or none, so
			// those that have changed are restored.
			for _, done := range locks[:i] {
				if uerr := done.restore(); uerr != nil {
					return fmt.Errorf("cannot put a ref back: %w", uerr)
				}
			}
			return errors.Join(errNotLoose, err)
		}
		placed++
	}
	return r.refs.folders.syncNames(r.dir, names)
}

// lockLoose locks a ref that is at its old value and writes its new value to the lock.
func (r *Repo) lockLoose(ctx context.Context, u RefUpdate) (l looseLock, err error) {
	l.file = filepath.Join(r.dir, filepath.FromSlash(u.Name))
	for try := 0; ; try++ {
		l.lock, err = os.OpenFile(l.file+".lock", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			break
		}
		// Git removes a folder with the last ref in it, so the folder may vanish at any time.
		if !errors.Is(err, fs.ErrNotExist) || try == 3 {
			return l, errors.Join(errNotLoose, err)
		}
		if err := r.refs.folders.makeFolder(r.dir, path.Dir(u.Name)); err != nil {
			return l, errors.Join(errNotLoose, err)
		}
	}

	defer func() {
		if err != nil {
			l.lock.Close()
			os.Remove(l.file + ".lock")
		}
	}()
	l.new = u.New
	if l.was, l.loose, err = r.looseValue(u.Name, l.file); err != nil {
		return l, err
	}
	if u.Old != nil && l.was != *u.Old {
		if err := r.expectOld(ctx, []RefUpdate{u}); err != nil {
			return l, err
		}
		return l, errNotLoose // the ref moved there meanwhile, in spite of the lock
	}
	_, err = fmt.Fprintf(l.lock, "%s\n", u.New)
	return l, err
}

// looseValue returns the value of a locked ref, and whether it is in the ref's own file. The value is empty if the
// ref does not exist and could.
func (r *Repo) looseValue(name, file string) (_ Hash, loose bool, err error) {
	text, err := gitfile.ReadSmall(file)
	if err == nil {
		if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
			return "", false, errNotLoose // old releases of git made symbolic refs of symbolic links
		}
		h := Hash(strings.TrimSpace(string(text)))
		if CheckHash(h) != nil {
			return "", false, errNotLoose // a symbolic ref, or a damaged one
		}
		return h, true, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", false, errors.Join(errNotLoose, err) // most often a folder
	}

	refs, err := r.packedRefs()
	if err != nil {
		return "", false, err
	}
	find := func(name string) (int, bool) {
		return slices.BinarySearchFunc(refs, name, func(r Ref, n string) int { return strings.Compare(r.Name, n) })
	}
	if at, found := find(name); found {
		return refs[at].Hash, false, nil
	}

	// A file with this name and a packed ref above or below it could not both be read by git.
	if at, _ := find(name + "/"); at < len(refs) && strings.HasPrefix(refs[at].Name, name+"/") {
		return "", false, errNotLoose
	}
	for dir := path.Dir(name); dir != "refs" && dir != "."; dir = path.Dir(dir) {
		if _, found := find(dir); found {
			return "", false, errNotLoose
		}
	}
	return "", false, nil
}

// looseOnly reports whether a change of a ref changes its file and nothing else.
func (r *Repo) looseOnly() bool {
	if r.server.OwnConfig {
		return false // it may ask for hooks
	}
	now, err := gitfile.Stat(filepath.Join(r.dir, "config"))
	if err != nil {
		return false
	}
	w := &r.refs
	w.configMu.Lock()
	defer w.configMu.Unlock()
	if !w.config.Matches(now) {
		own, err := gitfile.ReadConfig(r.dir)
		if err != nil {
			return false
		}
		w.config, w.plain = now, true
		for key := range own {
			switch {
			case key == "core.logallrefupdates", key == "core.sharedrepository", strings.HasPrefix(key, "include"),
				strings.HasPrefix(key, "extensions.") && key != "extensions.partialclone":
				w.plain = false
			}
		}
	}
	if !w.plain || refview.HasReftable(r.dir) {
		return false
	}
	_, err = os.Lstat(filepath.Join(r.dir, "logs"))
	return errors.Is(err, fs.ErrNotExist)
}

// refFolders remembers the folders of loose refs whose names are on disk, so that a change waits only for the
// folder that it is in. Git makes and removes such folders. While a git may do so, nothing is remembered.
type refFolders struct {
	mu      sync.Mutex // guards the fields below
	known   map[string]bool
	gits    int // at work that may change folders
	version int // counts events that may have made or removed folders
}

// expectForeign records, until end is called, that a git of this server may change refs and packs. Their names are
// not known to be on disk.
func (r *Repo) expectForeign() (end func()) {
	folders, packs := r.refs.folders.expectForeign(), r.objects.Packs.Foreign()
	return func() { folders(); packs() }
}

// expectForeign records that a git may change folders until end is called.
func (f *refFolders) expectForeign() (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gits++
	f.version++
	f.known = nil
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.gits--
	}
}

// makeFolder makes a folder below refs, and those above it. It does not make the folder of a repository that was
// removed.
func (f *refFolders) makeFolder(repo, name string) error {
	f.mu.Lock()
	f.version++
	f.known = nil // one of them was missing, although it may be known
	f.mu.Unlock()
	dir, below := filepath.Join(repo, "refs"), strings.TrimPrefix(name, "refs")
	if below == "" {
		return fs.ErrNotExist
	}
	for part := range strings.SplitSeq(below[1:], "/") {
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// syncNames returns when the names of the refs are on disk.
func (f *refFolders) syncNames(repo string, names []string) error {
	f.mu.Lock()
	turn := f.version
	folders := f.unknownLocked(repo, names)
	f.mu.Unlock()
	if err := syncFolders(folders); err != nil {
		return err
	}
	f.mu.Lock()
	changed := f.version != turn || f.gits > 0
	if !changed {
		if f.known == nil || len(f.known) > refFoldersKnown {
			f.known = make(map[string]bool)
		}
		for _, name := range names {
			for dir := path.Dir(name); dir != "." && !f.known[dir]; dir = path.Dir(dir) {
				f.known[dir] = true
			}
		}
		f.mu.Unlock()
		return nil
	}
	// The known folders are no longer known, because a git may have packed the refs and removed a folder.
	f.known = nil
	folders = f.unknownLocked(repo, names)
	f.mu.Unlock()
	return syncFolders(folders)
}

// unknownLocked returns the folders of the refs, and those above them whose names may not be on disk. The caller
// holds the lock.
func (f *refFolders) unknownLocked(repo string, names []string) map[string]bool {
	folders := make(map[string]bool)
	add := func(dir string) { folders[filepath.Join(repo, filepath.FromSlash(dir))] = true }
	for _, name := range names {
		add(path.Dir(name))
		for dir := path.Dir(name); dir != "." && !f.known[dir]; dir = path.Dir(dir) {
			add(path.Dir(dir))
		}
	}
	return folders
}

// refFoldersKnown bounds the folders that are remembered.
const refFoldersKnown = 10_000

// refTurns makes writers of the same refs wait for each other, so that they never meet each other's locks.
type refTurns [64]sync.Mutex

// acquire waits for the refs of the updates.
func (t *refTurns) acquire(updates []RefUpdate) (release func()) {
	turns := make([]int, len(updates))
	for i, u := range updates {
		h := fnv.New32a()
		h.Write([]byte(u.Name))
		turns[i] = int(h.Sum32() % uint32(len(t)))
	}
	slices.Sort(turns) // the same order for all callers
	turns = slices.Compact(turns)
	for _, i := range turns {
		t[i].Lock()
	}
	return func() {
		for _, i := range turns {
			t[i].Unlock()
		}
	}
}
