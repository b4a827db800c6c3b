// Package refview has the refs of a repository in memory as protocol v2 shows them, so that a list of refs, the first
// packets of a push and the check of wants need no git.
package refview

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

	"github.com/ramus-dev/ramus/gitd/gitfile"
	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
	"github.com/ramus-dev/ramus/internal/shared"
)

// View has a repository's refs in memory as protocol v2 shows them, sorted, each with its line of ls-refs. After
// [View.Refresh] it is not older than the disk. Refresh compares the signatures of HEAD, of packed-refs and of the folders
// of loose refs with those that were read before. Then only changed folders are read again, and in them only changed
// files. Git changes a ref by renaming a lock file, which changes the time of the folder. So a writer that follows the
// rules of git is noticed, whether it is this server or not. Concurrent callers of Refresh share one comparison.
//
// A repository that keeps its refs in another way, or whose configuration says how it is to be read, has no view.
// Native git serves it.
//
// The exported fields are set before the first use. A View is safe for concurrent use.
type View struct {
	Dir     string       // the folder of the repository
	Name    string       // of the repository, for errors
	Objects *pack.Reader // the objects of the repository
	// Unreached returns one of the commits that no tip reaches, or "" if there is none.
	Unreached func(ctx context.Context, commits, tips []object.Hash) (object.Hash, error)
	// Deleted is called with the objects of refs that a refresh found deleted. It must not call methods of the view.
	Deleted func(tips map[object.Hash]bool)

	look shared.Call

	mu sync.RWMutex // guards the fields below
	// own is the configuration of the repository.
	own     gitfile.Config
	ownSig  gitfile.Signature
	native  bool // only git can serve it
	shallow gitfile.Signature
	head    headRef
	headSig gitfile.Signature
	folders map[string]*refFolder // by name, "refs" and below
	packed  []packedRef
	packSig gitfile.Signature
	peeled  map[object.Hash]object.Hash // of the objects of loose refs, the object that a tag names in the end, "" for other objects
	refs    []Ref                       // sorted by name
	tips    map[object.Hash]int         // the number of refs at an object, which may be peeled
	// links are the names of the symbolic refs.
	links []string
	// deletedTips are the objects of the refs that the last refresh found deleted.
	deletedTips map[object.Hash]bool
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
	hash   object.Hash
}

// Ref is a ref and its line. Name and Hash share the memory of the line.
type Ref struct {
	Name   string
	Hash   object.Hash
	Peeled object.Hash // the object that a tag names in the end, "" if Hash is no tag
	Target string      // of a symbolic ref, the ref that it points to in the end
	line   string      // the packet of ls-refs with all attributes
}

func newRef(name string, hash, peeled object.Hash, target string) Ref {
	b := string(appendRef(nil, &Ref{Name: name, Hash: hash, Peeled: peeled, Target: target}, true, true))
	at := 4 + len(hash) + 1
	return Ref{Name: b[at : at+len(name)], Hash: object.Hash(b[4 : at-1]), Peeled: peeled, Target: target, line: b}
}

// appendRef appends the packet of a ref.
func appendRef(b []byte, r *Ref, symrefs, peel bool) []byte {
	parts := []string{string(r.Hash), " ", r.Name, "", "", "", "", "\n"}
	if symrefs && r.Target != "" {
		parts[3], parts[4] = " symref-target:", r.Target
	}
	if peel && r.Peeled != "" {
		parts[5], parts[6] = " peeled:", string(r.Peeled)
	}
	return protocol.AppendLine(b, parts...)
}

// ErrNative means that only git can serve a repository.
var ErrNative = errors.New("its refs are not read in process")

// Refresh brings the view to the state of the disk. Returns [ErrNative] if there is no view.
func (v *View) Refresh(ctx context.Context) error {
	// Other callers wait for the result, too, so it must not depend on the patience of one client.
	err := v.look.Do(func() error { return v.readAll(context.WithoutCancel(ctx)) })
	if err != nil && !errors.Is(err, ErrNative) {
		return fmt.Errorf("cannot read the refs of %s: %w", v.Name, err)
	}
	return err
}

// FollowDeleted is called when the server has deleted refs. It calls Deleted at once, and not at the next request. It does
// nothing if the refs have not been read yet.
func (v *View) FollowDeleted(ctx context.Context) error {
	v.mu.RLock()
	known := v.folders != nil
	v.mu.RUnlock()
	if !known {
		return nil
	}
	if err := v.Refresh(ctx); err != nil && !errors.Is(err, ErrNative) {
		return err
	}
	return nil
}

