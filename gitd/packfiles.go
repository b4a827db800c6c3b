package gitd

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"container/list"
	"encoding/binary"
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

// packFiles reads objects out of the packs of a repository (gitformat-pack; SHA-1
// names only). What it costs does not grow with the packs: it asks an index on disk
// with some reads, and a pack that comes or goes leaves the others open. What it cannot
// read (a larger object, a damaged or a foreign pack) it does not have. The zero value needs
// dir; it is safe for concurrent use.
type packFiles struct {
	dir string // objects/pack of a repository
	// generation counts the packs that this server put in place or took away: two in
	// one tick of the file system's clock leave the folder's time as it was.
	generation atomic.Uint64

	// unnamed counts what may have made names in dir that are not on disk.
	unnamed atomic.Uint64
	gits    atomic.Int64 // that may put packs there now
	naming  sync.Mutex   // held while the disk is waited for
	isNamed uint64       // 1 more than what unnamed was when that began last; guarded by naming

	trust sync.RWMutex // guards doubt
	doubt bool         // objects are being removed: has knows of none

	mu    sync.Mutex // held to open and to close packs
	packs atomic.Pointer[packSet]
	cache baseCache
	idle  *time.Timer
	used  atomic.Bool // since idle was set
}

const (
	// packsMax packs are open at once; a repository without maintenance can have more.
	packsMax = 2000
	// indexMemory is the largest index that is kept in memory.
	indexMemory = 64 << 10
	// chainMax bounds how many deltas make an object, and chainBytes what they have
	// together: git makes chains of 50, a client may push any.
	chainMax   = 5000
	chainBytes = 4 * inMemoryMax
	// baseCacheBytes is what is kept of objects that others were made from.
	baseCacheBytes = 16 << 20
)

// packSet are the packs that were there at one time; never changed.
type packSet struct {
	state packsState
	packs []*packFile
}

// packsState changes whenever a pack comes or goes.
type packsState struct {
	generation uint64
	folder     time.Time
}

// packFile is one pack and its index.
type packFile struct {
	name   string // its path, without the ending
	fan    [256]uint32
	index  io.ReaderAt
	closer io.Closer // of the index, where that is a file
	size   int64     // of the index

	cruft bool // git means to remove its objects some day

	mu    sync.Mutex // guards the fields below
	file  *os.File   // the pack, once it was needed
	gone  bool       // it was closed; nothing opens it again
	fresh time.Time  // when it was last marked as in use
}

// errNoObject says that no pack has the object, or none that can be read here.
var errNoObject = errors.New("no such object in the packs")

// changed tells that there are other packs than before.
func (p *packFiles) changed() { p.generation.Add(1) }

