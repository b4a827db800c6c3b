package gitd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// refView has a repository's refs in memory as protocol v2 shows them, sorted, each with its line of ls-refs. It
// is never older than the disk. Before each use the signatures of HEAD, of packed-refs and of the folders of loose
// refs are compared with those that were read before. Then only changed folders are read again, and in them only
// changed files. Git changes a ref by renaming a lock file, which changes the time of the folder. So a writer that
// follows the rules of git is noticed, whether it is this server or not. Concurrent callers of refresh share one
// comparison.
//
// A repository that keeps its refs in another way, or whose configuration says how it is to be read, has no view.
// Native git serves it.
type refView struct {
	repo *Repo
	look syncer

	mu sync.RWMutex // guards the fields below
	// own is the configuration of the repository.
	own     ownConfig
	ownSig  signature
	native  bool // only git can serve it
	shallow signature
	head    headRef
	headSig signature
	folders map[string]*refFolder // by name, "refs" and below
	packed  []packedRef
	packSig signature
	peeled  map[Hash]Hash // of the objects of loose refs, the object that a tag names in the end, "" for other objects
	refs    []shownRef    // sorted by name
	tips    map[Hash]int  // the number of refs at an object, which may be peeled
	// links are the names of the symbolic refs.
	links []string
	// deletedTips are the objects of the refs that the last refresh found deleted.
	deletedTips map[Hash]bool
	// version counts the changes of refs, so that results for one state are not used for another.
	version uint64
	// verdicts are the results for wants at the version verdictVersion.
	verdicts       map[wantVerdict]bool
	verdictVersion uint64
	// tags is one hash over all tags at the version tagsVersion.
	tags        string
	tagsVersion uint64
}

// headRef is the content of HEAD, the name of a ref or an object.
type headRef struct {
	target string
	hash   Hash
}

// shownRef is a ref and its line. Name and hash share the memory of the line.
type shownRef struct {
	name   string
	hash   Hash
	peeled Hash   // empty if the object is no tag
	target string // of a symbolic ref, the ref that it points to in the end
	line   string // the packet of ls-refs with all attributes
}

func newShownRef(name string, hash, peeled Hash, target string) shownRef {
	b := string(appendRef(nil, &shownRef{name: name, hash: hash, peeled: peeled, target: target}, true, true))
	at := 4 + len(hash) + 1
	return shownRef{name: b[at : at+len(name)], hash: Hash(b[4 : at-1]), peeled: peeled, target: target, line: b}
}

// appendRef appends the packet of a ref.
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

// errNative means that only git can serve a repository.
var errNative = errors.New("its refs are not read in process")

// refresh brings the view to the state of the disk. Returns [errNative] if there is no view.
func (v *refView) refresh(ctx context.Context) error {
	// Other callers wait for the result, too, so it must not depend on the patience of one client.
	err := v.look.share(func() error { return v.readAll(context.WithoutCancel(ctx)) })
	if err != nil && !errors.Is(err, errNative) {
		return fmt.Errorf("cannot read the refs of %s: %w", v.repo.name, err)
	}
	return err
}

// noteDeleted is called when this server has deleted refs. Replies that are kept for wants at these refs go at
// once, not at the next request.
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

// readAll is refresh for one caller at a time, so it reads the fields without the lock. It takes the lock to
// change them.
func (v *refView) readAll(ctx context.Context) error {
	if err := v.readConfig(); err != nil {
		return err
	}
	if v.native {
		return errNative
	}
	c := &refChanges{folders: map[string]*refFolder{}, names: map[string]bool{}}
	// Loose refs come first. Git writes packed-refs before it removes a loose file, so a ref that vanishes from a
	// folder is found there.
	if err := v.readFolder(c, "refs"); err != nil {
		return err
	}
	packSig, err := statSignature(v.filePath("packed-refs"))
	if err != nil {
		return err
	}
	if !v.packSig.matches(packSig) || v.folders == nil {
		if c.packed, c.packSig, err = v.readPacked(); err != nil {
			return err
		}
		c.repacked = true
	}
	headSig, err := statSignature(v.filePath("HEAD"))
	if err != nil {
		return err
	}
	c.head, c.headSig = v.head, v.headSig
	if !v.headSig.matches(headSig) {
		if c.head, err = v.readHead(); err != nil {
			return err
		}
		c.headSig = headSig
	}

	shallow, err := statSignature(v.filePath("shallow"))
	if err != nil {
		return err
	}
	if c.isEmpty() && c.head == v.head && c.headSig == v.headSig && shallow == v.shallow {
		return nil
	}
	peeled, err := v.peelNew(ctx, c)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shallow, v.peeled = shallow, peeled
	v.applyChanges(c)
	if len(v.deletedTips) > 0 {
		v.repo.server.clones.Forget(cloneRepo{v.repo}, v.deletedTips)
		v.deletedTips = nil
	}
	return nil
}

