package gitd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
	"golang.org/x/sys/unix"
)

// refView is a repository's refs in memory, as protocol v2 shows them: sorted, each
// with its line of ls-refs. It is never behind the disk: before each use the signatures
// of HEAD, of packed-refs and of the folders of loose refs are compared with those that
// were read, and what changed is read anew: a folder whose time moved, and in it the files that are
// other files than before. Git changes a ref by renaming a lock file into its place, which moves
// the folder's time, so whoever writes refs by git's rules is noticed, this server or not.
// Who asks while another looks waits for the next look together with all others who do.
//
// A repository that keeps its refs in another way, or whose configuration says how it
// is to be read, has no snapshot: native git serves it.
type refView struct {
	repo *Repo
	look syncer

	mu sync.RWMutex // guards all fields below
	// own is the repository's configuration.
	own     ownConfig
	ownSig  signature
	native  bool // only git can serve it
	shallow signature
	head    headRef
	headSig signature
	folders map[string]*refFolder // by name, "refs" and below
	packed  []packedRef
	packSig signature
	peeled  map[Hash]Hash // of objects of loose refs that were looked at: what a tag stands for; empty: no tag
	refs    []shownRef    // sorted by name
	tips    map[Hash]int  // how many of refs, peeled too, are at an object
	// links are the names of symbolic refs among refs.
	links []string
	// gone is what refs that were deleted in this look were at.
	gone map[Hash]bool
	// turn counts the changes of refs, so that what was found out under one state is
	// not believed under another.
	turn uint64
	// verdicts are what was found out about wants when turn was verdictTurn.
	verdicts    map[wantVerdict]bool
	verdictTurn uint64
	// tags is one hash over all tags when turn was tagsTurn.
	tags     string
	tagsTurn uint64
}

// headRef is HEAD: the name of a ref, or an object.
type headRef struct {
	target string
	hash   Hash
}

// shownRef is a ref and its line. Name and hash are parts of the line.
type shownRef struct {
	name   string
	hash   Hash
	peeled Hash   // empty: no tag
	target string // of a symbolic ref: what it points to in the end
	line   string // the packet of ls-refs that tells all of it
}

func newShownRef(name string, hash, peeled Hash, target string) shownRef {
	b := string(appendRef(nil, &shownRef{name: name, hash: hash, peeled: peeled, target: target}, true, true))
	at := 4 + len(hash) + 1
	return shownRef{name: b[at : at+len(name)], hash: Hash(b[4 : at-1]), peeled: peeled, target: target, line: b}
}

// appendRef appends a ref's packet.
func appendRef(b []byte, r *shownRef, symrefs, peel bool) []byte {
	parts := []string{string(r.hash), " ", r.name, "", "", "", "", "\n"}
	if symrefs && r.target != "" {
		parts[3], parts[4] = " symref-target:", r.target
	}
	if peel && r.peeled != "" {
		parts[5], parts[6] = " peeled:", string(r.peeled)
	}
	return protocol.AppendLine(b, parts...)
}

// packedRef is a line of packed-refs, with what follows it.
type packedRef struct {
	Ref
	peeled Hash
}

// refFolder is a folder of loose refs.
type refFolder struct {
	sig   signature
	files map[string]looseRef // by the last part of the name
	subs  []string
}

// looseRef is a loose ref's file; neither hash nor target: it is damaged.
type looseRef struct {
	sig    signature
	hash   Hash
	target string
}

// signature tells a file from one that took its place or was written to. The zero
// signature is that of a file that is not there.
type signature struct {
	dev, ino, size int64
	mtime, ctime   unix.Timespec
	// young: the file was looked at so soon after its last change that another could
	// have the same times. It is no reason to believe that nothing happened.
	young bool
}

// youngFor is longer than the ticks of the clocks that file systems take their times from.
const youngFor = 100 * time.Millisecond