// readAll is Refresh for one caller at a time, so it reads the fields without the lock. It takes the lock to
// change them.
func (v *View) readAll(ctx context.Context) error {
	if err := v.readConfig(); err != nil {
		return err
	}
	if v.native {
		return ErrNative
	}
	c := &refChanges{folders: map[string]*refFolder{}, names: map[string]bool{}}
	// Loose refs come first. Git writes packed-refs before it removes a loose file, so a ref that vanishes from a
	// folder is found there.
	if err := v.readFolder(c, "refs"); err != nil {
		return err
	}
	packSig, err := gitfile.Stat(v.filePath("packed-refs"))
	if err != nil {
		return err
	}
	if !v.packSig.Matches(packSig) || v.folders == nil {
		if c.packed, c.packSig, err = v.readPacked(); err != nil {
			return err
		}
		c.repacked = true
	}
	headSig, err := gitfile.Stat(v.filePath("HEAD"))
	if err != nil {
		return err
	}
	c.head, c.headSig = v.head, v.headSig
	if !v.headSig.Matches(headSig) {
		if c.head, err = v.readHead(); err != nil {
			return err
		}
		c.headSig = headSig
	}

	shallow, err := gitfile.Stat(v.filePath("shallow"))
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
		v.Deleted(v.deletedTips)
		v.deletedTips = nil
	}
	return nil
}

func (v *View) filePath(name string) string {
	return filepath.Join(v.Dir, filepath.FromSlash(name))
}

// readConfig finds out whether the repository may be served in process.
func (v *View) readConfig() error {
	sig, err := gitfile.Stat(v.filePath("config"))
	if err != nil {
		return err
	}
	if v.ownSig.Matches(sig) {
		return nil
	}
	own, err := gitfile.ReadConfig(v.Dir)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.own, v.ownSig, v.native = own, sig, own.NeedsGit() || HasReftable(v.Dir)
	return nil
}

// Config returns the configuration of the repository. The file is read again if the file changed.
func (v *View) Config() (gitfile.Config, error) {
	sig, err := gitfile.Stat(v.filePath("config"))
	if err != nil {
		return nil, err
	}
	v.mu.RLock()
	own, known := v.own, v.ownSig.Matches(sig)
	v.mu.RUnlock()
	if known {
		return own, nil
	}
	return gitfile.ReadConfig(v.Dir)
}

// applyChanges updates the view. The caller holds the lock.
func (v *View) applyChanges(c *refChanges) {
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

// IsTip reports whether a ref is at an object, or at a tag that names it.
func (v *View) IsTip(h object.Hash) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.tips[h] > 0
}

// IsSymbolic reports whether a ref is symbolic.
func (v *View) IsSymbolic(name string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	l, _ := v.findLoose(name)
	return l.target != ""
}