func (v *refView) filePath(name string) string {
	return filepath.Join(v.repo.dir, filepath.FromSlash(name))
}

// readConfig finds out whether the repository may be served in process.
func (v *refView) readConfig() error {
	sig, err := statSignature(v.filePath("config"))
	if err != nil {
		return err
	}
	if v.ownSig.matches(sig) {
		return nil
	}
	own, err := readOwnConfig(v.repo.dir)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.own, v.ownSig, v.native = own, sig, own.needsGit() || v.repo.reftable()
	return nil
}

// needsGit reports whether the file has a key that changes the answers of upload-pack or receive-pack.
func (o ownConfig) needsGit() bool {
	for key, value := range o {
		section, _, _ := strings.Cut(key, ".")
		switch section {
		case "uploadpack", "uploadpackfilter", "receive", "repack", "transfer", "lsrefs", "protocol", "include",
			"includeif", "extensions":
			if key != "extensions.objectformat" || value != "sha1" {
				return true
			}
		}
	}
	return false
}

// configuration returns the configuration of the repository. It is read again if the file changed.
func (v *refView) configuration() (ownConfig, error) {
	sig, err := statSignature(v.filePath("config"))
	if err != nil {
		return nil, err
	}
	v.mu.RLock()
	own, known := v.own, v.ownSig.matches(sig)
	v.mu.RUnlock()
	if known {
		return own, nil
	}
	return readOwnConfig(v.repo.dir)
}

// applyChanges updates the view. The caller holds the lock.
func (v *refView) applyChanges(c *refChanges) {
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
	// A link changes with its target, wherever that is.
	for _, name := range v.links {
		c.names[name] = true
	}
	// Each insertion moves all refs after it.
	if first || c.repacked || len(c.names) > 64 && len(c.names) > len(v.refs)/64 {
		v.rebuild()
		return
	}
	for name := range c.names {
		v.updateRef(name)
	}
	if c.relinked {
		v.listLinks()
	}
}

// isTip reports whether a ref is at an object, or at a tag that names it.
func (v *refView) isTip(h Hash) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.tips[h] > 0
}

// isSymbolic reports whether a ref is symbolic.
func (v *refView) isSymbolic(name string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	l, _ := v.findLoose(name)
	return l.target != ""
}

