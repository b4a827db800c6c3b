package pack

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/internal/durable"
)

// Files reads objects from the packs of a repository (gitformat-pack, SHA-1 names only). Its cost
// does not grow with the packs, because it searches an index on disk with a few reads, and a pack that
// is added or removed leaves the others open. Files does not find objects that it cannot read, such
// as those that are larger than [MaxInMemory] or in a damaged pack. Dir must be set before the first
// use. Files is safe for concurrent use.
type Files struct {
	Dir string // the folder objects/pack of a repository
	// OnAdopt is called after [Files.Adopt] has added a pack. Nil means that nothing is called.
	OnAdopt func()

	// generation counts the packs that this server added or removed. Two changes in one tick
	// of the clock of the file system leave the time of the folder unchanged.
	generation atomic.Uint64

	// unnamed counts the operations that may have added names to Dir that are not on disk.
	unnamed atomic.Uint64
	gits    atomic.Int64 // the git processes that may add packs now
	naming  sync.Mutex   // held while SyncNames waits for the disk
	isNamed uint64       // unnamed at the start of the last sync, plus 1, guarded by naming

	trust sync.RWMutex // guards doubt
	doubt bool         // objects are being removed, so has returns false

	mu    sync.Mutex // held to open and to close packs
	packs atomic.Pointer[fileSet]
	cache baseCache
	spent atomic.Int64 // the result of Rebuilt
	idle  *time.Timer
	used  atomic.Bool // an object was read since idle was set
}

const (
	// packsMax bounds the packs that are open at once. A repository without maintenance can
	// have more.
	packsMax = 2000
	// indexMemory is the largest index in bytes that is kept in memory.
	indexMemory = 64 << 10
	// chainMax bounds the deltas of one object, and chainBytes their sum in bytes. Git makes
	// chains of 50. A client may push longer ones.
	chainMax   = 5000
	chainBytes = 4 * MaxInMemory
	// stepBytes is the cost in bytes of an entry of a pack besides its data. It takes one read of as
	// many bytes from the file.
	stepBytes = 4 << 10
	// readMax bounds the cost of one read in bytes. A chain of 50 deltas costs at most half of it.
	readMax = 1 << 30
	// eachFree and eachRatio bound the cost of Each in bytes to eachFree plus eachRatio times that of
	// the same objects without deltas. Packs of git cost up to twice as much as without, and more
	// if many objects are larger than some hundred KiB.
	eachFree  = 64 << 20
	eachRatio = 4
	// baseCacheBytes bounds the bytes of baseCache.
	baseCacheBytes = 16 << 20
)

// fileSet is the set of packs at one time. It is never changed.
type fileSet struct {
	state folderState
	packs []*File
}

// folderState changes whenever a pack is added or removed.
type folderState struct {
	generation uint64
	folder     time.Time
}

// errNoObject means that no readable pack has the object.
var errNoObject = errors.New("no such object in the packs")

// errCostly means that the deltas of an object cost too much.
var errCostly = errors.New("the chains of deltas are too long")

// Changed records that packs were added or removed.
func (p *Files) Changed() { p.generation.Add(1) }