// findLoose returns a loose ref by its name.
func (v *View) findLoose(name string) (looseRef, bool) {
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
func (v *View) resolveRef(name string) (target string, hash object.Hash, packed *packedRef) {
	for range 5 { // as many as git follows
		l, ok := v.findLoose(name)
		if !ok {
			i, ok := slices.BinarySearchFunc(v.packed, name,
				func(p packedRef, n string) int { return strings.Compare(p.name, n) })
			if !ok {
				return name, "", nil
			}
			return name, v.packed[i].hash, &v.packed[i]
		}
		if l.target == "" {
			return name, l.hash, nil
		}
		name = l.target
	}
	return name, "", nil
}

// showRef returns a ref as it is shown. Returns false if it is not shown.
func (v *View) showRef(name string) (Ref, bool) {
	target, hash, packed := v.resolveRef(name)
	if hash == "" {
		return Ref{}, false
	}
	if target == name {
		target = ""
	}
	if packed != nil && packed.peeled != unpeeled {
		return newRef(name, hash, packed.peeled, target), true
	}
	peeled, ok := v.peeled[hash]
	if !ok || peeled == pack.Missing {
		return Ref{}, false // git leaves out refs to missing objects, too
	}
	return newRef(name, hash, peeled, target), true
}

// searchRef returns the position at which a ref is, or would be.
func (v *View) searchRef(name string) (int, bool) {
	return slices.BinarySearchFunc(v.refs, name, func(r Ref, n string) int { return strings.Compare(r.Name, n) })
}

// updateRef updates one ref.
func (v *View) updateRef(name string) {
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
func (v *View) countTips(r *Ref, n int) {
	for _, h := range []object.Hash{r.Hash, r.Peeled} {
		if h == "" {
			continue
		}
		if v.tips[h] += n; v.tips[h] <= 0 {
			delete(v.tips, h)
		}
	}
}

// noteGone records that a ref was deleted.
func (v *View) noteGone(r *Ref) {
	if v.deletedTips == nil {
		v.deletedTips = map[object.Hash]bool{}
	}
	v.deletedTips[r.Hash] = true
}

// rebuild makes the list of refs from the folders and packed-refs.
func (v *View) rebuild() {
	before := v.refs
	names := make([]string, 0, len(v.packed)+len(v.refs))
	for _, p := range v.packed {
		names = append(names, p.name)
	}
	for folder, f := range v.folders {
		for file := range f.files {
			names = append(names, folder+"/"+file)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	v.refs, v.tips = make([]Ref, 0, len(names)), make(map[object.Hash]int, len(names))
	for _, name := range names {
		if r, ok := v.showRef(name); ok {
			v.refs = append(v.refs, r)
			v.countTips(&r, 1)
		}
	}
	for i := range before {
		if _, ok := v.searchRef(before[i].Name); !ok {
			v.noteGone(&before[i])
		}
	}
	v.listLinks()
	v.version++
}

// listLinks lists the symbolic refs.
func (v *View) listLinks() {
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
func (v *View) eachRef(g grant.Grant, prefixes []string, yield func(*Ref)) {
	if len(g.Read) == 0 {
		if len(prefixes) == 0 {
			prefixes = []string{""}
		}
		for _, p := range dropCovered(prefixes) {
			for i := v.firstWith(p); i < len(v.refs) && strings.HasPrefix(v.refs[i].Name, p); i++ {
				yield(&v.refs[i])
			}
		}
		return
	}
	var shown []int
	for _, pattern := range slices.Concat(g.Read, g.Write) {
		prefix, many := strings.CutSuffix(pattern, "*")
		for i := v.firstWith(prefix); i < len(v.refs) && strings.HasPrefix(v.refs[i].Name, prefix); i++ {
			if g.Shows(v.refs[i].Name) && hasAnyPrefix(v.refs[i].Name, prefixes) {
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

// Each calls yield for the refs that a grant shows and whose name has one of the prefixes, in order. Without prefixes it
// calls yield for all of them. yield must not call methods of the view.
func (v *View) Each(g grant.Grant, prefixes []string, yield func(*Ref)) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	v.eachRef(g, prefixes, yield)
}

// Version returns a number that grows with each change of a ref that the view has found.
func (v *View) Version() uint64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.version
}

// firstWith returns the position of the first name with a prefix.
func (v *View) firstWith(prefix string) int {
	return sort.Search(len(v.refs), func(i int) bool { return v.refs[i].Name >= prefix })
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

// List returns the answer to ls-refs.
func (v *View) List(g grant.Grant, q *protocol.RefsRequest) []byte {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var b []byte
	if len(q.Prefixes) == 0 && len(g.Read) == 0 {
		b = make([]byte, 0, len(v.refs)*120+256)
	}
	if head, ok := v.showHead(g); ok && hasAnyPrefix("HEAD", q.Prefixes) {
		switch {
		case head.Hash != "":
			b = appendRef(b, &head, q.Symrefs, q.Peel)
		case q.Unborn && q.Symrefs && head.Target != "":
			b = protocol.AppendLine(b, "unborn HEAD symref-target:", head.Target, "\n")
		}
	}
	v.eachRef(g, q.Prefixes, func(r *Ref) {
		if q.Symrefs && q.Peel {
			b = append(b, r.line...)
		} else {
			b = appendRef(b, r, q.Symrefs, q.Peel)
		}
	})
	return append(b, protocol.FlushLine...)
}

// PushAdvert returns the refs that a grant shows, as the first packets of a push with the capabilities of git.
// Returns false if git has more to say.
func (v *View) PushAdvert(g grant.Grant, capabilities string) ([]byte, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if !v.shallow.IsMissing() {
		return nil, false
	}
	var b []byte
	v.eachRef(g, nil, func(r *Ref) {
		if b == nil {
			b = protocol.AppendLine(b, string(r.Hash), " ", r.Name, "\x00", capabilities, "\n")
		} else {
			b = protocol.AppendLine(b, string(r.Hash), " ", r.Name, "\n")
		}
	})
	if b == nil {
		b = protocol.AppendLine(b, strings.Repeat("0", 40), " capabilities^{}\x00", capabilities, "\n")
	}
	return append(b, protocol.FlushLine...), true
}

// showHead returns HEAD as a grant shows it. It has no hash if its branch does not exist yet.
func (v *View) showHead(g grant.Grant) (Ref, bool) {
	if len(g.Read) > 0 && !g.Shows(v.head.target) {
		return Ref{}, false
	}
	if v.head.target == "" {
		return Ref{Name: "HEAD", Hash: v.head.hash, Peeled: v.peeled[v.head.hash]}, v.head.hash != ""
	}
	if object.RefFault(v.head.target) != "" || !strings.HasPrefix(v.head.target, "refs/") {
		return Ref{}, false
	}
	target, _, _ := v.resolveRef(v.head.target)
	if len(g.Read) > 0 && !g.Shows(target) {
		return Ref{}, false
	}
	r, _ := v.showRef(v.head.target)
	r.Name, r.Target = "HEAD", target
	return r, true
}

// ShallowState returns a word for the way in which the repository's own history is cut, or "".
func (v *View) ShallowState() string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.shallow.IsMissing() {
		return ""
	}
	return v.shallow.String()
}

// TagState returns a word for all tags, which is "" if there are none, and whether the grant shows all of them.
func (v *View) TagState(g grant.Grant) (state string, all bool) {
	const tags = "refs/tags/"
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	if v.tagsVersion != v.version {
		h := sha256.New()
		v.eachRef(grant.Grant{}, []string{tags}, func(r *Ref) {
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
	v.eachRef(grant.Grant{}, []string{tags}, func(r *Ref) { all = all && g.Shows(r.Name) })
	return v.tags, all
}