// findLoose returns a loose ref by its name.
func (v *refView) findLoose(name string) (looseRef, bool) {
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

// resolveRef follows a ref through symbolic refs to an object.
func (v *refView) resolveRef(name string) (target string, hash Hash, packed *packedRef) {
	for range 5 { // as many as git follows
		l, ok := v.findLoose(name)
		if !ok {
			i, ok := slices.BinarySearchFunc(v.packed, name,
				func(p packedRef, n string) int { return strings.Compare(p.Name, n) })
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

// showRef returns a ref as it is shown. Returns false if it is not shown.
func (v *refView) showRef(name string) (shownRef, bool) {
	target, hash, packed := v.resolveRef(name)
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
		return shownRef{}, false // git leaves out refs to missing objects, too
	}
	return newShownRef(name, hash, peeled, target), true
}

// searchRef returns the position at which a ref is, or would be.
func (v *refView) searchRef(name string) (int, bool) {
	return slices.BinarySearchFunc(v.refs, name, func(r shownRef, n string) int { return strings.Compare(r.name, n) })
}

// updateRef updates one ref.
func (v *refView) updateRef(name string) {
	is, ok := v.showRef(name)
	i, was := v.searchRef(name)
	switch {
	case was && ok && v.refs[i].line == is.line:
		return
	case was:
		v.countTips(&v.refs[i], -1)
		if !ok {
			v.noteGone(&v.refs[i])
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
		v.countTips(&is, 1)
	}
	v.version++
}

// countTips adds n to the counts of a ref's objects.
func (v *refView) countTips(r *shownRef, n int) {
	for _, h := range []Hash{r.hash, r.peeled} {
		if h == "" {
			continue
		}
		if v.tips[h] += n; v.tips[h] <= 0 {
			delete(v.tips, h)
		}
	}
}

// noteGone records that a ref was deleted.
func (v *refView) noteGone(r *shownRef) {
	if v.deletedTips == nil {
		v.deletedTips = map[Hash]bool{}
	}
	v.deletedTips[r.hash] = true
}

// rebuild makes the list of refs from the folders and packed-refs.
func (v *refView) rebuild() {
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
		if r, ok := v.showRef(name); ok {
			v.refs = append(v.refs, r)
			v.countTips(&r, 1)
		}
	}
	for i := range before {
		if _, ok := v.searchRef(before[i].name); !ok {
			v.noteGone(&before[i])
		}
	}
	v.listLinks()
	v.version++
}

// listLinks lists the symbolic refs.
func (v *refView) listLinks() {
	v.links = v.links[:0]
	for folder, f := range v.folders {
		for file, l := range f.files {
			if l.target != "" {
				v.links = append(v.links, folder+"/"+file)
			}
		}
	}
}

// eachRef calls yield for the refs that a grant shows and whose name has one of the prefixes, in order. Without
// prefixes it calls yield for all of them. The caller holds the lock.
func (v *refView) eachRef(g Grant, prefixes []string, yield func(*shownRef)) {
	if len(g.Read) == 0 {
		if len(prefixes) == 0 {
			prefixes = []string{""}
		}
		for _, p := range dropCovered(prefixes) {
			for i := v.firstWith(p); i < len(v.refs) && strings.HasPrefix(v.refs[i].name, p); i++ {
				yield(&v.refs[i])
			}
		}
		return
	}
	var shown []int
	for _, pattern := range slices.Concat(g.Read, g.Write) {
		prefix, many := strings.CutSuffix(pattern, "*")
		for i := v.firstWith(prefix); i < len(v.refs) && strings.HasPrefix(v.refs[i].name, prefix); i++ {
			if g.Shows(v.refs[i].name) && hasAnyPrefix(v.refs[i].name, prefixes) {
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

// firstWith returns the position of the first name with a prefix.
func (v *refView) firstWith(prefix string) int {
	return sort.Search(len(v.refs), func(i int) bool { return v.refs[i].name >= prefix })
}

// dropCovered sorts prefixes and leaves out those that another one covers.
func dropCovered(prefixes []string) []string {
	sorted := slices.Sorted(slices.Values(prefixes))
	out := sorted[:0]
	for _, p := range sorted {
		if len(out) == 0 || !strings.HasPrefix(p, out[len(out)-1]) {
			out = append(out, p)
		}
	}
	return out
}

func hasAnyPrefix(name string, prefixes []string) bool {
	return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// lsRefs returns the answer to ls-refs.
func (v *refView) lsRefs(g Grant, q *protocol.RefsRequest) []byte {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var b []byte
	if len(q.Prefixes) == 0 && len(g.Read) == 0 {
		b = make([]byte, 0, len(v.refs)*120+256)
	}
	if head, ok := v.showHead(g); ok && hasAnyPrefix("HEAD", q.Prefixes) {
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

// pushAdvert returns the refs that a grant shows, as the first packets of a push with the capabilities of git.
// Returns false if git has more to say.
func (v *refView) pushAdvert(g Grant, capabilities string) ([]byte, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if !v.shallow.isMissing() {
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

// showHead returns HEAD as a grant shows it. It has no hash if its branch does not exist yet.
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
	target, _, _ := v.resolveRef(v.head.target)
	if len(g.Read) > 0 && !g.Shows(target) {
		return shownRef{}, false
	}
	r, _ := v.showRef(v.head.target)
	r.name, r.target = "HEAD", target
	return r, true
}

// shallowState returns a word for the way in which the repository's own history is cut, or "".
func (v *refView) shallowState() string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.shallow.isMissing() {
		return ""
	}
	return v.shallow.String()
}

// tagState returns a word for all tags, which is "" if there are none, and whether the grant shows all of them.
func (v *refView) tagState(g Grant) (state string, all bool) {
	const tags = "refs/tags/"
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	if v.tagsVersion != v.version {
		h := sha256.New()
		v.eachRef(Grant{}, []string{tags}, func(r *shownRef) {
			n++
			io.WriteString(h, r.line)
		})
		v.tags, v.tagsVersion = "", v.version
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