// SyncNames returns when the names of all packs that this server has added or found are on disk.
func (p *Files) SyncNames() error {
	want := p.unnamed.Load()
	p.naming.Lock()
	defer p.naming.Unlock()
	// The first sync includes names for which an earlier process did not wait.
	if p.isNamed > want && p.gits.Load() == 0 {
		return nil
	}
	now := p.unnamed.Load()
	if err := durable.Folder(p.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.isNamed = now + 1
	return nil
}

// Foreign records that a git process may add packs until end is called.
func (p *Files) Foreign() (end func()) {
	p.gits.Add(1)
	return func() {
		p.unnamed.Add(1)
		p.gits.Add(-1)
	}
}

func (p *Files) state() folderState {
	s := folderState{generation: p.generation.Load()}
	if info, err := os.Stat(p.Dir); err == nil {
		s.folder = info.ModTime()
	}
	return s
}

// read returns an object of at most max bytes. Of a larger object it returns only kind and size.
func (p *Files) read(h object.Hash, max int64) (obj object.Object, size int64, err error) {
	err = p.find(h, func(pack *File, at int64) error {
		obj, size, err = p.object(pack, at, max)
		return err
	})
	return obj, size, err
}

// ReadBefore returns an object that begins before the offset end of its pack. Of an object larger
// than max bytes it returns only kind and size.
func (p *Files) ReadBefore(h object.Hash, end, max int64) (obj object.Object, size int64, err error) {
	err = p.find(h, func(pack *File, at int64) error {
		if at >= end {
			return errNoObject
		}
		obj, size, err = p.object(pack, at, max)
		return err
	})
	return obj, size, err
}

// has reports whether a current pack has the object, so that it need not be written again.
// Like git, has marks the pack as in use. Its objects then do not count as unused, even if no ref
// reaches them yet.
func (p *Files) has(h object.Hash) bool {
	p.trust.RLock()
	defer p.trust.RUnlock()
	if p.doubt {
		return false
	}
	if now := p.packs.Load(); now == nil || now.state != p.state() {
		if _, err := p.load(); err != nil {
			return false
		}
	}
	if p.find(h, func(pack *File, _ int64) error { return pack.freshen() }) != nil {
		return false
	}
	p.unnamed.Add(1) // the writer of the pack may not have synced its name yet
	return true
}

// Each calls f with every object of the packs. It skips nothing. An object or a pack that cannot
// be read is an error, as are deltas that cost much more than the objects they make. Git's large
// cache reads those faster.
func (p *Files) Each(f func(object.Hash, object.Object) error) error { return p.each(eachFree, f) }

// each is Each with another eachFree.
func (p *Files) each(left int64, f func(object.Hash, object.Object) error) error {
	set, err := p.load()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(p.Dir, "*.pack"))
	if err != nil || len(files) != len(set.packs) {
		return fmt.Errorf("%d of %d packs can be read: %w", len(set.packs), len(files), errNoObject)
	}
	for _, pack := range set.packs {
		places, err := pack.places()
		if err != nil {
			return err
		}
		for _, place := range places {
			var name ObjectName
			if _, err := pack.index.ReadAt(name[:], idxHead+int64(place.nth)*int64(len(name))); err != nil {
				return err
			}
			obj, size, err := p.rebuild(pack, place.at, MaxInMemory, &left)
			if err == nil && size > MaxInMemory {
				err = errNoObject
			}
			if err == nil {
				// The next object may be a delta of this one.
				p.cache.put(pack, place.at, obj)
				left += eachRatio * (size + stepBytes)
				err = f(object.Hash(hex.EncodeToString(name[:])), obj)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Rebuilt returns the work of all reads so far in bytes. It counts the bytes that were inflated, the
// results of deltas, and some KiB for each entry of a pack on the way. Objects from the cache of
// bases do not count. A read adds its work before it returns, also if it fails.
func (p *Files) Rebuilt() int64 { return p.spent.Load() }

// Distrust starts or ends a time in which objects are being removed and must be written again.
func (p *Files) Distrust(yes bool) {
	p.trust.Lock()
	defer p.trust.Unlock()
	p.doubt = yes
}

// Count returns the number of packs, or 0 if the folder cannot be read.
func (p *Files) Count() int {
	set, err := p.load()
	if err != nil {
		return 0
	}
	return len(set.packs)
}

// find calls use with the pack and the offset of an object. If the open packs do not have the
// object, find looks for new packs.
func (p *Files) find(h object.Hash, use func(*File, int64) error) error {
	name, err := hex.DecodeString(string(h))
	if err != nil || len(name) != len(ObjectName{}) {
		return errNoObject
	}
	p.used.Store(true)
	for range 3 {
		open := p.packs.Load()
		if open == nil {
			if open, err = p.load(); err != nil {
				return err
			}
		}
		for _, pack := range open.packs {
			at, ok, err := pack.Find(name)
			if err == nil && ok {
				err = use(pack, at)
			}
			if err == nil && ok {
				return nil
			}
			// The pack was closed or removed meanwhile or cannot be read. Another may have it.
		}
		if open == p.packs.Load() && open.state == p.state() {
			return errNoObject
		}
		if _, err := p.load(); err != nil {
			return err
		}
	}
	return errNoObject
}

// load opens the packs that are new and closes those that were removed.
func (p *Files) load() (*fileSet, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The state is taken before the folder is read, because later changes alter it again.
	now := &fileSet{state: p.state()}
	was := p.packs.Load()
	if was != nil && was.state == now.state {
		return was, nil
	}
	files, err := os.ReadDir(p.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list the packs: %w", err)
	}
	kept := map[string]*File{}
	if was != nil {
		for _, pack := range was.packs {
			kept[filepath.Base(pack.name)] = pack
		}
	}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".idx")
		if !ok || !strings.HasPrefix(name, "pack-") || len(now.packs) == packsMax {
			continue
		}
		pack := kept[name]
		if pack == nil {
			if pack, err = OpenFile(p.Dir, name); err != nil {
				continue // git reports its fault
			}
			_, pack.cruft = slices.BinarySearchFunc(files, name+".mtimes", func(f os.DirEntry, name string) int {
				return strings.Compare(f.Name(), name)
			})
		}
		delete(kept, name)
		now.packs = append(now.packs, pack)
	}
	// Most objects are in the largest pack, but most reads are of new objects. Small packs
	// are also searched fastest.
	sort.SliceStable(now.packs, func(i, j int) bool { return now.packs[i].size < now.packs[j].size })
	p.packs.Store(now)
	for _, pack := range kept {
		pack.Close()
		p.cache.drop(pack)
	}
	if p.idle == nil {
		p.idle = time.AfterFunc(readerIdle, p.closeIfIdle)
	}
	return now, nil
}

// closeIfIdle closes all files if nothing was read since its last call.
func (p *Files) closeIfIdle() {
	if !p.used.Swap(false) {
		p.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle != nil {
		p.idle.Reset(readerIdle)
	}
}

// Close closes all files. A later read opens them again.
func (p *Files) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
	if was := p.packs.Swap(nil); was != nil {
		for _, pack := range was.packs {
			pack.Close()
		}
	}
	p.cache.empty()
}

// object reads the object at an offset of a pack at a cost of at most readMax.
func (p *Files) object(pack *File, at, max int64) (object.Object, int64, error) {
	left := int64(readMax)
	return p.rebuild(pack, at, max, &left)
}

// rebuild reads the object at an offset of a pack. It follows the chain of deltas to a whole object
// and then applies the deltas in reverse order. It subtracts its cost from left. It returns errCostly
// before it applies a delta if left is less.
func (p *Files) rebuild(pack *File, at, max int64, left *int64) (object.Object, int64, error) {
	f, err := pack.open()
	if err != nil {
		return object.Object{}, 0, err
	}
	before := *left
	defer func() { p.spent.Add(before - *left) }()
	var chain []link
	var size, together, results int64
	obj, known := object.Object{}, false
	for !known {
		if obj, known = p.cache.get(pack, at); known {
			break
		}
		if *left -= stepBytes; *left < results {
			return object.Object{}, 0, errCostly
		}
		in := readersAt.get(f, at)
		kind, n, base, err := entryHead(in, pack, at)
		switch {
		case err != nil:
		case kind <= TypeTag:
			obj.Kind = kindNames[kind]
			if len(chain) == 0 {
				size = n
			}
			switch {
			case len(chain) == 0 && n > max, len(chain) > 0 && size > max:
				known = true // only kind and size are needed
			case n > MaxInMemory:
				err = errNoObject
			default:
				*left -= n
				obj.Data, err = in.inflate(n)
				known = err == nil
			}
			if known && len(chain) > 0 && obj.Data != nil {
				p.cache.put(pack, at, obj)
			}
		case len(chain) == chainMax:
			err = errNoObject
		case len(chain) == 0 || size <= max:
			if together += n; n > MaxInMemory || together > chainBytes {
				err = errNoObject
				break
			}
			*left -= n
			l := link{at: at}
			if l.delta, err = in.inflate(n); err == nil {
				_, l.size, _, err = deltaHead(l.delta)
			}
			switch {
			case err != nil:
			case len(chain) == 0:
				size = l.size
			case l.size > MaxInMemory:
				err = errNoObject
			}
			if size <= max {
				results += l.size
			}
			chain, at = append(chain, l), base
		default: // only the kind is still unknown
			chain, at = append(chain, link{at: at}), base
		}
		readersAt.put(in)
		if err != nil {
			return object.Object{}, 0, err
		}
	}
	if len(chain) == 0 && obj.Data != nil {
		size = int64(len(obj.Data))
	}
	if size > max {
		return object.Object{Kind: obj.Kind}, size, nil
	}
	if results > *left {
		return object.Object{}, 0, errCostly
	}
	for i := len(chain) - 1; i >= 0; i-- {
		*left -= chain[i].size
		if obj.Data, err = applyDelta(obj.Data, chain[i].delta); err != nil {
			return object.Object{}, 0,
				fmt.Errorf("cannot read an object of %s at %d: %w", filepath.Base(pack.name), chain[i].at, err)
		}
		if i > 0 {
			p.cache.put(pack, chain[i].at, obj)
		}
	}
	return obj, size, nil
}

// link is one delta of a chain.
type link struct {
	at    int64
	size  int64 // of the result
	delta []byte
}

// kindNames are the kinds of the types that are not deltas.
var kindNames = [...]string{TypeCommit: "commit", 2: "tree", 3: "blob", TypeTag: "tag"}

// entryHead reads the header of an object. base is the offset of the base if kind is a delta.
func entryHead(in *readerAt, pack *File, at int64) (kind byte, size, base int64, err error) {
	kind, size, err = objectHeader(in)
	switch {
	case err != nil:
	case kind == typeOfsDelta:
		var back int64
		if back, err = deltaOffset(in); err == nil && (back <= 0 || back > at-HeaderLength) {
			err = errNoObject
		}
		base = at - back
	case kind == TypeRefDelta:
		var name ObjectName
		if _, err = io.ReadFull(in, name[:]); err != nil {
			break
		}
		var ok bool
		base, ok, err = pack.Find(name[:])
		if err == nil && !ok {
			err = errNoObject
		}
	case kind < TypeCommit || kind > TypeTag:
		err = errNoObject
	}
	return kind, size, base, err
}