// sign looks at a file.
func sign(path string) (signature, error) {
	var st unix.Stat_t
	for {
		err := unix.Lstat(path, &st)
		switch {
		case err == nil:
			return signed(&st), nil
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			return signature{}, nil
		case !errors.Is(err, unix.EINTR):
			return signature{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
		}
	}
}

func signed(st *unix.Stat_t) signature {
	s := signature{dev: int64(st.Dev), ino: int64(st.Ino), size: st.Size, mtime: st.Mtim, ctime: st.Ctim}
	// The system's clock, whatever the server's says: it is compared with that of files.
	limit := time.Now().Add(-youngFor).UnixNano()
	s.young = st.Mtim.Nano() > limit || st.Ctim.Nano() > limit
	return s
}

// gone says that there was no file.
func (s signature) gone() bool { return s == signature{} }

// still says whether now is surely the same content as was read under s.
func (s signature) still(now signature) bool {
	if s.young {
		return false
	}
	now.young = false
	return s == now
}

// String is the signature as part of a key.
func (s signature) String() string {
	return fmt.Sprintf("%x.%x.%x.%x.%x", s.dev, s.ino, s.size, s.mtime.Nano(), s.ctime.Nano())
}

// errNative says that only git can serve a repository.
var errNative = errors.New("its refs are not read in process")

// fresh brings the snapshot to what is on disk; errNative: there is none.
func (v *refView) refresh(ctx context.Context) error {
	// Others wait for the outcome, too: it must not depend on one client's patience.
	err := v.look.wait(func() error { return v.read(context.WithoutCancel(ctx)) })
	if err != nil && !errors.Is(err, errNative) {
		return fmt.Errorf("cannot read the refs of %s: %w", v.repo.name, err)
	}
	return err
}

// noteDeleted is told that this server has deleted refs: what is kept for who asked for them goes
// at once, not when somebody next asks for anything.
func (v *refView) noteDeleted(ctx context.Context) {
	v.mu.RLock()
	known := v.folders != nil
	v.mu.RUnlock()
	if !known {
		return
	}
	if err := v.refresh(ctx); err != nil && !errors.Is(err, errNative) {
		v.repo.server.log().Warn("cannot follow deleted refs", "repo", v.repo.name, "err", err)
	}
}

// read is fresh for one look. Only one runs at a time, so that it may read the fields
// without the lock; it holds it to change them.
func (v *refView) read(ctx context.Context) error {
	if err := v.readConfig(); err != nil {
		return err
	}
	if v.native {
		return errNative
	}
	c := &refChanges{folders: map[string]*refFolder{}, names: map[string]bool{}}
	// Loose refs first: git writes packed-refs before it removes a loose file, so that
	// what is gone from the folders is found there.
	if err := v.readFolder(c, "refs"); err != nil {
		return err
	}
	packSig, err := sign(v.path("packed-refs"))
	if err != nil {
		return err
	}
	if !v.packSig.still(packSig) || v.folders == nil {
		if c.packed, c.packSig, err = v.readPacked(); err != nil {
			return err
		}
		c.repacked = true
	}
	headSig, err := sign(v.path("HEAD"))
	if err != nil {
		return err
	}
	c.head, c.headSig = v.head, v.headSig
	if !v.headSig.still(headSig) {
		if c.head, err = v.readHead(); err != nil {
			return err
		}
		c.headSig = headSig
	}
	shallow, err := sign(v.path("shallow"))
	if err != nil {
		return err
	}
	if c.nothing() && c.head == v.head && c.headSig == v.headSig && shallow == v.shallow {
		return nil
	}
	peeled, err := v.peel(ctx, c)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shallow, v.peeled = shallow, peeled
	v.apply(c)
	if len(v.gone) > 0 {
		v.repo.server.clones.Forget(cloneRepo{v.repo}, v.gone)
		v.gone = nil
	}
	return nil
}

func (v *refView) path(name string) string {
	return filepath.Join(v.repo.dir, filepath.FromSlash(name))
}

// readConfig finds out whether the repository may be served in process.
func (v *refView) readConfig() error {
	sig, err := sign(v.path("config"))
	if err != nil {
		return err
	}
	if v.ownSig.still(sig) {
		return nil
	}
	own, err := readOwnConfig(v.repo.dir)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.own, v.ownSig, v.native = own, sig, own.alien() || v.repo.reftable()
	return nil
}

// alien says whether the file names anything that changes what upload-pack or
// receive-pack tell a client.
func (o ownConfig) alien() bool {
	for key, value := range o {
		section, _, _ := strings.Cut(key, ".")
		switch section {
		case "uploadpack", "uploadpackfilter", "receive", "repack", "transfer", "lsrefs", "protocol", "include", "includeif", "extensions":
			if key != "extensions.objectformat" || value != "sha1" {
				return true
			}
		}
	}
	return false
}

// config is the repository's configuration, read when the file changed.
func (v *refView) config() (ownConfig, error) {
	sig, err := sign(v.path("config"))
	if err != nil {
		return nil, err
	}
	v.mu.RLock()
	own, known := v.own, v.ownSig.still(sig)
	v.mu.RUnlock()
	if known {
		return own, nil
	}
	return readOwnConfig(v.repo.dir)
}

// refChanges is what one look found to be other than before.
type refChanges struct {
	folders  map[string]*refFolder // read anew; nil: gone
	names    map[string]bool       // of loose refs that came, went or changed
	relinked bool                  // one of them is, or was, symbolic
	repacked bool
	packed   []packedRef
	packSig  signature
	head     headRef
	headSig  signature
}

func (c *refChanges) nothing() bool { return len(c.folders) == 0 && !c.repacked }

// readFolder looks at a folder and at those below.
func (v *refView) readFolder(c *refChanges, name string) error {
	if strings.Count(name, "/") > object.MaxRef/2 {
		return nil
	}
	sig, err := sign(v.path(name))
	if err != nil {
		return err
	}
	known := v.folders[name]
	if known != nil && known.sig.still(sig) {
		for _, sub := range known.subs {
			if err := v.readFolder(c, name+"/"+sub); err != nil {
				return err
			}
		}
		return nil
	}
	entries, err := os.ReadDir(v.path(name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		v.dropFolder(c, name)
		return nil
	} else if err != nil {
		return err
	}
	f := &refFolder{sig: sig, files: make(map[string]looseRef, len(entries))}
	for _, e := range entries {
		full := name + "/" + e.Name()
		if object.RefFault(full) != "" {
			continue // a lock file, or nothing of git's
		}
		if e.IsDir() {
			f.subs = append(f.subs, e.Name())
			continue
		}
		var was looseRef
		if known != nil {
			was = known.files[e.Name()]
		}
		is, err := v.readLoose(full, was)
		if errors.Is(err, fs.ErrNotExist) {
			continue // packed or deleted meanwhile
		} else if err != nil {
			return err
		}
		if is.hash != was.hash || is.target != was.target {
			c.names[full] = true
			c.relinked = c.relinked || is.target != "" || was.target != ""
		}
		f.files[e.Name()] = is
	}
	if known != nil {
		for file, was := range known.files {
			if _, ok := f.files[file]; !ok {
				c.names[name+"/"+file] = true
				c.relinked = c.relinked || was.target != ""
			}
		}
		for _, sub := range known.subs {
			if !slices.Contains(f.subs, sub) {
				v.dropFolder(c, name+"/"+sub)
			}
		}
	}
	c.folders[name] = f
	for _, sub := range f.subs {
		if err := v.readFolder(c, name+"/"+sub); err != nil {
			return err
		}
	}
	return nil
}

// dropFolder notes that a folder is gone, and what was in it.
func (v *refView) dropFolder(c *refChanges, name string) {
	known := v.folders[name]
	if known == nil {
		return
	}
	c.folders[name] = nil
	for file, was := range known.files {
		c.names[name+"/"+file] = true
		c.relinked = c.relinked || was.target != ""
	}
	for _, sub := range known.subs {
		v.dropFolder(c, name+"/"+sub)
	}
}

// readLoose reads a loose ref, unless it is the file that was read before.
func (v *refView) readLoose(name string, was looseRef) (looseRef, error) {
	sig, err := sign(v.path(name))
	if err != nil {
		return looseRef{}, err
	}
	if sig.gone() {
		return looseRef{}, fs.ErrNotExist
	}
	if was.sig.still(sig) {
		return was, nil
	}
	is := looseRef{sig: sig}
	b, err := readSmall(v.path(name))
	switch {
	case errors.Is(err, ErrTooLarge), errors.Is(err, syscall.EISDIR):
		return is, nil
	case err != nil:
		return is, err
	}
	text := strings.TrimSpace(string(b))
	if target, ok := strings.CutPrefix(text, "ref:"); ok {
		is.target = strings.TrimSpace(target)
	} else if h := Hash(text); len(h) == 40 && object.IsHex(text) {
		is.hash = h
	}
	return is, nil
}

func (v *refView) readHead() (headRef, error) {
	b, err := readSmall(v.path("HEAD"))
	if err != nil {
		return headRef{}, err
	}
	text := strings.TrimSpace(string(b))
	if target, ok := strings.CutPrefix(text, "ref:"); ok {
		return headRef{target: strings.TrimSpace(target)}, nil
	}
	if len(text) == 40 && object.IsHex(text) {
		return headRef{hash: Hash(text)}, nil
	}
	return headRef{}, nil
}

// readPacked reads packed-refs with the signature of the very file that was read.
func (v *refView) readPacked() ([]packedRef, signature, error) {
	f, err := os.Open(v.path("packed-refs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, signature{}, nil
	} else if err != nil {
		return nil, signature{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, signature{}, err
	}
	refs, err := parsePacked(f)
	return refs, signed(&st), err
}

// peel finds out what kind of object each new ref is at, and what a tag stands for.
func (v *refView) peel(ctx context.Context, c *refChanges) (map[Hash]Hash, error) {
	known := v.peeled
	var ask []Hash
	seen := map[Hash]bool{}
	need := func(h Hash) {
		if _, ok := known[h]; h != "" && !ok && !seen[h] {
			seen[h] = true
			ask = append(ask, h)
		}
	}
	for _, f := range c.folders {
		if f == nil {
			continue
		}
		for _, l := range f.files {
			need(l.hash)
		}
	}
	for _, p := range c.packed {
		if p.peeled == unpeeled {
			need(p.Hash)
		}
	}
	if len(ask) == 0 && known != nil {
		return known, nil
	}
	found, err := v.repo.objects.Kinds(ctx, ask)
	if err != nil {
		return nil, err
	}
	all := make(map[Hash]Hash, len(known)+len(found))
	// Those that no ref is at any more are forgotten when they are many.
	if len(known) < 2*(len(v.refs)+1000) {
		maps.Copy(all, known)
	} else {
		for _, r := range v.refs {
			if p, ok := known[r.hash]; ok {
				all[r.hash] = p
			}
		}
	}
	for h, o := range found {
		all[h] = o.Peeled
	}
	return all, nil
}

// unpeeled marks a packed ref of which the file does not say whether it is a tag.
const unpeeled Hash = "?"

// apply takes over what was found; v.mu is held.
func (v *refView) apply(c *refChanges) {
	first := v.folders == nil
	if first {
		v.folders = map[string]*refFolder{}
	}
	for name, f := range c.folders {
		if f == nil {
			delete(v.folders, name)
		} else {
			v.folders[name] = f
		}
	}
	v.head, v.headSig = c.head, c.headSig
	if c.repacked {
		v.packed, v.packSig = c.packed, c.packSig
	}
	// Links move with what they point to, wherever that is.
	for _, name := range v.links {
		c.names[name] = true
	}
	// Each change in place moves what follows it.
	if first || c.repacked || len(c.names) > 64 && len(c.names) > len(v.refs)/64 {
		v.merge()
		return
	}
	for name := range c.names {
		v.put(name)
	}
	if c.relinked {
		v.relink()
	}
}

// tip says whether a ref is at an object, or at a tag that stands for it.
func (v *refView) isTip(h Hash) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.tips[h] > 0
}

// symbolic says whether a ref is another name for one.
func (v *refView) isSymbolic(name string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	l, _ := v.loose(name)
	return l.target != ""
}

// loose is a loose ref by its name.
func (v *refView) loose(name string) (looseRef, bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return looseRef{}, false
	}
	f := v.folders[name[:i]]
	if f == nil {
		return looseRef{}, false
	}
	l, ok := f.files[name[i+1:]]
	return l, ok
}

// resolve follows a ref through symbolic refs to an object.
func (v *refView) resolve(name string) (target string, hash Hash, packed *packedRef) {
	for range 5 { // git follows as many
		l, ok := v.loose(name)
		if !ok {
			i, ok := slices.BinarySearchFunc(v.packed, name, func(p packedRef, n string) int { return strings.Compare(p.Name, n) })
			if !ok {
				return name, "", nil
			}
			return name, v.packed[i].Hash, &v.packed[i]
		}
		if l.target == "" {
			return name, l.hash, nil
		}
		name = l.target
	}
	return name, "", nil
}

// show is a ref as it is shown; false: it is not.
func (v *refView) show(name string) (shownRef, bool) {
	target, hash, packed := v.resolve(name)
	if hash == "" {
		return shownRef{}, false
	}
	if target == name {
		target = ""
	}
	if packed != nil && packed.peeled != unpeeled {
		return newShownRef(name, hash, packed.peeled, target), true
	}
	peeled, ok := v.peeled[hash]
	if !ok || peeled == pack.Missing {
		return shownRef{}, false // git, too, leaves out what points to nothing
	}
	return newShownRef(name, hash, peeled, target), true
}

// find is where a ref is, or would be.
func (v *refView) find(name string) (int, bool) {
	return slices.BinarySearchFunc(v.refs, name, func(r shownRef, n string) int { return strings.Compare(r.name, n) })
}

// put brings one ref up to date.
func (v *refView) put(name string) {
	is, ok := v.show(name)
	i, was := v.find(name)
	switch {
	case was && ok && v.refs[i].line == is.line:
		return
	case was:
		v.count(&v.refs[i], -1)
		if !ok {
			v.bury(&v.refs[i])
			v.refs = slices.Delete(v.refs, i, i+1)
		} else {
			v.refs[i] = is
		}
	case ok:
		v.refs = slices.Insert(v.refs, i, is)
	default:
		return
	}
	if ok {
		v.count(&is, 1)
	}
	v.turn++
}

// count counts a ref's objects in or out.
func (v *refView) count(r *shownRef, n int) {
	for _, h := range []Hash{r.hash, r.peeled} {
		if h == "" {
			continue
		}
		if v.tips[h] += n; v.tips[h] <= 0 {
			delete(v.tips, h)
		}
	}
}

// bury notes that a ref was deleted.
func (v *refView) bury(r *shownRef) {
	if v.gone == nil {
		v.gone = map[Hash]bool{}
	}
	v.gone[r.hash] = true
}

// merge makes refs anew.
func (v *refView) merge() {
	before := v.refs
	names := make([]string, 0, len(v.packed)+len(v.refs))
	for _, p := range v.packed {
		names = append(names, p.Name)
	}
	for folder, f := range v.folders {
		for file := range f.files {
			names = append(names, folder+"/"+file)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	v.refs, v.tips = make([]shownRef, 0, len(names)), make(map[Hash]int, len(names))
	for _, name := range names {
		if r, ok := v.show(name); ok {
			v.refs = append(v.refs, r)
			v.count(&r, 1)
		}
	}
	for i := range before {
		if _, ok := v.find(before[i].name); !ok {
			v.bury(&before[i])
		}
	}
	v.relink()
	v.turn++
}

// relink lists the symbolic refs.
func (v *refView) relink() {
	v.links = v.links[:0]
	for folder, f := range v.folders {
		for file, l := range f.files {
			if l.target != "" {
				v.links = append(v.links, folder+"/"+file)
			}
		}
	}
}

// each calls yield for the refs that a grant shows and whose name begins with one of
// the prefixes (none: all), in order; v.mu is held.
func (v *refView) eachRef(g Grant, prefixes []string, yield func(*shownRef)) {
	if len(g.Read) == 0 {
		if len(prefixes) == 0 {
			prefixes = []string{""}
		}
		for _, p := range apart(prefixes) {
			for i := v.from(p); i < len(v.refs) && strings.HasPrefix(v.refs[i].name, p); i++ {
				yield(&v.refs[i])
			}
		}
		return
	}
	var shown []int
	for _, pattern := range slices.Concat(g.Read, g.Write) {
		prefix, many := strings.CutSuffix(pattern, "*")
		for i := v.from(prefix); i < len(v.refs) && strings.HasPrefix(v.refs[i].name, prefix); i++ {
			if g.Shows(v.refs[i].name) && begins(v.refs[i].name, prefixes) {
				shown = append(shown, i)
			}
			if !many {
				break
			}
		}
	}
	slices.Sort(shown)
	for _, i := range slices.Compact(shown) {
		yield(&v.refs[i])
	}
}

// from is where the names begin that have a prefix.
func (v *refView) from(prefix string) int {
	return sort.Search(len(v.refs), func(i int) bool { return v.refs[i].name >= prefix })
}

// apart sorts prefixes and leaves out those that another one covers.
func apart(prefixes []string) []string {
	sorted := slices.Sorted(slices.Values(prefixes))
	out := sorted[:0]
	for _, p := range sorted {
		if len(out) == 0 || !strings.HasPrefix(p, out[len(out)-1]) {
			out = append(out, p)
		}
	}
	return out
}

func begins(name string, prefixes []string) bool {
	return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// list answers ls-refs.
func (v *refView) list(g Grant, q *protocol.RefsRequest) []byte {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var b []byte
	if len(q.Prefixes) == 0 && len(g.Read) == 0 {
		b = make([]byte, 0, len(v.refs)*120+256)
	}
	if head, ok := v.showHead(g); ok && begins("HEAD", q.Prefixes) {
		switch {
		case head.hash != "":
			b = appendRef(b, &head, q.Symrefs, q.Peel)
		case q.Unborn && q.Symrefs && head.target != "":
			b = protocol.AppendLine(b, "unborn HEAD symref-target:", head.target, "\n")
		}
	}
	v.eachRef(g, q.Prefixes, func(r *shownRef) {
		if q.Symrefs && q.Peel {
			b = append(b, r.line...)
		} else {
			b = appendRef(b, r, q.Symrefs, q.Peel)
		}
	})
	return append(b, protocol.FlushLine...)
}

// advertisePush lists what a grant shows as the first words of a push, with git's
// capabilities; false: git has to say more.
func (v *refView) advertisePush(g Grant, capabilities string) ([]byte, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if !v.shallow.gone() {
		return nil, false
	}
	var b []byte
	v.eachRef(g, nil, func(r *shownRef) {
		if b == nil {
			b = protocol.AppendLine(b, string(r.hash), " ", r.name, "\x00", capabilities, "\n")
		} else {
			b = protocol.AppendLine(b, string(r.hash), " ", r.name, "\n")
		}
	})
	if b == nil {
		b = protocol.AppendLine(b, strings.Repeat("0", 40), " capabilities^{}\x00", capabilities, "\n")
	}
	return append(b, protocol.FlushLine...), true
}

// showHead is HEAD as a grant shows it, without a hash when it is not born yet.
func (v *refView) showHead(g Grant) (shownRef, bool) {
	if len(g.Read) > 0 && !g.Shows(v.head.target) {
		return shownRef{}, false
	}
	if v.head.target == "" {
		return shownRef{name: "HEAD", hash: v.head.hash, peeled: v.peeled[v.head.hash]}, v.head.hash != ""
	}
	if object.RefFault(v.head.target) != "" || !strings.HasPrefix(v.head.target, "refs/") {
		return shownRef{}, false
	}
	target, _, _ := v.resolve(v.head.target)
	if len(g.Read) > 0 && !g.Shows(target) {
		return shownRef{}, false
	}
	r, _ := v.show(v.head.target)
	r.name, r.target = "HEAD", target
	return r, true
}

// parsePacked parses packed-refs with what it says of tags, sorted.
func parsePacked(in *os.File) ([]packedRef, error) {
	b, err := readAtMost(in, packedRefsMax)
	if err != nil {
		return nil, err
	}
	var refs []packedRef
	fully, tags := false, false
	text := string(b) // the names and hashes are parts of it
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
		case line[0] == '#':
			traits := strings.Fields(line)
			fully = fully || slices.Contains(traits, "fully-peeled")
			tags = tags || slices.Contains(traits, "peeled")
		case line[0] == '^':
			if len(refs) == 0 || len(line) != 41 || !object.IsHex(line[1:]) {
				return nil, fmt.Errorf("the packed refs are damaged at line %.100q", line)
			}
			refs[len(refs)-1].peeled = Hash(line[1:])
		default:
			h, name, ok := strings.Cut(line, " ")
			if !ok || len(h) != 40 || !object.IsHex(h) || name == "" {
				return nil, fmt.Errorf("the packed refs are damaged at line %.100q", line)
			}
			p := packedRef{Ref: Ref{Name: name, Hash: Hash(h)}}
			if !fully && !(tags && strings.HasPrefix(name, "refs/tags/")) {
				p.peeled = unpeeled
			}
			refs = append(refs, p)
		}
	}
	byName := func(a, b packedRef) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(refs, byName) {
		slices.SortFunc(refs, byName)
	}
	return slices.DeleteFunc(refs, func(p packedRef) bool { return object.RefFault(p.Name) != "" }), nil
}

// packedRefsMax bounds the packed-refs file: some millions of refs.
const packedRefsMax = 512 << 20

func readAtMost(f *os.File, max int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > max {
		return nil, fmt.Errorf("%s has more than %d bytes: %w", filepath.Base(f.Name()), max, ErrTooLarge)
	}
	var b bytes.Buffer
	b.Grow(int(info.Size()) + 512)
	_, err = b.ReadFrom(f)
	return b.Bytes(), err
}

// shallowState tells whether, and how, the repository's own history is cut.
func (v *refView) shallowState() string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.shallow.gone() {
		return ""
	}
	return v.shallow.String()
}

// tagState is one word for all tags, empty when there are none, and whether the grant shows all.
func (v *refView) tagState(g Grant) (state string, all bool) {
	const tags = "refs/tags/"
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	if v.tagsTurn != v.turn {
		h := sha256.New()
		v.eachRef(Grant{}, []string{tags}, func(r *shownRef) {
			n++
			io.WriteString(h, r.line)
		})
		v.tags, v.tagsTurn = "", v.turn
		if n > 0 {
			v.tags = string(h.Sum(nil))
		}
	}
	if v.tags == "" || len(g.Read) == 0 {
		return v.tags, true
	}
	all = true
	v.eachRef(Grant{}, []string{tags}, func(r *shownRef) { all = all && g.Shows(r.name) })
	return v.tags, all
}