// named returns when the packs that somebody here has put in place, or has found, have
// their names on disk.
func (p *packFiles) named() error {
	want := p.unnamed.Load()
	p.naming.Lock()
	defer p.naming.Unlock()
	// What an earlier process had not waited for is among what is named first.
	if p.isNamed > want && p.gits.Load() == 0 {
		return nil
	}
	now := p.unnamed.Load()
	if err := durable.Folder(p.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.isNamed = now + 1
	return nil
}

// foreign tells that a git may put packs there until end is called.
func (p *packFiles) foreign() (end func()) {
	p.gits.Add(1)
	return func() {
		p.unnamed.Add(1)
		p.gits.Add(-1)
	}
}

func (p *packFiles) state() packsState {
	s := packsState{generation: p.generation.Load()}
	if info, err := os.Stat(p.dir); err == nil {
		s.folder = info.ModTime()
	}
	return s
}

// read returns an object of at most max bytes; of a larger one only kind and size.
func (p *packFiles) read(h Hash, max int64) (obj object.Object, size int64, err error) {
	err = p.find(h, func(pack *packFile, at int64) error {
		obj, size, err = p.object(pack, at, max)
		return err
	})
	return obj, size, err
}

// has tells whether a pack that is there now has the object, so that it need not be
// written again. As git does, it marks the pack as in use: nothing in it counts as long
// unused then, also where no ref reaches it yet.
func (p *packFiles) has(h Hash) bool {
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
	if p.find(h, func(pack *packFile, _ int64) error { return pack.freshen() }) != nil {
		return false
	}
	p.unnamed.Add(1) // whoever put it there may still be about to wait for its name
	return true
}

// each calls f with every object of the packs. An object that cannot be read here is an
// error, and so is a pack that cannot be opened: nothing is left out.
func (p *packFiles) each(f func(Hash, object.Object) error) error {
	set, err := p.load()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(p.dir, "*.pack"))
	if err != nil || len(files) != len(set.packs) {
		return fmt.Errorf("%d of %d packs can be read: %w", len(set.packs), len(files), errNoObject)
	}
	for _, pack := range set.packs {
		var name [20]byte
		for i := range int64(pack.fan[255]) {
			if _, err := pack.index.ReadAt(name[:], idxHead+i*20); err != nil {
				return err
			}
			at, err := pack.offset(i)
			if err != nil {
				return err
			}
			obj, size, err := p.object(pack, at, inMemoryMax)
			if err == nil && size > inMemoryMax {
				err = errNoObject
			}
			if err == nil {
				err = f(Hash(hex.EncodeToString(name[:])), obj)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// distrust makes has say no, for as long as objects are being removed.
func (p *packFiles) distrust(yes bool) {
	p.trust.Lock()
	defer p.trust.Unlock()
	p.doubt = yes
}

// count is how many packs there are.
func (p *packFiles) count() int {
	set, err := p.load()
	if err != nil {
		return 0
	}
	return len(set.packs)
}

// find looks an object up and lets use read it. What is not in the packs that are open
// may be in one that came later.
func (p *packFiles) find(h Hash, use func(*packFile, int64) error) error {
	name, err := hex.DecodeString(string(h))
	if err != nil || len(name) != len(objectName{}) {
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
			at, ok, err := pack.find(name)
			if err == nil && ok {
				err = use(pack, at)
			}
			if err == nil && ok {
				return nil
			}
			// It was closed or removed meanwhile, or cannot be read: another may have it, too.
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

// load opens the packs that are new and closes those that are gone.
func (p *packFiles) load() (*packSet, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Before the folder is read: what comes while it is read changes it again.
	now := &packSet{state: p.state()}
	was := p.packs.Load()
	if was != nil && was.state == now.state {
		return was, nil
	}
	files, err := os.ReadDir(p.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list the packs: %w", err)
	}
	kept := map[string]*packFile{}
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
			if pack, err = openIndex(p.dir, name); err != nil {
				continue // git itself has to say what is the matter with it
			}
			_, pack.cruft = slices.BinarySearchFunc(files, name+".mtimes", func(f os.DirEntry, name string) int {
				return strings.Compare(f.Name(), name)
			})
		}
		delete(kept, name)
		now.packs = append(now.packs, pack)
	}
	// Most objects are in the largest pack, but who reads them asks for what is new:
	// small packs are also the quickest to ask.
	sort.SliceStable(now.packs, func(i, j int) bool { return now.packs[i].size < now.packs[j].size })
	p.packs.Store(now)
	for _, pack := range kept {
		pack.close()
		p.cache.drop(pack)
	}
	if p.idle == nil {
		p.idle = time.AfterFunc(readerIdle, p.rest)
	}
	return now, nil
}

// rest closes everything when nothing was read for a while.
func (p *packFiles) rest() {
	if !p.used.Swap(false) {
		p.close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle != nil {
		p.idle.Reset(readerIdle)
	}
}

// close closes all files. What is read after opens them anew.
func (p *packFiles) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
	if was := p.packs.Swap(nil); was != nil {
		for _, pack := range was.packs {
			pack.close()
		}
	}
	p.cache.empty()
}

// openIndex opens the index of a pack; the pack itself is opened when it is needed.
func openIndex(dir, name string) (_ *packFile, err error) {
	f, err := os.Open(filepath.Join(dir, name+".idx"))
	if err != nil {
		return nil, err
	}
	pack := &packFile{name: filepath.Join(dir, name), index: f, closer: f}
	defer func() {
		if err != nil || pack.closer == nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if pack.size = info.Size(); pack.size <= indexMemory {
		data := make([]byte, pack.size)
		if _, err := io.ReadFull(f, data); err != nil {
			return nil, err
		}
		pack.index, pack.closer = bytes.NewReader(data), nil
	}
	head := make([]byte, idxHead)
	if _, err := pack.index.ReadAt(head, 0); err != nil {
		return nil, err
	}
	if string(head[:8]) != idxMagic {
		return nil, errors.New("an index of an unknown version")
	}
	for i := range pack.fan {
		pack.fan[i] = binary.BigEndian.Uint32(head[8+4*i:])
		if i > 0 && pack.fan[i] < pack.fan[i-1] {
			return nil, errors.New("a damaged index")
		}
	}
	// A table of objects with other names has another length.
	n := int64(pack.fan[255])
	far := pack.size - idxHead - n*(20+4+4) - 2*20
	if far < 0 || far%8 != 0 || far > 8*n {
		return nil, errors.New("a damaged index")
	}
	return pack, nil
}

const (
	idxMagic = "\xfftOc\x00\x00\x00\x02"
	idxHead  = 8 + 256*4
)

// findNames is how many names are read together, which costs as much as one. An object is
// looked for in every pack, so what they are read into is kept.
const findNames = 32

var findWindows = sync.Pool{New: func() any { return new([findNames * 20]byte) }}

// find returns where in the pack an object begins.
func (p *packFile) find(name []byte) (at int64, ok bool, err error) {
	lo, hi := int64(0), int64(p.fan[name[0]])
	if name[0] > 0 {
		lo = int64(p.fan[name[0]-1])
	}
	window := findWindows.Get().(*[findNames * 20]byte)
	defer findWindows.Put(window)
	for lo < hi {
		n := min(hi-lo, findNames)
		from := lo + (hi-lo-n)/2
		b := window[:n*20]
		if _, err := p.index.ReadAt(b, idxHead+from*20); err != nil {
			return 0, false, err
		}
		i := int64(sort.Search(int(n), func(i int) bool { return bytes.Compare(b[i*20:(i+1)*20], name) >= 0 }))
		switch {
		case i < n && bytes.Equal(b[i*20:(i+1)*20], name):
			at, err := p.offset(from + i)
			return at, err == nil, err
		case i == 0:
			hi = from
		case i == n:
			lo = from + n
		default:
			return 0, false, nil
		}
	}
	return 0, false, nil
}

// offset is where the object begins that is the nth by name.
func (p *packFile) offset(nth int64) (int64, error) {
	n := int64(p.fan[255])
	var b [8]byte
	if _, err := p.index.ReadAt(b[:4], idxHead+n*(20+4)+nth*4); err != nil {
		return 0, err
	}
	at := binary.BigEndian.Uint32(b[:4])
	if at < 1<<31 {
		return int64(at), nil
	}
	if _, err := p.index.ReadAt(b[:], idxHead+n*(20+4+4)+int64(at&(1<<31-1))*8); err != nil {
		return 0, err
	}
	return int64(binary.BigEndian.Uint64(b[:]) &^ (1 << 63)), nil
}

// freshEvery is how often a pack is marked as in use; git waits for weeks before it
// removes what is not.
const freshEvery = 10 * time.Minute

// freshen marks the pack as in use.
func (p *packFile) freshen() error {
	if p.cruft {
		return errNoObject
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.fresh) < freshEvery {
		return nil
	}
	if err := os.Chtimes(p.name+".pack", now, now); err != nil {
		return err
	}
	p.fresh = now
	return nil
}

// open returns the pack's file.
func (p *packFile) open() (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil, os.ErrClosed
	}
	if p.file == nil {
		f, err := os.Open(p.name + ".pack")
		if err != nil {
			return nil, err
		}
		p.file = f
	}
	return p.file, nil
}

func (p *packFile) close() {
	if p.closer != nil {
		p.closer.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
}

// object reads the object that begins at a place of the pack: a chain of deltas down to
// an object that stands for itself, applied in the other direction.
func (p *packFiles) object(pack *packFile, at, max int64) (object.Object, int64, error) {
	f, err := pack.open()
	if err != nil {
		return object.Object{}, 0, err
	}
	var chain []link
	var size, together int64
	obj, known := object.Object{}, false
	for !known {
		if obj, known = p.cache.get(pack, at); known {
			break
		}
		in := readersAt.get(f, at)
		kind, n, base, err := entryHead(in, pack, at)
		switch {
		case err != nil:
		case kind <= packTag:
			obj.Kind = packKinds[kind]
			if len(chain) == 0 {
				size = n
			}
			switch {
			case len(chain) == 0 && n > max, len(chain) > 0 && size > max:
				known = true // kind and size were asked for
			case n > inMemoryMax:
				err = errNoObject
			default:
				obj.Data, err = in.inflate(n)
				known = err == nil
			}
			if known && len(chain) > 0 && obj.Data != nil {
				p.cache.put(pack, at, obj)
			}
		case len(chain) == chainMax:
			err = errNoObject
		case len(chain) == 0 || size <= max:
			if together += n; n > inMemoryMax || together > chainBytes {
				err = errNoObject
				break
			}
			l := link{at: at}
			if l.delta, err = in.inflate(n); err == nil && len(chain) == 0 {
				_, size, _, err = deltaHead(l.delta)
			}
			chain, at = append(chain, l), base
		default: // only its kind is still to be found
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
	for i := len(chain) - 1; i >= 0; i-- {
		if obj.Data, err = applyDelta(obj.Data, chain[i].delta); err != nil {
			return object.Object{}, 0, fmt.Errorf("cannot read an object of %s at %d: %w", filepath.Base(pack.name), chain[i].at, err)
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
	delta []byte
}

var packKinds = [...]string{packCommit: "commit", 2: "tree", 3: "blob", packTag: "tag"}

// entryHead reads what stands in front of an object's data; base is where the object
// begins that a delta is to be applied to.
func entryHead(in *readerAt, pack *packFile, at int64) (kind byte, size, base int64, err error) {
	kind, size, err = objectHeader(in)
	switch {
	case err != nil:
	case kind == packOfsDelta:
		var back int64
		if back, err = deltaOffset(in); err == nil && (back <= 0 || back > at-packHead) {
			err = errNoObject
		}
		base = at - back
	case kind == packRefDelta:
		var name objectName
		if _, err = io.ReadFull(in, name[:]); err != nil {
			break
		}
		var ok bool
		base, ok, err = pack.find(name[:])
		if err == nil && !ok {
			err = errNoObject
		}
	case kind < packCommit || kind > packTag:
		err = errNoObject
	}
	return kind, size, base, err
}

// deltaHead reads the sizes of what a delta is applied to and of what it makes.
func deltaHead(delta []byte) (from, to int64, rest []byte, err error) {
	in := bytes.NewReader(delta)
	if from, err = deltaSize(in); err == nil {
		to, err = deltaSize(in)
	}
	return from, to, delta[len(delta)-in.Len():], err
}

var errDelta = errors.New("a damaged delta")

// applyDelta makes an object from another one.
func applyDelta(base, delta []byte) ([]byte, error) {
	from, to, ops, err := deltaHead(delta)
	if err != nil || from != int64(len(base)) || to > inMemoryMax {
		return nil, errDelta
	}
	out := make([]byte, 0, to)
	for len(ops) > 0 {
		op := ops[0]
		ops = ops[1:]
		if op&0x80 == 0 { // the next op bytes are new
			if op == 0 || int(op) > len(ops) || int64(len(out))+int64(op) > to {
				return nil, errDelta
			}
			out, ops = append(out, ops[:op]...), ops[op:]
			continue
		}
		var at, n uint32
		for bit := range 7 {
			if op>>bit&1 == 0 {
				continue
			}
			if len(ops) == 0 {
				return nil, errDelta
			}
			if bit < 4 {
				at |= uint32(ops[0]) << (8 * bit)
			} else {
				n |= uint32(ops[0]) << (8 * (bit - 4))
			}
			ops = ops[1:]
		}
		if n == 0 {
			n = 0x10000
		}
		if int64(at)+int64(n) > from || int64(len(out))+int64(n) > to {
			return nil, errDelta
		}
		out = append(out, base[at:at+n]...)
	}
	if int64(len(out)) != to {
		return nil, errDelta
	}
	return out, nil
}

// readerAt reads a pack from one place on. They are kept: what inflates an object is
// larger than most objects.
type readerAt struct {
	*bufio.Reader
	zip io.ReadCloser
}

type readerPool struct{ pool sync.Pool }

var readersAt readerPool

func (p *readerPool) get(f io.ReaderAt, at int64) *readerAt {
	in, ok := p.pool.Get().(*readerAt)
	if !ok {
		in = &readerAt{Reader: bufio.NewReaderSize(nil, 4096)}
	}
	in.Reset(io.NewSectionReader(f, at, 1<<62-at))
	return in
}

func (p *readerPool) put(in *readerAt) {
	in.Reset(nil)
	p.pool.Put(in)
}

// inflate returns the size bytes that come next, compressed.
func (r *readerAt) inflate(size int64) ([]byte, error) {
	var err error
	if r.zip == nil {
		r.zip, err = zlib.NewReader(r)
	} else {
		err = r.zip.(zlib.Resetter).Reset(r, nil)
	}
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r.zip, data); err != nil {
		return nil, err
	}
	// Behind the data comes its checksum, which is looked at with the end.
	if n, err := r.zip.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		return nil, errors.New("a damaged object")
	}
	return data, nil
}

// baseCache keeps objects that others are made from, the last used.
type baseCache struct {
	mu    sync.Mutex // guards all fields
	items map[baseKey]*list.Element
	order list.List
	bytes int64
}

type baseKey struct {
	pack *packFile
	at   int64
}

type baseItem struct {
	key baseKey
	obj object.Object
}

func (c *baseCache) get(pack *packFile, at int64) (object.Object, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[baseKey{pack, at}]
	if !ok {
		return object.Object{}, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*baseItem).obj, true
}

func (c *baseCache) put(pack *packFile, at int64, obj object.Object) {
	key := baseKey{pack, at}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.items[key] != nil || len(obj.Data) > baseCacheBytes/4 {
		return
	}
	if c.items == nil {
		c.items = map[baseKey]*list.Element{}
	}
	c.items[key] = c.order.PushFront(&baseItem{key, obj})
	for c.bytes += int64(len(obj.Data)); c.bytes > baseCacheBytes; {
		last := c.order.Remove(c.order.Back()).(*baseItem)
		delete(c.items, last.key)
		c.bytes -= int64(len(last.obj.Data))
	}
}

// drop forgets the objects of a pack, which would keep its index in memory.
func (c *baseCache) drop(pack *packFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.items {
		if key.pack == pack {
			c.bytes -= int64(len(e.Value.(*baseItem).obj.Data))
			c.order.Remove(e)
			delete(c.items, key)
		}
	}
}

func (c *baseCache) empty() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.items)
	c.order.Init()
	c.bytes = 0
}
